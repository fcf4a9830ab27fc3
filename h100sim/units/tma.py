"""The TMA engine of an SM: bulk copies between global and shared memory, tensor copies through a tensor map, bulk groups.

A thread hands over a copy and goes on; the engine takes copies in order, a box at a time, and completes bytes on an mbarrier
(loads) or a bulk group (stores). Data moves when the copy completes (loads) or when its source has been read (stores).

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: Asynchronous copy". Measured: times in h100sim/devices.py, ``Tma``.
Assumed: L2 keeps the lines used last, as many as fit it, and holds all of global memory at the start of a launch if that fits.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..engine import end_cta_if_done
from ..isa.machine import Environment, MachineOp, current, first_lane, get, machine_instruction, operand, refuse
from ..memory.windows import PARAM_WINDOW, WINDOW_BYTES, global_pointer, shared_offset, shared_pointer
from ..native import copy_bytes, i32, i64, inner
from ..ptx.module import Address, Imm, Instruction, Operand, Symbol, Vector
from ..services import ITEM_ASYNC, PRIORITY_UNIT, block, emit, emit_here, fail, free_async, new_async, push, unit_time, wake
from ..tma import plan as fields
from ..tma.copy import box_extent
from ..tma.load import load_box
from ..tma.store import store_box
from ..trace import Copy, Event, Wait
from .load_store import address_operand
from .mbarriers import complete_tx, cta_and_offset, find

_ISSUED, _STARTED, _READ, _COMPLETED = (
    int(Event.TMA_ISSUED), int(Event.TMA_STARTED), int(Event.TMA_READ), int(Event.TMA_COMPLETED)
)  # fmt: skip
_MEMORY = int(Event.MEMORY)
_COMMITTED, _WAITED, _GLOBAL = int(Event.BULK_COMMITTED), int(Event.BULK_WAITED), int(Event.TMA_GLOBAL)
_WAIT = int(Wait.BULK)
_TENSOR_LOAD, _TENSOR_STORE, _TENSOR_REDUCE = int(Copy.TENSOR_LOAD), int(Copy.TENSOR_STORE), int(Copy.TENSOR_REDUCE)
_BULK_LOAD, _BULK_STORE, _BULK_CLUSTER = int(Copy.BULK_LOAD), int(Copy.BULK_STORE), int(Copy.BULK_CLUSTER)

_RANK, _BOX_BYTES, _IS_IM2COL, _ADDRESS = fields.RANK, fields.BOX_BYTES, fields.IS_IM2COL, fields.ADDRESS
_DIMS, _STRIDES, _BOX, _COUNTS = fields.DIMS, fields.STRIDES, fields.BOX, fields.COUNTS
_ELEMENT_STRIDES, _PLAN_WORDS = fields.ELEMENT_STRIDES, fields.PLAN_WORDS
_ROWS, _PITCH = fields.ROWS, fields.PITCH
#: Positions of the outer dimensions whose global rows are recorded; a box with more is recorded in part.
_OUTER_LIMIT = 64

REDUCTIONS = ("", "add", "min", "max", "inc", "dec", "and", "or", "xor")


# --- time -------------------------------------------------------------------------------------------------------------


@inner
def hold_issuer(ctx, first):
    """Charge the issuing warp: a first copy costs ``first`` cycles, one that follows at once less."""
    c, T = S.context(ctx), S.timing(ctx)
    W = S.warps(ctx)[c.warp]
    cost = min(first, T.tma_issue_cycles) if c.now - W.tma_last <= 2 * T.tma_issue_cycles else first
    W.tma_last = c.now + cost
    c.issue = cost
    return c.now + cost


@inner
def engine_done(ctx, ready, size_bytes, missed_bytes, per_cycle, latency):
    """Reserve the engine, the L2 and HBM for a copy that is ready at a time; return when its last byte has arrived."""
    c, T = S.context(ctx), S.timing(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    start = max(ready, sm.tma_free)
    busy = int(size_bytes / per_cycle)
    sm.tma_free = start + max(busy, T.tma_box_cycles)
    sm.tma_bytes += size_bytes
    served = max(float(start), c.l2_free)
    c.l2_free = served + size_bytes / T.l2_bytes_per_cycle
    end = int(served) + busy
    if missed_bytes > 0:
        served = max(float(start), c.hbm_free)
        c.hbm_free = served + missed_bytes / T.hbm_bytes_per_cycle
        end = max(end, int(c.hbm_free)) + T.hbm_extra_latency
    return end + latency


@inner
def touch(ctx, address, size_bytes):
    """Bring global bytes into L2; return how many were not there. A line stays until as many bytes as L2 holds have been
    brought in after its last use."""
    c = S.context(ctx)
    stamps = i64(c.l2_stamps, c.l2_lines)
    first, last = (address - c.arena_base) >> 7, (address - c.arena_base + size_bytes - 1) >> 7
    missed = 0
    for line in range(max(first, 0), min(last + 1, c.l2_lines)):
        if c.l2_filled - stamps[line] > c.l2_bytes:
            missed += 128
            c.l2_filled += 128
        stamps[line] = c.l2_filled
    return missed


@inner
def launch(ctx, n, time, state):
    """Let an operation reach its next state at a time."""
    A = S.asyncs(ctx)[n]
    A.state = state
    push(ctx, unit_time(ctx, max(time, S.context(ctx).now)), PRIORITY_UNIT, ITEM_ASYNC, n)


# --- tensor maps ------------------------------------------------------------------------------------------------------


@inner
def plan_of(ctx, address):
    """Return the number of the decoded tensor map at a generic address, or -1: the host then decodes it."""
    c = S.context(ctx)
    addresses = i64(c.plan_addresses, c.n_plans)
    for k in range(c.n_plans):
        if addresses[k] == address:
            return k
    c.host, c.error_a = 1, address
    return -1


@inner
def plan(ctx, k):
    return i64(S.context(ctx).plans + k * _PLAN_WORDS * 8, _PLAN_WORDS)


@inner
def read_coordinates(regs, ops, first, rank, offsets, lane, A):
    """Read start coordinates and im2col offsets (sign-extended 32-bit values) into an operation."""
    for k in range(5):
        A.coords[k] = 0
    for k in range(rank):
        value = get(regs, operand(ops, first + k), lane)
        A.coords[k] = value - (1 << 32) if value >> 31 & 1 else value
    for k in range(3):
        A.offsets[k] = 0
    for k in range(offsets):
        A.offsets[k] = get(regs, operand(ops, first + rank + k), lane) & 0xFFFF


@inner
def outside(ctx, A, p):
    """Check that the global bytes of a box lie in one allocation; record the error otherwise."""
    low, end = box_extent(p, A.coords, A.offsets)
    if low < end and global_pointer(ctx, low, end - low) == 0:
        fail(ctx, faults.OUT_OF_RANGE_GLOBAL, low, end - low, 0)
        return True
    return False


@inner
def emit_map_read(ctx, A, address):
    """Record that a copy reads its tensor map, where the map is in global memory and may be changed by a kernel."""
    c = S.context(ctx)
    if c.trace_level == 0 or address >= PARAM_WINDOW and address < PARAM_WINDOW + WINDOW_BYTES:
        return
    row = i64(c.lanes + c.n_lanes * 256, 32)
    for lane in range(32):
        row[lane] = address if lane == 0 else -1
    w = S.warps(ctx)[c.warp]
    emit(ctx, c.now, _MEMORY, S.ctas(ctx)[w.cta].id, w.id, c.pc, 1, A.identity, c.lanes_total + c.n_lanes, 128, 0, 1)
    c.n_lanes += 1


@inner
def walk_global(ctx, A, p):
    """Record the global bytes of a tiled box, one event for the rows of each position of the outer dimensions, and bring them
    into L2. Returns how many bytes were not there."""
    if p[_IS_IM2COL] != 0:
        return 0
    first = max(A.coords[0], 0)
    row_bytes = (min(A.coords[0] + p[_BOX], p[_DIMS]) - first) * p[_STRIDES]
    step = p[_ELEMENT_STRIDES + 1]
    low = 0
    while low < p[_COUNTS + 1] and A.coords[1] + low * step < 0:
        low += 1
    high = p[_COUNTS + 1]
    while high > low and A.coords[1] + (high - 1) * step >= p[_DIMS + 1]:
        high -= 1
    if row_bytes <= 0 or high == low:
        return 0
    missed = 0
    inner = p[_ADDRESS] + first * p[_STRIDES] + (A.coords[1] + low * step) * p[_STRIDES + 1]
    outer = min(p[_COUNTS + 2] * p[_COUNTS + 3] * p[_COUNTS + 4], _OUTER_LIMIT)
    for k in range(outer):
        index = k
        address = inner
        inside = True
        for d in range(2, 5):
            at = A.coords[d] + (index % p[_COUNTS + d]) * p[_ELEMENT_STRIDES + d]
            index //= p[_COUNTS + d]
            inside = inside and 0 <= at < p[_DIMS + d]
            address += at * p[_STRIDES + d]
        if inside:
            emit_here(ctx, _GLOBAL, A.identity, address, row_bytes, high - low, step * p[_STRIDES + 1])
            for row in range(high - low):
                missed += touch(ctx, address + row * step * p[_STRIDES + 1], row_bytes)
    return missed


# --- loads ------------------------------------------------------------------------------------------------------------


def tensor_load(regs, mask, ops, ctx):
    """[dst], [map], [mbarrier], cta mask, coords.., offsets..; imm0 rank, imm1 offsets, imm2..4 address offsets, imm5 multicast."""
    c, ins, T = S.context(ctx), current(ctx), S.timing(ctx)
    cta = S.warps(ctx)[c.warp].cta
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        map_address = get(regs, operand(ops, 1), lane) + ins.imm3
        k = plan_of(ctx, map_address)
        if k < 0:
            return S.S_HOST
        p = plan(ctx, k)
        if p[_RANK] != ins.imm0:
            return fail(ctx, faults.TENSOR_MAP_RANK, p[_RANK], ins.imm0, 0)
        dst = get(regs, operand(ops, 0), lane) + ins.imm2
        slot, at = cta_and_offset(ctx, cta, dst)
        if slot < 0:
            return fail(ctx, faults.CLUSTER_RANK, dst >> 24, S.ctas(ctx)[cta].cluster_size, 0)
        if at & 127:
            return fail(ctx, faults.TMA_ALIGN, at, 128, 0)
        bslot, boff = cta_and_offset(ctx, cta, get(regs, operand(ops, 2), lane) + ins.imm4)
        m = find(ctx, bslot, boff)
        if m < 0:
            return fail(ctx, faults.MBARRIER_UNINITIALISED, boff, 0, 0)
        n = new_async(ctx, _TENSOR_LOAD)
        if n < 0:
            return S.S_GROW
        A = S.asyncs(ctx)[n]
        A.plan, A.mbarrier, A.shared, A.lane, A.peer = k, boff, at, lane, slot
        A.multicast = get(regs, operand(ops, 3), lane) if ins.imm5 else 0
        A.bytes = p[_BOX_BYTES]
        read_coordinates(regs, ops, 4, ins.imm0, ins.imm1, lane, A)
        emit_here(ctx, _ISSUED, A.identity, _TENSOR_LOAD, p[_ROWS] * p[_PITCH], shared_offset(ctx, slot, at), S.mbarriers(ctx)[m].identity)
        emit_map_read(ctx, A, map_address)
        missed = walk_global(ctx, A, p)
        ready = hold_issuer(ctx, T.tma_first_issue_cycles)
        launch(ctx, n, engine_done(ctx, ready, A.bytes, missed, T.tma_bytes_per_cycle, T.tma_latency_cycles), S.A_FLYING)
    return S.S_NEXT


@inner
def finish_load(ctx, n, slot, size_bytes):
    """Complete the bytes of a load in one destination CTA. Returns a status."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    m = find(ctx, slot, A.mbarrier)
    if m < 0:
        return fail(ctx, faults.MBARRIER_UNINITIALISED, A.mbarrier, 0, 0)
    M = S.mbarriers(ctx)[m]
    address = (S.ctas(ctx)[slot].cluster_rank << 24) | A.shared
    emit(ctx, c.now, _COMPLETED, S.ctas(ctx)[slot].id, -1, A.pc, 0, A.identity, A.kind, size_bytes, address, M.identity)
    complete_tx(ctx, m, size_bytes, -1, A.pc, A.identity)
    return S.S_NEXT


@inner
def retire(ctx, n):
    A = S.asyncs(ctx)[n]
    cta = A.cta
    free_async(ctx, n)
    end_cta_if_done(ctx, cta)


def complete_tensor_load(n, time, unused, ctx):
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    p = plan(ctx, A.plan)
    if outside(ctx, A, p):
        return S.S_ERROR
    own = S.ctas(ctx)[A.cta]
    for rank in range(own.cluster_size):
        slot = own.cluster_slot + rank
        if A.multicast != 0:
            if not (A.multicast >> rank) & 1:
                continue
        elif slot != A.peer:
            continue
        if c.values:
            moved = load_box(p, A.coords, A.offsets, c.arena, c.arena_base, c.arena_bytes, S.ctas(ctx)[slot].shared, c.shared_size, A.shared)
            if moved < 0:
                return fail(ctx, faults.TMA_REFUSED, -moved, 0, 0)
        status = finish_load(ctx, n, slot, A.bytes)
        if status != S.S_NEXT:
            return status
    retire(ctx, n)
    return S.S_NEXT


def bulk_load(regs, mask, ops, ctx):
    """[dst], [src], size, [mbarrier], cta mask; imm0..2 address offsets, imm3 1 from shared memory, imm4 multicast."""
    c, ins, T = S.context(ctx), current(ctx), S.timing(ctx)
    cta = S.warps(ctx)[c.warp].cta
    from_shared = ins.imm3
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        dst = get(regs, operand(ops, 0), lane) + ins.imm0
        src = get(regs, operand(ops, 1), lane) + ins.imm1
        size = get(regs, operand(ops, 2), lane)
        slot, at = cta_and_offset(ctx, cta, dst)
        bslot, boff = cta_and_offset(ctx, cta, get(regs, operand(ops, 3), lane) + ins.imm2)
        if slot < 0:
            return fail(ctx, faults.CLUSTER_RANK, dst >> 24, S.ctas(ctx)[cta].cluster_size, 0)
        if size & 15:
            return fail(ctx, faults.BULK_SIZE, size, 0, 0)
        if at & 15 or src & 15:
            return fail(ctx, faults.BULK_ALIGN, at if at & 15 else src, 0, 0)
        source = shared_pointer(ctx, cta, src, size) if from_shared else global_pointer(ctx, src, size)
        if source == 0:
            if from_shared:
                return fail(ctx, faults.OUT_OF_RANGE_SHARED, src, size, c.shared_size)
            return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, src, size, 0)
        if at + size > c.shared_size:
            return fail(ctx, faults.OUT_OF_RANGE_SHARED, at, size, c.shared_size)
        m = find(ctx, bslot, boff)
        if m < 0:
            return fail(ctx, faults.MBARRIER_UNINITIALISED, boff, 0, 0)
        kind = _BULK_CLUSTER if from_shared else _BULK_LOAD
        n = new_async(ctx, kind)
        if n < 0:
            return S.S_GROW
        A = S.asyncs(ctx)[n]
        A.mbarrier, A.shared, A.lane, A.peer, A.bytes, A.address = boff, at, lane, slot, size, src
        A.multicast = get(regs, operand(ops, 4), lane) if ins.imm4 else 0
        emit_here(ctx, _ISSUED, A.identity, kind, size, shared_offset(ctx, slot, at), S.mbarriers(ctx)[m].identity)
        if from_shared == 0:
            emit_here(ctx, _GLOBAL, A.identity, src, size, 1, 0)
        missed = 0 if from_shared else touch(ctx, src, size)
        ready = hold_issuer(ctx, T.tma_bulk_issue_cycles)
        launch(ctx, n, engine_done(ctx, ready, size, missed, T.tma_bytes_per_cycle, T.tma_latency_cycles), S.A_FLYING)
    return S.S_NEXT


def complete_bulk_load(n, time, unused, ctx):
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    own = S.ctas(ctx)[A.cta]
    from_shared = A.kind == _BULK_CLUSTER
    source = shared_pointer(ctx, A.cta, A.address, A.bytes) if from_shared else global_pointer(ctx, A.address, A.bytes)
    if source == 0:
        return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, A.address, A.bytes, 0)
    for rank in range(own.cluster_size):
        slot = own.cluster_slot + rank
        if A.multicast != 0:
            if not (A.multicast >> rank) & 1:
                continue
        elif slot != A.peer:
            continue
        if c.values:
            copy_bytes(S.ctas(ctx)[slot].shared + A.shared, source, A.bytes)
        status = finish_load(ctx, n, slot, A.bytes)
        if status != S.S_NEXT:
            return status
    retire(ctx, n)
    return S.S_NEXT


# --- stores -----------------------------------------------------------------------------------------------------------


def tensor_store(regs, mask, ops, ctx):
    """[map], [src], coords..; imm0 rank, imm1 reduction, imm2 map offset, imm3 source offset."""
    c, ins, T = S.context(ctx), current(ctx), S.timing(ctx)
    cta = S.warps(ctx)[c.warp].cta
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        map_address = get(regs, operand(ops, 0), lane) + ins.imm2
        k = plan_of(ctx, map_address)
        if k < 0:
            return S.S_HOST
        p = plan(ctx, k)
        if p[_RANK] != ins.imm0:
            return fail(ctx, faults.TENSOR_MAP_RANK, p[_RANK], ins.imm0, 0)
        slot, at = cta_and_offset(ctx, cta, get(regs, operand(ops, 1), lane) + ins.imm3)
        if slot != cta:
            return fail(ctx, faults.OUT_OF_RANGE_SHARED, at, 1, c.shared_size)
        if at & 127:
            return fail(ctx, faults.TMA_ALIGN, at, 128, 0)
        kind = _TENSOR_REDUCE if ins.imm1 else _TENSOR_STORE
        n = new_async(ctx, kind)
        if n < 0:
            return S.S_GROW
        A = S.asyncs(ctx)[n]
        A.plan, A.shared, A.lane, A.peer = k, at, lane, slot
        A.bytes = p[_BOX_BYTES]
        read_coordinates(regs, ops, 2, ins.imm0, 0, lane, A)
        emit_here(ctx, _ISSUED, A.identity, kind, p[_ROWS] * p[_PITCH], shared_offset(ctx, slot, at), -1)
        emit_map_read(ctx, A, map_address)
        missed = walk_global(ctx, A, p)
        read_at = engine_done(ctx, hold_issuer(ctx, T.tma_first_issue_cycles), A.bytes, missed, T.tma_store_bytes_per_cycle, 0)
        A.done = read_at + T.tma_store_latency_cycles
        launch(ctx, n, read_at, S.A_FLYING)
    return S.S_NEXT


def complete_tensor_store(n, time, unused, ctx):
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    if A.state == S.A_FLYING:
        if outside(ctx, A, plan(ctx, A.plan)):
            return S.S_ERROR
        if c.values:
            reduction = S.instructions(ctx)[A.pc].imm1
            moved = store_box(plan(ctx, A.plan), A.coords, c.arena, c.arena_base, c.arena_bytes, S.ctas(ctx)[A.cta].shared, c.shared_size, A.shared, reduction)
            if moved < 0:
                return fail(ctx, faults.TMA_REFUSED, -moved, 0, 0)
        source_read(ctx, n)
    else:
        finish_store(ctx, n)
    return S.S_NEXT


@inner
def source_read(ctx, n):
    """A store has read its source: shared memory may be reused; the data arrives later."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    address = (S.ctas(ctx)[A.cta].cluster_rank << 24) | A.shared
    emit(ctx, c.now, _READ, S.ctas(ctx)[A.cta].id, -1, A.pc, 0, A.identity, A.kind, A.bytes, address, -1)
    launch(ctx, n, A.done, S.A_READ)
    wake_bulk_waiters(ctx, A.warp)


@inner
def finish_store(ctx, n):
    """A store has written: its bulk group may be complete."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    address = (S.ctas(ctx)[A.cta].cluster_rank << 24) | A.shared
    emit(ctx, c.now, _COMPLETED, S.ctas(ctx)[A.cta].id, -1, A.pc, 0, A.identity, A.kind, A.bytes, address, -1)
    w = A.warp
    retire(ctx, n)
    wake_bulk_waiters(ctx, w)


def bulk_store(regs, mask, ops, ctx):
    """[dst], [src], size; imm0, imm1 address offsets."""
    c, ins, T = S.context(ctx), current(ctx), S.timing(ctx)
    cta = S.warps(ctx)[c.warp].cta
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        dst = get(regs, operand(ops, 0), lane) + ins.imm0
        slot, at = cta_and_offset(ctx, cta, get(regs, operand(ops, 1), lane) + ins.imm1)
        size = get(regs, operand(ops, 2), lane)
        if size & 15:
            return fail(ctx, faults.BULK_SIZE, size, 0, 0)
        if dst & 15 or at & 15:
            return fail(ctx, faults.BULK_ALIGN, at if at & 15 else dst, 0, 0)
        if slot != cta or at + size > c.shared_size:
            return fail(ctx, faults.OUT_OF_RANGE_SHARED, at, size, c.shared_size)
        if global_pointer(ctx, dst, size) == 0:
            return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, dst, size, 0)
        n = new_async(ctx, _BULK_STORE)
        if n < 0:
            return S.S_GROW
        A = S.asyncs(ctx)[n]
        A.shared, A.lane, A.peer, A.bytes, A.address = at, lane, slot, size, dst
        emit_here(ctx, _ISSUED, A.identity, _BULK_STORE, size, shared_offset(ctx, slot, at), -1)
        emit_here(ctx, _GLOBAL, A.identity, dst, size, 1, 0)
        read_at = engine_done(ctx, hold_issuer(ctx, T.tma_bulk_issue_cycles), size, touch(ctx, dst, size), T.tma_store_bytes_per_cycle, 0)
        A.done = read_at + T.tma_store_latency_cycles
        launch(ctx, n, read_at, S.A_FLYING)
    return S.S_NEXT


def complete_bulk_store(n, time, unused, ctx):
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    if A.state == S.A_FLYING:
        target = global_pointer(ctx, A.address, A.bytes)
        if target == 0:
            return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, A.address, A.bytes, 0)
        if c.values:
            copy_bytes(target, S.ctas(ctx)[A.cta].shared + A.shared, A.bytes)
        source_read(ctx, n)
    else:
        finish_store(ctx, n)
    return S.S_NEXT


# --- bulk groups ------------------------------------------------------------------------------------------------------


def commit_group(regs, mask, ops, ctx):
    """Each executing lane's stores since its last commit become its next group."""
    c = S.context(ctx)
    counts = i32(c.lane_groups + c.warp * 128, 32)
    table = S.asyncs(ctx)
    for n in range(c.async_capacity if c.asyncs_open > 0 else 0):
        A = table[n]
        if A.state != S.A_FREE and A.warp == c.warp and A.group < 0 and is_store(A.kind) and (mask >> A.lane) & 1:
            A.group = counts[A.lane]
    emit_here(ctx, _COMMITTED, -1, counts[first_lane(mask)], 0, 0, 0)
    for lane in range(32):
        if (mask >> lane) & 1:
            counts[lane] += 1
    return S.S_NEXT


def wait_group(regs, mask, ops, ctx):
    """imm0: how many of the latest groups may be pending, imm1: 1 if reading the source is enough."""
    c, ins = S.context(ctx), current(ctx)
    counts = i32(c.lane_groups + c.warp * 128, 32)
    table = S.asyncs(ctx)
    for n in range(c.async_capacity if c.asyncs_open > 0 else 0):
        A = table[n]
        if A.state == S.A_FREE or A.warp != c.warp or A.group < 0 or not (mask >> A.lane) & 1:
            continue
        if A.group <= counts[A.lane] - 1 - ins.imm0 and not (ins.imm1 and A.state == S.A_READ):
            return block(ctx, _WAIT, S.warps(ctx)[c.warp].id, ins.imm1, counts[A.lane] - 1 - ins.imm0)
    emit_here(ctx, _WAITED, -1, counts[first_lane(mask)] - 1 - ins.imm0, ins.imm1, 0, 0)
    return S.S_NEXT


@inner
def is_store(kind):
    return kind == _TENSOR_STORE or kind == _TENSOR_REDUCE or kind == _BULK_STORE


@inner
def wake_bulk_waiters(ctx, w):
    """Let groups of lanes of a warp that wait for bulk groups look again."""
    for n in range(S.NODES_PER_WARP):
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
        if node.state == S.BLOCKED and node.wait == _WAIT:
            wake(ctx, w, n, S.context(ctx).now + 8)


def nothing(regs, mask, ops, ctx):
    return S.S_NEXT


# --- lowering ---------------------------------------------------------------------------------------------------------


def _rank(instruction: Instruction, environment: Environment) -> int:
    for modifier in instruction.modifiers:
        if len(modifier) == 2 and modifier[1] == "d" and modifier[0] in "12345":
            return int(modifier[0])
    raise refuse(instruction, f"{instruction.opcode} must name a rank from .1d to .5d", environment)


def _tensor(instruction: Instruction, address: Operand, rank: int, environment: Environment) -> tuple[Operand, int, tuple[Operand, ...]]:
    """Split ``[map, {c0, ...}]`` into the map's generic address, its offset and the coordinates."""
    if not isinstance(address, Address) or len(address.extra) != rank:
        found = len(address.extra) if isinstance(address, Address) else 0
        raise refuse(instruction, f"{instruction.opcode} must have {rank} coordinates, not {found}", environment)
    base, offset = address_operand(instruction, address, environment)
    if isinstance(base, Symbol) and environment.space_of(base) == "param":
        offset += PARAM_WINDOW
    return base, offset, address.extra


def _check_sm90(instruction: Instruction, environment: Environment) -> None:
    for modifier in instruction.modifiers:
        if modifier.startswith(("cta_group", "tile::", "im2col::w", "cp_mask", "ignore_oob")):
            raise refuse(instruction, f"{instruction.opcode} must not have .{modifier} on sm_90a, which needs sm_100 or later", environment)


@machine_instruction("cp.async.bulk.tensor")
def lower_tensor(instruction: Instruction, environment: Environment) -> MachineOp:
    _check_sm90(instruction, environment)
    rank = _rank(instruction, environment)
    operands = list(instruction.operands)
    if instruction.has("bulk_group"):
        return _lower_tensor_store(instruction, environment, rank, 0)
    dst, dst_offset = address_operand(instruction, operands[0], environment)
    map_, map_offset, coords = _tensor(instruction, operands[1], rank, environment)
    barrier, barrier_offset = address_operand(instruction, operands[2], environment, "mbarrier")
    rest = operands[3:]
    offsets: tuple[Operand, ...] = ()
    if instruction.has("im2col"):
        vector = rest.pop(0)
        assert isinstance(vector, Vector)
        offsets = vector.elements
    multicast = instruction.has("multicast::cluster")
    cta_mask = rest.pop(0) if multicast else Imm(0)
    ins = (
        (dst, "u64"), (map_, "u64"), (barrier, "u64"), (cta_mask, "u32"),
        *((x, "u32") for x in coords), *((x, "u32") for x in offsets),
    )  # fmt: skip
    integers = (rank, len(offsets), dst_offset, map_offset, barrier_offset, int(multicast))
    return MachineOp(tensor_load, (), ins, integers, completion=complete_tensor_load)


@machine_instruction("cp.reduce.async.bulk.tensor")
def lower_tensor_reduce(instruction: Instruction, environment: Environment) -> MachineOp:
    _check_sm90(instruction, environment)
    found = [r for r in REDUCTIONS[1:] if instruction.has(r)]
    if len(found) != 1:
        raise refuse(instruction, f"{instruction.opcode} must name one reduction", environment)
    return _lower_tensor_store(instruction, environment, _rank(instruction, environment), REDUCTIONS.index(found[0]))


def _lower_tensor_store(instruction: Instruction, environment: Environment, rank: int, reduction: int) -> MachineOp:
    map_, map_offset, coords = _tensor(instruction, instruction.operands[0], rank, environment)
    src, src_offset = address_operand(instruction, instruction.operands[1], environment)
    if instruction.has("im2col_no_offs") or instruction.has("im2col"):
        raise refuse(instruction, f"{instruction.opcode} is not supported", environment)
    ins = ((map_, "u64"), (src, "u64"), *((x, "u32") for x in coords))
    return MachineOp(tensor_store, (), ins, (rank, reduction, map_offset, src_offset), completion=complete_tensor_store)


@machine_instruction("cp.async.bulk")
def lower_bulk(instruction: Instruction, environment: Environment) -> MachineOp:
    operands = instruction.operands
    dst, dst_offset = address_operand(instruction, operands[0], environment)
    src, src_offset = address_operand(instruction, operands[1], environment)
    if instruction.has("bulk_group"):
        ins = ((dst, "u64"), (src, "u64"), (operands[2], "u32"))
        return MachineOp(bulk_store, (), ins, (dst_offset, src_offset), completion=complete_bulk_store)
    barrier, barrier_offset = address_operand(instruction, operands[3], environment, "mbarrier")
    multicast = instruction.has("multicast::cluster")
    cta_mask = operands[4] if multicast else Imm(0)
    from_shared = not instruction.has("global")
    ins = ((dst, "u64"), (src, "u64"), (operands[2], "u32"), (barrier, "u64"), (cta_mask, "u32"))
    integers = (dst_offset, src_offset, barrier_offset, int(from_shared), int(multicast))
    return MachineOp(bulk_load, (), ins, integers, completion=complete_bulk_load)


@machine_instruction("cp.async.bulk.commit_group")
def lower_commit(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(commit_group)


@machine_instruction("cp.async.bulk.wait_group")
def lower_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    (count,) = instruction.operands
    if not isinstance(count, Imm) or count.value < 0:
        raise refuse(instruction, f"{instruction.opcode} count must be a non-negative immediate", environment)
    return MachineOp(wait_group, (), (), (min(count.value, 63), int(instruction.has("read"))))


@machine_instruction("cp.async.bulk.prefetch", "prefetch.tensormap")
def lower_prefetch(instruction: Instruction, environment: Environment) -> MachineOp:
    _check_sm90(instruction, environment)
    return MachineOp(nothing)


@machine_instruction("cp.reduce.async.bulk")
def lower_bulk_reduce(instruction: Instruction, environment: Environment) -> MachineOp:
    raise refuse(instruction, f"{instruction.opcode} is not supported", environment)
