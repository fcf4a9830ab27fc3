"""st.async and red.async: stores and reductions to the shared memory of a CTA of the cluster that complete on an mbarrier there.

Each lane's store is an operation of its own in the generic proxy; those of one instruction arrive together, in ascending lanes.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: st.async", "Parallel Synchronization and Communication Instructions:
red.async". Measured: results of every operation in validate/silicon/cluster_store_bits.json; packets of the cluster's network in
validate/silicon/shared_wavefronts.json, ``st.async``; without clusters st.async is an illegal instruction,
validate/silicon/async_stores.json; which mbarrier completes, validate/silicon/tma_limits.json. Assumed: so is red.async; a store
arrives as much later as the barrier of a cluster opens after the last arrival.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..ctas import end_cta_if_done
from ..isa.machine import Environment, MachineOp, current, flatten, get, machine_instruction, operand, refuse
from ..memory.windows import SHARED, shared_offset
from ..native import inner
from ..ptx.module import Instruction
from ..services import ITEM_ASYNC, PRIORITY_UNIT, emit_here, fail, free_async, new_async, push, unit_time
from ..trace import Copy, Event
from .atomics import OPERATIONS, format_of, modify
from .global_path import network_time
from .load_store import address_operand, element_bytes, lane_addresses, vector_length
from .mbarriers import cta_and_offset, find
from .tma_engine import barrier_offset, finish_load, has_room

_ISSUED = int(Event.TMA_ISSUED)
_STORE, _REDUCE = int(Copy.ASYNC_STORE), int(Copy.ASYNC_REDUCE)
_EXCHANGE = OPERATIONS.index("exch")

_STORE_TYPES = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
#: Spec: "red.async", the table of operations and types. Measured: ptxas 13.0 takes .add.s64, too, and makes the code of .add.u64.
_REDUCE_TYPES: dict[str, tuple[str, ...]] = {
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "add": ("u32", "s32", "u64", "s64"),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}


def issue(regs, mask, ops, ctx):
    """[a], value.., [mbarrier]; imm0, imm1 address offsets, imm2 bytes of a value, imm3 how many, imm4 operation and
    format << 8."""
    c, ins = S.context(ctx), current(ctx)
    cta = S.warps(ctx)[c.warp].cta
    total = ins.imm2 * ins.imm3
    kind = _STORE if ins.imm4 & 0xFF == _EXCHANGE else _REDUCE
    if S.ctas(ctx)[cta].cluster_size == 1:
        return fail(ctx, faults.ASYNC_WITHOUT_CLUSTER, 0, 0, 0)
    if not has_room(ctx, mask):
        return S.S_GROW
    first, before = -1, -1
    done = network_time(ctx, lane_addresses(ctx, regs, ops, 0, ins.imm0, mask), total) + S.timing(ctx).cluster_release_cycles
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        address = get(regs, operand(ops, 0), lane) + ins.imm0
        slot, at = cta_and_offset(ctx, cta, address)
        if slot < 0:
            return fail(ctx, faults.CLUSTER_RANK, address >> 24, S.ctas(ctx)[cta].cluster_size, 0)
        if at & (total - 1):
            return fail(ctx, faults.MISALIGNED, address, total, SHARED)
        if at + total > c.shared_size:
            return fail(ctx, faults.OUT_OF_RANGE_SHARED, at, total, c.shared_size)
        barrier = barrier_offset(ctx, get(regs, operand(ops, 1 + ins.imm3), lane) + ins.imm1)
        m = find(ctx, slot, barrier)
        if m < 0:
            return fail(ctx, faults.MBARRIER_UNINITIALISED, barrier, 0, 0)
        n = new_async(ctx, kind)
        A = S.asyncs(ctx)[n]
        A.mbarrier, A.shared, A.lane, A.bytes, A.multicast = barrier, at, lane, total, 0
        A.arrived, A.peer, A.state = slot, -1, S.A_FLYING
        for k in range(ins.imm3):
            A.coords[k] = get(regs, operand(ops, 1 + k), lane)
        if before < 0:
            first = n
        else:
            S.asyncs(ctx)[before].peer = n
        before = n
        emit_here(ctx, _ISSUED, A.identity, kind, total, shared_offset(ctx, slot, at), S.mbarriers(ctx)[m].identity)
    push(ctx, unit_time(ctx, done), PRIORITY_UNIT, ITEM_ASYNC, first)
    return S.S_NEXT


@inner
def store(target, size, count, packed, A):
    """Write or reduce the values of one lane."""
    for k in range(count):
        modify(target + k * size, size, packed & 0xFF, packed >> 8, size, A.coords[k], np.int64(0))


def complete(n, time, unused, ctx):
    """Every store of an instruction arrives and completes its bytes; ``peer`` is the next one, ``arrived`` the CTA written."""
    c = S.context(ctx)
    cta = S.asyncs(ctx)[n].cta
    while n >= 0:
        A = S.asyncs(ctx)[n]
        c.warp, c.pc = A.warp, A.pc
        ins = current(ctx)
        following = A.peer
        if c.values:
            store(S.ctas(ctx)[A.arrived].shared + A.shared, ins.imm2, ins.imm3, ins.imm4, A)
        status = finish_load(ctx, n, A.arrived, A.bytes)
        if status != S.S_NEXT:
            return status
        free_async(ctx, n)
        n = following
    end_cta_if_done(ctx, cta)
    return S.S_NEXT


@machine_instruction("st.async")
def lower_store(instruction: Instruction, environment: Environment) -> MachineOp:
    type_, count = instruction.types[-1], vector_length(instruction)
    if type_ not in _STORE_TYPES or element_bytes(instruction)[0] * count > 16:
        raise refuse(instruction, f"{instruction.opcode} must store up to 16 bytes of {', '.join(_STORE_TYPES)}", environment)
    return _lower(instruction, _EXCHANGE, count, environment)


@machine_instruction("red.async")
def lower_reduce(instruction: Instruction, environment: Environment) -> MachineOp:
    operation = next((m for m in instruction.modifiers if m in _REDUCE_TYPES), "")
    legal = _REDUCE_TYPES.get(operation, ())
    if instruction.types[-1] not in legal:
        rule = f"be of {', '.join(legal)}" if legal else f"name one of {', '.join(_REDUCE_TYPES)}"
        raise refuse(instruction, f"red.async {operation or 'operation'} must {rule}, not {instruction.types[-1]}", environment)
    return _lower(instruction, OPERATIONS.index(operation), 1, environment)


def _lower(instruction: Instruction, operation: int, count: int, environment: Environment) -> MachineOp:
    if not instruction.has("mbarrier::complete_tx::bytes"):
        raise refuse(
            instruction, f"{instruction.opcode} must complete on an mbarrier on sm_90a (.mbarrier::complete_tx::bytes)", environment
        )
    base, offset = address_operand(instruction, instruction.operands[0], environment)
    values = flatten(instruction.operands[1])
    if len(values) != count:
        raise refuse(instruction, f"{instruction.opcode} source must have {count} elements, not {len(values)}", environment)
    barrier, barrier_offset = address_operand(instruction, instruction.operands[2], environment, "mbarrier")
    type_ = instruction.types[-1]
    ins = ((base, "u64"), *((v, type_) for v in values), (barrier, "u64"))
    packed = operation | (0 if operation == _EXCHANGE else format_of(type_)) << 8
    integers = (offset, barrier_offset, element_bytes(instruction)[0], count, packed)
    return MachineOp(issue, (), ins, integers, completion=complete)
