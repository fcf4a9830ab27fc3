"""cp.async: copies of 4, 8 or 16 bytes from global to shared memory that a thread starts and waits for in groups.

Source and destination are touched when the copy completes. The copies of one instruction of a warp complete together;
groups are counted by lane. Not modelled: cache operators, prefetch sizes and cache hints, which change no result.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: Non-bulk copy", "cp.async.mbarrier.arrive". Assumed: a
copy takes as long as a load from global memory.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..ctas import end_cta_if_done
from ..isa.machine import Environment, MachineOp, current, get, machine_instruction, operand, popcount, refuse
from ..memory.windows import GLOBAL, SHARED, global_pointer, pointer, shared_pointer
from ..native import copy_bytes, fill_bytes, inner
from ..ptx.module import Imm, Instruction, Operand, Reg
from ..services import ITEM_ASYNC, PRIORITY_UNIT, block, emit_here, fail, free_async, new_async, push, unit_time, wake
from ..trace import Access, Event, Wait
from .global_path import load_out
from .load_store import address_operand, lane_addresses, record
from .mbarriers import RANGE, arrive, require

_READ, _WRITE = int(Access.READ) | int(Access.ASYNC), int(Access.WRITE) | int(Access.ASYNC)
_WAIT, _RAISED = int(Wait.CP_ASYNC), int(Event.MBARRIER_RAISED)
_COPY, _ARRIVE = 101, 102
_UNCOMMITTED = -1


def copy(regs, mask, ops, ctx):
    """[dst], [src], source bytes or predicate; imm0, imm1 address offsets, imm2 bytes, imm3 1 if the predicate
    ignores the source, imm4 1 if L1 may hold it."""
    c, ins = S.context(ctx), current(ctx)
    if c.asyncs_open + popcount(mask) > c.async_capacity:
        c.grow = 1
        return S.S_GROW
    size = ins.imm2
    for lane in range(32):  # Every lane is checked before the first copy starts.
        if (mask >> lane) & 1:
            given = get(regs, operand(ops, 2), lane)
            if pointer(ctx, c.warp, lane, SHARED, get(regs, operand(ops, 0), lane) + ins.imm0, size) == 0:
                return S.S_ERROR
            if ins.imm3 == 0 and given > size:
                return fail(ctx, faults.CP_SIZE, given, size, 0)
            if (given == 0) == (ins.imm3 == 1) and pointer(
                ctx, c.warp, lane, GLOBAL, get(regs, operand(ops, 1), lane) + ins.imm1, size
            ) == 0:
                return S.S_ERROR
    reads = 0
    for lane in range(32):
        given = get(regs, operand(ops, 2), lane)
        if (mask >> lane) & 1 and (given == 0) == (ins.imm3 == 1):
            reads |= 1 << lane
    done = unit_time(ctx, load_out(ctx, lane_addresses(ctx, regs, ops, 1, ins.imm1, reads), size, ins.imm4 == 1))
    before = -1
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        n = new_async(ctx, _COPY)
        A = S.asyncs(ctx)[n]
        given = get(regs, operand(ops, 2), lane)
        A.bytes = (size if given == 0 else 0) if ins.imm3 else given
        A.shared = get(regs, operand(ops, 0), lane) + ins.imm0
        A.address = get(regs, operand(ops, 1), lane) + ins.imm1
        A.lane, A.sequence, A.done, A.peer, A.state = lane, _UNCOMMITTED, done, before, S.A_FLYING
        before = n
    push(ctx, done, PRIORITY_UNIT, ITEM_ASYNC, before)
    if reads:
        record(ctx, regs, ops, 1, ins.imm1, reads, size, GLOBAL, _READ)
    record(ctx, regs, ops, 0, ins.imm0, mask, size, SHARED, _WRITE)
    return S.S_NEXT


def complete_copy(n, time, unused, ctx):
    """Copy for every lane of the instruction; ``peer`` is the next record."""
    c = S.context(ctx)
    w, cta = S.asyncs(ctx)[n].warp, S.asyncs(ctx)[n].cta
    while n >= 0:
        A = S.asyncs(ctx)[n]
        following = A.peer
        size = S.instructions(ctx)[A.pc].imm2
        if c.values:
            target = shared_pointer(ctx, cta, A.shared, size)
            if A.bytes > 0:
                copy_bytes(target, global_pointer(ctx, A.address, A.bytes), A.bytes)
            fill_bytes(target + A.bytes, 0, size - A.bytes)
        free_async(ctx, n)
        n = following
    for k in range(S.NODES_PER_WARP):
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + k]
        if node.state == S.BLOCKED and node.wait == _WAIT:
            wake(ctx, w, k, time + 8)
    end_cta_if_done(ctx, cta)
    return S.S_NEXT


@inner
def _is_open(A, w, mask):
    return A.state != S.A_FREE and A.kind == _COPY and A.warp == w and (mask >> A.lane) & 1 == 1


def commit_group(regs, mask, ops, ctx):
    """Each executing lane's copies since its last commit become its next group."""
    c = S.context(ctx)
    W, table = S.warps(ctx)[c.warp], S.asyncs(ctx)
    for n in range(c.async_capacity if c.asyncs_open > 0 else 0):
        if _is_open(table[n], c.warp, mask) and table[n].sequence == _UNCOMMITTED:
            table[n].sequence = W.cp_groups[table[n].lane]
    for lane in range(32):
        W.cp_groups[lane] += (mask >> lane) & 1
    return S.S_NEXT


def wait_group(regs, mask, ops, ctx):
    """imm0: how many of the latest groups may be pending, imm1: 1 to wait for copies that are in no group too."""
    c, ins = S.context(ctx), current(ctx)
    W, table = S.warps(ctx)[c.warp], S.asyncs(ctx)
    for n in range(c.async_capacity if c.asyncs_open > 0 else 0):
        A = table[n]
        if _is_open(A, c.warp, mask) and (ins.imm1 or 0 <= A.sequence < W.cp_groups[A.lane] - ins.imm0):
            return block(ctx, _WAIT, W.id, 0, ins.imm0)
    return S.S_NEXT


def mbarrier_arrive(regs, mask, ops, ctx):
    """[a]; imm0 offset, imm1 1 for .noinc: arrive when the copies that the lane has started are done."""
    c, ins = S.context(ctx), current(ctx)
    if c.asyncs_open + popcount(mask) > c.async_capacity:
        c.grow = 1
        return S.S_GROW
    table = S.asyncs(ctx)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        m = require(ctx, get(regs, operand(ops, 0), lane) + ins.imm0)
        if m < 0:
            return S.S_ERROR
        if ins.imm1 == 0:
            M = S.mbarriers(ctx)[m]
            M.pending += 1
            emit_here(ctx, _RAISED, -1, M.identity, 1, M.pending, M.phase)
            if M.pending >= RANGE:
                return fail(ctx, faults.MBARRIER_OVERFLOW, M.identity, M.pending, 0)
        done = c.now + 1
        for k in range(c.async_capacity):
            if _is_open(table[k], c.warp, 1 << lane):
                done = max(done, table[k].done)
        n = new_async(ctx, _ARRIVE)
        A = table[n]
        A.lane, A.mbarrier, A.state = lane, m, S.A_FLYING
        push(ctx, done, PRIORITY_UNIT, ITEM_ASYNC, n)
    return S.S_NEXT


def complete_arrive(n, time, unused, ctx):
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    cta = A.cta
    c.warp, c.pc, c.mask = A.warp, A.pc, 1 << A.lane
    status = arrive(ctx, A.mbarrier, 1)
    free_async(ctx, n)
    end_cta_if_done(ctx, cta)
    return status


@machine_instruction("cp.async.ca", "cp.async.cg")
def lower_copy(instruction: Instruction, environment: Environment) -> MachineOp:
    operands = list(instruction.operands)
    dst, dst_offset = address_operand(instruction, operands.pop(0), environment)
    src, src_offset = address_operand(instruction, operands.pop(0), environment)
    size = operands.pop(0)
    legal = (16,) if instruction.has("cg") else (4, 8, 16)
    if not isinstance(size, Imm) or size.value not in legal:
        found = size.value if isinstance(size, Imm) else "a register"
        raise refuse(instruction, f"{instruction.opcode} size must be one of {legal}, not {found}", environment)
    if instruction.has("L2::cache_hint"):
        operands.pop()
    given: Operand = operands[0] if operands else size
    ignores = isinstance(given, Reg) and given.register.type == "pred"
    ins = ((dst, "u64"), (src, "u64"), (given, "pred" if ignores else "u32"))
    return MachineOp(
        copy, (), ins, (dst_offset, src_offset, size.value, int(ignores), int(instruction.has("ca"))), completion=complete_copy
    )


@machine_instruction("cp.async.commit_group")
def lower_commit(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(commit_group)


@machine_instruction("cp.async.wait_group", "cp.async.wait_all")
def lower_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    waits_for_all = instruction.opcode == "cp.async.wait_all"
    count = Imm(0) if waits_for_all else instruction.operands[0]
    if not isinstance(count, Imm) or count.value < 0:
        raise refuse(instruction, f"{instruction.opcode} count must be a non-negative immediate", environment)
    return MachineOp(wait_group, (), (), (count.value, int(waits_for_all)))


@machine_instruction("cp.async.mbarrier.arrive")
def lower_arrive(instruction: Instruction, environment: Environment) -> MachineOp:
    base, offset = address_operand(instruction, instruction.operands[0], environment, "mbarrier")
    integers = (offset, int(instruction.has("noinc")))
    return MachineOp(mbarrier_arrive, (), ((base, "u64"),), integers, completion=complete_arrive)
