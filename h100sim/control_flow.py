"""Where the lanes that a branch parts meet again: at its immediate post-dominator, computed on basic blocks."""

from __future__ import annotations

from .graphs import immediate_dominators
from .ptx.module import Function, Instruction, Label

#: Instructions that end a basic block.
_ENDS_OF_BLOCKS = ("bra", "brx", "ret", "exit", "trap")


def meeting_points(function: Function) -> list[int]:
    """Return, for every instruction, where the sides of a branch there meet again: an index, the number of instructions
    for the end of the function, or -1 for nowhere.

    Lanes that ``trap``, and lanes that ``exit`` where others can return, never come back: those that go on do not wait for
    them.
    """
    code = function.instructions
    n = len(code)
    blocks = basic_blocks(function)
    starts, lasts = [start for start, _ in blocks], [after - 1 for _, after in blocks]
    block_of = {start: k for k, start in enumerate(starts)}
    end = len(starts)
    returns = any(i.base == "ret" for i in code) or not code or code[-1].base not in ("bra", "exit", "trap")
    before: dict[int, list[int]] = {k: [] for k in range(end + 1)}
    for k, last in enumerate(lasts):
        for target in successors(function, last, returns):
            before[block_of.get(target, end)].append(k)
    dominators = immediate_dominators(before, end)
    result = [-1] * n
    for k, last in enumerate(lasts):
        join = dominators.get(k, k)
        if join != k:
            result[last] = starts[join] if join != end else n
    return result


def basic_blocks(function: Function) -> list[tuple[int, int]]:
    """Return the first instruction of every basic block and the one behind its last, in the order of the text."""
    code = function.instructions
    n = len(code)
    leaders = {0} | set(function.labels.values())
    leaders |= {i + 1 for i, instruction in enumerate(code) if instruction.base in _ENDS_OF_BLOCKS}
    starts = sorted(x for x in leaders if x < n)
    return list(zip(starts, [*starts[1:], n][: len(starts)], strict=True))


def successors(function: Function, at: int, returns: bool = True) -> list[int]:
    """Return the instructions that may follow one that ends a block; the number of instructions is the end. ``returns``: lanes that
    ``exit`` do not come to it, since others return."""
    instruction = function.instructions[at]
    found = []
    if instruction.base == "bra":
        target = instruction.operands[0]
        assert isinstance(target, Label)
        found = [target.target]
    elif instruction.base == "brx":
        found = [function.labels[name] for name in branch_targets(function, instruction)]
    elif instruction.base == "ret" or (instruction.base == "exit" and not returns):
        found = [len(function.instructions)]
    if instruction.guard is not None or instruction.base not in _ENDS_OF_BLOCKS:
        found.append(at + 1)
    return found


def branch_targets(function: Function, instruction: Instruction) -> tuple[str, ...]:
    """Return the labels that a ``brx.idx`` chooses from."""
    return function.branch_targets[instruction.operands[-1].name]  # type: ignore[union-attr]
