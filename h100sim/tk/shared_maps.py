"""Element-wise operations of a group of warps on tiles and vectors in shared memory, words of 4 bytes at a time.

Each thread reads its words into registers, does there what ``warp`` does, and writes them back. No barrier is inside: let
the group ``sync`` before others touch the data. Tiles must agree in type, shape and swizzle, so that equal places hold
equal elements.
"""

from __future__ import annotations

from typing import Any

from . import maps
from .builder import Scope, current, usage
from .control import lane, warp_rank_in
from .floats import is_number
from .register_tiles import RegisterTile
from .scalars import Int
from .tiles import SharedAddress, SharedTile, SharedVector, fl

#: Operations by name: what they take beside the destination.
FILLS = ("zero", "one", "pos_infty", "neg_infty")
UNARY = ("copy", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sin", "cos", "neg", "abs", "relu")
BINARY = ("add", "sub", "mul", "div", "max", "min")
_FUNCTIONS = {"abs": maps.absolute, "max": maps.maximum, "min": maps.minimum}
#: Words that a thread holds at a time.
_AT_ONCE = 16


def apply(operation: str, name: str, dst: Any, operands: tuple[Any, ...], group_warps: int) -> None:
    """Emit the operation ``name`` on shared memory, then the fence for asynchronous readers."""
    tiles = [dst, *(x for x in operands if not is_number(x))]
    _check(operation, tiles)
    function: Any = _FUNCTIONS.get(name) or getattr(maps, name)
    builder, threads = current(), 32 * group_warps
    thread = Int(lane(), nonnegative=True)
    if group_warps > 1:
        thread = thread + warp_rank_in(group_warps) * 32
    starts = [(Int(tile.address.in_register()) + thread * 4).register for tile in tiles]
    words = dst.size_bytes // 4
    kind, register = ("f32", "f") if dst.dtype is fl else ("b32", "r")
    for first in range(0, words, threads * _AT_ONCE):
        offsets = range(first, min(first + threads * _AT_ONCE, words), threads)
        guards = [f"@{(thread < words - o).register} " if words - o < threads else "" for o in offsets]
        loaded = []
        for start in starts[1:]:
            registers = tuple(builder.register(register) for _ in offsets)
            for r, o, guard in zip(registers, offsets, guards, strict=True):
                if guard:
                    builder.emit(f"mov.{kind} {r}, {'0f00000000' if kind == 'f32' else 0}")
                builder.emit(f"{guard}ld.shared.{kind} {r}, {SharedAddress(start, 4 * o)}")
            loaded.append(_as_tile(dst, registers))
        result = _as_tile(dst, tuple(builder.register(register) for _ in offsets))
        found = iter(loaded)
        function(result, *(x if is_number(x) else next(found) for x in operands))
        for r, o, guard in zip(result.declared(), offsets, guards, strict=True):
            builder.emit(f"{guard}st.shared.{kind} {SharedAddress(starts[0], 4 * o)}, {r}")
    builder.emit("fence.proxy.async.shared::cta")


def _as_tile(like: SharedTile | SharedVector, registers: tuple[str, ...]) -> RegisterTile:
    """Return registers of words as a register tile, for operations that do not ask where elements lie."""
    cols = len(registers) * 4 // like.dtype.size_bytes * 2
    return RegisterTile(like.dtype, 16, cols, "row", Scope("warp", current().scope.warps), registers)


def _check(operation: str, tiles: list[Any]) -> None:
    for tile in tiles:
        if not isinstance(tile, (SharedTile, SharedVector)):
            raise usage(f"{operation} operand must be a shared tile or vector, or a number, not {type(tile).__name__}")
        if tile.dtype.size_bytes == 1:
            raise usage(f"{operation} operand must be of f32, bf16 or f16, not {tile.dtype}")
        if (isinstance(tile, SharedTile) and (tile.count or not tile.is_contiguous)) or (
            isinstance(tile, SharedVector) and tile.count > 1
        ):
            raise usage(f"{operation} operand must be one whole tile or vector, not an array or a view of {tile.name}")
        if (str(tile), getattr(tile, "swizzle", 0)) != (str(tiles[0]), getattr(tiles[0], "swizzle", 0)):
            raise usage(f"{operation} operands must have one type, shape and swizzle, not {tiles[0]} and {tile}")
