"""Bulk copies without a tensor map: cp.async.bulk and cp.reduce.async.bulk in every direction, and prefetches to L2.

One handler issues them all. Loads (global to shared) and copies between CTAs complete on an mbarrier of the CTA that they
write to; stores and reductions of global memory complete with a bulk group.

A size that is no multiple of 16 is an error, where silicon drops the odd bytes without a word.

Spec: PTX ISA 9.1, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch". Measured: sums and orders of every type
in tests/data/tma_reduction.npz and validate/silicon/cluster_store_bits.json: sums of f32 keep subnormal numbers, although the
manual says that they are flushed.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, get, machine_instruction, operand, refuse
from ..memory.windows import global_pointer, shared_offset, shared_pointer
from ..native import copy_bytes, inner, u64
from ..ptx.module import Imm, Instruction, Operand
from ..services import emit_here, fail, new_async
from ..tma.fields import DTYPES
from ..tma.reductions import REDUCTIONS, reduce_word
from ..trace import Event
from .load_store import address_operand
from .mbarriers import cta_and_offset, find
from .memory_system import begin, touch
from .tma_engine import (
    BULK_CLUSTER,
    BULK_LOAD,
    BULK_REDUCE,
    BULK_STORE,
    CLUSTER_REDUCE,
    PREFETCH,
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

_ISSUED, _GLOBAL, _SOURCE = int(Event.TMA_ISSUED), int(Event.TMA_GLOBAL), int(Event.TMA_SOURCE)
_FORMATS = tuple(DTYPES)

#: Types of each reduction, and where: ("global", "cluster"). Spec: "cp.reduce.async.bulk". Measured: ptxas 13.0.
_GLOBAL_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}
_CLUSTER_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}


@inner
def in_shared(kind):
    """Does a copy read shared memory of its own CTA and complete on an mbarrier?"""
    return kind in (BULK_CLUSTER, CLUSTER_REDUCE)


@inner
def misplaced(ctx, kind, dst, src, size):
    """Check size, alignment and both ends of a copy; record the error otherwise."""
    c = S.context(ctx)
    cta = S.warps(ctx)[c.warp].cta
    if size & 15:
        fail(ctx, faults.BULK_SIZE, size, 0, 0)
        return True
    if dst & 15 or src & 15:
        fail(ctx, faults.BULK_ALIGN, dst if dst & 15 else src, 0, 0)
        return True
    if kind in (BULK_LOAD, BULK_CLUSTER, CLUSTER_REDUCE):
        slot, at = cta_and_offset(ctx, cta, dst)
        if slot < 0:
            fail(ctx, faults.CLUSTER_RANK, dst >> 24, S.ctas(ctx)[cta].cluster_size, 0)
            return True
        if at + size > c.shared_size:
            fail(ctx, faults.OUT_OF_RANGE_SHARED, at, size, c.shared_size)
            return True
    elif kind != PREFETCH and global_pointer(ctx, dst, size) == 0:
        fail(ctx, faults.OUT_OF_RANGE_GLOBAL, dst, size, 0)
        return True
    if kind == BULK_LOAD:
        if global_pointer(ctx, src, size) == 0:
            fail(ctx, faults.OUT_OF_RANGE_GLOBAL, src, size, 0)
            return True
    elif kind != PREFETCH:
        slot, at = cta_and_offset(ctx, cta, src)
        if slot != cta or at + size > c.shared_size:
            fail(ctx, faults.OUT_OF_RANGE_SHARED, at, size, c.shared_size)
            return True
    return False


def bulk_copy(regs, mask, ops, ctx):
    """[dst], [src], size, [mbarrier], cta mask; imm0..2 address offsets, imm3 kind (trace.Copy), imm4 multicast and
    elected << 1, imm5 reduction and element format << 8."""
    c, ins = S.context(ctx), current(ctx)
    cta = S.warps(ctx)[c.warp].cta
    kind, multicast, chosen = ins.imm3, ins.imm4 & 1, ins.imm4 >> 1
    if not has_room(ctx, mask):
        return S.S_GROW
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        dst, src = get(regs, operand(ops, 0), lane) + ins.imm0, get(regs, operand(ops, 1), lane) + ins.imm1
        size = get(regs, operand(ops, 2), lane)
        if misplaced(ctx, kind, dst, src, size):
            return S.S_ERROR
        from_or_to_global = dst if is_store(kind) else src
        begin(ctx)
        if not in_shared(kind):
            touch(ctx, from_or_to_global, size, is_store(kind))
        if kind == PREFETCH:
            prefetch(ctx, S.timing(ctx).tma_bulk_issue_cycles, chosen, size)
            continue
        slot, at = cta_and_offset(ctx, cta, src if is_store(kind) else dst)
        barrier, identity = -1, -1
        if not is_store(kind):
            barrier = barrier_offset(ctx, get(regs, operand(ops, 3), lane) + ins.imm2)
            first = first_destination(ctx, slot, get(regs, operand(ops, 4), lane) & 0xFFFF if multicast else -1)
            if first == -2:
                return S.S_ERROR
            if first == -1:
                prefetch(ctx, S.timing(ctx).tma_bulk_issue_cycles, chosen, size)
                continue
            m = find(ctx, first, barrier)
            if m < 0:
                return fail(ctx, faults.MBARRIER_UNINITIALISED, barrier, 0, 0)
            identity = S.mbarriers(ctx)[m].identity
        n = new_async(ctx, kind)
        A = S.asyncs(ctx)[n]
        A.mbarrier, A.shared, A.lane, A.peer, A.bytes, A.address = barrier, at, lane, slot, size, from_or_to_global
        A.multicast = get(regs, operand(ops, 4), lane) & 0xFFFF if multicast else 0
        emit_here(ctx, _ISSUED, A.identity, kind, size, shared_offset(ctx, slot, at), identity)
        if in_shared(kind):
            source_slot, A.address = cta_and_offset(ctx, cta, src)
            emit_here(ctx, _SOURCE, A.identity, shared_offset(ctx, source_slot, A.address), size, 0, 0)
        else:
            emit_here(ctx, _GLOBAL, A.identity, from_or_to_global, size, 1, 0)
        start(ctx, n, S.timing(ctx).tma_bulk_issue_cycles, chosen)
    return S.S_NEXT


@inner
def move(target, source, size, packed):
    """Copy bytes or reduce them into those at ``target``, 8 at a time; ``packed``: reduction, format << 8, bytes of an
    element << 16."""
    reduction = packed & 0xFF
    if reduction == 0:
        copy_bytes(target, source, size)
        return
    to, words = u64(target, size >> 3), u64(source, size >> 3)
    for k in range(size >> 3):
        to[k] = reduce_word(packed >> 16, (packed >> 8) & 0xFF, reduction, to[k], words[k])


def complete_bulk_load(n, time, unused, ctx):
    """Global or own shared memory has been read: write every destination and complete its bytes."""
    if is_behind(ctx, n):
        return S.S_NEXT
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    from_shared = in_shared(A.kind)
    source = shared_pointer(ctx, A.cta, A.address, A.bytes) if from_shared else global_pointer(ctx, A.address, A.bytes)
    if from_shared:
        source = S.ctas(ctx)[A.cta].shared + A.address
    if source == 0:
        return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, A.address, A.bytes, 0)
    own = S.ctas(ctx)[A.cta]
    for rank in range(own.cluster_size):
        if not is_destination(ctx, A, rank):
            continue
        slot = own.cluster_slot + rank
        if c.values:
            move(S.ctas(ctx)[slot].shared + A.shared, source, A.bytes, S.instructions(ctx)[A.pc].imm5)
        status = finish_load(ctx, n, slot, A.bytes)
        if status != S.S_NEXT:
            return status
    retire(ctx, n)
    return S.S_NEXT


def complete_bulk_store(n, time, unused, ctx):
    """First the source has been read, then the data has arrived."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    if A.state != S.A_FLYING:
        finish_store(ctx, n)
        return S.S_NEXT
    if is_behind(ctx, n):
        return S.S_NEXT
    target = global_pointer(ctx, A.address, A.bytes)
    if target == 0:
        return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, A.address, A.bytes, 0)
    if c.values:
        move(target, S.ctas(ctx)[A.cta].shared + A.shared, A.bytes, S.instructions(ctx)[A.pc].imm5)
    source_read(ctx, n)
    return S.S_NEXT


# --- lowering ---------------------------------------------------------------------------------------------------------


def refuse_later(instruction: Instruction, environment: Environment) -> None:
    """Refuse the modifiers of bulk copies that only sm_100 and later have."""
    for modifier in instruction.modifiers:
        if modifier.startswith(("cta_group", "tile::", "im2col::w", "cp_mask", "ignore_oob")):
            raise refuse(
                instruction, f"{instruction.opcode} must not have .{modifier} on sm_90a, which needs sm_100 or later", environment
            )


def reduction_of(instruction: Instruction, environment: Environment) -> str:
    """Return the name of the reduction that an opcode names."""
    found = [name for name in REDUCTIONS[1:] if instruction.has(name)]
    if len(found) != 1:
        raise refuse(instruction, f"{instruction.opcode} must name one reduction of {', '.join(REDUCTIONS[1:])}", environment)
    return found[0]


def _packed_reduction(instruction: Instruction, environment: Environment, is_cluster: bool) -> int:
    reduction = reduction_of(instruction, environment)
    type_ = instruction.types[-1] if instruction.types else ""
    legal = (_CLUSTER_TYPES if is_cluster else _GLOBAL_TYPES)[reduction]
    if type_ not in legal:
        where = "shared memory" if is_cluster else "global memory"
        raise refuse(
            instruction,
            f"{instruction.base} {reduction} in {where} must be of {', '.join(legal)}, not {type_ or 'no type'}",
            environment,
        )
    if (type_ in ("f16", "bf16") and reduction == "add") != instruction.has("noftz"):
        rule = "must have" if not instruction.has("noftz") else "must not have"
        raise refuse(instruction, f"{instruction.opcode} {rule} .noftz, which sums of f16 and bf16 have", environment)
    name = {"b32": "u32", "b64": "u64"}.get(type_, type_)
    return REDUCTIONS.index(reduction) | _FORMATS.index(name) << 8 | DTYPES[name].size_bytes << 16


def _shared_ends(instruction: Instruction) -> tuple[bool, bool]:
    """Return whether destination and source are shared memory, from the order of the state spaces in the opcode."""
    spaces = [m for m in instruction.modifiers if m == "global" or m.startswith("shared::")]
    return spaces[:1] != ["global"], spaces[-1:] != ["global"]


@machine_instruction("cp.async.bulk", "cp.reduce.async.bulk")
def lower_bulk(instruction: Instruction, environment: Environment) -> MachineOp:
    refuse_later(instruction, environment)
    to_shared, from_shared = _shared_ends(instruction)
    is_reduction = instruction.opcode.startswith("cp.reduce")
    packed = _packed_reduction(instruction, environment, to_shared) if is_reduction else 0
    operands = list(instruction.operands)
    dst, dst_offset = address_operand(instruction, operands.pop(0), environment)
    src, src_offset = address_operand(instruction, operands.pop(0), environment)
    size: Operand = operands.pop(0)
    ends = (dst_offset, src_offset)
    ins: tuple[tuple[Operand, str], ...] = ((dst, "u64"), (src, "u64"), (size, "u32"))
    if not to_shared:
        ins = (*ins, (Imm(0), "u64"), (Imm(0), "u32"))
        kind = BULK_REDUCE if is_reduction else BULK_STORE
        return MachineOp(bulk_copy, (), ins, (*ends, 0, kind, 0, packed), completion=complete_bulk_store)
    barrier, barrier_offset = address_operand(instruction, operands.pop(0), environment, "mbarrier")
    multicast = instruction.has("multicast::cluster")
    cta_mask = operands.pop(0) if multicast else Imm(0)
    how = int(multicast) | int(environment.pc in environment.places.elected) << 1
    kind = BULK_LOAD if not from_shared else CLUSTER_REDUCE if is_reduction else BULK_CLUSTER
    ins = (*ins, (barrier, "u64"), (cta_mask, "u32"))
    return MachineOp(bulk_copy, (), ins, (*ends, barrier_offset, kind, how, packed), completion=complete_bulk_load)


@machine_instruction("cp.async.bulk.prefetch")
def lower_prefetch(instruction: Instruction, environment: Environment) -> MachineOp:
    src, src_offset = address_operand(instruction, instruction.operands[0], environment)
    ins = ((Imm(0), "u64"), (src, "u64"), (instruction.operands[1], "u32"), (Imm(0), "u64"), (Imm(0), "u32"))
    return MachineOp(bulk_copy, (), ins, (0, src_offset, 0, PREFETCH, int(environment.pc in environment.places.elected) << 1, 0))
