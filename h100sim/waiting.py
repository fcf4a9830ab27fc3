"""What suspended warps waited for: every wait of a trace by name, and what the copy or the wgmma behind it did meanwhile.

The dependence graph (:mod:`h100sim.dependences`) says what ended a wait. Where that was a copy, the wait is cut at the moments
at which the copy was issued, at which the TMA engine began with it, and at which it was complete; where it was a wgmma, into the
cycles in which the tensor core was busy with other warpgroups and the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from . import dependences, intervals
from .trace import Copy, Event, Trace, Wait

#: What a suspended warp waits for, apart from mbarriers and named barriers, which have names of their own.
NAMES = {
    Wait.WGMMA: "wgmma results",
    Wait.BULK: "its bulk copies",
    Wait.REGISTERS: "registers (setmaxnreg)",
    Wait.CLUSTER: "the cluster barrier",
    Wait.RECONVERGENCE: "lanes of its warp",
    Wait.WARPGROUP: "warps of its warpgroup",
    Wait.SLEEP: "nanosleep",
    Wait.CP_ASYNC: "cp.async",
}
TENSOR_CORE_BUSY = "tensor core busy"

#: What a copy does until it is issued, until the engine begins with it, and until its bytes have arrived.
_STATES = ("copy not issued yet", "TMA engine's queue", "TMA latency")
_COLUMNS = ("warp", "blocked", "resumed", "wait", "object")
_BY_THE_ENGINE = [int(kind) for kind in Copy if kind not in (Copy.ASYNC_STORE, Copy.ASYNC_REDUCE)]


class Waited(NamedTuple):
    """A wait of a warp, or a part of one, from cycle ``blocked`` to ``resumed``."""

    warp: int
    blocked: int
    resumed: int
    what: str


def whole(trace: Trace, warps: Sequence[int] | None = None) -> list[Waited]:
    """Return every wait of these warps (of all); one that never ended lasts as long as the trace."""
    return _named(trace, _found(trace, warps))


def _found(trace: Trace, warps: Sequence[int] | None) -> np.ndarray:
    found = intervals.waits(trace)
    found = found if warps is None else found[np.isin(found["warp"], warps)]
    found["resumed"] = np.where(found["resumed"] >= 0, found["resumed"], np.maximum(found["blocked"], trace.cycles))
    return found


def parts(trace: Trace, warps: Sequence[int] | None = None) -> list[Waited]:
    """Return every wait of these warps (of all), those for copies and wgmma in parts, as "full: TMA latency"."""
    found = _found(trace, warps)
    names = _named(trace, found)
    ended_by = _ended_by(trace, found)
    copies = intervals.copies(trace)
    copies = copies[np.isin(copies["copy"], _BY_THE_ENGINE)]
    of_copy = _row_of(copies["op"], ended_by["op"])
    others = _busy_with_others(trace, found)
    issued, started = copies["issued"].tolist(), copies["started"].tolist()
    result: list[Waited] = []
    for wait, copy, end, busy in zip(names, of_copy.tolist(), ended_by["time"].tolist(), others.tolist(), strict=True):
        if copy >= 0:
            result.extend(_cut(wait, issued[copy], started[copy], end))
        elif busy > 0:
            middle = wait.blocked + busy
            result += [wait._replace(resumed=middle, what=TENSOR_CORE_BUSY), wait._replace(blocked=middle)]
        else:
            result.append(wait)
    return [part for part in result if part.resumed > part.blocked]


def _named(trace: Trace, found: np.ndarray) -> list[Waited]:
    mbarriers = {
        int(mbarrier["identity"]): _family(intervals.mbarrier_name(trace.kernel, int(mbarrier["address"])))
        for mbarrier in intervals.mbarriers(trace)
    }
    names: dict[tuple[int, int], str] = {}
    result = []
    for warp, blocked, resumed, wait, thing in zip(*(found[name].tolist() for name in _COLUMNS), strict=True):
        if (wait, thing) not in names:
            names[wait, thing] = _name(Wait(wait), thing, mbarriers)
        result.append(Waited(warp, blocked, resumed, names[wait, thing]))
    return result


def _name(wait: Wait, thing: int, mbarriers: dict[int, str]) -> str:
    if wait == Wait.MBARRIER:
        return mbarriers.get(thing, "an mbarrier")
    if wait == Wait.BARRIER:
        return f"named barrier {thing}"
    return NAMES.get(wait, wait.name.lower())


def _family(name: str) -> str:
    """Return "full" for "full[2]": the slots of a ring are reported together."""
    return re.sub(r"\[\d+\]$", "", name)


def _cut(wait: Waited, issued: int, started: int, end: int) -> Iterator[Waited]:
    """Yield the parts of a wait for a copy that was issued, begun with and complete at these cycles."""
    started = min(max(started, issued), end)
    now = wait.blocked
    for state, until in zip(_STATES, (issued, started, end), strict=True):
        until = min(max(until, now), wait.resumed)
        yield Waited(wait.warp, now, until, f"{wait.what}: {state}")
        now = until
    yield wait._replace(blocked=now)


def _ended_by(trace: Trace, found: np.ndarray) -> np.ndarray:
    """Return ``op`` and ``time`` of the copy's event that ended each wait, -1 where none did."""
    graph = dependences.graph(trace)
    rows, kinds = graph.nodes, np.full(len(graph.nodes), -1)
    kinds[1:-1] = trace.events["kind"][rows[1:-1]]
    result = np.full(len(found), -1, np.dtype([("op", "i8"), ("time", "i8")]))
    # The binding edges lead from the end of the wait to the flip, to the arrival of the bytes, to the copy.
    node = 1 + np.searchsorted(rows[1:-1], found["last_event"])
    for _ in range(3):
        node = np.maximum(graph.binding[node], 0)
        done = np.isin(kinds[node], (int(Event.TMA_COMPLETED), int(Event.TMA_READ))) & (result["op"] < 0)
        result["op"][done] = trace.events["op"][rows[node[done]]]
        result["time"][done] = trace.events["time"][rows[node[done]]]
        node[~np.isin(kinds[node], (int(Event.MBARRIER_FLIPPED), int(Event.MBARRIER_COMPLETED_TX)))] = 0
    return result


def _row_of(ops: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where each wanted operation stands in ``ops``, -1 where it does not."""
    if not len(ops):
        return np.full(len(wanted), -1)
    order = np.argsort(ops)
    at = np.minimum(np.searchsorted(ops[order], wanted), len(ops) - 1)
    return np.where(ops[order][at] == wanted, order[at], -1)


def _busy_with_others(trace: Trace, found: np.ndarray) -> np.ndarray:
    """Return in how many cycles of each wait for wgmma the tensor core worked for another warpgroup."""
    started = trace.of(Event.WGMMA_STARTED)
    result = np.zeros(len(found), np.int64)
    chosen = np.flatnonzero(found["wait"] == Wait.WGMMA)
    if not len(chosen) or not len(started):
        return result
    waits = found[chosen]
    sm, group = _unit_of(trace, started["warp"]), _group_of(trace, started["warp"])
    for key, of_waits, sign in ((sm, _unit_of(trace, waits["warp"]), 1), (group, _group_of(trace, waits["warp"]), -1)):
        for number in np.unique(of_waits):
            busy, mine = started[key == number], of_waits == number
            for end, direction in (("resumed", sign), ("blocked", -sign)):
                result[chosen[mine]] += direction * _taken(busy, waits[end][mine])
    return result


def _unit_of(trace: Trace, warps: np.ndarray) -> np.ndarray:
    return trace.warps["sm"][warps].astype(np.int64)


def _group_of(trace: Trace, warps: np.ndarray) -> np.ndarray:
    return trace.warps["cta"][warps].astype(np.int64) * 16 + trace.warps["rank"][warps] // 4


def _taken(started: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return how many cycles up to each time operations have taken that follow each other on one tensor core."""
    if not len(started):
        return np.zeros(len(times), np.int64)
    started = started[np.argsort(started["time"], kind="stable")]
    edges = np.stack((started["time"], started["time"] + started["a"]), 1).ravel()
    done = np.cumsum(started["a"])
    return np.interp(times, edges, np.stack((done - started["a"], done), 1).ravel()).astype(np.int64)
