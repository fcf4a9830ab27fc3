"""Control flow that is not a branch: ret, exit, trap, brkpt, nanosleep; and register counts (setmaxnreg).

Branches are decoded by :mod:`h100sim.program`, since they need to know where lanes meet again.

Spec: PTX ISA 9.1, "Control Flow Instructions", "Miscellaneous Instructions".
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..native import inner
from ..ptx.module import Instruction
from ..services import block, emit_here, fail, wake
from ..trace import Event, Wait
from .machine import (
    Environment,
    MachineOp,
    current,
    first_lane,
    get,
    immediate,
    machine_instruction,
    operand,
    put,
    refuse,
)

_EXITED, _REGISTERS_CHANGED, _CLOCK_READ = int(Event.EXITED), int(Event.REGISTERS_CHANGED), int(Event.CLOCK_READ)
_REGISTERS = int(Wait.REGISTERS)


def end_lanes(regs, mask, ops, ctx):
    """ret in an entry, exit: the lanes end."""
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    emit_here(ctx, _EXITED, -1, 0, 0, 0, 0)
    W.alive &= ~mask
    node.mask &= ~mask
    c.progress += 1
    return S.S_EXITED


def trap(regs, mask, ops, ctx):
    return fail(ctx, faults.TRAP, 0, 0, 0)


def sleep(regs, mask, ops, ctx):
    """nanoseconds: hold the warp about as long."""
    c = S.context(ctx)
    c.issue = max(1, get(regs, operand(ops, 0), first_lane(mask)) * c.clock_mhz // 1000)
    return S.S_NEXT


def read_clock(regs, mask, ops, ctx):
    """imm0: 0 %clock, 1 %clock_hi, 2 %clock64, 3 %globaltimer (ns), 4 and 5 its halves."""
    c = S.context(ctx)
    kind = current(ctx).imm0
    c.clock_reads += 1
    c.issue = S.timing(ctx).clock_cycles if kind < 3 else S.timing(ctx).globaltimer_cycles
    value = c.now
    if kind == 1:
        value = c.now >> 32
    elif kind >= 3:
        value = c.start_ns + c.now * 1000 // c.clock_mhz
        if kind == 5:
            value = value >> 32
    _broadcast(regs, operand(ops, 0), mask, value)
    return S.S_NEXT


def active_mask(regs, mask, ops, ctx):
    _broadcast(regs, operand(ops, 0), mask, mask)
    return S.S_NEXT


@inner
def _broadcast(regs, op, mask, value):
    for lane in range(32):
        if (mask >> lane) & 1:
            put(regs, op, lane, value)


def set_registers(regs, mask, ops, ctx):
    """imm0: registers per thread, imm1: 1 inc, 0 dec."""
    c = S.context(ctx)
    ins = current(ctx)
    W = S.warps(ctx)[c.warp]
    C = S.ctas(ctx)[W.cta]
    count, increase = ins.imm0, ins.imm1
    c.issue = S.timing(ctx).setmaxnreg_cycles
    if c.fixed_registers:
        return S.S_NEXT
    if increase:
        if count < W.registers:
            return fail(ctx, faults.SETMAXNREG, count, W.registers, 1)
        need = (count - W.registers) * 32
        if need > C.register_pool:
            return block(ctx, _REGISTERS, W.cta, 0, need)
        C.register_pool -= need
    else:
        if count > W.registers:
            return fail(ctx, faults.SETMAXNREG, count, W.registers, 0)
        C.register_pool += (W.registers - count) * 32
        # One waiter at a time tries again; it takes what it needs before the next one looks.
        for rank in range(c.warps_per_cta):
            w = W.cta * c.warps_per_cta + rank
            for n in range(S.NODES_PER_WARP):
                node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
                if node.state == S.BLOCKED and node.wait == _REGISTERS:
                    wake(ctx, w, n, c.now + 20)
    W.registers = count
    c.progress += 1
    emit_here(ctx, _REGISTERS_CHANGED, -1, count, 0, 0, 0)
    return S.S_NEXT


def nothing(regs, mask, ops, ctx):
    return S.S_NEXT


@machine_instruction("ret", "exit")
def lower_exit(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(end_lanes, pipe="alu")


@machine_instruction("trap")
def lower_trap(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(trap, pipe="alu")


@machine_instruction("brkpt", "pmevent", "griddepcontrol")
def lower_nothing(instruction: Instruction, environment: Environment) -> MachineOp:
    """Instructions without an effect on the values of one launch: hints, and waits for earlier launches that are over."""
    return MachineOp(nothing, pipe="alu")


@machine_instruction("nanosleep")
def lower_nanosleep(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(sleep, (), ((instruction.operands[0], "u32"),), pipe="alu")


@machine_instruction("activemask")
def lower_activemask(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(active_mask, (instruction.operands[0],), pipe="alu")


CLOCKS = {"clock": 0, "clock_hi": 1, "clock64": 2, "globaltimer": 3, "globaltimer_lo": 4, "globaltimer_hi": 5}


def lower_clock(instruction: Instruction, name: str) -> MachineOp:
    """``mov`` from a register that time changes."""
    return MachineOp(read_clock, (instruction.operands[0],), (), (CLOCKS[name],), pipe="alu", latency=8)


@machine_instruction("setmaxnreg")
def lower_setmaxnreg(instruction: Instruction, environment: Environment) -> MachineOp:
    count = immediate(instruction, instruction.operands[0], "count", environment)
    if not 24 <= count <= 256 or count % 8:
        raise refuse(instruction, f"setmaxnreg count must be a multiple of 8 from 24 to 256, not {count}", environment)
    return MachineOp(set_registers, (), (), (count, int(instruction.has("inc"))), pipe="alu")
