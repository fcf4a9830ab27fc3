"""Where the cycles of a warp went: every cycle from the start of its CTA to its exit has exactly one cause.

Between one issue and the next a warp first issues (one cycle), then waits for what it was suspended for, then for what kept the
next instruction (operands, an issue slot, a busy pipe, its code, the tensor core's queue), and what remains is the cost of the
instruction that it issued: for arithmetic the latencies that the schedule could not hide. What was lost to bank conflicts and to
other accesses at the shared-memory port is told apart, at the access where it held the warp, else at the instruction that
needed the data. Needs a trace that holds every instruction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .trace import Access, Cause, Event, Space, Trace

#: What kept an instruction from issuing earlier.
STALL_NAMES = {
    Cause.DEPENDENCY: "dependency",
    Cause.SCHEDULER: "an issue slot",
    Cause.PIPE: "a busy pipe",
    Cause.MEMORY: "memory",
    Cause.TENSOR_CORE: "tensor core busy",
    Cause.TMA: "the TMA engine's queue",
    Cause.BRANCH: "a branch",
    Cause.FETCH: "its code",
}
BANK_CONFLICTS, PORT = "bank conflicts", "the shared-memory port"
#: What a dependency is called whose operand comes from memory.
_LOADED = {Space.GLOBAL: "dependency: global memory", Space.SHARED: "dependency: shared memory"}

ARITHMETIC = "dependency: arithmetic"
#: What the cycles of an instruction are called that are not its issue, by how its opcode starts.
_COSTS = {
    "wgmma": "wgmma instructions",
    "cp.async": "copy instructions",
    "mbarrier": "mbarrier instructions",
    "bar": "barrier instructions",
    "fence": "fences",
    "membar": "fences",
    "setmaxnreg": "setmaxnreg",
    "ld.param": ARITHMETIC,
    "ld.const": ARITHMETIC,
    "ld": "load instructions",
    "ldmatrix": "load instructions",
    "atom": "atomic instructions",
    "st.shared": "stores to shared memory",
    "stmatrix": "stores to shared memory",
    "st": "stores to global memory",
    "red": "stores to global memory",
    "bra": "branches",
    "ret": "branches",
    "nanosleep": "nanosleep",
}
ISSUING, BEFORE = "issuing", "its first instruction"

#: An instruction that a warp issued. ``late``: cycles since it could have issued, for ``cause`` (a Cause); ``source``: the Space that
#: the operand came from that it waited for, -1 if that was none or no load; ``conflict`` and ``port``: the part of these cycles
#: that the load lost to bank conflicts and behind others at the port. ``held``: cycles that the port's full queue held the warp
#: behind it, ``own`` of them for its own conflicts.
ISSUE = np.dtype(
    [("warp", "i4"), ("pc", "i4"), ("time", "i8"), ("late", "i8"), ("cause", "i4"), ("source", "i4"), ("conflict", "i8"), ("port", "i8"),
     ("held", "i8"), ("own", "i8")], align=True,
)  # fmt: skip


@dataclass(frozen=True)
class Issues:
    """Every instruction that some warps issued: ``rows`` (ISSUE) warp by warp in the order of time, ``first`` row of each warp of the
    launch."""

    rows: np.ndarray
    first: np.ndarray

    def of_warp(self, warp: int) -> np.ndarray:
        """Return the rows of one warp."""
        return self.rows[self.first[warp] : self.first[warp + 1]]


def issues(trace: Trace, warps: Sequence[int]) -> Issues:
    """Return every instruction that these warps issued."""
    events = trace.events
    wanted = np.zeros(len(trace.warps) + 1, bool)
    wanted[list(warps)] = True
    rows = np.flatnonzero((events["kind"] == Event.ISSUED) & wanted[events["warp"]])
    issued = events[rows[np.argsort(events["warp"][rows], kind="stable")]]
    found = np.zeros(len(issued), ISSUE)
    for name, source in (("warp", "warp"), ("pc", "pc"), ("time", "time"), ("late", "a"), ("cause", "b")):
        found[name] = issued[source]
    found["source"] = -1
    _add_shared_memory(trace, issued, found)
    return Issues(found, np.searchsorted(issued["warp"].copy(), np.arange(len(trace.warps) + 1, dtype=np.int32)))


def _add_shared_memory(trace: Trace, issued: np.ndarray, found: np.ndarray) -> None:
    """Fill in what shared memory took: at the accesses (``held``, ``own``) and at the instructions that needed what they loaded."""
    place = _places(issued["warp"], issued["time"])
    lost, behind, source = (np.zeros(len(issued), np.int64) for _ in range(3))
    conflicts, held, memory = (trace.of(kind) for kind in (Event.BANK_CONFLICT, Event.PORT_HELD, Event.MEMORY))
    memory = memory[(memory["op"] < 0) & (memory["d"] & int(Access.READ) > 0)]
    for events, values, column in (
        (conflicts, conflicts["a"] - conflicts["b"], lost), (held, held["a"], behind), (held, held["b"], found["held"]),
        (memory, memory["c"] + 1, source),
    ):  # fmt: skip
        # An access holds its warp, so it is the last instruction that issued at its time.
        wanted = _places(events["warp"], events["time"])
        at = np.searchsorted(place, wanted, side="right") - 1
        there = (at >= 0) & (place[at] == wanted) if len(place) else np.zeros(len(wanted), bool)
        column[at[there]] = values[there]
    found["own"] = np.minimum(lost, found["held"])
    loads = np.flatnonzero(source)
    waiting = np.flatnonzero((issued["b"] == Cause.DEPENDENCY) & (issued["a"] > 0))
    if not len(loads):
        return
    ready = _places(issued["warp"], issued["time"] + issued["d"])[loads]
    loads = loads[np.argsort(ready, kind="stable")]
    ready = np.sort(ready)
    at = np.maximum(np.searchsorted(ready, place[waiting], side="right") - 1, 0)
    is_load = ready[at] == place[waiting]
    waiting, load = waiting[is_load], loads[at[is_load]]
    found["source"][waiting] = source[load] - 1
    found["conflict"][waiting] = lost[load]
    found["port"][waiting] = behind[load]


def _places(warps: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return one number for a warp and a time, in the order of warps, then of times."""
    return (warps.astype(np.int64) << 38) + times


def spent(trace: Trace, warps: Sequence[int], waits: Iterable[tuple[int, int, int, str]]) -> dict[int, dict[str, int]]:
    """Return warp -> cause -> cycles for warps whose instructions are in the trace; causes add up to the life of the warp.

    ``waits``: (warp, blocked, resumed, name) of suspensions.
    """
    found = issues(trace, warps)
    costs = costs_of(trace)
    suspended: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for warp, blocked, resumed, name in waits:
        suspended[warp].append((blocked, resumed, name))
    exits = dict(zip(*_last_exits(trace), strict=True))
    result = {}
    for warp in warps:
        rows = found.of_warp(warp)
        if len(rows):
            cta = trace.ctas[int(trace.warps["cta"][warp])]
            result[warp] = partition(rows, int(cta["start"]), exits.get(warp, int(cta["end"])), suspended[warp], costs)
    return result


def costs_of(trace: Trace) -> np.ndarray:
    """Return what the cycles of each instruction are called that are not its issue, by its index. The last entry is the return of a
    body that ends without one."""
    return np.array([*(cost_of(opcode) for opcode in trace.kernel.opcodes), cost_of("ret")], object)


def cost_of(opcode: str) -> str:
    for start, name in _COSTS.items():
        if opcode == start or opcode.startswith((start + ".", start + "_")):
            return name
    return ARITHMETIC


def _last_exits(trace: Trace) -> tuple[list[int], list[int]]:
    """Return the warps that ended and when the last lanes of each did."""
    exits = trace.of(Event.EXITED)
    warps, number = np.unique(exits["warp"], return_inverse=True)
    last = np.zeros(len(warps), np.int64)
    np.maximum.at(last, number, exits["time"])
    return warps.tolist(), last.tolist()


def partition(rows: np.ndarray, start: int, end: int, waits: Sequence[tuple[int, int, str]], costs: np.ndarray) -> dict[str, int]:
    """Share the cycles from ``start`` to ``end`` of a warp that issued ``rows`` (ISSUE): gap k lies in front of issue k, the last one
    behind the last issue."""
    found: dict[str, int] = defaultdict(int)
    times = np.maximum.accumulate(np.minimum(rows["time"], end))
    edges = np.concatenate(([start], times, [max(end, int(times[-1]))]))
    left = np.diff(edges)
    for blocked, resumed, name in waits:
        k = min(int(np.searchsorted(times, resumed)), len(left) - 1)
        cycles = int(min(left[k], max(0, min(resumed, edges[k + 1]) - max(blocked, edges[k]))))
        left[k] -= cycles
        found[name] += cycles
    before, behind = left[:-1], left[1:]
    found[ISSUING] += _take(behind, np.ones(len(rows), np.int64))
    late = np.minimum(rows["late"], before)
    before -= late
    for name, column in ((BANK_CONFLICTS, "conflict"), (PORT, "port")):
        found[name] += _take(late, rows[column])
    for name, chosen in _stalls(rows):
        found[name] += int(late[chosen].sum())
    found[BEFORE] += int(left[0])
    held = np.minimum(rows["held"], behind)
    behind -= held
    found[BANK_CONFLICTS] += _take(held, rows["own"])
    found[PORT] += int(held.sum())
    kinds = costs[rows["pc"]].astype(str)
    for name in np.unique(kinds).tolist():
        found[name] += int(behind[kinds == name].sum())
    return {name: cycles for name, cycles in found.items() if cycles}


def _take(left: np.ndarray, wanted: np.ndarray) -> int:
    """Take what is wanted from what is left, as far as it goes; return how much that is."""
    taken = np.minimum(left, wanted)
    left -= taken
    return int(taken.sum())


def _stalls(rows: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
    """Yield the name of each cause of late issues and which rows it kept."""
    for cause in np.unique(rows["cause"]).tolist():
        chosen = rows["cause"] == cause
        if cause == Cause.DEPENDENCY:
            for space, name in _LOADED.items():
                yield name, chosen & (rows["source"] == space)
            chosen &= ~np.isin(rows["source"], [int(space) for space in _LOADED])
        if cause:
            yield STALL_NAMES.get(Cause(cause), Cause(cause).name.lower()), chosen
