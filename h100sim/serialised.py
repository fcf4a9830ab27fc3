"""Functions that touch registers of wgmmas which they have not waited for: ``ptxas`` injects the waits, and so it is done here.

Compilers leave accumulators in memory without optimisation (nvcc -G, -Xcicc -O0): each wgmma is fed from the stack and its result
stored right behind it, long before the wgmma.wait_group of the text. There a fence goes in front of each wgmma, a commit and a wait
behind it, and nobody is to blame.

In other functions (Triton adds up partial sums of fp8 in this way) the wait behind each wgmma leaves no event, so the checks still say
what is missing in the text; the values are those of a GPU.

Measured: ptxas 13.0 on such code, its messages C7514, C7520 ("wgmma.mma_async instructions are serialized"), C7517
("warpgroup.wait is injected") and C7519 ("warpgroup.arrive is injected").
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from .pending import touches_pending
from .ptx.module import Function, Imm, Instruction, Label, Operand, Reg, Vector
from .ptx.roles import is_multiply
from .ptx.types import split_opcode

#: An opcode that no text has: wait for all wgmmas that were issued, and leave no event.
INJECTED_WAIT = "wgmma.wait_group.(injected)"

_ENDS_OF_BLOCKS = ("bra", "brx", "ret", "exit", "trap", "wgmma")


def serialised(function: Function) -> Function:
    """Return the function with waits behind its wgmmas, if it touches registers of pending ones; else the function itself."""
    if not touches_pending(function):
        return function
    code = function.instructions
    chosen = {k for k, instruction in enumerate(code) if is_multiply(instruction)}
    fences = any(_lives_in_memory(code, k) for k in chosen)
    sizes = ((4 if fences else 2) if k in chosen else 1 for k in range(len(code)))
    place = list(accumulate(sizes, initial=0))
    written: list[Instruction] = []
    for k, instruction in enumerate(code):
        operands = tuple(replace(o, target=place[o.target]) if isinstance(o, Label) else o for o in instruction.operands)
        moved = replace(instruction, operands=operands) if operands != instruction.operands else instruction
        if k not in chosen:
            written.append(moved)
        elif fences:
            written += [
                _like(instruction, "wgmma.fence.sync.aligned"),
                moved,
                _like(instruction, "wgmma.commit_group.sync.aligned"),
                _like(instruction, "wgmma.wait_group.sync.aligned", Imm(0)),
            ]
        else:
            written += [moved, _like(instruction, INJECTED_WAIT)]
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
