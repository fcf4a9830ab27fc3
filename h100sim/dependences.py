"""The dependence graph of a launch: which event could not have come before which other one, read from a trace.

Nodes are the events that order warps and units (:data:`KINDS`), in the order of the trace, which is causal: an edge always
leads from an earlier row to a later one. An edge is *binding* when its target came when it did because of it: the last arrival
of a phase, the product in front in the tensor core's queue, the instruction before. Any other edge has a least length: its
source could have come later by what is left (``gap``).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np

from .native import entry
from .trace import Cause, Event, RowsByKind, Trace, Wait

_ARRIVALS = (Event.MBARRIER_ARRIVED, Event.MBARRIER_DROPPED, Event.MBARRIER_COMPLETED_TX)
_OF_UNITS = (
    Event.CTA_STARTED, Event.CTA_ENDED, Event.MBARRIER_FLIPPED, Event.BARRIER_RELEASED, Event.TMA_STARTED, Event.TMA_READ,
    Event.TMA_COMPLETED, Event.WGMMA_STARTED, Event.WGMMA_COMPLETED,
)  # fmt: skip
_OF_WARPS = (
    Event.BLOCKED, Event.RESUMED, Event.EXITED, *_ARRIVALS, Event.MBARRIER_WAITED, Event.BARRIER_ARRIVED, Event.BARRIER_SYNCED,
    Event.CLUSTER_ARRIVED, Event.CLUSTER_WAITED, Event.TMA_ISSUED, Event.BULK_WAITED, Event.WGMMA_ISSUED, Event.WGMMA_COMMITTED,
    Event.WGMMA_WAITED, Event.REGISTERS_CHANGED,
)  # fmt: skip
#: Events that are nodes; of ISSUED those that the tensor core's full queue held back, too.
KINDS = tuple(sorted({*_OF_UNITS, *_OF_WARPS}))


@dataclass(frozen=True)
class Graph:
    """``nodes``: the rows of ``Trace.events`` (-1 for the start, the first node, and the end, the last one); ``time`` of each
    node; edges ``source`` -> ``target``, each with its ``gap`` in cycles; ``binding``: the source of each node's binding edge
    (-1: none)."""

    nodes: np.ndarray
    time: np.ndarray
    source: np.ndarray
    target: np.ndarray
    gap: np.ndarray
    binding: np.ndarray


@dataclass
class _Edges:
    """Edges as they are found; ``bound`` is the source of the binding edge of every node so far."""

    bound: np.ndarray
    loose: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def bind(self, source: np.ndarray, target: np.ndarray) -> None:
        """Let edges bind targets that no edge has bound before; -1 stands for no source."""
        new = (source >= 0) & (self.bound[target] < 0)
        self.bound[target[new]] = source[new]
        self.allow(source[~new], target[~new])

    def allow(self, source: np.ndarray, target: np.ndarray, least: np.ndarray | int = 0) -> None:
        """Add edges that need not bind, each of a least length in cycles; -1 stands for none."""
        there = (source >= 0) & (target >= 0)
        self.loose.append((source[there], target[there], np.broadcast_to(least, source.shape)[there]))


class _Builder:
    """Finds the edges of a trace. Columns of ``e`` are those of the nodes; every method adds the edges of one mechanism."""

    def __init__(self, trace: Trace):
        events = trace.events
        issued = trace.rows_of(Event.ISSUED)
        held = issued[(events["b"][issued] == Cause.TENSOR_CORE) & (events["a"][issued] > 0)]
        rows = np.sort(np.concatenate((trace.rows_of(*KINDS), held)))
        self.trace, self.rows, self.e = trace, rows, events[rows]
        self.kind, self.time = self.e["kind"], self.e["time"].astype(np.int64)
        warp, cta = self.e["warp"], self.e["cta"]
        own = np.maximum(warp, 0)
        self.sm = np.where(warp >= 0, trace.warps["sm"][own], trace.ctas["sm"][np.maximum(cta, 0)]).astype(np.int64)
        self.group = trace.warps["cta"][own].astype(np.int64) * 16 + trace.warps["rank"][own] // 4
        self.cluster = trace.ctas["cluster"][np.maximum(cta, 0)].astype(np.int64)
        self.edges = _Edges(np.full(len(rows), -1, np.int64))
        self.of = RowsByKind(self.kind).of

    def build(self) -> Graph:
        """Return the graph. What binds a node is what its own mechanism says, else its warp's instruction before."""
        self._mbarriers()
        self._barriers()
        self._tensor_cores()
        self._copies()
        self._registers()
        self._ctas()
        self._warps()
        return self._graph()

    # --- waits ----------------------------------------------------------------------------------------------------------

    def _resume(self, wait: Wait, key: np.ndarray, causes: np.ndarray, cause_key: np.ndarray) -> None:
        """Bind the ends of waits to the latest cause of the same key that came while the warp waited."""
        resumed = self.of(Event.RESUMED)
        resumed = resumed[self.e["a"][resumed] == wait]
        blocked = self.of(Event.BLOCKED)
        since = _latest(_pairs(self.e["warp"], self.e["mask"]), blocked, resumed)
        cause = _latest(key, causes, resumed, cause_key)
        self.edges.bind(np.where(cause > since, cause, -1), resumed)

    def _mbarriers(self) -> None:
        e, flips, arrivals = self.e, self.of(Event.MBARRIER_FLIPPED), self.of(*_ARRIVALS)
        phase = _pairs(e["a"], np.where(self.kind == Event.MBARRIER_FLIPPED, e["b"], e["d"]))
        self.edges.bind(_latest(phase, arrivals, flips), flips)
        self.edges.allow(arrivals, _next(phase, flips, arrivals))
        tx = arrivals[(e["kind"][arrivals] == Event.MBARRIER_COMPLETED_TX) & (e["op"][arrivals] >= 0)]
        self.edges.bind(_latest(e["op"], self.of(Event.TMA_COMPLETED), tx), tx)
        self._resume(Wait.MBARRIER, e["b"], flips, e["a"])
        waited = self.of(Event.MBARRIER_WAITED)
        seen = waited[(e["c"][waited] == 1) & (e["d"][waited] >= 0)]
        flip = _latest(phase, flips, seen)
        tested = _pairs(e["warp"], e["a"])
        before = _latest(tested, waited, seen)
        polled = (before >= 0) & (e["c"][before] == 0) & (flip > before)
        polled &= _latest(_pairs(e["warp"], e["b"]), self.of(Event.RESUMED), seen, tested) < flip
        self.edges.bind(flip[polled], seen[polled])
        self.edges.allow(flip[~polled], seen[~polled])

    def _barriers(self) -> None:
        e, arrived, released = self.e, self.of(Event.BARRIER_ARRIVED), self.of(Event.BARRIER_RELEASED)
        named = _pairs(e["cta"], e["a"])
        self.edges.bind(_latest(named, arrived, released), released)
        self.edges.allow(arrived, _next(named, released, arrived))
        self._resume(Wait.BARRIER, _pairs(e["cta"], e["b"]), released, named)
        arrived = self.of(Event.CLUSTER_ARRIVED)
        self._resume(Wait.CLUSTER, self.cluster, arrived, self.cluster)
        meeting = _pairs(self.cluster, e["b"])
        last = _latest(meeting, arrived, np.full(len(arrived), len(self.e)), meeting, meeting[arrived])
        self.edges.allow(arrived[last != arrived], last[last != arrived])

    def _registers(self) -> None:
        self._resume(Wait.REGISTERS, self.e["cta"], self.of(Event.REGISTERS_CHANGED), self.e["cta"])

    # --- units ----------------------------------------------------------------------------------------------------------

    def _tensor_cores(self) -> None:
        e = self.e
        issued, started, completed = self.of(Event.WGMMA_ISSUED), self.of(Event.WGMMA_STARTED), self.of(Event.WGMMA_COMPLETED)
        ahead = _latest(self.sm, started, started)
        free = np.where(ahead >= 0, self.time[ahead] + e["a"][ahead], -1)
        queued = free == self.time[started]
        self.edges.bind(np.where(queued, ahead, -1), started)
        self.edges.allow(np.where(queued, -1, ahead), started, np.where(ahead >= 0, e["a"][ahead], 0))
        self.edges.bind(_latest(e["op"], issued, started), started)
        self.edges.bind(_latest(e["op"], started, completed), completed)
        self._resume(Wait.WGMMA, self.group, completed, self.group)
        held = self.of(Event.ISSUED)
        room = _latest(self.sm, completed, held)
        self.edges.bind(np.where((room >= 0) & (self.time[room] > self.time[held] - e["a"][held]), room, -1), held)
        committed, waited = self.of(Event.WGMMA_COMMITTED), self.of(Event.WGMMA_WAITED)
        commit = _latest(_pairs(e["warp"], e["a"]), committed, waited)
        product = _pairs(self.group, e["c"])
        wanted = product[np.maximum(commit, 0)]
        self.edges.allow(np.where(commit >= 0, _latest(product, completed, waited, product, wanted), -1), waited)

    def _copies(self) -> None:
        e, issued, started = self.e, self.of(Event.TMA_ISSUED), self.of(Event.TMA_STARTED)
        read, completed = self.of(Event.TMA_READ), self.of(Event.TMA_COMPLETED)
        ahead = _latest(self.sm, started, started)
        queued = e["c"][started] > 0
        self.edges.bind(np.where(queued, ahead, -1), started)
        self.edges.allow(np.where(queued, -1, ahead), started, np.where(ahead >= 0, e["b"][ahead], 0))
        given = _latest(e["op"], issued, started)
        self.edges.bind(np.where(queued, -1, given), started)
        taken = self.time[started] - self.time[given] - e["c"][started]
        self.edges.allow(np.where(queued, given, -1), started, taken)
        for source in (started, issued):
            self.edges.bind(_latest(e["op"], source, read), read)
        for source in (read, started, issued):
            self.edges.bind(_latest(e["op"], source, completed), completed)
        done = np.sort(np.concatenate((read, completed)))
        of_warp = e["warp"].astype(np.int64).copy()
        issue = _latest(e["op"], issued, done)
        of_warp[done] = np.where(issue >= 0, e["warp"][issue], -1)
        self._resume(Wait.BULK, e["warp"], done, of_warp)
        self.edges.allow(done, _next(of_warp, self.of(Event.BULK_WAITED), done))

    def _ctas(self) -> None:
        started, ended = self.of(Event.CTA_STARTED), self.of(Event.CTA_ENDED)
        self.edges.bind(_latest(self.sm, ended, started), started)
        work = self.of(Event.EXITED, Event.TMA_COMPLETED, Event.WGMMA_COMPLETED)
        self.edges.bind(_latest(self.cluster, work, ended), ended)
        self.edges.allow(work, _next(self.cluster, ended, work))

    def _warps(self) -> None:
        """Bind what nothing else binds to the instruction before in its warp, the first one to the start of the CTA."""
        of_warp = self.e["warp"] >= 0
        of_warp[self.of(*_OF_UNITS)] = False
        own = np.flatnonzero(of_warp)
        before = _latest(self.e["warp"], own, own)
        start = _latest(self.e["cta"], self.of(Event.CTA_STARTED), own)
        self.edges.bind(np.where(before >= 0, before, start), own)

    def _graph(self) -> Graph:
        """Return the edges as arrays, with a node for the start of the launch and one for its end."""
        n, bound = len(self.rows), self.edges.bound
        cycles = int(self.trace.cycles)
        time = np.concatenate(([0], np.minimum(self.time, cycles), [cycles]))
        loose = [np.concatenate(column) for column in zip(*self.edges.loose, strict=True)]
        ended = self.of(Event.CTA_ENDED)
        last = ended[np.argmax(self.time[ended])] if len(ended) else n - 1
        binding = np.concatenate(([-1], np.where(bound >= 0, bound + 1, 0), [last + 1]))
        source = np.concatenate((binding[1:], loose[0] + 1, ended + 1))
        target = np.concatenate((np.arange(1, n + 2), loose[1] + 1, np.full(len(ended), n + 1)))
        least = np.concatenate((time[1:] - time[binding[1:]], loose[2], np.zeros(len(ended), np.int64)))
        gap = np.maximum(time[target] - time[source] - least, 0)
        return Graph(np.concatenate(([-1], self.rows, [-1])), time, source, target, gap, binding)


def graph(trace: Trace) -> Graph:
    """Return the dependence graph of a trace of any level but "off". That of the last trace is kept while the trace lives: the
    report and the critical path ask for the same one."""
    global _last
    if _last is None or _last[0]() is not trace:
        _last = weakref.ref(trace), _Builder(trace).build()
    return _last[1]


_last: tuple[weakref.ref[Trace], Graph] | None = None


def slack(found: Graph) -> np.ndarray:
    """Return by how many cycles each node could come later, all else as it was, without a later end of the launch."""
    left = found.time[-1] - found.time
    order = np.argsort(-found.source, kind="stable")
    _spread(found.source[order], found.target[order], found.gap[order], left)
    return left


@entry("int64[:]", "int64[:]", "int64[:]", "int64[:]")
def _spread(source, target, gap, left):
    """Lower what is left to each source to what its targets allow; edges are sorted by source, the last one first."""
    for k in range(len(source)):
        left[source[k]] = min(left[source[k]], left[target[k]] + gap[k])
    return 0


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one number for each pair of numbers below 2^31."""
    return (first.astype(np.int64) << 32) + (second.astype(np.int64) & 0xFFFFFFFF)


def _latest(
    key: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    source_key: np.ndarray | None = None,
    wanted: np.ndarray | None = None,
) -> np.ndarray:
    """Return for every target the last source in front of it with the same key, or -1.

    ``key`` is by node; ``source_key``: that of sources where it is another one; ``wanted``: keys of the targets, one each.
    """
    if not len(sources) or not len(targets):
        return np.full(len(targets), -1, np.int64)
    theirs = (key if source_key is None else source_key)[sources].astype(np.int64)
    ours = (key[targets] if wanted is None else wanted).astype(np.int64)
    # In the order of keys, and of one key in that of rows; a node that is both comes first as a target.
    rank = np.concatenate((sources * 2 + 1, targets * 2))
    order = np.argsort(rank, kind="stable")
    keys = np.concatenate((theirs, ours))
    order = order[np.argsort(keys[order], kind="stable")]
    is_source = order < len(sources)
    last = np.maximum.accumulate(np.where(is_source, np.arange(len(order)), -1))
    hit = order[np.maximum(last, 0)]
    found = np.where((last >= 0) & (keys[hit] == keys[order]), sources[np.minimum(hit, len(sources) - 1)], -1)
    result = np.empty(len(targets), np.int64)
    result[order[~is_source] - len(sources)] = found[~is_source]
    return result


def _next(key: np.ndarray, targets: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """Return for every source the first target behind it with the same key, or -1."""
    last = len(key) - 1
    found = _latest(key[::-1], last - targets, last - sources)
    return np.where(found >= 0, last - found, -1)
