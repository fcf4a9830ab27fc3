"""What a launch takes its time for: the chain of events that ends with its last one, through warps, copies and wgmma.

From the dependence graph of a trace (:mod:`h100sim.dependences`) :func:`critical_path` walks back from the end of the launch
along what bound each event. The links of that path follow each other without a hole, so their cycles add up to the launch's.
What is not on the path has slack: an operation could have been done so many cycles later, all else as it was, without a later
end of the launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from . import attribution, dependences, waiting
from .trace import Copy, Event, Trace, Wait
from .words import counted

TENSOR_CORE, MBARRIERS, LAUNCH = "tensor core", "mbarriers", "launch and end of CTAs"
TMA_QUEUE, TMA_TAKES = "TMA engine's queue", "TMA engine takes copies"
_COPIES = {
    Copy.TENSOR_LOAD: "TMA loads", Copy.BULK_LOAD: "TMA loads", Copy.PREFETCH: "TMA loads",
    Copy.BULK_CLUSTER: "copies between CTAs", Copy.CLUSTER_REDUCE: "copies between CTAs",
    Copy.ASYNC_STORE: "stores to other CTAs", Copy.ASYNC_REDUCE: "stores to other CTAs",
}  # fmt: skip
_OF_WAITS = {Wait.MBARRIER: MBARRIERS, Wait.BARRIER: "named barriers", Wait.WGMMA: "wgmma results"}
_REASONS = {
    TENSOR_CORE: "wgmma execute, one behind the other",
    TMA_QUEUE: "the engine is busy with the copies in front",
    TMA_TAKES: "the copy is handed over; the first time its tensor map is fetched, too",
    "TMA loads": "bytes are on their way from L2 or HBM",
    "TMA stores": "bytes are read from shared memory and written",
    "copies between CTAs": "bytes cross the network of the cluster",
    "stores to other CTAs": "bytes cross the network of the cluster",
    MBARRIERS: "an arrival completes the phase, a warp sees it",
    "named barriers": "the last warp arrives",
    LAUNCH: "CTAs start and end",
}
_LONGEST = 10

#: A link in its single steps: from cycle ``start`` to ``end``, from one event to the next on the path (rows of ``Trace.events``, -1:
#: the start or the end of the launch); ``link`` is the number of the link it belongs to.
STEP = np.dtype([("start", "i8"), ("end", "i8"), ("source", "i8"), ("event", "i8"), ("link", "i4")], align=True)


@dataclass(frozen=True)
class Link:
    """A stretch of the path, from cycle ``start`` to ``end``, in one unit or one warp: ``unit`` is a hardware unit or the role
    of the warp, ``what`` it did, ``first`` and ``last`` say where in the kernel's text, ``count`` how many operations or
    steps it joins; ``warp`` is the warp's number in the trace (-1: a unit)."""

    unit: str
    what: str
    cta: int
    start: int
    end: int
    first: str
    last: str
    count: int
    warp: int = -1

    @property
    def cycles(self) -> int:
        return self.end - self.start

    @property
    def reason(self) -> str:
        """Why the stretch took its time, in a few words."""
        if self.warp >= 0:
            return "executes its instructions"
        if self.unit == TENSOR_CORE and self.what != "wgmma":
            return "the queue has no room for another wgmma"
        if self.what.endswith("is woken"):
            return "what the warp waited for has come"
        if self.what.endswith("waits"):
            return "no event of the launch ended the wait: it has a time limit, or a length of its own"
        return _REASONS.get(self.unit, self.what)


@dataclass(frozen=True)
class Share:
    """The part of the path that one cause or unit took."""

    what: str
    cycles: int


@dataclass(frozen=True)
class Slack:
    """How much later the operations of a unit could have been done: ``critical`` of them not at all; of the others the least, the
    median and the most of what each alone has, in cycles."""

    unit: str
    operations: int
    critical: int
    least: int
    median: int
    most: int


@dataclass(frozen=True)
class CriticalPath:
    """The path of a launch: ``links`` in the order of time and ``shares``, longest first, which both add up to ``cycles``; ``steps``
    (STEP) of the links; ``slack`` of units, and ``slack_of`` each copy and wgmma by its identity, in cycles."""

    cycles: int
    links: tuple[Link, ...]
    shares: tuple[Share, ...]
    slack: tuple[Slack, ...]
    steps: np.ndarray
    slack_of: Mapping[int, int]


def critical_path(trace: Trace) -> CriticalPath:
    """Return the critical path of a trace. One without instructions does not part the time of warps into causes."""
    graph = dependences.graph(trace)
    walk = [len(graph.nodes) - 1]
    while walk[-1] > 0:
        walk.append(int(graph.binding[walk[-1]]))
    links, steps = _Naming(trace, graph).links(walk[::-1])
    ops, least = _least(trace, graph)
    slack_of = dict(zip(ops.tolist(), least.tolist(), strict=True))
    return CriticalPath(int(graph.time[-1]), links, _shares(trace, links), _slack(trace, ops, least), steps, slack_of)


class _Naming:
    """Says what an edge of the path stands for."""

    def __init__(self, trace: Trace, graph: dependences.Graph):
        self.trace, self.graph = trace, graph
        issued = trace.of(Event.TMA_ISSUED)
        self.copies = dict(zip(issued["op"].tolist(), issued["a"].tolist(), strict=True))

    def links(self, path: list[int]) -> tuple[tuple[Link, ...], np.ndarray]:
        """Return the links of a path of nodes and their steps (STEP); neighbours of the same unit and kind are one link."""
        found: list[Link] = []
        steps: list[tuple[int, int, int, int, int]] = []
        rows = self.graph.nodes
        #: An event of a warp may lie a little ahead of one of a unit that it caused: the path's own clock does not go back.
        now = 0
        for source, target in pairwise(path):
            end = max(now, int(self.graph.time[target]))
            link = self._link(source, target, now, end)
            last = found[-1] if found else None
            if last and (last.unit, last.what, last.cta, last.warp) == (link.unit, link.what, link.cta, link.warp):
                first, count = last.first or link.first, last.count + link.count
                found[-1] = replace(last, end=end, first=first, last=link.last, count=count)
            elif end > now:
                found.append(link)
            if end > now:
                steps.append((now, end, int(rows[source]), int(rows[target]), len(found) - 1))
            now = end
        return tuple(found), np.array(steps, STEP)

    def _link(self, source: int, target: int, start: int, end: int) -> Link:
        a, b = (self.trace.events[row] if row >= 0 else None for row in self.graph.nodes[[source, target]].tolist())
        if a is None or b is None or b["kind"] in (Event.CTA_STARTED, Event.CTA_ENDED):
            return Link(LAUNCH, "", int(b["cta"]) if b is not None else -1, start, end, "", "", 1)
        kind, cta = Event(int(b["kind"])), int(b["cta"])
        places = self.trace.kernel.place(int(a["pc"])), self.trace.kernel.place(int(b["pc"]))
        if kind in (Event.WGMMA_STARTED, Event.WGMMA_COMPLETED):
            return Link(TENSOR_CORE, "wgmma", cta, start, end, places[1], places[1], int(kind == Event.WGMMA_STARTED))
        copy = Copy(self.copies.get(int(b["op"]), Copy.TENSOR_STORE))
        what = copy.name.lower().replace("_", " ")
        if kind == Event.TMA_STARTED:
            unit = TMA_QUEUE if a["kind"] == Event.TMA_STARTED else TMA_TAKES
            return Link(unit, what, cta, start, end, places[1], places[1], 1)
        if kind in (Event.TMA_READ, Event.TMA_COMPLETED):
            return Link(_COPIES.get(copy, "TMA stores"), what, cta, start, end, places[1], places[1], 1)
        if kind in (Event.MBARRIER_FLIPPED, Event.MBARRIER_COMPLETED_TX, Event.BARRIER_RELEASED):
            unit = "named barriers" if kind == Event.BARRIER_RELEASED else MBARRIERS
            return Link(unit, "arrival", cta, start, end, places[0], places[0], 1)
        if kind == Event.RESUMED:
            wait = Wait(int(b["a"]))
            unit = _OF_WAITS.get(wait, waiting.NAMES.get(wait, wait.name.lower()))
            did = "waits" if a["kind"] == Event.BLOCKED else "is woken"
            return Link(unit, f"{self._role(b)} {did}", cta, start, end, places[1], places[1], 1)
        if a["kind"] == Event.WGMMA_COMPLETED:
            return Link(TENSOR_CORE, f"queue holds {self._role(b)}", cta, start, end, places[1], places[1], 1)
        if a["kind"] == Event.MBARRIER_FLIPPED:
            return Link(MBARRIERS, f"{self._role(b)} tests", cta, start, end, places[1], places[1], 1)
        first = places[1] if a["kind"] == Event.CTA_STARTED else places[0]
        warp = int(b["warp"])
        rank = int(self.trace.warps["rank"][warp])
        what = "" if self._role(b) == f"warp {rank}" else f"warp {rank}"
        return Link(self._role(b), what, cta, start, end, first, places[1], 1, warp)

    def _role(self, event: np.void) -> str:
        return self.trace.kernel.role(int(self.trace.warps["rank"][event["warp"]]))


def _shares(trace: Trace, links: tuple[Link, ...]) -> tuple[Share, ...]:
    """Return what the path's cycles went into: units by name, the time of warps by role and cause."""
    shares: dict[str, int] = defaultdict(int)
    issued = attribution.issues(trace, sorted({link.warp for link in links if link.warp >= 0}))
    costs = attribution.costs_of(trace)
    for link in links:
        if link.warp < 0:
            shares[link.unit] += link.cycles
            continue
        for cause, cycles in _causes(issued.of_warp(link.warp), link, costs).items():
            shares[f"{link.unit}: {cause}"] += cycles
    return tuple(Share(what, cycles) for what, cycles in sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _causes(issued: np.ndarray, link: Link, costs: np.ndarray) -> dict[str, int]:
    """Return cause -> cycles of a stretch of a warp; ``issued``: the instructions that the warp issued (attribution.ISSUE)."""
    first = max(0, int(np.searchsorted(issued["time"], link.start, side="right")) - 1)
    rows = issued[first : int(np.searchsorted(issued["time"], link.end, side="right"))].copy()
    if not len(rows):
        return {"instructions": link.cycles}
    rows["time"] = np.maximum(rows["time"], link.start)
    return attribution.partition(rows, link.start, link.end, (), costs)


def _least(trace: Trace, graph: dependences.Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the identities of the copies and wgmma that were done, and by how many cycles each could have been later."""
    slacks = dependences.slack(graph)[1:-1]
    events = trace.events[graph.nodes[1:-1]]
    chosen = np.isin(events["kind"], [int(Event.TMA_COMPLETED), int(Event.WGMMA_STARTED)])
    ops, number = np.unique(events["op"][chosen], return_inverse=True)
    least = np.full(len(ops), int(graph.time[-1]))
    np.minimum.at(least, number, slacks[chosen])
    return ops, least


def _slack(trace: Trace, ops: np.ndarray, least: np.ndarray) -> tuple[Slack, ...]:
    copies = trace.of(Event.TMA_ISSUED)
    units = [_COPIES.get(Copy(kind), "TMA stores") for kind in Copy]
    unit_of = np.full(int(max(ops.max(initial=0), copies["op"].max(initial=0))) + 1, len(units))
    unit_of[copies["op"]] = copies["a"]
    names = np.array([*units, TENSOR_CORE])[unit_of[ops]]
    return tuple(_slack_of(str(unit), least[names == unit]) for unit in dict.fromkeys(names.tolist()))


def _slack_of(unit: str, cycles: np.ndarray) -> Slack:
    rest = cycles[cycles > 0]
    least, median, most = (int(rest.min()), int(np.median(rest)), int(rest.max())) if len(rest) else (0, 0, 0)
    return Slack(unit, len(cycles), len(cycles) - len(rest), least, median, most)


def as_dict(path: CriticalPath) -> dict[str, Any]:
    """Return the path as plain JSON values: the longest links only."""
    return {
        "cycles": path.cycles,
        "shares": [asdict(share) for share in path.shares],
        "longest_links": [{**asdict(link), "cycles": link.cycles, "reason": link.reason} for link in _longest(path)],
        "slack": [asdict(slack) for slack in path.slack],
    }


def as_text(path: CriticalPath) -> str:
    """Return the path as lines of plain text: what its cycles went into, its longest links, the slack of what is not on it."""
    whole = max(path.cycles, 1)
    shares = [share for share in path.shares if share.cycles >= whole / 200]
    width = max((len(share.what) for share in shares), default=0)
    lines = [f"Critical path: what the {path.cycles:,} cycles of the launch follow from ({counted(len(path.links), 'link')}):"]
    lines += [f"  {share.what:<{width}} {share.cycles:>10,} cycles {share.cycles / whole:>6.1%}" for share in shares]
    lines.append("  its longest links:")
    for link in _longest(path):
        span = link.first if link.first == link.last else f"{link.first} to {link.last}"
        many = f"{link.count:,} x " if link.what == "wgmma" and link.count > 1 else ""
        where = f", CTA {link.cta}" if link.cta >= 0 else ""
        what = ", ".join(part for part in (many + link.what, span) if part)
        lines.append(f"    {link.cycles:>8,} cycles from {link.start:>9,}  {link.unit}{where}{': ' * bool(what)}{what}")
    for slack in path.slack:
        many = counted(slack.operations, "operation")
        if slack.critical == slack.operations:
            lines.append(f"  {slack.unit}: {many}, none of which could be later")
        else:
            lines.append(
                f"  {slack.unit}: {many}, {slack.critical:,} without slack; the others could each be "
                f"{slack.least:,} to {slack.most:,} cycles later ({slack.median:,} in the median)"
            )
    return "\n".join(lines)


def _longest(path: CriticalPath) -> list[Link]:
    return sorted(path.links, key=lambda link: (-link.cycles, link.start))[:_LONGEST]
