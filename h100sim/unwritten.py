"""Registers that are read where nothing can have written them: data flow over the basic blocks of a linked program.

A register counts as written where any instruction on any way from the entry may have written it, so a guarded write is one,
and so is one in a branch that was not taken: what is found is wrong in every run that comes there. ``ptxas`` takes such
texts, and the register then holds what its last owner left there.

A store of one byte from a register without any write is not found: nvcc without optimisation writes objects without
members in this way. Measured: nvcc 13.0, ``-G`` and ``-Xcicc -O0``, arguments and copies of empty classes of libcu++ and CUB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from .hazard import UnwrittenRead
from .isa.lane import LaneOp
from .isa.machine import MachineOp
from .linker import Linked
from .ptx.module import Instruction, Label, registers_in
from .ptx.types import SIZES

Lowered = LaneOp | MachineOp | None

#: Instructions that may end a basic block: a lane goes on elsewhere, or not at all.
_TURNS = frozenset(("bra", "brx", "call", "ret", "exit", "trap"))


@dataclass
class _Block:
    """``exposed``: (instruction, register) read before the block writes the register; ``writes``: registers; ``behind``: the first
    instructions of the blocks that may follow."""

    exposed: list[tuple[int, int]] = field(default_factory=list)
    writes: set[int] = field(default_factory=set)
    behind: tuple[int, ...] = ()


def unwritten_reads(linked: Linked, lowered: Sequence[Lowered]) -> tuple[UnwrittenRead, ...]:
    """Return what a linked program reads that nothing can have written; ``lowered``: its instructions (None: a branch)."""
    code, registers = linked.function.instructions, linked.function.registers
    blocks = _blocks(linked, lowered)
    # Only registers that some block reads before it writes them need to be followed.
    bit_of: dict[int, int] = {}
    for block in blocks.values():
        for _, register in block.exposed:
            bit_of.setdefault(register, 1 << len(bit_of))
    before = _may_be_written(blocks, bit_of)
    found = {
        (pc, register)
        for start, block in blocks.items()
        for pc, register in block.exposed
        if start in before and not before[start] & bit_of[register]
    }
    return tuple(UnwrittenRead(pc, registers[r].name, code[pc].line, r in _guard(code[pc])) for pc, r in sorted(found))


def _blocks(linked: Linked, lowered: Sequence[Lowered]) -> dict[int, _Block]:
    """Return the basic blocks by their first instruction."""
    code = linked.function.instructions
    written = {r.index for r in (linked.frame, linked.dynamic) if r}
    hidden = frozenset(written)
    writes = [registers_in(op.outs) if op is not None else [] for op in lowered]
    written.update(*writes)
    turns = [pc for pc, instruction in enumerate(code) if instruction.base in _TURNS]
    returns = tuple(pc + 1 for pc, call in linked.calls.items() if call.targets)
    behind = {pc: found for pc in turns if (found := _successors(linked, pc, returns)) is not None}
    starts = {0, *(target for targets in behind.values() for target in targets), *(pc + 1 for pc in behind)}
    blocks: dict[int, _Block] = {}
    block = _Block()
    for pc, (instruction, op) in enumerate(zip(code, lowered, strict=True)):
        if pc in starts:
            block = blocks[pc] = _Block()
        for register in _reads(instruction, op, written):
            if register not in block.writes and register not in hidden:
                block.exposed.append((pc, register))
        block.writes.update(writes[pc])
        if pc + 1 in starts:
            block.behind = tuple(target for target in behind.get(pc, (pc + 1,)) if target < len(code))
    return blocks


def _successors(linked: Linked, pc: int, returns: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the instructions that may follow one that ends a basic block; None for others. ``returns``: those behind calls."""
    instruction = linked.function.instructions[pc]
    call = linked.calls.get(pc)
    targets: tuple[int, ...]
    if instruction.base == "bra":
        targets = tuple(o.target for o in instruction.operands if isinstance(o, Label))
    elif instruction.base == "brx":
        targets = linked.jumps[pc]
    elif call and call.targets:
        targets = tuple(start for _, start, _ in call.targets)
    elif instruction.base == "call":
        return None
    else:
        targets = returns if instruction.has("return") else ()
    return (*targets, pc + 1) if instruction.guard is not None else targets


def _may_be_written(blocks: dict[int, _Block], bit_of: dict[int, int]) -> dict[int, int]:
    """Return, for every block that the entry reaches, the bits of the registers that may have been written before it."""
    own = {start: sum(bit_of[r] for r in block.writes if r in bit_of) for start, block in blocks.items()}
    before = dict.fromkeys(blocks.keys() & {0}, 0)
    # The first of the text comes first, so that most blocks are looked at once or twice.
    waiting, queued = list(before), set(before)
    while waiting:
        start = heappop(waiting)
        queued.discard(start)
        after = before[start] | own[start]
        for target in blocks[start].behind:
            known = before.get(target)
            if known is None or after & ~known:
                before[target] = after | (known or 0)
                if target not in queued:
                    queued.add(target)
                    heappush(waiting, target)
    return before


def _reads(instruction: Instruction, op: Lowered, written: set[int]) -> list[int]:
    """Return the registers that an instruction reads; ``written``: those that any instruction writes."""
    found = registers_in([operand for operand, _ in op.ins]) if op is not None else []
    if instruction.base == "st" and SIZES.get(instruction.types[-1]) == 1:
        ignored = set(registers_in(instruction.operands[1:2])) - written
        found = [register for register in found if register not in ignored]
    return [*found, *_guard(instruction)]


def _guard(instruction: Instruction) -> tuple[int, ...]:
    return (instruction.guard.register.index,) if instruction.guard is not None else ()
