"""Register tiles in another layout, or transposed: 8x8 matrices that movmatrix turns inside a warp.

A register of a 16-bit tile is one 8x8 matrix over the warp. movmatrix transposes it, which is what the other layout
holds; an f32 tile goes through as high and low halves, so its bits survive. fp8 has one layout and cannot be turned.
Spec: PTX ISA 9.1, "movmatrix".
"""

from __future__ import annotations

from .builder import current, require_scope, usage
from .complex_tiles import componentwise
from .register_tiles import RegisterTile
from .tiles import fl


@componentwise
def swap_layout(dst: RegisterTile, src: RegisterTile) -> None:
    """Copy a tile into one of the other layout (row and col). PTX: ``movmatrix`` for each 8x8 matrix, two and
    ``prmt`` for f32.
    """
    operation = "warp.swap_layout"
    _check(operation, dst, src)
    if (dst.rows, dst.cols) != (src.rows, src.cols) or dst.layout == src.layout:
        raise usage(f"{operation} destination must be {src.rows}x{src.cols} in {_other(src.layout)} layout, not {dst}")
    for i in range(src.height):
        for j in range(src.width):
            _turn(src.base(i, j), dst.base(i, j), dst.dtype is fl)


def swap_layout_inplace(tile: RegisterTile) -> RegisterTile:
    """Bring a tile into the other layout; return it under that layout, in the same registers. PTX:
    ``movmatrix``.
    """
    result = RegisterTile(tile.dtype, tile.rows, tile.cols, _other(tile.layout), tile.made_by, tile.registers)
    swap_layout(result, tile)
    return result


@componentwise
def transpose_sep(dst: RegisterTile, src: RegisterTile) -> None:
    """Set ``dst`` to the transposed ``src``. PTX: ``movmatrix`` between equal layouts; between different ones the
    registers are the same, and this is ``mov``.
    """
    operation = "warp.transpose_sep"
    _check(operation, dst, src)
    if (dst.rows, dst.cols) != (src.cols, src.rows):
        raise usage(f"{operation} destination must be {src.cols}x{src.rows}, not {dst}")
    kind = "f32" if src.dtype is fl else "b32"
    for i in range(src.height):
        for j in range(src.width):
            if dst.layout == src.layout:
                _turn(src.base(i, j), dst.base(j, i), dst.dtype is fl)
                continue
            for d, s in zip(dst.base(j, i), src.base(i, j), strict=True):
                current().emit(f"mov.{kind} {d}, {s}")


@componentwise
def transpose_inplace(tile: RegisterTile) -> None:
    """Transpose a square tile. PTX: ``movmatrix``, ``mov``."""
    if tile.rows != tile.cols:
        raise usage(f"warp.transpose_inplace tile must be square, not {tile}: use warp.transpose_sep")
    _check("warp.transpose_inplace", tile, tile)
    kind, register = ("f32", "f") if tile.dtype is fl else ("b32", "r")
    for i in range(tile.height):
        _turn(tile.base(i, i), tile.base(i, i), tile.dtype is fl)
        for j in range(i):
            kept = tuple(current().register(register) for _ in tile.base(i, j))
            _turn(tile.base(i, j), kept, tile.dtype is fl)
            _turn(tile.base(j, i), tile.base(i, j), tile.dtype is fl)
            for d, s in zip(tile.base(j, i), kept, strict=True):
                current().emit(f"mov.{kind} {d}, {s}")


def _check(operation: str, dst: RegisterTile, src: RegisterTile) -> None:
    require_scope(operation, "cta", "warpgroup", "warp")
    for tile in (dst, src):
        if not isinstance(tile, RegisterTile):
            raise usage(f"{operation} operand must be a register tile, not {type(tile).__name__}")
    if dst.dtype is not src.dtype or src.dtype.size_bytes == 1:
        raise usage(f"{operation} operands must have one element type, of 16 or 32 bits, not {dst.dtype} and {src.dtype}")


def _other(layout: str) -> str:
    return "col" if layout == "row" else "row"


def _turn(source: tuple[str, ...], into: tuple[str, ...], is_f32: bool) -> None:
    """Transpose the four 8x8 matrices of a base tile and exchange the two off its diagonal: register k is in rows
    8 (k % 2) and columns 8 (k / 2) of the row layout, the other way round in the column layout.
    """
    builder = current()
    size = 2 if is_f32 else 1
    turned = []
    for k in range(4):
        words = source[k * size : (k + 1) * size]
        turned.append(_turned_f32(words) if is_f32 else (_movmatrix(words[0]),))
    for k in range(4):
        for d, s in zip(into[k * size : (k + 1) * size], turned[2 * (k % 2) + k // 2], strict=True):
            builder.emit(f"mov.{'f32' if is_f32 else 'b32'} {d}, {s}")


def _movmatrix(word: str) -> str:
    register = current().register()
    current().emit(f"movmatrix.sync.aligned.m8n8.trans.b16 {register}, {word}")
    return register


def _turned_f32(pair: tuple[str, ...]) -> tuple[str, str]:
    """Transpose a matrix of f32, two elements of a row in each lane, by its low and its high halves."""
    builder = current()
    words = builder.register(), builder.register()
    for word, register in zip(words, pair, strict=True):
        builder.emit(f"mov.b32 {word}, {register}")
    halves = []
    for selector in ("0x5410", "0x7632"):
        packed = builder.register()
        builder.emit(f"prmt.b32 {packed}, {words[0]}, {words[1]}, {selector}")
        halves.append(_movmatrix(packed))
    results = []
    for selector in ("0x5410", "0x7632"):
        word = builder.register()
        builder.emit(f"prmt.b32 {word}, {halves[0]}, {halves[1]}, {selector}")
        results.append(builder.register("f"))
        builder.emit(f"mov.b32 {results[-1]}, {word}")
    return results[0], results[1]
