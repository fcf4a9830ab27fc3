"""Where an instruction stands in its function: in code of one lane that ``elect.sync`` chose, in code that runs again.

An assembler looks for both. It knows that code which only a chosen lane reaches is run by one lane, and else has a loop over lanes for
instructions that take uniform registers; and registers of code that runs once are not needed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .module import Instruction, Label, Operand, Pair, Reg

#: Opcodes through which compilers hand on whether a lane was chosen.
_HANDS_ON = ("mov", "selp", "setp", "and", "or", "xor", "not", "cvt")


class Places:
    """``elected``: the instructions that only a lane runs which ``elect.sync`` chose. ``repeated``: those of loops."""

    def __init__(self, code: Sequence[Instruction], joins: Sequence[int]):
        self.elected = elected(code, joins)
        self.repeated = repeated(code)


def elected(code: Sequence[Instruction], joins: Sequence[int]) -> frozenset[int]:
    """Return the instructions that only a lane runs which ``elect.sync`` chose, as far as predicates tell that come from it.
    ``joins``: where the lanes of a branch meet again (-1: nowhere)."""
    chosen = _chosen(code)
    found: set[int] = set()
    if not chosen:
        return frozenset()
    for k, instruction in enumerate(code):
        if instruction.guard is None or instruction.guard.register.index not in chosen:
            continue
        if instruction.base == "bra":
            found.update(range(k + 1, joins[k]))
        elif instruction.base in ("ret", "exit"):
            # The lanes that were not chosen have left.
            found.update(range(k + 1, len(code)))
        else:
            found.add(k)
    return frozenset(found)


def repeated(code: Sequence[Instruction]) -> frozenset[int]:
    """Return the instructions that stand between a branch and its target in front of it: those of loops."""
    loops = np.zeros(len(code) + 1, np.int64)
    for k, instruction in enumerate(code):
        for operand in instruction.operands:
            if isinstance(operand, Label) and operand.target <= k:
                loops[operand.target] += 1
                loops[k + 1] -= 1
    return frozenset(np.flatnonzero(np.cumsum(loops)).tolist())


def _chosen(code: Sequence[Instruction]) -> set[int]:
    """Return the registers that say whether a lane was chosen."""
    chosen: set[int] = set()
    for instruction in code:
        if not instruction.operands:
            continue
        result = instruction.operands[0]
        if instruction.base == "elect":
            chosen.update(_registers(result))
        elif instruction.base in _HANDS_ON:
            sources = [register for operand in instruction.operands[1:] for register in _registers(operand)]
            if instruction.guard is not None:
                sources.append(instruction.guard.register.index)
            if chosen.intersection(sources):
                chosen.update(_registers(result))
    return chosen


def _registers(operand: Operand) -> Iterator[int]:
    """Yield the indices of the registers of an operand: one, or both of a pair."""
    for part in (operand.first, operand.second) if isinstance(operand, Pair) else (operand,):
        if isinstance(part, Reg):
            yield part.register.index
