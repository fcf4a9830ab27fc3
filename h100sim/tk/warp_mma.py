"""``warp.mma_*``: products of one warp on register tiles, the tensor core as it was before Hopper.

All four orientations read the same fragments: only the layouts of the tiles differ. Spec: PTX ISA 9.1, "Warp Level
Matrix Multiply-Accumulate Instructions", "Matrix Fragments for mma.m16n8k16", "for mma.m16n8k32".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .builder import current, require_scope, usage
from .complex_tiles import Complex
from .maps import neg
from .register_tiles import RegisterTile
from .tiles import bf16, fl, fp8e4m3, fp8e5m2, half

_FP8 = (fp8e4m3, fp8e5m2)


def mma_AB(d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile) -> None:  # noqa: N802
    """D = A B + C: A is M x K in row layout, B is K x N in column layout; C may be D. PTX: ``mma.sync``."""
    _mma("warp.mma_AB", d, a, b, c, "row", "col")


def mma_ABt(d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile) -> None:  # noqa: N802
    """D = A B^T + C: A is M x K, B is N x K, both in row layout (or fp8); C may be D. PTX: ``mma.sync``."""
    _mma("warp.mma_ABt", d, a, b, c, "row", "row")


def mma_AtB(d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile) -> None:  # noqa: N802
    """D = A^T B + C: A is K x M, B is K x N, both in column layout; C may be D. PTX: ``mma.sync``."""
    _mma("warp.mma_AtB", d, a, b, c, "col", "col")


def mma_AtBt(d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile) -> None:  # noqa: N802
    """D = A^T B^T + C: A is K x M in column layout, B is N x K in row layout; C may be D. PTX: ``mma.sync``."""
    _mma("warp.mma_AtBt", d, a, b, c, "col", "row")


def _mma(name: str, d: Any, a: Any, b: Any, c: Any, a_layout: str, b_layout: str) -> None:
    if any(isinstance(x, Complex) for x in (d, a, b, c)):
        _complex_mma(name, d, a, b, c, a_layout, b_layout)
        return
    require_scope(name, "cta", "warpgroup", "warp")
    _check(name, d, a, b, c, a_layout, b_layout)
    opcode = f"mma.sync.aligned.m16n8k{32 if a.dtype in _FP8 else 16}.row.col.{d.dtype}.{a.dtype}.{b.dtype}.{d.dtype}"
    steps, half_base = a.width if a_layout == "row" else a.height, d.per_base // 2
    for i in range(d.height):
        for j in range(d.width):
            for step in range(steps):
                left = a.base(i, step) if a_layout == "row" else a.base(step, i)
                right = b.base(step, j) if b_layout == "col" else b.base(j, step)
                added = (c if step == 0 else d).base(i, j)
                for n in range(2):
                    part = slice(half_base * n, half_base * (n + 1))
                    operands = (d.base(i, j)[part], left, right[n::2], added[part])
                    current().emit(f"{opcode} " + ", ".join("{" + ", ".join(x) + "}" for x in operands))


def _complex_mma(name: str, d: Any, a: Any, b: Any, c: Any, a_layout: str, b_layout: str) -> None:
    """Multiply complex matrices: four products, one of them with a negated copy of A's imaginary part."""
    if not all(isinstance(x, Complex) for x in (d, a, b, c)):
        raise usage(f"{name} operands must all be complex if one is, not {d}, {a}, {b} and {c}")
    negative = replace(a.imag, _registers=tuple(current().register() for _ in a.imag.registers))
    neg(negative, a.imag)
    _mma(name, d.real, a.real, b.real, c.real, a_layout, b_layout)
    _mma(name, d.real, negative, b.imag, d.real, a_layout, b_layout)
    _mma(name, d.imag, a.real, b.imag, c.imag, a_layout, b_layout)
    _mma(name, d.imag, a.imag, b.real, d.imag, a_layout, b_layout)


def _check(name: str, d: RegisterTile, a: RegisterTile, b: RegisterTile, c: RegisterTile, a_layout: str, b_layout: str) -> None:
    for tile in (d, a, b, c):
        if not isinstance(tile, RegisterTile):
            raise usage(f"{name} operand must be a register tile, not {type(tile).__name__}")
    same = a.dtype is b.dtype and a.dtype in (bf16, half)
    if not same and not (a.dtype in _FP8 and b.dtype in _FP8):
        raise usage(f"{name} A and B must be both bf16, both f16, or both fp8, not {a.dtype} and {b.dtype}")
    if a.dtype in _FP8 and name != "warp.mma_ABt":
        raise usage(f"{name} of fp8 must be mma_ABt, whose operands have K along their rows, not another orientation")
    if (a.layout, b.layout) != (a_layout, b_layout):
        hint = "warp.swap_layout changes one"
        raise usage(f"{name} layouts of A and B must be {a_layout} and {b_layout}, not {a.layout} and {b.layout}: {hint}")
    m, k = (a.rows, a.cols) if a_layout == "row" else (a.cols, a.rows)
    k_b, n = (b.rows, b.cols) if b_layout == "col" else (b.cols, b.rows)
    if k != k_b:
        raise usage(f"{name} B must have the {k} of A along K, not {k_b}")
    if d.dtype is not fl and not (d.dtype is half and a.dtype is half):
        raise usage(f"{name} D must be f32, or f16 for operands of f16, not {d.dtype}")
    for tile in (d, c):
        if (tile.dtype, tile.rows, tile.cols, tile.layout) != (d.dtype, m, n, "row"):
            raise usage(f"{name} C and D must be rt<{d.dtype}, {m}, {n}>, not {tile}")
