"""Does a function touch registers of a wgmma that it has not waited for? Data flow from the text alone.

What is pending is kept by groups: those that are not committed, then the committed ones from the latest on. wgmma.wait_group N
leaves the latest N. An accumulator must be left alone until then, a fragment in registers must keep its value. A mov between
registers of wgmmas is no access but carries the state over, since compilers write such copies and an assembler removes them.

Measured: ptxas 13.0 and 13.4 on 63 functions of nvcc and Triton: it injects waits (its messages C7514 and C7517) for just those that
are found here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from .control_flow import basic_blocks, successors
from .ptx.module import Function, Imm, Instruction, Reg
from .ptx.roles import is_multiply, is_written, multiplied, registers_of

#: Groups that are told apart; those before are taken together. Spec: wgmma.wait_group takes up to 7.
_GROUPS = 9


class _Group(NamedTuple):
    """What the wgmmas of a group use: registers of accumulators and of fragments."""

    accumulators: frozenset[int] = frozenset()
    fragments: frozenset[int] = frozenset()


_State = tuple[_Group, ...]


def touches_pending(function: Function) -> bool:
    """Does some way through a function come to an access to registers of a pending wgmma?"""
    code = function.instructions
    used = {r.register.index for i in code if is_multiply(i) for registers in multiplied(i) for r in registers}
    if not used:
        return False
    steps = [_relevant(instruction, used) for instruction in code]
    ends = dict(basic_blocks(function))
    before: dict[int, _State] = {0: (_Group(),)}
    waiting = [0]
    while waiting:
        start = heappop(waiting)
        state: _State | None = before[start]
        for k in range(start, ends[start]):
            step = steps[k]
            if step is not None and state is not None:
                state = _after(state, code[k], *step)
        if state is None:
            return True
        for target in successors(function, ends[start] - 1):
            if target in ends and (merged := _merged(before.get(target), state)) != before.get(target):
                before[target] = merged
                if target not in waiting:
                    heappush(waiting, target)
    return False


def _relevant(instruction: Instruction, used: set[int]) -> tuple[frozenset[int], frozenset[int]] | None:
    """Return the registers of wgmmas that an instruction reads and writes; None if it has nothing to do with them."""
    if instruction.base == "wgmma":
        return frozenset(), frozenset()
    reads: set[int] = set()
    writes: set[int] = set()
    for position, operand in enumerate(instruction.operands):
        found = {r.register.index for r in registers_of(operand)} & used
        (writes if is_written(instruction, position) else reads).update(found)
    return (frozenset(reads), frozenset(writes)) if reads or writes else None


def _after(state: _State, instruction: Instruction, reads: frozenset[int], writes: frozenset[int]) -> _State | None:
    """Return what is pending behind an instruction; None if it touches what is pending before it."""
    if is_multiply(instruction):
        accumulators, fragments = (frozenset(r.register.index for r in found) for found in multiplied(instruction))
        if any(fragments & group.accumulators for group in state):
            return None
        return (_Group(state[0].accumulators | accumulators, state[0].fragments | fragments), *state[1:])
    if instruction.base == "wgmma":
        if "commit_group" in instruction.modifiers:
            return _bounded((_Group(), *state))
        count = instruction.operands[0] if "wait_group" in instruction.modifiers else None
        return state[: 1 + count.value] if isinstance(count, Imm) else state
    if _is_copy(instruction, reads, writes):
        return tuple(_Group(*(_carried(registers, reads, writes) for registers in group)) for group in state)
    if any((reads | writes) & group.accumulators or writes & group.fragments for group in state):
        return None
    return state


def _is_copy(instruction: Instruction, reads: frozenset[int], writes: frozenset[int]) -> bool:
    is_move = instruction.base == "mov" and all(isinstance(o, Reg) for o in instruction.operands)
    return is_move and bool(reads) and bool(writes)


def _carried(registers: frozenset[int], source: frozenset[int], target: frozenset[int]) -> frozenset[int]:
    return registers | target if source & registers else registers - target


def _bounded(state: _State) -> _State:
    if len(state) <= _GROUPS:
        return state
    last, further = state[_GROUPS - 1 : _GROUPS + 1]
    return (*state[: _GROUPS - 1], _union(last, further))


def _union(a: _Group, b: _Group) -> _Group:
    return _Group(a.accumulators | b.accumulators, a.fragments | b.fragments)


def _merged(known: _State | None, state: _State) -> _State:
    """Return what may be pending where two ways meet."""
    if known is None:
        return state
    length = max(len(known), len(state))
    pairs = zip(*(s + (_Group(),) * (length - len(s)) for s in (known, state)), strict=True)
    return tuple(_union(a, b) for a, b in pairs)
