"""Functions whose accumulators live in memory, as compilers leave them without optimisation (nvcc -G, -Xcicc -O0).

There each wgmma is fed from the stack and its result stored right behind it, long before the wgmma.wait_group of the text.
``ptxas`` sees that and serialises the wgmmas of the function: a fence in front of each, a wait behind it. So it is done here.
Accumulators that stay in registers are left as they are written, and the checks say what is missing.

Measured: ptxas 13.0 on such code, its messages C7519 ("warpgroup.arrive is injected") and C7520 ("wgmma.mma_async instructions
are serialized").
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from .ptx.module import Function, Imm, Instruction, Label, Operand, Reg, Vector
from .ptx.types import split_opcode

_ENDS_OF_BLOCKS = ("bra", "brx", "ret", "exit", "trap", "wgmma")


def serialised(function: Function) -> Function:
    """Return the function with a fence in front of every wgmma and a wait behind it, if its accumulators live in memory; else
    the function itself."""
    code = function.instructions
    multiplies = [k for k, instruction in enumerate(code) if instruction.opcode.startswith("wgmma.mma_async")]
    if not any(_lives_in_memory(code, k) for k in multiplies):
        return function
    chosen = set(multiplies)
    sizes = (4 if k in chosen else 1 for k in range(len(code)))
    place = list(accumulate(sizes, initial=0))
    written: list[Instruction] = []
    for k, instruction in enumerate(code):
        operands = tuple(replace(o, target=place[o.target]) if isinstance(o, Label) else o for o in instruction.operands)
        moved = replace(instruction, operands=operands) if operands != instruction.operands else instruction
        if k not in chosen:
            written.append(moved)
            continue
        written += [
            _like(instruction, "wgmma.fence.sync.aligned"),
            moved,
            _like(instruction, "wgmma.commit_group.sync.aligned"),
            _like(instruction, "wgmma.wait_group.sync.aligned", Imm(0)),
        ]
    labels = {name: place[at] for name, at in function.labels.items()}
    return replace(function, instructions=tuple(written), labels=labels)


def _like(instruction: Instruction, opcode: str, *operands: Operand) -> Instruction:
    """Return an instruction at the place and under the guard of another."""
    base, modifiers, types = split_opcode(opcode)
    return replace(instruction, opcode=opcode, base=base, modifiers=modifiers, types=types, operands=operands)


def _lives_in_memory(code: tuple[Instruction, ...], k: int) -> bool:
    """Is every accumulator of a wgmma written by a mov or ld since the last branch, and stored right behind it?"""
    d = code[k].operands[0] if code[k].operands else None
    if not isinstance(d, Vector):
        return False
    stores = code[k + 1 : k + 1 + len(d.elements)]
    if [i.operands[1:] for i in stores if i.base == "st"] != [(element,) for element in d.elements]:
        return False
    missing = {element.register.index for element in d.elements if isinstance(element, Reg)}
    for instruction in reversed(code[:k]):
        if not missing or instruction.base in _ENDS_OF_BLOCKS:
            break
        target = instruction.operands[0] if instruction.operands else None
        if instruction.base in ("mov", "ld") and isinstance(target, Reg):
            missing.discard(target.register.index)
    return not missing
