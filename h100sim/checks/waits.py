"""Tests of mbarriers whose answer nobody looks at: they may have been False, so they order nothing.

Spec: PTX ISA 9.1, "mbarrier.test_wait, mbarrier.try_wait": potentially blocking, returns False when a time limit is
over. A run in which the answer happened to be True shows nothing, so the text decides: whether any way from the
instruction comes to one that reads its predicate.
"""

from __future__ import annotations

from ..ptx.module import Instruction, Label, Reg
from ..ptx.roles import registers_of

_WAITS = ("mbarrier.test_wait", "mbarrier.try_wait")


def untested_waits(instructions: tuple[Instruction, ...]) -> list[int]:
    """Return the indices of the waits whose predicate is never read."""
    return [
        pc
        for pc, instruction in enumerate(instructions)
        if instruction.opcode.startswith(_WAITS)
        and instruction.operands
        and not _is_read(instructions, pc + 1, _predicate(instruction))
    ]


def _predicate(instruction: Instruction) -> int:
    """Return the number of the register that takes the answer, -1 if it is thrown away."""
    found = registers_of(instruction.operands[0])
    return found[0].register.index if found else -1


def _is_read(instructions: tuple[Instruction, ...], start: int, register: int) -> bool:
    """Does any way from an instruction read a register before it is written again?"""
    if register < 0:
        return False
    ahead, seen = [start], set()
    while ahead:
        pc = ahead.pop()
        if pc in seen or pc >= len(instructions):
            continue
        seen.add(pc)
        instruction = instructions[pc]
        if _reads(instruction, register) or instruction.base in ("brx", "call"):
            return True
        is_guarded = instruction.guard is not None
        if instruction.base == "bra":
            ahead += [o.target for o in instruction.operands if isinstance(o, Label)]
        is_end = instruction.base in ("bra", "ret", "exit", "trap")
        if (is_end or _writes(instruction, register)) and not is_guarded:
            continue
        ahead.append(pc + 1)
    return False


def _reads(instruction: Instruction, register: int) -> bool:
    if instruction.guard is not None and instruction.guard.register.index == register:
        return True
    sources = instruction.operands[1:] if _has_destination(instruction) else instruction.operands
    return any(r.register.index == register for operand in sources for r in registers_of(operand))


def _writes(instruction: Instruction, register: int) -> bool:
    found: list[Reg] = registers_of(instruction.operands[0]) if _has_destination(instruction) else []
    return any(r.register.index == register for r in found)


def _has_destination(instruction: Instruction) -> bool:
    """Is the first operand written? Only instructions that may write a predicate matter."""
    if not instruction.operands or instruction.base in ("bra", "bar", "barrier", "st", "red", "cp", "wgmma"):
        return instruction.base in ("bar", "barrier") and "red" in instruction.modifiers
    return instruction.base != "mbarrier" or instruction.opcode.startswith(_WAITS)
