"""``warp.mma_*``: products of one warp on register tiles, the tensor core as it was before Hopper.

Spec: PTX ISA 9.1, "Warp Level Matrix Multiply-Accumulate Instructions", "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from .builder import current, require_scope, usage
from .register_tiles import RegisterTile
from .tiles import bf16, fl, half


def mma_AB(d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile) -> None:  # noqa: N802
    """D = A B + C: A is M x K in row layout, B is K x N in column layout; C may be D."""
    _mma("warp.mma_AB", d, a, b, c, "col")


def mma_ABt(d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile) -> None:  # noqa: N802
    """D = A B^T + C: A is M x K, B is N x K, both in row layout; C may be D."""
    _mma("warp.mma_ABt", d, a, b, c, "row")


def _mma(name: str, d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile, b_layout: str) -> None:
    require_scope(name, "cta", "warpgroup", "warp")
    _check(name, d, a, b, c, b_layout)
    opcode = f"mma.sync.aligned.m16n8k16.row.col.f32.{a.dtype}.{b.dtype}.f32"
    for i in range(d.height):
        for j in range(d.width):
            for step in range(a.width):
                right = b.base(step, j) if b_layout == "col" else b.base(j, step)
                added = (c if step == 0 else d).base(i, j)
                for n in range(2):
                    halves = (d.base(i, j)[4 * n : 4 * n + 4], a.base(i, step), right[n::2], added[4 * n : 4 * n + 4])
                    current().emit(f"{opcode} " + ", ".join("{" + ", ".join(part) + "}" for part in halves))


def _check(name: str, d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile, b_layout: str) -> None:
    for tile in (d, a, b, c):
        if not isinstance(tile, RegisterTile):
            raise usage(f"{name} operand must be a register tile, not {type(tile).__name__}")
    if a.dtype is not b.dtype or a.dtype not in (bf16, half):
        raise usage(f"{name} A and B must be both bf16 or both f16, not {a.dtype} and {b.dtype}")
    if b.layout != b_layout or a.layout != "row":
        raise usage(f"{name} layouts of A and B must be row and {b_layout}, not {a.layout} and {b.layout}")
    k, n = (b.rows, b.cols) if b_layout == "col" else (b.cols, b.rows)
    if a.cols != k:
        raise usage(f"{name} B must have the {a.cols} of A along K, not {k}")
    for tile in (d, c):
        if (tile.dtype, tile.rows, tile.cols) != (fl, a.rows, n):
            raise usage(f"{name} C and D must be rt<f32, {a.rows}, {n}>, not {tile}")
