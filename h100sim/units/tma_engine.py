"""The TMA engine of an SM: when its copies start, read and arrive, and what happens when they have.

A thread hands over a copy and goes on; the engine takes copies in order, a box at a time, loads and stores alike, and completes bytes
on an mbarrier (loads) or a bulk group (stores). Data moves when the copy completes (loads) or when its source has been read (stores).
The instructions are in :mod:`.tensor_copies`, :mod:`.bulk_copies` and :mod:`.bulk_groups`.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: Asynchronous copy". Measured: times in h100sim/devices.py, ``Tma``; a
load behind a store of 16 KB arrives 512 cycles later, validate/silicon/tma_order.json.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..ctas import end_cta_if_done
from ..isa.machine import popcount
from ..native import inner
from ..services import ITEM_ASYNC, PRIORITY_UNIT, emit, fail, free_async, push, unit_time, wake
from ..trace import Copy, Event, Wait
from .mbarriers import complete_tx, cta_and_offset, find
from .memory_system import arrives, to_hbm

_STARTED, _READ, _COMPLETED = int(Event.TMA_STARTED), int(Event.TMA_READ), int(Event.TMA_COMPLETED)
_WAIT = int(Wait.BULK)
TENSOR_LOAD, TENSOR_STORE, TENSOR_REDUCE = int(Copy.TENSOR_LOAD), int(Copy.TENSOR_STORE), int(Copy.TENSOR_REDUCE)
BULK_LOAD, BULK_STORE, BULK_REDUCE = int(Copy.BULK_LOAD), int(Copy.BULK_STORE), int(Copy.BULK_REDUCE)
BULK_CLUSTER, CLUSTER_REDUCE, PREFETCH = int(Copy.BULK_CLUSTER), int(Copy.CLUSTER_REDUCE), int(Copy.PREFETCH)


# --- time -------------------------------------------------------------------------------------------------------------


@inner
def hold_issuer(ctx, cycles, chosen):
    """Charge the issuing warp for a copy; return when the engine has it. An assembler hands over the copy of a lane that elect.sync
    chose as it is (``chosen`` 1), and has a loop over lanes for others, which takes as long as the way to the engine."""
    c, T = S.context(ctx), S.timing(ctx)
    c.issue = T.tma_elected_cycles if chosen else cycles
    return c.now + cycles - (T.tma_elected_lead_cycles if chosen else 0)


@inner
def map_is_there(ctx, ready, k, cycles):
    """Return when the engine knows tensor map ``k``: it fetches a map, in so many ``cycles``, the first time that its SM uses
    it, when the copies in front have begun (maps beyond the first 64 of a launch are not told apart)."""
    c = S.context(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    if k < 0:
        return ready
    bit = np.uint64(1) << np.uint64(k & 63)
    if sm.tma_maps & bit != 0:
        return ready
    sm.tma_maps |= bit
    return max(ready, sm.tma_free) + cycles


@inner
def emit_started(ctx, n, ready, start, taken):
    """Record when the engine begins with operation ``n``, which was ready before, and for how many cycles no other copy can
    begin."""
    A = S.asyncs(ctx)[n]
    cta = S.ctas(ctx)[A.cta].id
    emit(ctx, start, _STARTED, cta, -1, A.pc, 0, A.identity, A.kind, taken, start - ready, int(is_store(A.kind)))


@inner
def engine_done(ctx, n, ready, size_bytes):
    """Reserve the engine for a load that is ready at a time, operation ``n`` (-1: bytes for L2 only), and book what it moves; return
    when the engine is through with it; the latency comes on top."""
    T = S.timing(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[S.context(ctx).warp].sm]
    start = max(ready, sm.tma_free)
    busy = int(size_bytes / T.tma_bytes_per_cycle)
    sm.tma_free = start + max(busy, T.tma_box_cycles)
    if n >= 0:
        emit_started(ctx, n, ready, start, sm.tma_free - start)
        S.asyncs(ctx)[n].slip = sm.tma_slip if sm.tma_stores > 0 else -1
    sm.tma_bytes += size_bytes
    return arrives(ctx, ready, start + busy)


@inner
def cluster_done(ctx, n, ready, size_bytes):
    """Reserve the engine and the cluster's network for a copy to another CTA; return when its last byte has arrived."""
    T = S.timing(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[S.context(ctx).warp].sm]
    start = max(ready, sm.tma_free)
    sm.network_free = max(float(start), sm.network_free) + size_bytes / T.cluster_bytes_per_cycle
    sm.tma_free = max(start + T.tma_box_cycles, int(sm.network_free))
    emit_started(ctx, n, ready, start, sm.tma_free - start)
    S.asyncs(ctx)[n].slip = sm.tma_slip if sm.tma_stores > 0 else -1
    sm.tma_bytes += size_bytes
    return int(sm.network_free) + T.cluster_copy_latency


@inner
def stored_rate(ctx):
    """Return the bytes per cycle that leave each SM which stores: what its engine can, or its part of what L2 takes."""
    c, T = S.context(ctx), S.timing(ctx)
    return min(T.tma_store_bytes_per_cycle, T.l2_write_bytes_per_cycle / max(c.storing, 1))


@inner
def count_stored(ctx):
    """Bring the count of bytes that each SM which stores has stored up to now."""
    c = S.context(ctx)
    now = float(c.now)
    if now > c.stored_at:
        c.stored += stored_rate(ctx) * (now - c.stored_at)
        c.stored_at = now


@inner
def source_left(ctx, n, ready, size_bytes, bytes_per_cycle):
    """Reserve the engine and a part of L2 for store ``n`` that is ready at a time; return when its last byte will have left if no
    other SM begins to store. What leaves an SM slower than stores do (``bytes_per_cycle``) takes L2 as much longer."""
    c, T = S.context(ctx), S.timing(ctx)
    A = S.asyncs(ctx)[n]
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    if c.missed > 0:
        to_hbm(ctx, ready)
    begins = max(ready, sm.tma_free)
    count_stored(ctx)
    if sm.tma_stores == 0:
        c.storing += 1
        sm.tma_stored = c.stored
    sm.tma_stores += 1
    sm.tma_stored = max(sm.tma_stored, c.stored) + size_bytes * T.tma_store_bytes_per_cycle / bytes_per_cycle
    A.leaves, A.slip = sm.tma_stored, -1
    shared = int((sm.tma_stored - c.stored) / stored_rate(ctx))
    sm.tma_free = max(int(begins + size_bytes / bytes_per_cycle), c.now + shared)
    emit_started(ctx, n, ready, begins, sm.tma_free - begins)
    sm.tma_bytes += size_bytes
    return sm.tma_free + T.tma_store_latency_cycles


@inner
def is_behind(ctx, n):
    """Is a copy whose time has come not done yet, because others have begun to store since it was booked? Then it waits on."""
    c = S.context(ctx)
    if c.schedule & 3 != 0:
        return False
    A = S.asyncs(ctx)[n]
    sm = S.sms(ctx)[S.warps(ctx)[A.warp].sm]
    later = 0
    if is_store(A.kind):
        count_stored(ctx)
        later = int((A.leaves - c.stored) / stored_rate(ctx)) + S.timing(ctx).tma_store_latency_cycles
        if later > 0:
            sm.tma_slip += later
            sm.tma_free += later
    elif A.slip >= 0:
        later = sm.tma_slip - A.slip
        A.slip = sm.tma_slip
    if later <= 0:
        return False
    launch(ctx, n, c.now + later, A.state)
    return True


@inner
def start(ctx, n, issue_cycles, chosen):
    """Hand operation ``n``, whose kind and bytes are set, to the engine: it flies until its data has arrived (loads) or
    its source has been read (stores), whose data arrives later. ``issue_cycles`` and ``chosen`` are those of a load
    (:func:`hold_issuer`). The global bytes have been touched (:mod:`.memory_system`)."""
    T = S.timing(ctx)
    A = S.asyncs(ctx)[n]
    if is_store(A.kind):
        ready = map_is_there(ctx, hold_issuer(ctx, T.tma_store_issue_cycles, 0), A.plan, T.tma_store_descriptor_cycles)
        adds = A.kind == TENSOR_REDUCE or A.kind == BULK_REDUCE
        rate = T.tma_reduce_bytes_per_cycle if adds else T.tma_store_bytes_per_cycle
        read_at = source_left(ctx, n, ready, A.bytes, rate)
        A.done = read_at + T.tma_store_done_cycles
        launch(ctx, n, read_at, S.A_FLYING)
    else:
        ready = map_is_there(ctx, hold_issuer(ctx, issue_cycles, chosen), A.plan, T.tma_descriptor_cycles)
        if A.kind == BULK_CLUSTER or A.kind == CLUSTER_REDUCE:
            done = cluster_done(ctx, n, ready, A.bytes)
        else:
            latency = T.tma_latency_cycles if A.plan >= 0 else T.tma_bulk_latency_cycles
            done = engine_done(ctx, n, ready, A.bytes) + latency
        launch(ctx, n, done, S.A_FLYING)


@inner
def prefetch(ctx, issue_cycles, chosen, size_bytes):
    """Take the engine for bytes that go to L2 only: they have been touched, but do not come into the GPC."""
    S.context(ctx).moved = 0.0
    engine_done(ctx, -1, hold_issuer(ctx, issue_cycles, chosen), size_bytes)


@inner
def launch(ctx, n, time, state):
    """Let an operation reach its next state at a time."""
    S.asyncs(ctx)[n].state = state
    push(ctx, unit_time(ctx, max(time, S.context(ctx).now)), PRIORITY_UNIT, ITEM_ASYNC, n)


# --- who may issue, who waits -----------------------------------------------------------------------------------------


@inner
def has_room(ctx, mask):
    """Return whether the table has room for an operation of every lane; if not, it is made larger and the instruction
    is executed again, so a handler asks before it changes anything."""
    c = S.context(ctx)
    if c.asyncs_open + popcount(mask) <= c.async_capacity:
        return True
    c.grow = 1
    return False


@inner
def is_store(kind):
    """Does a kind of copy read shared memory and complete with its bulk group?"""
    return kind in (TENSOR_STORE, TENSOR_REDUCE, BULK_STORE, BULK_REDUCE)


@inner
def is_destination(ctx, A, rank):
    """Does a load write to the CTA of a rank of the cluster? ``peer`` is the CTA that it names without a multicast."""
    if A.multicast != 0:
        return (A.multicast >> rank) & 1 == 1
    return S.ctas(ctx)[A.cta].cluster_slot + rank == A.peer


@inner
def barrier_offset(ctx, address):
    """Return the offset of the mbarrier that a copy names. Silicon takes no CTA from it: a copy completes on the mbarrier at that
    offset of each CTA that it writes to. Measured: validate/silicon/tma_limits.json, as is what a multicast does."""
    _, offset = cta_and_offset(ctx, S.warps(ctx)[S.context(ctx).warp].cta, address)
    return offset


@inner
def first_destination(ctx, slot, multicast):
    """Return the slot of the first CTA that a load writes to, ``slot`` without a multicast (-1); -1 if a multicast goes to nobody,
    -2 after recording the error if it names a CTA that is not in the cluster."""
    if multicast < 0:
        return slot
    own = S.ctas(ctx)[S.warps(ctx)[S.context(ctx).warp].cta]
    first = -1
    for rank in range(16):
        if (multicast >> rank) & 1 == 0:
            continue
        if rank >= own.cluster_size:
            fail(ctx, faults.MULTICAST_MASK, multicast, own.cluster_size, 0)
            return -2
        if first < 0:
            first = own.cluster_slot + rank
    return first


@inner
def wake_bulk_waiters(ctx, w):
    """Let groups of lanes of a warp that wait for bulk groups look again."""
    for n in range(S.NODES_PER_WARP):
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
        if node.state == S.BLOCKED and node.wait == _WAIT:
            wake(ctx, w, n, S.context(ctx).now + 8)


# --- what happens at the end ------------------------------------------------------------------------------------------


@inner
def emit_done(ctx, A, kind, slot, size_bytes, mbarrier):
    """Record that a copy has read from or written to the shared memory of a CTA."""
    address = (S.ctas(ctx)[slot].cluster_rank << 24) | A.shared
    cta = S.ctas(ctx)[slot].id
    emit(ctx, S.context(ctx).now, kind, cta, -1, A.pc, 0, A.identity, A.kind, size_bytes, address, mbarrier)


@inner
def finish_load(ctx, n, slot, size_bytes):
    """Complete the bytes of a load in one destination CTA. Returns a status."""
    A = S.asyncs(ctx)[n]
    m = find(ctx, slot, A.mbarrier)
    if m < 0:
        return fail(ctx, faults.MBARRIER_UNINITIALISED, A.mbarrier, 0, 0)
    emit_done(ctx, A, _COMPLETED, slot, size_bytes, S.mbarriers(ctx)[m].identity)
    complete_tx(ctx, m, size_bytes, -1, A.pc, A.identity)
    return S.S_NEXT


@inner
def source_read(ctx, n):
    """A store has read its source: shared memory may be reused; the data arrives later."""
    A = S.asyncs(ctx)[n]
    sm = S.sms(ctx)[S.warps(ctx)[A.warp].sm]
    count_stored(ctx)
    sm.tma_stores -= 1
    if sm.tma_stores == 0:
        S.context(ctx).storing -= 1
    A.done = max(A.done, S.context(ctx).now + S.timing(ctx).tma_store_done_cycles)
    emit_done(ctx, A, _READ, A.cta, A.bytes, -1)
    launch(ctx, n, A.done, S.A_READ)
    wake_bulk_waiters(ctx, A.warp)


@inner
def finish_store(ctx, n):
    """A store has written: its bulk group may be complete."""
    A = S.asyncs(ctx)[n]
    emit_done(ctx, A, _COMPLETED, A.cta, A.bytes, -1)
    w = A.warp
    retire(ctx, n)
    wake_bulk_waiters(ctx, w)


@inner
def retire(ctx, n):
    """End an operation; its CTA may have waited for it to end."""
    cta = S.asyncs(ctx)[n].cta
    free_async(ctx, n)
    end_cta_if_done(ctx, cta)
