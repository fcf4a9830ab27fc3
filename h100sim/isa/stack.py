"""alloca, stacksave, stackrestore: memory that a function takes from its lane's stack while it runs.

Frames of calls grow up from the start of a lane's local memory, this memory grows down from its end. The hidden register
``%dynamic`` holds how many bytes are taken; every call keeps it, so a function gives back what it took when it returns.

Spec: PTX ISA 9.1, "Stack Manipulation Instructions". Measured: ptxas 13.0 rounds addresses down to multiples of 8 unless told
otherwise.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..native import fill_bytes
from ..ptx.module import Instruction
from ..services import fail
from .machine import Environment, MachineOp, current, get, immediate, machine_instruction, operand, put, refuse

_DEFAULT_ALIGN = 8


def allocate(regs, mask, ops, ctx):
    """address, size, %dynamic, %frame; imm0: alignment; imm1: bytes of the function's frame."""
    c = S.context(ctx)
    ins = current(ctx)
    dynamic = operand(ops, 2)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        size = get(regs, operand(ops, 1), lane)
        floor = get(regs, operand(ops, 3), lane) + ins.imm1
        top = c.local_bytes - get(regs, dynamic, lane)
        if size < 0 or size > c.local_bytes or (top - size) & ~(ins.imm0 - 1) < floor:
            return fail(ctx, faults.STACK_OVERFLOW, c.local_bytes, floor + c.local_bytes - top + size, lane)
        address = (top - size) & ~(ins.imm0 - 1)
        fill_bytes(c.local + (c.warp * 32 + lane) * c.local_bytes + address, S.POISON, top - address)
        put(regs, dynamic, lane, c.local_bytes - address)
        put(regs, operand(ops, 0), lane, address)
    return S.S_NEXT


def save(regs, mask, ops, ctx):
    """address, %dynamic."""
    c = S.context(ctx)
    for lane in range(32):
        if (mask >> lane) & 1:
            put(regs, operand(ops, 0), lane, c.local_bytes - get(regs, operand(ops, 1), lane))
    return S.S_NEXT


def restore(regs, mask, ops, ctx):
    """address, %dynamic, %frame; imm0: bytes of the function's frame."""
    c = S.context(ctx)
    for lane in range(32):
        if (mask >> lane) & 1:
            address = get(regs, operand(ops, 0), lane)
            if address < get(regs, operand(ops, 2), lane) + current(ctx).imm0 or address > c.local_bytes:
                return fail(ctx, faults.STACK_POINTER, address, c.local_bytes, lane)
            put(regs, operand(ops, 1), lane, c.local_bytes - address)
    return S.S_NEXT


def _type(instruction: Instruction, environment: Environment) -> str:
    if instruction.types not in (("u32",), ("u64",)):
        raise refuse(instruction, f"type of {instruction.opcode} must be .u32 or .u64, not {instruction.types}", environment)
    return instruction.types[0]


@machine_instruction("alloca")
def lower_alloca(instruction: Instruction, environment: Environment) -> MachineOp:
    d, size, *given, dynamic, frame, frame_bytes = instruction.operands
    align = immediate(instruction, given[0], "alignment", environment) if given else _DEFAULT_ALIGN
    if align < 1 or align & (align - 1) or align > 1 << 23:
        raise refuse(instruction, f"alignment of {instruction.opcode} must be a power of two up to 2^23, not {align}", environment)
    integers = (max(align, _DEFAULT_ALIGN), immediate(instruction, frame_bytes, "size of the frame", environment))
    ins = ((size, _type(instruction, environment)),)
    return MachineOp(allocate, (d,), ins, integers, pipe="alu", unscored=(dynamic, frame))


@machine_instruction("stacksave")
def lower_stacksave(instruction: Instruction, environment: Environment) -> MachineOp:
    d, dynamic, _, _ = instruction.operands
    _type(instruction, environment)
    return MachineOp(save, (d,), (), pipe="alu", unscored=(dynamic,))


@machine_instruction("stackrestore")
def lower_stackrestore(instruction: Instruction, environment: Environment) -> MachineOp:
    a, dynamic, frame, frame_bytes = instruction.operands
    integers = (immediate(instruction, frame_bytes, "size of the frame", environment),)
    ins = ((a, _type(instruction, environment)),)
    return MachineOp(restore, (), ins, integers, pipe="alu", unscored=(dynamic, frame))
