"""Named barriers of a CTA: bar, barrier.

A barrier counts threads, and a warp arrives with 32 of them once all of its lanes that have not ended stand at a barrier
instruction with the same id. Without a count, a barrier waits for every warp of the CTA that has not ended.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: bar, barrier". Measured: release times in
h100sim/devices.py, ``Barriers``.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, first_lane, get, machine_instruction, operand, put, refuse
from ..native import inner
from ..ptx.module import Imm, Instruction, Operand, Sink
from ..services import block, emit, emit_here, fail, lanes_at, wake_waiters
from ..trace import Event, Wait

_ARRIVED, _RELEASED, _SYNCED = int(Event.BARRIER_ARRIVED), int(Event.BARRIER_RELEASED), int(Event.BARRIER_SYNCED)
_WAIT = int(Wait.BARRIER)
_SYNC, _ARRIVE, _RED_POPC, _RED_AND, _RED_OR = 0, 1, 2, 3, 4


@inner
def release(ctx, cta, number, delay):
    """Complete the barrier: the next generation begins and the waiting warps go on, ``delay`` cycles later than usual."""
    c = S.context(ctx)
    B = S.barriers(ctx)[cta * S.BARRIERS_PER_CTA + number]
    emit(ctx, c.now, _RELEASED, S.ctas(ctx)[cta].id, -1, -1, 0, -1, number, B.generation, 0, 0)
    B.generation += 1
    B.arrived, B.expected = 0, 0
    c.progress += 1
    wake_waiters(ctx, cta, _WAIT, number, c.now + S.timing(ctx).named_wake_cycles + delay, 0)


@inner
def release_after_exit(ctx, cta):
    """A warp has ended: barriers that wait for every warp of the CTA may now be complete."""
    for number in range(S.BARRIERS_PER_CTA):
        B = S.barriers(ctx)[cta * S.BARRIERS_PER_CTA + number]
        if B.arrived > 0 and B.expected < 0 and B.arrived >= S.ctas(ctx)[cta].alive * 32:
            release(ctx, cta, number, 0)


def barrier(regs, mask, ops, ctx):
    """result, id, count, predicate; imm0: kind of _SYNC .. _RED_OR, imm1: 1 if a count is given, imm2: 1 for .aligned."""
    c = S.context(ctx)
    ins = current(ctx)
    T = S.timing(ctx)
    W = S.warps(ctx)[c.warp]
    C = S.ctas(ctx)[W.cta]
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    lane = first_lane(mask)
    number = get(regs, operand(ops, 1), lane)
    if number < 0 or number >= S.BARRIERS_PER_CTA:
        return fail(ctx, faults.BARRIER_ID, number, 0, 0)
    B = S.barriers(ctx)[W.cta * S.BARRIERS_PER_CTA + number]
    kind = ins.imm0
    if node.woken == 1 and node.wait == _WAIT and node.wait_value < B.generation:
        emit_here(ctx, _SYNCED, -1, number, node.wait_value, 0, 0)
        if kind >= _RED_POPC:
            _deliver(ctx, regs, ops, mask, kind, B.waiters, C.warps)
        return S.S_NEXT
    expected = -1
    if ins.imm1 == 1:
        expected = get(regs, operand(ops, 2), lane)
        if expected <= 0 or expected & 31 or expected > C.warps * 32:
            return fail(ctx, faults.BARRIER_COUNT, expected, C.warps * 32, 0)
    if B.arrived == 0:
        B.expected = expected
        B.active = 0
    if kind >= _RED_POPC:
        B.active += _votes(regs, ops, mask)
    union = lanes_at(ctx, c.warp, _WAIT, number)
    if union != W.alive:
        if kind == _ARRIVE:
            return S.S_NEXT
        return block(ctx, _WAIT, number, 0, B.generation)
    B.arrived += 32
    c.progress += 1
    emit_here(ctx, _ARRIVED, -1, number, B.arrived, expected if expected > 0 else C.alive * 32, 0 if kind == _ARRIVE else 1)
    if B.arrived >= (expected if expected > 0 else C.alive * 32):
        generation = B.generation
        B.waiters = B.active
        release(ctx, W.cta, number, T.named_arrive_delay_cycles if kind == _ARRIVE else 0)
        if kind != _ARRIVE:
            emit_here(ctx, _SYNCED, -1, number, generation, 0, 0)
            c.issue = T.named_release_cycles
            if kind >= _RED_POPC:
                _deliver(ctx, regs, ops, mask, kind, B.waiters, C.warps)
        return S.S_NEXT
    if kind == _ARRIVE:
        c.issue = T.named_arrive_cycles
        return S.S_NEXT
    return block(ctx, _WAIT, number, 0, B.generation)


@inner
def _votes(regs, ops, mask):
    count = 0
    for lane in range(32):
        if (mask >> lane) & 1:
            count += get(regs, operand(ops, 3), lane)
    return count


@inner
def _deliver(ctx, regs, ops, mask, kind, count, warps):
    c = S.context(ctx)
    threads = min(warps * 32, c.block_x * c.block_y * c.block_z)
    value = count
    if kind == _RED_AND:
        value = 1 if count == threads else 0
    elif kind == _RED_OR:
        value = 1 if count > 0 else 0
    for lane in range(32):
        if (mask >> lane) & 1:
            put(regs, operand(ops, 0), lane, value)


@machine_instruction("bar", "barrier")
def lower_barrier(instruction: Instruction, environment: Environment) -> MachineOp:
    parts = instruction.opcode.split(".")
    operands: list[Operand] = list(instruction.operands)
    result: tuple[Operand, ...] = (Sink(),)
    predicate: Operand = Imm(0)
    kind = _ARRIVE if "arrive" in parts else _SYNC
    if "red" in parts:
        kind = _RED_POPC if "popc" in parts else _RED_AND if "and" in parts else _RED_OR
        result = (operands.pop(0),)
        predicate = operands.pop()
    number = operands.pop(0)
    if isinstance(number, Imm) and not 0 <= number.value < S.BARRIERS_PER_CTA:
        raise refuse(instruction, f"{instruction.base} barrier must be from 0 to 15, not {number.value}", environment)
    has_count = bool(operands)
    count = operands.pop(0) if operands else Imm(32)
    if isinstance(count, Imm) and (count.value % 32 or count.value <= 0):
        raise refuse(instruction, f"{instruction.base} thread count must be a multiple of 32, not {count.value}", environment)
    if kind == _ARRIVE and not has_count:
        raise refuse(instruction, f"{instruction.opcode} must have a thread count", environment)
    aligned = int(instruction.base == "bar" or "aligned" in parts)
    ins = ((number, "u32"), (count, "u32"), (predicate, "pred"))
    return MachineOp(barrier, result, ins, (kind, int(has_count), aligned))
