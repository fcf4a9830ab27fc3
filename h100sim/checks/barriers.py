"""What orders warps: mbarriers, named barriers, the cluster barrier, fences, and the ends of warps and CTAs.

An arrival publishes what its warp knows, a wait that returned True learns what all arrivals of that phase published.
Rules of use are checked with the same clocks, so a mistake is found in a run where the timing hid it: an arrival in
the next phase must know that somebody has seen the last one complete, an arrival at a named barrier that its last
generation is over.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: mbarrier", "bar, barrier", "Memory
Consistency Model". Assumed: scopes are wide enough (.cta and .cluster are not told apart), and a wait on an mbarrier
learns of its earlier phases too; one that sees the bytes of another CTA's copy learns what its issuer knew.
"""

from __future__ import annotations

import numpy as np

from ..trace import Fence
from . import tables as t
from .accesses import copy_counted
from .clocks import GLOBAL_FENCED, INITS_FENCED, MAP_FENCED, SHARED_FENCED, Clock
from .launch import (
    PC_COUNT,
    PC_CP_ARRIVE,
    PC_RELAXED,
    Cluster,
    Cta,
    Happening,
    Launch,
    Mbarrier,
    NamedBarrier,
    Warp,
)

_FENCED_BLOCKS = {
    Fence.PROXY_ASYNC: (SHARED_FENCED, GLOBAL_FENCED),
    Fence.PROXY_ASYNC_SHARED: (SHARED_FENCED,),
    Fence.PROXY_ASYNC_GLOBAL: (GLOBAL_FENCED,),
    Fence.MBARRIER_INIT: (INITS_FENCED,),
    Fence.PROXY_TENSORMAP_ACQUIRE: (MAP_FENCED,),
}
_MEMORY_FENCES = (Fence.ACQ_REL_CTA, Fence.ACQ_REL_CLUSTER, Fence.ACQ_REL_GPU, Fence.ACQ_REL_SYS, Fence.SC)


def _is_any_known(clocks: dict[int, int], warp: Warp) -> bool:
    """Does a warp know of at least one of those whose clocks these are (by column)?"""
    return any(warp.clock.knows(column, clock) for column, clock in clocks.items())


# --- mbarriers --------------------------------------------------------------------------------------------------------


def mbarrier_initialised(launch: Launch, e: Happening) -> None:
    """A fresh mbarrier: its word belongs to it until it is invalidated."""
    warp, cta = launch.warps[e.warp], launch.ctas[e.b]
    width = cta.cluster.columns
    m = launch.mbarriers[e.a] = Mbarrier(
        identity=e.a, cta=cta, address=e.d & 0xFFFFFF, column=cta.cluster.new_column(), init=e, init_column=warp.column,
        init_clock=warp.now, pending=e.c, expected=e.c, accumulated=Clock(width), released=Clock(width),
    )  # fmt: skip
    launch.mbarrier_addresses[e.a] = m.address
    entry = launch.entry(e, t.WRITE | t.MBARRIER_WORD | t.IN_SHARED)
    launch.tables.entries[entry, t.OBJECT] = e.a
    launch.touch(entry, launch.shared_span(cta, m.address, 8), warp.clock)
    warp.tick()


def mbarrier_invalidated(launch: Launch, e: Happening) -> None:
    """The word is plain memory again, last written by the invalidation."""
    warp, m = launch.warps[e.warp], launch.mbarriers[e.a]
    tables = launch.tables
    record = int(tables.heads[m.cta.slot, m.address >> 4])
    while record >= 0:
        x = tables.entries[tables.records[record, 0]]
        if x[t.FLAGS] & t.MBARRIER_WORD and x[t.OBJECT] == e.a:
            x[t.FLAGS], x[t.WARP], x[t.COLUMN], x[t.VALUE] = t.WRITE | t.IN_SHARED, e.warp, warp.column, warp.now
            x[t.EVENT], x[t.PC], x[t.TIME] = e.row, e.pc, e.time
        record = int(tables.records[record, 2])


def _require_init(launch: Launch, e: Happening, m: Mbarrier) -> None:
    """Whoever uses an mbarrier must know of its init."""
    clock = launch.warps[e.warp].clock
    if m.is_reported or clock.knows(m.init_column, m.init_clock):
        return
    if not clock.knows(m.init_column, m.init_clock, INITS_FENCED):
        m.is_reported = True
        _report_init(launch, t.INIT_RACE, e, m)


def _require_init_fence(launch: Launch, e: Happening, m: Mbarrier) -> None:
    """Strict reading: a copy may complete on an mbarrier only if fence.mbarrier_init stands between."""
    clock = launch.warps[e.warp].clock
    is_fenced = any(clock.knows(m.init_column, m.init_clock, block) for block in (INITS_FENCED, SHARED_FENCED))
    if clock.knows(m.init_column, m.init_clock) and not is_fenced and not m.is_reported:
        m.is_reported = True
        _report_init(launch, t.STRICT_INIT, e, m)


def _report_init(launch: Launch, code: int, e: Happening, m: Mbarrier) -> None:
    old = launch.entry(m.init, t.WRITE | t.MBARRIER_WORD | t.IN_SHARED)
    launch.report(code, e, old, m, a=m.identity)
    launch.free(old)


def copy_completes_on(launch: Launch, e: Happening) -> None:
    """A copy is issued that will complete on mbarrier ``d``."""
    if e.d >= 0:
        m = launch.mbarriers[e.d]
        _require_init(launch, e, m)
        if launch.is_strict:
            _require_init_fence(launch, e, m)


def mbarrier_arrived(launch: Launch, e: Happening) -> None:
    """An arrival. a: mbarrier, c: pending count afterwards, d: phase."""
    m = launch.mbarriers[e.a]
    m.pending = e.c
    if e.warp < 0:
        return
    warp, flags = launch.warps[e.warp], launch.flags[e.pc]
    _use_mbarrier(launch, e, m)
    if e.d > 0 and not _is_any_known(m.waits, warp):
        launch.report(t.OVER_ARRIVAL, e, -1, m, a=e.a, b=e.d)
    if flags & PC_CP_ARRIVE and warp.cp_column >= 0:
        # The arrival happens when the thread's copies are done, and says so; the warp itself has not waited.
        clock = warp.clock.copy()
        clock.learn(warp.cp_column, warp.cp_issued)
        m.accumulated.join(clock)
    elif (known := warp.fenced if flags & PC_RELAXED else warp.clock) is not None:
        m.accumulated.join(known)
    warp.tick()


def _use_mbarrier(launch: Launch, e: Happening, m: Mbarrier) -> None:
    _require_init(launch, e, m)
    if m.cta.number != e.cta:
        entry = launch.entry(e, t.WRITE | t.IN_SHARED)
        launch.note_remote(launch.warps[e.warp], m.cta, entry)
        launch.free(entry)


def mbarrier_raised(launch: Launch, e: Happening) -> None:
    """The pending count rises by an arrival to come (cp.async.mbarrier.arrive). c: pending count afterwards."""
    launch.mbarriers[e.a].pending = e.c
    if e.warp >= 0:
        _use_mbarrier(launch, e, launch.mbarriers[e.a])


def mbarrier_expected(launch: Launch, e: Happening) -> None:
    if e.warp >= 0:
        _use_mbarrier(launch, e, launch.mbarriers[e.a])


def mbarrier_completed_tx(launch: Launch, e: Happening) -> None:
    """Bytes were completed. b: bytes, c: tx-count afterwards, d: phase."""
    m, op = launch.mbarriers[e.a], launch.operations.get(e.op)
    if op is not None and op.warp.cta is not m.cta:
        # Multicast: the CTAs of a cluster know by each other's bytes that a producer has seen a slot empty.
        m.accumulated.join(op.clock)
    if e.c < 0 and m.pending == 0:
        entry = op.entries[0] if op and op.entries else -1
        launch.find(t.TX_UNDERFLOW, m.cta.number, m.address, m.address + 8, -1, entry, e.a, e.c)
    copy_counted(launch, e)


def mbarrier_flipped(launch: Launch, e: Happening) -> None:
    """Phase ``b`` is complete: what its arrivals published can now be learnt."""
    m = launch.mbarriers[e.a]
    m.pending = m.expected
    m.accumulated, m.released = m.released, m.accumulated
    m.accumulated.clear()
    m.waits.clear()
    m.released.learn(m.column, e.b + 1)


def mbarrier_waited(launch: Launch, e: Happening) -> None:
    """A test or wait. c: 1 returned True, d: the phase whose completion it saw."""
    m, warp = launch.mbarriers[e.a], launch.warps[e.warp]
    _require_init(launch, e, m)
    if e.c and e.d >= 0:
        if not launch.flags[e.pc] & PC_RELAXED:
            warp.clock.join(m.released)
        m.waits[warp.column] = warp.now


def mbarrier_dropped(launch: Launch, e: Happening) -> None:
    launch.mbarriers[e.a].expected = e.c


# --- named barriers, the cluster barrier ------------------------------------------------------------------------------


def _barrier(cta: Cta, number: int) -> NamedBarrier:
    if number not in cta.barriers:
        cta.barriers[number] = NamedBarrier(Clock(cta.cluster.columns), Clock(cta.cluster.columns))
    return cta.barriers[number]


def barrier_arrived(launch: Launch, e: Happening) -> None:
    """A warp arrives at barrier ``a``, with threads expected (c)."""
    warp = launch.warps[e.warp]
    b = _barrier(warp.cta, e.a)
    if e.warp in b.warps:
        launch.report(t.BARRIER_TWICE, e, a=e.a, b=b.generation)
    elif b.generation > 0 and not _is_any_known(b.synced, warp):
        launch.report(t.BARRIER_AHEAD, e, a=e.a, b=b.generation)
    if launch.flags[e.pc] & PC_COUNT:
        if b.counted and b.counted.c != e.c:
            old = launch.entry(b.counted, 0)
            launch.report(t.BARRIER_COUNTS, e, old, a=e.a, b=b.counted.c << 32 | e.c)
            launch.free(old)
        b.counted = e
    b.warps.add(e.warp)
    b.accumulated.join(warp.clock)
    warp.tick()


def barrier_released(launch: Launch, e: Happening) -> None:
    """Generation ``b`` of barrier ``a`` is complete."""
    b = _barrier(launch.ctas[e.cta], e.a)
    b.accumulated, b.released = b.released, b.accumulated
    b.accumulated.clear()
    b.warps.clear()
    b.synced.clear()
    b.generation, b.counted = e.b + 1, None


def barrier_synced(launch: Launch, e: Happening) -> None:
    """A warp has passed barrier ``a``."""
    warp = launch.warps[e.warp]
    b = _barrier(warp.cta, e.a)
    warp.clock.join(b.released)
    b.synced[warp.column] = warp.now


def aligned_by_some(launch: Launch, e: Happening) -> None:
    """Some lanes of a warp execute an .aligned instruction: the others must come to the same one before any other.

    Groups of lanes that come one after the other are no mistake: which of them runs first is up to the scheduler.
    """
    warp = launch.warps[e.warp]
    before = warp.partial.pop(e.pc, None)
    mask = e.mask | (before.mask if before else 0)
    if not warp.alive & ~mask:
        return
    if warp.partial:
        _report_divergence(launch, e, warp, next(iter(warp.partial.values())))
        warp.partial.clear()
    else:
        warp.partial[e.pc] = (before or e)._replace(mask=mask)


def _report_divergence(launch: Launch, e: Happening, warp: Warp, before: Happening | None) -> None:
    old = launch.entry(before, 0) if before else -1
    launch.report(t.DIVERGENT, e, old, a=e.mask, b=warp.alive | e.mask)
    if before:
        launch.free(old)


def cluster_arrived(launch: Launch, e: Happening) -> None:
    """A warp arrives at the cluster barrier. c: 1 release, 0 relaxed."""
    warp = launch.warps[e.warp]
    cluster = warp.cta.cluster
    if cluster.arrived is None:
        cluster.arrived, cluster.released = Clock(cluster.columns), Clock(cluster.columns)
    if (clock := warp.clock if e.c else warp.fenced) is not None:
        cluster.arrived.join(clock)
    # A relaxed arrive after fence.mbarrier_init still makes the inits known.
    cluster.arrived.widen(width := warp.clock.columns.shape[1])
    inits = cluster.arrived.columns[INITS_FENCED, :width]
    np.maximum(inits, warp.clock.columns[INITS_FENCED], out=inits)
    warp.tick()


def cluster_waited(launch: Launch, e: Happening) -> None:
    """A warp has passed generation ``b`` of the cluster barrier."""
    warp = launch.warps[e.warp]
    cluster = warp.cta.cluster
    if cluster.arrived is None or cluster.released is None:
        return
    if cluster.generation <= e.b:
        cluster.generation = e.b + 1
        cluster.arrived, cluster.released = cluster.released, cluster.arrived
        cluster.arrived.clear()
    warp.clock.join(cluster.released)


def fenced(launch: Launch, e: Happening) -> None:
    """A fence: of a proxy for what is known now, or of memory order for relaxed accesses around it."""
    warp = launch.warps[e.warp]
    for block in _FENCED_BLOCKS.get(Fence(e.a), ()):
        warp.clock.fence(block)
    if e.a in _MEMORY_FENCES:
        if warp.pending is not None:
            warp.clock.join(warp.pending)
        warp.fenced = warp.clock.copy()
    warp.tick()


# --- the ends of warps and CTAs ---------------------------------------------------------------------------------------


def cta_started(launch: Launch, e: Happening, cluster_number: int, rank: int) -> None:
    """Give a CTA its shadow and its warps their clocks."""
    per_cta = launch.warps_per_cta
    width = launch.cluster_ctas * per_cta
    if cluster_number not in launch.clusters:
        launch.clusters[cluster_number] = Cluster(cluster_number, width, np.zeros(width, np.int64))
    cluster = launch.clusters[cluster_number]
    cta = Cta(e.cta, cluster, rank, launch.new_slot(), per_cta)
    launch.ctas[e.cta] = cluster.ctas[rank] = cta
    for k in range(per_cta):
        number, column = e.cta * per_cta + k, rank * per_cta + k
        cluster.members[column] = number
        lanes = min(32, launch.threads - 32 * k)
        warp = Warp(number, cta, column, (1 << lanes) - 1, Clock(width + 32))
        warp.tick()
        launch.warps[number] = warp


def exited(launch: Launch, e: Happening) -> None:
    """Lanes of a warp end; with the last lane its bulk stores must have read their source."""
    warp = launch.warps[e.warp]
    for partial in warp.partial.values():
        if e.mask & ~partial.mask:
            _report_divergence(launch, partial, warp, None)
    warp.partial = {pc: p for pc, p in warp.partial.items() if not e.mask & ~p.mask}
    warp.alive &= ~e.mask
    if warp.alive:
        return
    for number in warp.bulk:
        op = launch.operations[number]
        if op.group < 0 or not warp.clock.knows(warp.read_column, op.group + 1):
            launch.report(t.LIFETIME_STORE, e, op.entries[0], a=op.group)
    warp.cta.alive -= 1
    if warp.cta.alive == 0:
        _require_remote_known(launch, e, warp.cta)


def _require_remote_known(launch: Launch, e: Happening, cta: Cta) -> None:
    """When a CTA ends, at least one of its warps must know of every access from other CTAs to its shared memory."""
    clocks = [launch.warps[cta.number * launch.warps_per_cta + k].clock for k in range(launch.warps_per_cta)]
    for column, clock in cta.remote.items():
        if not any(known.knows(column, clock) for known in clocks):
            launch.report(t.LIFETIME_REMOTE, e, a=int(cta.cluster.members[column]), b=1)


def cta_ended(launch: Launch, e: Happening) -> None:
    """With the last CTA of a cluster, everything that belongs to the cluster is forgotten."""
    cluster = launch.ctas[e.cta].cluster
    cluster.ended += 1
    if cluster.ended < launch.cluster_ctas:
        return
    for cta in cluster.ctas.values():
        known = Clock(cluster.columns)
        for k in range(launch.warps_per_cta):
            known.join(launch.warps[cta.number * launch.warps_per_cta + k].clock)
        launch.close_shared(cta, known)
    numbers = {cta.number for cta in cluster.ctas.values()}
    for number in [n for n, op in launch.operations.items() if op.warp.cta.number in numbers]:
        launch.close(number)
    for identity in [i for i, m in launch.mbarriers.items() if m.cta.number in numbers]:
        del launch.mbarriers[identity]
    for key in [k for k in launch.places if k[0] == cluster.number]:
        del launch.places[key]
    for cta_number in numbers:
        for k in range(launch.warps_per_cta):
            del launch.warps[cta_number * launch.warps_per_cta + k]
        del launch.ctas[cta_number]
    del launch.clusters[cluster.number]
