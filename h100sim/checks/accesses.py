"""What accesses memory: loads, stores, atomics, cp.async, bulk copies and the operands of wgmma.

Each makes an entry and compares its bytes with the shadow. An asynchronous operation is a small thread of its own: it
starts with what the issuing warp knew, and is over when its counter is reached.
"""

from __future__ import annotations

import numpy as np

from ..native import data_address
from ..trace import Access, Copy, Space
from . import tables as t
from .clocks import SC_FENCED, SC_HEARD, Clock
from .launch import (
    FOREIGN_WARPS_MAX,
    PC_COLLECTIVE,
    PC_CP_COMMIT,
    PC_CP_COPY,
    PC_CP_WAIT,
    PC_MULTICAST,
    PC_SCOPE,
    PLACES_MAX,
    Cta,
    Happening,
    Launch,
    Operation,
    Warp,
    Warpgroup,
)
from .strands import Strand, lanes_in_conflict

_READ, _WRITE, _ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
_RELEASE, _ACQUIRE, _ASYNC = int(Access.RELEASE), int(Access.ACQUIRE), int(Access.ASYNC)
_UNCHANGED = int(Access.UNCHANGED)
_ANY_STRONG = _ATOMIC | _RELEASE | _ACQUIRE | int(Access.VOLATILE)
#: What completes on an mbarrier; all else completes with its bulk group.
_LOADS = frozenset((
    Copy.TENSOR_LOAD, Copy.BULK_LOAD, Copy.BULK_CLUSTER, Copy.CLUSTER_REDUCE, Copy.ASYNC_STORE, Copy.ASYNC_REDUCE,
))  # fmt: skip
_REDUCTIONS = frozenset((Copy.TENSOR_REDUCE, Copy.BULK_REDUCE, Copy.CLUSTER_REDUCE, Copy.ASYNC_REDUCE))
#: What the generic proxy does: it needs no fence after loads and stores of the same proxy.
_GENERIC = frozenset((Copy.ASYNC_STORE, Copy.ASYNC_REDUCE))
_PREFETCH = int(Copy.PREFETCH)
_GLOBAL, _SHARED = int(Space.GLOBAL), int(Space.SHARED)

#: Bulk stores that a warp never waits for in full are followed up to this many.
_BULK_FOLLOWED = 64


#: Accesses to shared memory that a warp's lanes are remembered by since they synchronised.
_RECENT = 32


# --- generic accesses -------------------------------------------------------------------------------------------------


def memory(launch: Launch, e: Happening) -> None:
    """A load, store or atomic of a warp, or (with an operation) a tensor map that a copy reads."""
    if e.c not in (_GLOBAL, _SHARED):
        return
    warp = launch.warps[e.warp]
    flags = e.d & (_READ | _WRITE)
    if is_strong := bool(e.d & _ANY_STRONG):
        flags |= t.STRONG
    elif e.d & _UNCHANGED:
        flags |= t.UNCHANGED
    addresses = launch.lanes[e.a - launch.lanes_start]
    if e.op >= 0:
        _tensor_map_read(launch, e, int(addresses[addresses >= 0][0]))
        return
    strand = warp.strand(e.mask)
    warp.accessed = warp.now
    # What is acquired or released through global memory counts for the whole warp.
    party = warp.lanes.whole if e.c == _GLOBAL else strand
    if is_strong:
        _acquire(launch, e, warp, party, addresses)
    if e.c == _GLOBAL:
        entry = launch.entry(e, flags)
        if e.d & _ASYNC:
            _make_cp_async(launch, warp, entry)
        launch.touch_lanes(entry, addresses, e.b, -1, None, strand.clock)
    else:
        entry = launch.entry(e, flags | t.IN_SHARED)
        if e.d & _ASYNC:
            _make_cp_async(launch, warp, entry)
        elif not is_strong and not launch.flags[e.pc] & PC_COLLECTIVE and e.b > 1 and launch.sees_instructions:
            _compare_lanes(launch, e, warp, addresses, entry)
        _touch_shared(launch, e, warp, strand, addresses, entry)
    if is_strong:
        _release(launch, e, warp, party, addresses)


def _touch_shared(launch: Launch, e: Happening, warp: Warp, strand: Strand, addresses: np.ndarray, entry: int) -> None:
    """Compare an access to shared addresses, CTA by CTA of the cluster, the rank in bits 24 and up."""
    kept = launch.tables.entries[entry]
    kept[t.KEPT] += 1
    rank = int(addresses[addresses >= 0].min()) >> 24
    while rank >= 0:
        cta = launch.cta_of(warp.cta, rank << 24)
        launch.note_remote(warp, cta, entry)
        rank = launch.touch_lanes(entry, addresses, e.b, rank, cta, strand.clock)
    launch.let_go(entry)


def _compare_lanes(launch: Launch, e: Happening, warp: Warp, addresses: np.ndarray, entry: int) -> None:
    """Compare what lanes access in their own CTA with what other lanes of the warp did since they synchronised."""
    if int(addresses.max()) >> 24 != warp.cta.rank:
        return
    if not warp.epoch:
        launch.epochs += 1
        warp.epoch = launch.epochs
    written, read = launch.cells[0, warp.cta.slot], launch.cells[1, warp.cta.slot]
    at = data_address(addresses), len(addresses)
    found = lanes_in_conflict(*at, e.b, data_address(written), data_address(read), warp.epoch, e.d & _WRITE)
    if found >= 0:
        _report_lanes(launch, e, warp, found >> 6, found & 63, entry)
    if len(warp.recent) < _RECENT:
        warp.recent.append((e, addresses, e.d))


def _report_lanes(launch: Launch, e: Happening, warp: Warp, byte: int, lane: int, entry: int) -> None:
    """Add the finding that two lanes touch a byte without a synchronisation; name the access of the other lane."""
    for before, addresses, access in reversed(warp.recent):
        if not (access | e.d) & _WRITE:
            continue
        theirs = addresses & 0xFFFFFF
        touching = (addresses >= 0) & (theirs <= byte) & (byte < theirs + before.b)
        if touching.any() and (lane == 32 or touching[lane]):
            old = launch.entry(before, before.d & (_READ | _WRITE) | t.IN_SHARED)
            launch.find(t.LANE_RACE, e.cta, byte, byte + 2, old, entry, lane)
            launch.free(old)
            return


def _make_cp_async(launch: Launch, warp: Warp, entry: int) -> None:
    """A cp.async is in the generic proxy, but over only when its group has been waited for."""
    if warp.cp_column < 0:
        warp.cp_column = warp.cta.cluster.new_column()
    x = launch.tables.entries[entry]
    x[t.FLAGS] |= t.CP_ASYNC
    x[t.COLUMN], x[t.VALUE], x[t.LANES] = warp.cp_column, warp.cp_issued + 1, -1


def _place(e: Happening, warp: Warp, address: int) -> tuple[int, int]:
    """Return the key of a memory location: shared addresses are those of one cluster."""
    return (-1, address) if e.c == _GLOBAL else (warp.cta.cluster.number, address)


def _domains(launch: Launch, e: Happening, warp: Warp) -> list[tuple[int, int]]:
    """Return the sets of threads, from the CTA up to the scope of an access, that it can synchronise with."""
    scope = launch.flags[e.pc] >> PC_SCOPE
    return [(0, warp.cta.number), (1, warp.cta.cluster.number), (2, 0)][: scope + 1]


def _acquire(launch: Launch, e: Happening, warp: Warp, strand: Strand, addresses: np.ndarray) -> None:
    """A strong load learns what was released at its address in a scope that holds both: now if it acquires, at the next
    fence if not."""
    if not launch.places or not e.d & _READ:
        return
    cluster = warp.cta.cluster
    domains = _domains(launch, e, warp)
    for address in set(addresses[addresses >= 0].tolist()):
        places = launch.places.get(_place(e, warp, address))
        if places is None:
            continue
        for domain in domains:
            if domain not in places:
                continue
            place, owner = places[domain]
            if launch.has_sc_fence:
                _hear(launch, warp, strand, place, owner)
            if e.d & _ACQUIRE:
                learnt = Clock(cluster.columns)
                learnt.acquire(place, owner == cluster.number, cluster.members)
                warp.lanes.learn(strand, learnt)
            else:
                pending = strand.pending[domain[0]] = strand.pending[domain[0]] or Clock(cluster.columns)
                pending.acquire(place, owner == cluster.number, cluster.members)
        if places and not any(domain in places for domain in domains):
            pc, cta = launch.released_at[_place(e, warp, address)]
            launch.narrow[cta, warp.cta.number] = pc


def _hear(launch: Launch, warp: Warp, strand: Strand, place: Clock, owner: int) -> None:
    """Note what fences.sc have covered before the store that is read: the next fence.sc of whoever knows of this makes it known."""
    cluster = warp.cta.cluster
    read = Clock(cluster.columns)
    read.acquire(place, owner == cluster.number, cluster.members)
    warp.lanes.learn(strand, read.part(SC_FENCED, SC_HEARD))


def _release(launch: Launch, e: Happening, warp: Warp, strand: Strand, addresses: np.ndarray) -> None:
    """A strong store publishes what its lanes know: all if it releases, what they knew at their last fence of that scope
    if not, and what the fences.sc that they know of have covered."""
    if not e.d & _WRITE:
        return
    is_release = bool(e.d & _RELEASE)
    if not is_release and not any(strand.fenced) and not launch.places and not launch.has_sc_fence:
        return
    cluster = warp.cta.cluster
    published = warp.lanes.published(strand) if is_release else None
    of_fences = strand.clock.part(SC_FENCED, SC_FENCED) if launch.has_sc_fence and not is_release else None
    for address in set(addresses[addresses >= 0].tolist()):
        key = _place(e, warp, address)
        # An atomic continues the release sequence of what it changes, a store ends it.
        places = launch.places.pop(key, {}) if e.d & _ATOMIC else {}
        for domain in _domains(launch, e, warp):
            sources = published or strand.fenced[domain[0]], of_fences if domain[0] == 2 else None
            for source in sources:
                if source is not None:
                    before, _ = places.get(domain, (Clock(cluster.columns), -1))
                    _publish(launch, e, warp, before, source)
                    places[domain] = (before, cluster.number)
        launch.places.pop(key, None)
        if places:
            launch.places[key] = places
            launch.released_at[key] = e.pc, warp.cta.number
    while len(launch.places) > PLACES_MAX:
        oldest = next(iter(launch.places))
        del launch.places[oldest]
        launch.released_at.pop(oldest, None)
    if is_release:
        warp.tick()


def _publish(launch: Launch, e: Happening, warp: Warp, place: Clock, source: Clock) -> None:
    cluster = warp.cta.cluster
    if e.c == _GLOBAL and launch.warp_count > len(cluster.members):
        launch.is_foreign_unknown = launch.warp_count > FOREIGN_WARPS_MAX
    if e.c == _GLOBAL and not launch.is_foreign_unknown:
        place.publish(source, cluster.members, launch.warp_count)
    else:
        place.join(source)


# --- bulk copies ------------------------------------------------------------------------------------------------------


def copy_issued(launch: Launch, e: Happening) -> None:
    """A bulk copy.

    A load writes shared memory and completes on an mbarrier, a store reads it and completes with its group.
    """
    if e.a == _PREFETCH:
        return
    warp = launch.warps[e.warp]
    kind = "load" if e.a in _LOADS else "reduce" if e.a in _REDUCTIONS else "store"
    clock = warp.snapshot(warp.strand(e.mask))
    op = launch.operations[e.op] = Operation(kind, warp, e.mask, clock)
    cta = launch.cta_of(warp.cta, e.c)
    if kind == "load":
        op.mbarrier = e.d
        if not launch.flags[e.pc] & PC_MULTICAST:
            _write_destination(launch, e, op, cta)
    else:
        if warp.read_column < 0:
            warp.read_column, warp.write_column = warp.cta.cluster.new_column(), warp.cta.cluster.new_column()
        flags = t.READ | t.TMA | t.IN_SHARED | t.ASYNC_PROXY
        entry = launch.operation_entry(e, op, flags, warp.read_column, t.NEVER, -1)
        launch.touch_shared(entry, cta, e.c, e.b, clock)
        warp.bulk.append(e.op)
    warp.tick()


def _write_destination(launch: Launch, e: Happening, op: Operation, cta: Cta) -> None:
    """Record what a load writes to the shared memory of one CTA, where it completes on mbarrier ``e.d``."""
    column = launch.mbarriers[e.d].column
    flags = t.WRITE | t.IN_SHARED | (0 if e.a in _GENERIC else t.TMA | t.ASYNC_PROXY) | (t.STRONG if e.a in _REDUCTIONS else 0)
    entry = launch.operation_entry(e, op, flags, column, t.NEVER, e.d)
    if cta.alive == 0:
        launch.find(t.LIFETIME_REMOTE, cta.number, -1, -1, -1, entry)
    launch.touch_shared(entry, cta, e.c, e.b, op.clock)


def copy_global(launch: Launch, e: Happening) -> None:
    """The global bytes of a copy: read by a load, written by a store.

    a, b, c, d: first byte, bytes of a row, rows, stride.
    """
    op = launch.operations.get(e.op)
    if op is None or e.b == 0 or e.c == 0:
        return
    if op.global_entry < 0:
        if op.kind == "load":
            column, flags, object_ = launch.mbarriers[op.mbarrier].column, t.READ | t.TMA | t.ASYNC_PROXY, op.mbarrier
        else:
            column, flags, object_ = op.warp.write_column, t.WRITE | t.TMA | t.ASYNC_PROXY, -1
            flags |= t.STRONG if op.kind == "reduce" else 0
        op.global_entry = launch.operation_entry(e, op, flags, column, t.NEVER, object_)
    launch.touch_global(op.global_entry, e.a, e.b, e.c, e.d, op.clock)


def copy_source(launch: Launch, e: Happening) -> None:
    """The shared bytes that a copy between CTAs reads until it completes. a: shared address, b: bytes."""
    op = launch.operations.get(e.op)
    if op is None:
        return
    flags = t.READ | t.TMA | t.IN_SHARED | t.ASYNC_PROXY
    entry = launch.operation_entry(e, op, flags, launch.mbarriers[op.mbarrier].column, t.NEVER, op.mbarrier)
    launch.touch_shared(entry, launch.cta_of(op.warp.cta, e.a), e.a, e.b, op.clock)


def _tensor_map_read(launch: Launch, e: Happening, address: int) -> None:
    """A copy reads its tensor map through the tensormap proxy, until it is over."""
    op = launch.operations.get(e.op)
    if op is None or not op.entries:
        return
    like = launch.tables.entries[op.entries[0]]
    column, value, object_ = int(like[t.COLUMN]), int(like[t.VALUE]), int(like[t.OBJECT])
    entry = launch.operation_entry(e, op, t.READ | t.TENSORMAP | t.ASYNC_PROXY, column, value, object_)
    launch.touch_global(entry, address, e.b, 1, 0, op.clock)


def copy_completed(launch: Launch, e: Happening) -> None:
    """A load has written one destination: those of a multicast are known only now."""
    op = launch.operations.get(e.op)
    if op is not None and op.kind == "load" and launch.flags[e.pc] & PC_MULTICAST:
        issued = e._replace(warp=op.warp.number, mask=op.mask)
        _write_destination(launch, issued, op, launch.ctas[e.cta])


def copy_counted(launch: Launch, e: Happening) -> None:
    """The bytes of a load were completed in a phase (d): whoever sees it complete knows that the load is over."""
    op = launch.operations.get(e.op)
    if op is None:
        return
    column = launch.mbarriers[e.a].column
    for entry in op.entries:
        x = launch.tables.entries[entry]
        if x[t.COLUMN] == column:
            x[t.VALUE] = e.d + 1
    if not launch.flags[e.pc] & PC_MULTICAST:
        launch.close(e.op)


def bulk_committed(launch: Launch, e: Happening) -> None:
    """The copies of the lanes since their last commit form a group."""
    for number in launch.warps[e.warp].bulk:
        op = launch.operations[number]
        if op.group < 0 and op.mask & e.mask:
            op.group = e.a
            for entry in op.entries:
                launch.tables.entries[entry, t.VALUE] = e.a + 1
                launch.tables.entries[entry, t.OBJECT] = e.a


def bulk_waited(launch: Launch, e: Happening) -> None:
    """All groups up to one have read their source (.read), or are done."""
    warp = launch.warps[e.warp]
    if warp.read_column < 0 or e.a < 0:
        return
    strand = warp.strand(e.mask)
    warp.lanes.learn_counter(strand, warp.read_column, e.a + 1)
    if e.b == 0:
        warp.lanes.learn_counter(strand, warp.write_column, e.a + 1)
    kept: list[int] = []
    for number in warp.bulk:
        op = launch.operations[number]
        is_done = e.b == 0 and 0 <= op.group <= e.a and op.mask & e.mask
        if is_done:
            for entry in op.entries:
                launch.tables.entries[entry, t.SEEN] = warp.now
            launch.close(number)
        else:
            kept.append(number)
    for number in kept[:-_BULK_FOLLOWED]:
        launch.close(number)
    warp.bulk = kept[-_BULK_FOLLOWED:]


# --- wgmma ------------------------------------------------------------------------------------------------------------


def wgmma_issued(launch: Launch, e: Happening) -> None:
    """One of the four warps issues a wgmma; its operands are read with what all four know.

    a, b: descriptors, c: sequence number in the warpgroup.
    """
    warp = launch.warps[e.warp]
    warp.sync()
    warp.wgmma_issued = e.c + 1
    group = warp.group or join_group(launch, warp)
    place = warp.place
    started = group.started.get(e.op)
    if started is None:
        started = group.started[e.op] = [0]
    if (version := warp.lanes.version) != group.versions[place]:
        group.versions[place] = version
        started.append((place, warp.clock.copy()))
    started[0] |= 1 << place
    if started[0] != 15:
        return
    del group.started[e.op]
    if len(started) > 1:
        _meet(group, started[1:])
    launch.touch_operands(e, warp, group)


def join_group(launch: Launch, warp: Warp) -> Warpgroup:
    """Return the warpgroup of a warp, which then knows it."""
    rank = warp.number % launch.warps_per_cta
    warp.group, warp.place = warpgroup(warp.cta, rank // 4), rank % 4
    return warp.group


def _meet(group: Warpgroup, learnt: list[tuple[int, Clock]]) -> None:
    """Find what all four warps know, from what each knew when it issued the wgmma.

    Later ticks of their own clocks do not matter: nobody else can know of them.
    """
    for place, clock in learnt:
        group.clocks[place] = clock
    known = [clock for clock in group.clocks if clock is not None]
    group.common = known[0].copy()
    for clock in known[1:]:
        group.common.meet(clock)


def warpgroup(cta: Cta, number: int) -> Warpgroup:
    """Return what is known of a warpgroup of a CTA."""
    if number not in cta.warpgroups:
        cta.warpgroups[number] = Warpgroup(cta.cluster.new_column())
    return cta.warpgroups[number]


def wgmma_committed(launch: Launch, e: Happening) -> None:
    warp = launch.warps[e.warp]
    if e.c >= 0:
        warp.wgmma_end = e.c + 1
    warp.wgmma_ends[e.a] = warp.wgmma_end


def wgmma_waited(launch: Launch, e: Happening) -> None:
    warp = launch.warps[e.warp]
    warp.sync()
    if e.a in warp.wgmma_ends:
        group = warp.group or join_group(launch, warp)
        warp.lanes.learn_counter(warp.lanes.whole, group.column, warp.wgmma_ends[e.a])
        for number in [n for n in warp.wgmma_ends if n < e.a]:
            del warp.wgmma_ends[number]


# --- cp.async ---------------------------------------------------------------------------------------------------------


def cp_async(launch: Launch, e: Happening) -> None:
    """cp.async, its commit_group and wait_group, known by their instructions; wait_group lets the last N groups be
    open."""
    warp, flags = launch.warps[e.warp], launch.flags[e.pc]
    if flags & PC_CP_COPY:
        warp.cp_issued += 1
    elif flags & PC_CP_COMMIT:
        warp.cp_ends.append(warp.cp_issued)
    elif warp.cp_column >= 0:
        done = warp.cp_issued
        if flags & PC_CP_WAIT:
            group = len(warp.cp_ends) - 1 - launch.counts[e.pc]
            done = warp.cp_ends[group] if group >= 0 else 0
        warp.lanes.learn_counter(warp.strand(e.mask), warp.cp_column, done)


def cp_async_arrives(launch: Launch, e: Happening) -> None:
    """cp.async.mbarrier.arrive: the arrival comes when the copies so far are done, and publishes what is known now."""
    warp = launch.warps[e.warp]
    strand = warp.strand(e.mask)
    warp.arrivals = warp.lanes.published(strand).copy()
    if warp.cp_column >= 0:
        warp.arrivals.learn(warp.cp_column, warp.cp_issued)
