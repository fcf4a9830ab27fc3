"""Masks of register tiles: keep the elements on one side of a diagonal, a row or a column, and fill the others."""

from __future__ import annotations

from collections.abc import Callable

from .builder import current
from .control import lane
from .floats import Number, number
from .maps import require_f32
from .register_tiles import RegisterTile
from .scalars import Int, Scalar, text
from .tiles import BASE_ROWS, require_int


def tril(dst: RegisterTile, src: RegisterTile, diagonal: Scalar = 0, value: Number = 0.0) -> None:
    """Keep elements with column <= row + ``diagonal``; the others become ``value``. Rows and columns count in this
    warp's tile.
    """
    _mask("warp.tril", dst, src, _distance(diagonal), lambda r, c: c - r, "ge", value)


def triu(dst: RegisterTile, src: RegisterTile, diagonal: Scalar = 0, value: Number = 0.0) -> None:
    """Keep elements with column >= row + ``diagonal``; the others become ``value``."""
    _mask("warp.triu", dst, src, _distance(diagonal), lambda r, c: c - r, "le", value)


def make_causal(dst: RegisterTile, src: RegisterTile, row: Scalar, col: Scalar, value: Number) -> None:
    """Keep elements that are not above the diagonal of a whole matrix, where this warp's tile begins at (row, col)."""
    tril(dst, src, require_int(row, "row") - require_int(col, "col"), value)


def left_fill(dst: RegisterTile, src: RegisterTile, col: Scalar, value: Number) -> None:
    """Fill columns before ``col``."""
    _mask("warp.left_fill", dst, src, _from_column(col), lambda r, c: c, "le", value)


def right_fill(dst: RegisterTile, src: RegisterTile, col: Scalar, value: Number) -> None:
    """Fill columns from ``col`` on."""
    _mask("warp.right_fill", dst, src, _from_column(col), lambda r, c: c, "gt", value)


def upper_fill(dst: RegisterTile, src: RegisterTile, row: Scalar, value: Number) -> None:
    """Fill rows before ``row``."""
    _mask("warp.upper_fill", dst, src, _from_row(row), lambda r, c: r, "le", value)


def lower_fill(dst: RegisterTile, src: RegisterTile, row: Scalar, value: Number) -> None:
    """Fill rows from ``row`` on."""
    _mask("warp.lower_fill", dst, src, _from_row(row), lambda r, c: r, "gt", value)


def _lane_row() -> Int:
    return Int(lane(), nonnegative=True) >> 2


def _lane_col() -> Int:
    return (Int(lane(), nonnegative=True) & 3) * 2


def _distance(diagonal: Scalar) -> Int:
    return _lane_row() - _lane_col() + require_int(diagonal, "diagonal")


def _from_column(col: Scalar) -> Int:
    return require_int(col, "column") - _lane_col()


def _from_row(row: Scalar) -> Int:
    return require_int(row, "row") - _lane_row()


def _mask(
    operation: str,
    dst: RegisterTile,
    src: RegisterTile,
    limit: Int,
    position: Callable[[int, int], int],
    relation: str,
    value: Number,
) -> None:
    """Keep elements for which ``limit <relation> position(row, col)``, row and column without the lane's share of
    them.
    """
    require_f32(operation, dst, src)
    builder = current()
    fill = number(value)
    for i in range(dst.height):
        for j in range(dst.width):
            for index, (d, s) in enumerate(zip(dst.base(i, j), src.base(i, j), strict=True)):
                k, e = divmod(index, 2)
                at = position(i * BASE_ROWS + 8 * (k % 2), j * 16 + 8 * (k // 2) + e)
                keep = builder.register("p")
                builder.emit(f"setp.{relation}.s32 {keep}, {text(limit)}, {at}")
                builder.emit(f"selp.f32 {d}, {s}, {fill}, {keep}")
