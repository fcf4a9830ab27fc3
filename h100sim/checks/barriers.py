"""What orders warps: mbarriers, named barriers, the cluster barrier, fences, and the ends of warps and CTAs.

An arrival publishes what its warp knows, a wait that returned True learns what all arrivals of that phase published.
Rules of use are checked with the same clocks, so a mistake is found in a run where the timing hid it: an arrival in
the next phase must know that somebody has seen the last one complete, an arrival at a named barrier that its last
generation is over.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: mbarrier", "bar, barrier", "Memory
Consistency Model". Assumed: scopes of mbarrier and barrier instructions are wide enough, and a wait on an mbarrier
learns of its earlier phases too; one that sees the bytes of another CTA's copy learns what its issuer knew.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..trace import Fence
from . import tables as t
from .accesses import copy_counted, join_group
from .clocks import (
    GLOBAL_FENCED,
    INITS_FENCED,
    KNOWN,
    MAP_FENCED,
    SC_FENCED,
    SC_HEARD,
    SHARED_FENCED,
    WARPS,
    Clock,
)
from .launch import (
    PC_COUNT,
    PC_CP_ARRIVE,
    PC_RELAXED,
    PC_SCOPE,
    PC_UNTESTED,
    Cluster,
    Cta,
    Happening,
    Launch,
    Mbarrier,
    Moment,
    NamedBarrier,
    Waited,
    Warp,
)
from .strands import Lanes

_FENCED_BLOCKS = {
    Fence.PROXY_ASYNC: (SHARED_FENCED, GLOBAL_FENCED, INITS_FENCED),
    Fence.PROXY_ASYNC_SHARED: (SHARED_FENCED, INITS_FENCED),
    Fence.PROXY_ASYNC_GLOBAL: (GLOBAL_FENCED,),
    Fence.MBARRIER_INIT: (INITS_FENCED,),
    Fence.PROXY_TENSORMAP_ACQUIRE: (MAP_FENCED,),
}
#: The widest scope of a memory fence; that of fence.sc is its instruction's.
_MEMORY_FENCES = {
    Fence.ACQ_REL_CTA: 0,
    Fence.ACQ_REL_CLUSTER: 1,
    Fence.ACQ_REL_GPU: 2,
    Fence.ACQ_REL_SYS: 2,
    Fence.SC: 2,
}


def _is_any_known(moments: Iterable[Moment], warp: Warp) -> bool:
    """Does a warp know of at least one of these moments?"""
    return any(moment.is_known_to(warp.clock) for moment in moments)


# --- mbarriers --------------------------------------------------------------------------------------------------------


def mbarrier_initialised(launch: Launch, e: Happening) -> None:
    """A fresh mbarrier: its word belongs to it until it is invalidated."""
    warp, cta = launch.warps[e.warp], launch.ctas[e.b]
    strand = warp.strand(e.mask)
    width = cta.cluster.columns
    m = launch.mbarriers[e.a] = Mbarrier(
        identity=e.a, cta=cta, address=e.d & 0xFFFFFF, column=cta.cluster.new_column(), init=e,
        init_moment=Moment(warp, warp.now), pending=e.c, expected=e.c, accumulated=Clock(width), released=Clock(width),
    )  # fmt: skip
    launch.mbarrier_addresses[e.a] = m.address
    entry = launch.entry(e, t.WRITE | t.MBARRIER_WORD | t.IN_SHARED)
    launch.tables.entries[entry, t.OBJECT] = e.a
    launch.touch_shared(entry, cta, m.address, 8, strand.clock)
    warp.tick()


def mbarrier_invalidated(launch: Launch, e: Happening) -> None:
    """The word is plain memory again, last written by the invalidation."""
    warp, m = launch.warps[e.warp], launch.mbarriers[e.a]
    tables = launch.tables
    record = int(tables.heads[m.cta.slot, m.address // t.GRANULE_BYTES])
    while record >= 0:
        x = tables.entries[tables.records[record, 0]]
        if x[t.FLAGS] & t.MBARRIER_WORD and x[t.OBJECT] == e.a:
            x[t.FLAGS], x[t.WARP], x[t.COLUMN], x[t.VALUE] = t.WRITE | t.IN_SHARED, e.warp, warp.column, warp.now
            x[t.LANES] = warp.strand(e.mask).column
            x[t.EVENT], x[t.PC], x[t.TIME] = e.row, e.pc, e.time
        record = int(tables.records[record, 2])


def _require_init(launch: Launch, e: Happening, m: Mbarrier) -> None:
    """Whoever uses an mbarrier must know of its init."""
    if e.warp in m.users:
        return
    m.users.add(e.warp)
    if m.is_reported:
        return
    clock = launch.warps[e.warp].strand(e.mask).clock
    init = m.init_moment
    if not init.is_known_to(clock) and not clock.knows(init.warp.column, init.value, INITS_FENCED):
        m.is_reported = True
        _report_init(launch, t.INIT_RACE, e, m)


def _require_init_fence(launch: Launch, e: Happening, m: Mbarrier) -> None:
    """Contested: a copy may complete on an mbarrier only if fence.mbarrier_init stands between."""
    clock = launch.warps[e.warp].strand(e.mask).clock
    init = m.init_moment
    is_fenced = clock.knows(init.warp.column, init.value, INITS_FENCED)
    if init.is_known_to(clock) and not is_fenced and not m.is_warned_of:
        m.is_warned_of = True
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
        _require_init_fence(launch, e, m)


def mbarrier_arrived(launch: Launch, e: Happening) -> None:
    """An arrival. a: mbarrier, c: pending count afterwards, d: phase."""
    m = launch.mbarriers[e.a]
    m.pending = e.c
    if e.warp < 0:
        return
    warp, flags = launch.warps[e.warp], launch.flags[e.pc]
    _use_mbarrier(launch, e, m)
    if e.d > 0 and not _is_any_known([waited.moment for waited in m.waits.values()], warp):
        launch.report(t.OVER_ARRIVAL, e, -1, m, a=e.a, b=e.d)
        m.is_lapped = True
    if flags & PC_CP_ARRIVE and warp.arrivals is not None:
        # The arrival happens when the thread's copies are done, and says so; the warp itself has not waited.
        m.accumulated.join(warp.arrivals)
    elif flags & PC_RELAXED:
        if (known := warp.strand(e.mask).fenced[0]) is not None:
            m.accumulated.join(known)
    else:
        warp.release_into(m.accumulated, e.mask)
    m.last = e
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
    launch.mbarriers[e.a].tx = e.c
    if e.warp >= 0:
        _use_mbarrier(launch, e, launch.mbarriers[e.a])


def mbarrier_completed_tx(launch: Launch, e: Happening) -> None:
    """Bytes were completed. b: bytes, c: tx-count afterwards, d: phase."""
    m, op = launch.mbarriers[e.a], launch.operations.get(e.op)
    if op is not None and op.warp.cta is not m.cta:
        # Multicast: the CTAs of a cluster know by each other's bytes that a producer has seen a slot empty.
        m.accumulated.join(op.clock)
    m.tx = e.c
    if op is not None:
        m.completed = e._replace(warp=op.warp.number, mask=op.mask)
    if e.c < 0 and m.pending == 0:
        m.is_short = True
        entry = op.entries[0] if op and op.entries else -1
        launch.find(t.TX_UNDERFLOW, m.cta.number, m.address, m.address + 8, -1, entry, e.a, e.c)
    copy_counted(launch, e)


def mbarrier_flipped(launch: Launch, e: Happening) -> None:
    """Phase ``b`` is complete: what its arrivals published can now be learnt.

    Who waited for the phase before must be known to have done so: a slower waiter would find the parity of the next
    phase, and wait for one that may never come.
    """
    m = launch.mbarriers[e.a]
    m.pending = m.expected
    m.accumulated, m.released = m.released, m.accumulated
    for waited in m.waits.values():
        is_known = waited.moment.is_known_to(m.released) or m.released.knows(waited.column, waited.value)
        if not is_known and not m.is_lapped:
            m.is_lapped = True
            _report_lapped(launch, e, m, waited)
    m.accumulated.clear()
    m.waits.clear()
    m.released.learn(m.column, e.b + 1)


def _report_lapped(launch: Launch, e: Happening, m: Mbarrier, waited: Waited) -> None:
    """Add the finding that a waiter may be lapped; the last arrival of the phase is the first access."""
    old = launch.entry(m.last, 0) if m.last else -1
    launch.report(t.LAPPED, waited.event, old, m, a=e.a, b=e.b)
    if m.last:
        launch.free(old)


def mbarrier_waited(launch: Launch, e: Happening) -> None:
    """A test or wait. c: 1 returned True, d: the phase whose completion it saw."""
    m, warp = launch.mbarriers[e.a], launch.warps[e.warp]
    _require_init(launch, e, m)
    if not e.c or launch.flags[e.pc] & PC_UNTESTED:
        return
    strand = warp.strand(e.mask)
    if e.d >= 0 and not launch.flags[e.pc] & PC_RELAXED:
        warp.lanes.learn(strand, m.released)
    group = warp.group or join_group(launch, warp)
    m.waits[warp.column] = Waited(e, Moment(warp, warp.now), group.column, warp.wgmma_issued + 1)


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
    elif b.generation > 0 and not _is_any_known(b.synced.values(), warp):
        launch.report(t.BARRIER_AHEAD, e, a=e.a, b=b.generation)
    if launch.flags[e.pc] & PC_COUNT:
        if b.counted and b.counted.c != e.c:
            old = launch.entry(b.counted, 0)
            launch.report(t.BARRIER_COUNTS, e, old, a=e.a, b=b.counted.c << 32 | e.c)
            launch.free(old)
        b.counted = e
    b.warps.add(e.warp)
    # A warp arrives when all its lanes have come.
    b.accumulated.join(warp.lanes.everything())
    if e.d:
        warp.sync()
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
    warp.sync()
    warp.lanes.learn(warp.lanes.whole, b.released)
    b.synced[warp.column] = Moment(warp, warp.now)


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


def lanes_synced(launch: Launch, e: Happening) -> None:
    """Lanes of a warp execute a .sync instruction together: all of them, or those that its mask names."""
    warp = launch.warps[e.warp]
    members = e.mask | launch.members[e.pc]
    if warp.alive & ~members:
        warp.sync_some(members & warp.alive)
    else:
        warp.sync()


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
    strand = warp.strand(e.mask)
    if (clock := warp.lanes.published(strand) if e.c else strand.fenced[1]) is not None:
        cluster.arrived.join(clock)
    # A relaxed arrive after fence.mbarrier_init still makes the inits known.
    cluster.arrived.widen(width := strand.clock.columns.shape[1])
    inits = cluster.arrived.columns[INITS_FENCED, :width]
    np.maximum(inits, strand.clock.columns[INITS_FENCED], out=inits)
    together = e.c and not warp.alive & ~e.mask
    warp.arrived = (warp.epoch, len(warp.recent)) if together else (-1, -1)
    warp.tick()


def cluster_waited(launch: Launch, e: Happening) -> None:
    """A warp has passed generation ``b`` of the cluster barrier."""
    warp = launch.warps[e.warp]
    cluster = warp.cta.cluster
    generation, lanes = warp.met
    if generation == e.b and lanes & e.mask:
        launch.report(t.CLUSTER_AGAIN, e, b=e.b)
    warp.met = (e.b, e.mask | (lanes if generation == e.b else 0))
    if cluster.arrived is None or cluster.released is None:
        return
    if cluster.generation <= e.b:
        cluster.generation = e.b + 1
        cluster.arrived, cluster.released = cluster.released, cluster.arrived
        cluster.arrived.clear()
    if not warp.alive & ~e.mask and warp.arrived == (warp.epoch, len(warp.recent)):
        warp.sync()  # what its lanes did before they arrived, each of them knows now
    warp.lanes.learn(warp.strand(e.mask), cluster.released)


def fenced(launch: Launch, e: Happening) -> None:
    """A fence: of a proxy for what is known now, or of memory order for relaxed accesses around it."""
    warp = launch.warps[e.warp]
    strand = warp.strand(e.mask)
    warp.lanes.fence(strand, _FENCED_BLOCKS.get(Fence(e.a), ()))
    if e.a in _MEMORY_FENCES:
        scopes = range(min(_MEMORY_FENCES[Fence(e.a)], launch.flags[e.pc] >> PC_SCOPE) + 1)
        is_in_order = e.a == Fence.SC and 2 in scopes
        launch.has_sc_fence |= is_in_order
        # Strong accesses of global memory count for the whole warp, so a fence of some lanes does, too.
        parties = {id(party): party for party in (strand, warp.lanes.whole)}.values()
        for party in parties:
            for pending in (party.pending[scope] for scope in scopes):
                if pending is not None:
                    warp.lanes.learn(party, pending)
            if is_in_order:
                warp.lanes.learn(party, party.clock.part(SC_HEARD, KNOWN, WARPS))
        if is_in_order:
            warp.lanes.fence(strand, (SC_FENCED,))
        for party in parties:
            for scope in scopes:
                party.fenced[scope] = warp.lanes.published(strand).copy()
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
        warp = Warp(number, cta, column, Lanes((1 << lanes) - 1, column, Clock(width + 32)))
        warp.lanes.is_split = launch.sees_instructions
        launch.warps[number] = warp


def exited(launch: Launch, e: Happening) -> None:
    """Lanes of a warp end; with the last lane its bulk stores must have read their source."""
    warp = launch.warps[e.warp]
    for partial in warp.partial.values():
        if e.mask & ~partial.mask:
            _report_divergence(launch, partial, warp, None)
    warp.partial = {pc: p for pc, p in warp.partial.items() if not e.mask & ~p.mask}
    warp.lanes.end(e.mask)
    if warp.alive:
        return
    for number in warp.bulk:
        op = launch.operations[number]
        if op.group < 0 or not warp.lanes.everything().knows(warp.read_column, op.group + 1):
            launch.report(t.LIFETIME_STORE, e, op.entries[0], a=op.group)
    warp.cta.alive -= 1
    if warp.cta.alive == 0:
        _require_remote_known(launch, e, warp.cta)


def _require_remote_known(launch: Launch, e: Happening, cta: Cta) -> None:
    """When a CTA ends, at least one of its warps must know of every access from other CTAs to its shared memory."""
    first = cta.number * launch.warps_per_cta
    clocks = [launch.warps[first + k].lanes.everything() for k in range(launch.warps_per_cta)]
    for moment in cta.remote.values():
        if not any(moment.is_known_to(known) for known in clocks):
            launch.report(t.LIFETIME_REMOTE, e, a=moment.warp.number, b=1)


def cta_ended(launch: Launch, e: Happening) -> None:
    """With the last CTA of a cluster, everything that belongs to the cluster is forgotten."""
    cluster = launch.ctas[e.cta].cluster
    cluster.ended += 1
    if cluster.ended < launch.cluster_ctas:
        return
    numbers = {cta.number for cta in cluster.ctas.values()}
    for m in [m for m in launch.mbarriers.values() if m.cta.number in numbers]:
        # Bytes that came before they were expected are no mistake as long as somebody expects them in the end.
        if m.tx < 0 and not m.is_short and m.completed is not None and m.completed.warp in launch.warps:
            launch.report(t.TX_UNDERFLOW, m.completed, -1, m, a=m.identity, b=m.tx)
    for cta in cluster.ctas.values():
        known = Clock(cluster.columns)
        for k in range(launch.warps_per_cta):
            known.join(launch.warps[cta.number * launch.warps_per_cta + k].lanes.everything())
        launch.close_shared(cta, known)
    for number in [n for n, op in launch.operations.items() if op.warp.cta.number in numbers]:
        launch.close(number)
    for identity in [i for i, m in launch.mbarriers.items() if m.cta.number in numbers]:
        del launch.mbarriers[identity]
    for key in [k for k in launch.places if k[0] == cluster.number]:
        del launch.places[key]
        launch.released_at.pop(key, None)
    for cta_number in numbers:
        for k in range(launch.warps_per_cta):
            del launch.warps[cta_number * launch.warps_per_cta + k]
        del launch.ctas[cta_number]
    del launch.clusters[cluster.number]
