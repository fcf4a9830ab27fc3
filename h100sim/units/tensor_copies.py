"""Tensor copies: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and prefetches of a box, tiled or im2col.

One handler issues them all: it finds the decoded tensor map, records what the copy touches, and hands it to the engine.
Loads may go to another CTA of the cluster or, with a multicast, to several; stores and reductions take no im2col offsets.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: Tensor copy". Measured: bytes and errors of every kind of copy in
tests/data/tma_load.npz, tma_store.npz, tma_im2col.npz, tma_interleave.npz; what a copy of the other mode or of another rank than
its map does, in validate/silicon/tma_limits.json.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, get, machine_instruction, operand, popcount, refuse
from ..memory.windows import PARAM_WINDOW, WINDOW_BYTES, global_pointer, shared_offset
from ..native import i64, inner
from ..ptx.module import Address, Imm, Instruction, Operand, Vector
from ..services import emit, emit_here, fail, free_async, new_async
from ..tma import plan as fields
from ..tma.copy import box_extent
from ..tma.load import load_box
from ..tma.reductions import REDUCTIONS
from ..tma.rows import next_pixel, row_start
from ..tma.store import store_box
from ..trace import Event
from .bulk_copies import reduction_of, refuse_later
from .load_store import address_operand
from .mbarriers import cta_and_offset, find
from .memory_system import begin, touch
from .tensor_maps import map_operand, plan, plan_of
from .tma_engine import (
    PREFETCH,
    TENSOR_LOAD,
    TENSOR_REDUCE,
    TENSOR_STORE,
    barrier_offset,
    finish_load,
    finish_store,
    first_destination,
    has_room,
    is_behind,
    is_destination,
    is_store,
    prefetch,
    retire,
    source_read,
    start,
)

_ISSUED, _GLOBAL, _MEMORY = int(Event.TMA_ISSUED), int(Event.TMA_GLOBAL), int(Event.MEMORY)
_BOX_LAID = int(Event.TMA_BOX)
_RANK, _BOX_BYTES, _IS_IM2COL, _ADDRESS = fields.RANK, fields.BOX_BYTES, fields.IS_IM2COL, fields.ADDRESS
_DIMS, _STRIDES, _BOX, _COUNTS = fields.DIMS, fields.STRIDES, fields.BOX, fields.COUNTS
_ELEMENT_STRIDES, _ROWS, _PITCH, _INTERLEAVE = fields.ELEMENT_STRIDES, fields.ROWS, fields.PITCH, fields.INTERLEAVE
_ROW_BYTES, _SPAN = fields.ROW_BYTES, fields.SPAN
#: Positions of the outer dimensions whose global rows are recorded, shared among the lanes of an instruction; a box with more is
#: recorded in part. It keeps the events of one instruction below the room that the loop leaves.
_OUTER_LIMIT, _OUTER_LIMIT_OF_LANES = 64, 256


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
    if c.trace_level == 0 or PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES:
        return
    row = i64(c.lanes + c.n_lanes * 256, 32)
    for lane in range(32):
        row[lane] = address if lane == 0 else -1
    w = S.warps(ctx)[c.warp]
    emit(ctx, c.now, _MEMORY, S.ctas(ctx)[w.cta].id, w.id, c.pc, 1, A.identity, c.lanes_total + c.n_lanes, 128, 0, 1)
    c.n_lanes += 1


@inner
def walk_global(ctx, A, p, limit):
    """Record the global bytes of a tiled box, one event for the rows of each position of the outer dimensions (up to ``limit``),
    and bring them into L2."""
    if p[_IS_IM2COL] != 0:
        walk_pixels(ctx, A, p, limit)
        return
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
        return
    inner = p[_ADDRESS] + first * p[_STRIDES] + (A.coords[1] + low * step) * p[_STRIDES + 1]
    for k in range(p[_COUNTS + 2] * p[_COUNTS + 3] * p[_COUNTS + 4]):
        index = k
        address = inner
        inside = True
        for d in range(2, 5):
            at = A.coords[d] + (index % p[_COUNTS + d]) * p[_ELEMENT_STRIDES + d]
            index //= p[_COUNTS + d]
            inside = inside and 0 <= at < p[_DIMS + d]
            address += at * p[_STRIDES + d]
        if inside:
            if A.kind != PREFETCH and k < limit:
                emit_here(ctx, _GLOBAL, A.identity, address, row_bytes, high - low, step * p[_STRIDES + 1])
            pitch = step * p[_STRIDES + 1]
            if pitch == row_bytes:
                touch(ctx, address, (high - low) * row_bytes, is_store(A.kind))
                continue
            for row in range(high - low):
                touch(ctx, address + row * pitch, row_bytes, is_store(A.kind))


@inner
def walk_pixels(ctx, A, p, limit):
    """The same for an im2col box without interleave: one event for pixels at equal distances."""
    if p[_INTERLEAVE] != 0:
        return
    first = max(A.coords[0], 0)
    row_bytes = (min(A.coords[0] + p[_COUNTS], p[_DIMS]) - first) * p[_STRIDES]
    if row_bytes <= 0:
        return
    base = np.empty(5, np.int64)
    for k in range(5):
        base[k] = A.coords[k]
    events = 0
    origin, rows, step = 0, 0, 0
    for row in range(p[_ROWS]):
        _, pixel, inside = row_start(p, base, A.offsets, row)
        next_pixel(p, base)
        if not inside:
            continue
        address = pixel + first * p[_STRIDES]
        touch(ctx, address, row_bytes, is_store(A.kind))
        if rows == 1:
            step = address - origin
        if rows > 0 and address == origin + rows * step and step >= 0:
            rows += 1
            continue
        if rows > 0 and events < limit and A.kind != PREFETCH:
            emit_here(ctx, _GLOBAL, A.identity, origin, row_bytes, rows, step if rows > 1 else 0)
            events += 1
        origin, rows, step = address, 1, 0
    if rows > 0 and events < limit and A.kind != PREFETCH:
        emit_here(ctx, _GLOBAL, A.identity, origin, row_bytes, rows, step if rows > 1 else 0)


@inner
def knows_maps(regs, mask, ops, ctx):
    """Are the tensor maps of all lanes decoded? If not, the host decodes one and the instruction is executed again."""
    ins = current(ctx)
    known = True
    for lane in range(32):
        if known and (mask >> lane) & 1:
            known = plan_of(ctx, get(regs, operand(ops, 1), lane) + ins.imm3) >= 0
    return known


def tensor_copy(regs, mask, ops, ctx):
    """[shared], [map], [mbarrier], cta mask, coords.., offsets..; imm0 rank, imm1 offsets, imm2..4 address offsets, imm5 kind
    (trace.Copy), multicast << 8, im2col << 9, elected << 10, reduction << 16."""
    c, ins = S.context(ctx), current(ctx)
    cta = S.warps(ctx)[c.warp].cta
    kind, multicast, mode, chosen = ins.imm5 & 0xFF, (ins.imm5 >> 8) & 1, (ins.imm5 >> 9) & 1, (ins.imm5 >> 10) & 1
    if not has_room(ctx, mask):
        return S.S_GROW
    if not knows_maps(regs, mask, ops, ctx):
        return S.S_HOST
    outer_limit = min(_OUTER_LIMIT, max(_OUTER_LIMIT_OF_LANES // popcount(mask), 1))
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        map_address = get(regs, operand(ops, 1), lane) + ins.imm3
        k = plan_of(ctx, map_address)
        p = plan(ctx, k)
        if p[_RANK] != ins.imm0:
            return fail(ctx, faults.TENSOR_MAP_RANK, p[_RANK], ins.imm0, 0)
        if p[_IS_IM2COL] != mode:
            return fail(ctx, faults.TENSOR_MAP_MODE, p[_IS_IM2COL], mode, 0)
        shared = get(regs, operand(ops, 0), lane) + ins.imm2
        slot, at = cta_and_offset(ctx, cta, shared)
        if slot < 0:
            return fail(ctx, faults.CLUSTER_RANK, shared >> 24, S.ctas(ctx)[cta].cluster_size, 0)
        if is_store(kind) and slot != cta:
            return fail(ctx, faults.OUT_OF_RANGE_SHARED, at, 1, c.shared_size)
        if at & 127:
            return fail(ctx, faults.TMA_ALIGN, at, 128, 0)
        barrier, identity = -1, -1
        if kind == TENSOR_LOAD:
            barrier = barrier_offset(ctx, get(regs, operand(ops, 2), lane) + ins.imm4)
            first = first_destination(ctx, slot, get(regs, operand(ops, 3), lane) & 0xFFFF if multicast else -1)
            if first == -2:
                return S.S_ERROR
            if first == -1:
                begin(ctx)
                prefetch(ctx, S.timing(ctx).tma_issue_cycles, chosen, p[_BOX_BYTES])
                continue
            m = find(ctx, first, barrier)
            if m < 0:
                return fail(ctx, faults.MBARRIER_UNINITIALISED, barrier, 0, 0)
            identity = S.mbarriers(ctx)[m].identity
        n = new_async(ctx, kind)
        A = S.asyncs(ctx)[n]
        A.plan, A.mbarrier, A.shared, A.lane, A.peer, A.bytes = k, barrier, at, lane, slot, p[_BOX_BYTES]
        A.multicast = get(regs, operand(ops, 3), lane) & 0xFFFF if multicast else 0
        read_coordinates(regs, ops, 4, ins.imm0, ins.imm1, lane, A)
        if kind != PREFETCH:
            emit_here(ctx, _ISSUED, A.identity, kind, p[_ROWS] * p[_PITCH], shared_offset(ctx, slot, at), identity)
            if kind == TENSOR_LOAD:
                emit_here(ctx, _BOX_LAID, A.identity, p[_ROW_BYTES] if p[_INTERLEAVE] == 0 else 0, p[_PITCH], p[_ROWS], p[_SPAN])
            emit_map_read(ctx, A, map_address)
        begin(ctx)
        walk_global(ctx, A, p, outer_limit)
        if kind == PREFETCH:
            prefetch(ctx, S.timing(ctx).tma_issue_cycles, chosen, A.bytes)
            free_async(ctx, n)
        else:
            start(ctx, n, S.timing(ctx).tma_issue_cycles, chosen)
    return S.S_NEXT


def complete_load(n, time, unused, ctx):
    """The box has been read: write every destination and complete its bytes."""
    if is_behind(ctx, n):
        return S.S_NEXT
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    p = plan(ctx, A.plan)
    if outside(ctx, A, p):
        return S.S_ERROR
    own = S.ctas(ctx)[A.cta]
    for rank in range(own.cluster_size):
        if not is_destination(ctx, A, rank):
            continue
        slot = own.cluster_slot + rank
        if c.values:
            shared = S.ctas(ctx)[slot].shared
            moved = load_box(p, A.coords, A.offsets, c.arena, c.arena_base, c.arena_bytes, shared, c.shared_size, A.shared)
            if moved < 0:
                return fail(ctx, faults.TMA_REFUSED, -moved, 0, 0)
        status = finish_load(ctx, n, slot, A.bytes)
        if status != S.S_NEXT:
            return status
    retire(ctx, n)
    return S.S_NEXT


def complete_store(n, time, unused, ctx):
    """First the source has been read, then the data has arrived."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    if A.state != S.A_FLYING:
        finish_store(ctx, n)
        return S.S_NEXT
    if is_behind(ctx, n):
        return S.S_NEXT
    p = plan(ctx, A.plan)
    if outside(ctx, A, p):
        return S.S_ERROR
    if c.values:
        reduction = S.instructions(ctx)[A.pc].imm5 >> 16
        shared = S.ctas(ctx)[A.cta].shared
        moved = store_box(p, A.coords, c.arena, c.arena_base, c.arena_bytes, shared, c.shared_size, A.shared, reduction)
        if moved < 0:
            return fail(ctx, faults.TMA_REFUSED, -moved, 0, 0)
    source_read(ctx, n)
    return S.S_NEXT


# --- lowering ---------------------------------------------------------------------------------------------------------


def _rank(instruction: Instruction, environment: Environment) -> int:
    for modifier in instruction.modifiers:
        if len(modifier) == 2 and modifier[1] == "d" and modifier[0] in "12345":
            return int(modifier[0])
    raise refuse(instruction, f"{instruction.opcode} must name a rank from .1d to .5d", environment)


def _tensor(
    instruction: Instruction, address: Operand, rank: int, environment: Environment
) -> tuple[Operand, int, tuple[Operand, ...]]:
    """Split ``[map, {c0, ...}]`` into the map's generic address, its offset and the coordinates."""
    if not isinstance(address, Address) or len(address.extra) != rank:
        found = len(address.extra) if isinstance(address, Address) else 0
        raise refuse(instruction, f"{instruction.opcode} must have {rank} coordinates, not {found}", environment)
    return *map_operand(instruction, address, environment), address.extra


def _offsets(instruction: Instruction, operand_: Operand, rank: int, environment: Environment) -> tuple[Operand, ...]:
    found = operand_.elements if isinstance(operand_, Vector) else (operand_,)
    if rank < 3 or len(found) != rank - 2:
        raise refuse(instruction, f"{instruction.opcode} must have {rank - 2} im2col offsets, not {len(found)}", environment)
    return found


@machine_instruction("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor")
def lower_tensor(instruction: Instruction, environment: Environment) -> MachineOp:
    refuse_later(instruction, environment)
    rank, operands = _rank(instruction, environment), list(instruction.operands)
    if instruction.has("bulk_group"):
        return _lower_store(instruction, rank, environment)
    is_prefetch = instruction.has("prefetch")
    shared: Operand = Imm(0)
    barrier: Operand = Imm(0)
    shared_offset_ = barrier_offset = 0
    if not is_prefetch:
        shared, shared_offset_ = address_operand(instruction, operands.pop(0), environment)
    map_, map_offset, coords = _tensor(instruction, operands.pop(0), rank, environment)
    if not is_prefetch:
        barrier, barrier_offset = address_operand(instruction, operands.pop(0), environment, "mbarrier")
    offsets: tuple[Operand, ...] = ()
    if instruction.has("im2col"):
        offsets = _offsets(instruction, operands.pop(0), rank, environment)
    multicast = instruction.has("multicast::cluster")
    cta_mask = operands.pop(0) if multicast else Imm(0)
    ins = (
        (shared, "u64"), (map_, "u64"), (barrier, "u64"), (cta_mask, "u32"),
        *((x, "u32") for x in coords), *((x, "u32") for x in offsets),
    )  # fmt: skip
    kind = PREFETCH if is_prefetch else TENSOR_LOAD
    how = kind | int(multicast) << 8 | int(bool(offsets)) << 9 | int(environment.pc in environment.places.elected) << 10
    integers = (rank, len(offsets), shared_offset_, map_offset, barrier_offset, how)
    return MachineOp(tensor_copy, (), ins, integers, completion=None if is_prefetch else complete_load)


def _lower_store(instruction: Instruction, rank: int, environment: Environment) -> MachineOp:
    reduction = ""
    if instruction.opcode.startswith("cp.reduce"):
        reduction = reduction_of(instruction, environment)
    if instruction.has("im2col_no_offs") and rank < 3:
        raise refuse(instruction, f"{instruction.opcode} rank must be from .3d to .5d, not .{rank}d", environment)
    map_, map_offset, coords = _tensor(instruction, instruction.operands[0], rank, environment)
    src, src_offset = address_operand(instruction, instruction.operands[1], environment)
    ins = ((src, "u64"), (map_, "u64"), (Imm(0), "u64"), (Imm(0), "u32"), *((x, "u32") for x in coords))
    kind = TENSOR_REDUCE if reduction else TENSOR_STORE
    mode = int(instruction.has("im2col_no_offs"))
    integers = (rank, 0, src_offset, map_offset, 0, kind | mode << 9 | REDUCTIONS.index(reduction) << 16)
    return MachineOp(tensor_copy, (), ins, integers, completion=complete_store)
