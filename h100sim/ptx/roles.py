"""What an instruction does with the registers that its operands name, from the text alone: reads or writes."""

from __future__ import annotations

from .module import Address, Instruction, Operand, Pair, Reg, Vector

#: Instructions without a destination register: all their operands are read.
_NO_DESTINATION = frozenset(
    [
        "st",
        "red",
        "stmatrix",
        "mbarrier",
        "cp",
        "bar",
        "barrier",
        "fence",
        "membar",
        "prefetch",
        "prefetchu",
        "bra",
        "brx",
        "call",
        "ret",
        "exit",
        "trap",
        "setmaxnreg",
        "nanosleep",
        "wgmma",
        "griddepcontrol",
        "discard",
        "applypriority",
    ]
)


def registers_of(operand: Operand) -> list[Reg]:
    """Return the registers that an operand names."""
    if isinstance(operand, Reg):
        return [operand]
    if isinstance(operand, Vector):
        return [r for element in operand.elements for r in registers_of(element)]
    if isinstance(operand, Pair):
        return registers_of(operand.first) + registers_of(operand.second)
    if isinstance(operand, Address):
        base = [operand.base] if isinstance(operand.base, Reg) else []
        return base + [r for element in operand.extra for r in registers_of(element)]
    return []


def is_written(instruction: Instruction, position: int) -> bool:
    """Does an instruction write the registers of its operand at a position?"""
    operand = instruction.operands[position]
    return position == 0 and instruction.base not in _NO_DESTINATION and not isinstance(operand, Address)


def is_multiply(instruction: Instruction) -> bool:
    """Is this a wgmma.mma_async?"""
    return instruction.base == "wgmma" and "mma_async" in instruction.modifiers


def multiplied(instruction: Instruction) -> tuple[list[Reg], list[Reg]]:
    """Return the registers of a wgmma.mma_async: those of the accumulator, and those of the fragment A (operands may be missing)."""
    accumulator = [r for operand in instruction.operands[:1] for r in registers_of(operand)]
    return accumulator, [r for operand in instruction.operands[1:2] if isinstance(operand, Vector) for r in registers_of(operand)]
