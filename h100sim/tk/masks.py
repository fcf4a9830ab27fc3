"""Masks of register tiles: keep the elements on one side of a diagonal, a row or a column, and fill the others; and
functions of the position. Tiles of f32, bf16 and f16, in both layouts. Rows and columns count in this warp's tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .builder import current, usage
from .conversions import narrowed
from .floats import Float, Number, number
from .maps import require_f32, require_like
from .register_tiles import RegisterTile
from .scalars import Int, Scalar, text
from .tiles import fl, require_int


def tril(dst: RegisterTile, src: RegisterTile, diagonal: Scalar = 0, value: Number = 0.0) -> None:
    """Keep elements with column <= row + ``diagonal``; the others become ``value``. PTX: ``setp``, ``selp``."""
    _mask("warp.tril", dst, src, lambda r, c: r - c + require_int(diagonal, "diagonal"), lambda r, c: c - r, "ge", value)


def triu(dst: RegisterTile, src: RegisterTile, diagonal: Scalar = 0, value: Number = 0.0) -> None:
    """Keep elements with column >= row + ``diagonal``; the others become ``value``. PTX: ``setp``, ``selp``."""
    _mask("warp.triu", dst, src, lambda r, c: r - c + require_int(diagonal, "diagonal"), lambda r, c: c - r, "le", value)


def make_causal(dst: RegisterTile, src: RegisterTile, row: Scalar, col: Scalar, value: Number) -> None:
    """Keep elements that are not above the diagonal of a whole matrix, where this warp's tile begins at (row, col).
    PTX: ``setp``, ``selp``.
    """
    tril(dst, src, require_int(row, "row") - require_int(col, "col"), value)


def make_causal_t(dst: RegisterTile, src: RegisterTile, row: Scalar, col: Scalar, value: Number) -> None:
    """Keep elements that are not below the diagonal of a whole matrix, where this warp's tile begins at (row, col): the
    causal mask of a transposed matrix. PTX: ``setp``, ``selp``.
    """
    triu(dst, src, require_int(row, "row") - require_int(col, "col"), value)


def left_fill(dst: RegisterTile, src: RegisterTile, col: Scalar, value: Number) -> None:
    """Fill columns before ``col``. PTX: ``setp``, ``selp``."""
    _mask("warp.left_fill", dst, src, lambda r, c: require_int(col, "column") - c, lambda r, c: c, "le", value)


def right_fill(dst: RegisterTile, src: RegisterTile, col: Scalar, value: Number) -> None:
    """Fill columns from ``col`` on. PTX: ``setp``, ``selp``."""
    _mask("warp.right_fill", dst, src, lambda r, c: require_int(col, "column") - c, lambda r, c: c, "gt", value)


def upper_fill(dst: RegisterTile, src: RegisterTile, row: Scalar, value: Number) -> None:
    """Fill rows before ``row``. PTX: ``setp``, ``selp``."""
    _mask("warp.upper_fill", dst, src, lambda r, c: require_int(row, "row") - r, lambda r, c: r, "le", value)


def lower_fill(dst: RegisterTile, src: RegisterTile, row: Scalar, value: Number) -> None:
    """Fill rows from ``row`` on. PTX: ``setp``, ``selp``."""
    _mask("warp.lower_fill", dst, src, lambda r, c: require_int(row, "row") - r, lambda r, c: r, "gt", value)


def apply(dst: RegisterTile, src: RegisterTile, function: Callable[[Int, Int, Float], Any]) -> None:
    """Set every element of an f32 tile to ``function(row, column, element)``, which is traced for each element that a
    lane holds. PTX: what the function emits, ``mov``.
    """
    _check("warp.apply", dst, src)
    require_f32("warp.apply", dst, src)
    lane_row, lane_col = dst.lane_position()
    for (d, _, row, col), s in zip(dst.positions(), (r for r, *_ in src.positions()), strict=True):
        result = function(lane_row + row, lane_col + col, Float(s, divergent=True))
        current().emit(f"mov.f32 {d}, {number(result)}")


def _check(operation: str, dst: RegisterTile, src: RegisterTile) -> None:
    require_like(operation, dst, src)
    if not isinstance(dst, RegisterTile):
        raise usage(f"{operation} operand must be a register tile, not {dst}")


def _mask(
    operation: str,
    dst: RegisterTile,
    src: RegisterTile,
    limit_of: Callable[[Int, Int], Int],
    position: Callable[[int, int], int],
    relation: str,
    value: Number,
) -> None:
    """Keep elements for which ``limit <relation> position(row, col)``, row and column without the lane's share of them,
    which ``limit_of`` takes into account.
    """
    _check(operation, dst, src)
    builder = current()
    limit = text(limit_of(*dst.lane_position()))
    fill = number(value) if dst.dtype is fl else narrowed(number(value), dst.dtype)
    halves: list[str] = []
    for (d, half, row, col), (s, *_) in zip(dst.positions(), src.positions(), strict=True):
        keep = builder.register("p")
        builder.emit(f"setp.{relation}.s32 {keep}, {limit}, {position(row, col)}")
        if dst.dtype is fl:
            builder.emit(f"selp.f32 {d}, {s}, {fill}, {keep}")
            continue
        if half == 0:
            halves = [builder.register("h"), builder.register("h")]
            builder.emit(f"mov.b32 {{{halves[0]}, {halves[1]}}}, {s}")
        builder.emit(f"selp.b16 {halves[half]}, {halves[half]}, {fill}, {keep}")
        if half == 1:
            builder.emit(f"mov.b32 {d}, {{{halves[0]}, {halves[1]}}}")
