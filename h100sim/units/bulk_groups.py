"""Bulk groups: cp.async.bulk.commit_group and wait_group, which count the stores of the TMA engine by lane.

Spec: PTX ISA 9.1, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from .. import state as S
from ..isa.machine import Environment, MachineOp, current, first_lane, machine_instruction, refuse
from ..native import i32
from ..ptx.module import Imm, Instruction
from ..services import block, emit_here
from ..trace import Event, Wait
from .tma_engine import is_store

_COMMITTED, _WAITED = int(Event.BULK_COMMITTED), int(Event.BULK_WAITED)
_WAIT = int(Wait.BULK)


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


@machine_instruction("cp.async.bulk.commit_group")
def lower_commit(instruction: Instruction, environment: Environment) -> MachineOp:
    () = instruction.operands
    return MachineOp(commit_group)


@machine_instruction("cp.async.bulk.wait_group")
def lower_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    (count,) = instruction.operands
    if not isinstance(count, Imm) or count.value < 0:
        raise refuse(instruction, f"{instruction.opcode} count must be a non-negative immediate", environment)
    return MachineOp(wait_group, (), (), (min(count.value, 63), int(instruction.has("read"))))
