"""Tiles in the registers of a warp (rt).

A register tile belongs to a warp: the four warps of a warpgroup hold 16 rows each of a 64-row accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..dtypes import ElementType
from .builder import Scope, current, require_owner, require_scope, usage
from .control import lane
from .scalars import Int
from .tiles import BASE_ROWS, base_cols, check_dtype, check_shape, fl

if TYPE_CHECKING:
    from ..layouts.fragments import Fragment


@dataclass(eq=False)
class RegisterTile:
    """A tile in the registers of one warp, in base tiles of 16x16.

    Layout "row": register k (0 to 3), half e of lane l hold row 8 (k % 2) + l / 4, column 8 (k / 2) + 2 (l % 4) + e.
    Layout "col": row 8 (k / 2) + 2 (l % 4) + e, column 8 (k % 2) + l / 4. Base tiles of fp8 have 16x32 elements:
    quarter e of register k holds row 8 (k % 2) + l / 4, column 16 (k / 2) + 4 (l % 4) + e.
    ``registers`` are base tile after base tile: f32 tiles have one register per (k, e), others one per k.
    Spec: PTX ISA 9.1, "Register Fragments" of wgmma: a warp's rows of D, and of A in registers; "Matrix Fragments for
    mma.m16n8k16": column layout is that of B.
    """

    dtype: ElementType
    rows: int
    cols: int
    layout: str = "row"
    made_by: Scope = field(default_factory=lambda: current().scope, repr=False)
    _registers: tuple[str, ...] = field(default=(), repr=False)

    @property
    def height(self) -> int:
        return self.rows // BASE_ROWS

    @property
    def width(self) -> int:
        return self.cols // base_cols(self.dtype)

    @property
    def per_base(self) -> int:
        """Registers of a base tile."""
        return 8 if self.dtype is fl else 4

    @property
    def name(self) -> str:
        return current().name_of(self, "rt")

    def __str__(self) -> str:
        return f"rt<{self.dtype}, {self.rows}, {self.cols}{', col' if self.layout == 'col' else ''}>"

    def fragment(self) -> Fragment:
        """Return which lane and register hold each element, as records (rows, cols) of ``h100sim.fragment``."""
        from ..layouts.fragments import FRAGMENT, Fragment

        row, col = np.indices((self.rows, self.cols))
        tile = row // BASE_ROWS * self.width + col // base_cols(self.dtype)
        if self.layout == "col":
            row, col = col, row
        half = base_cols(self.dtype) // 2
        per_register = half // 4
        k, e = row % 16 // 8 + 2 * (col % (2 * half) // half), col % per_register
        owner = np.zeros((self.rows, self.cols), FRAGMENT)
        owner["lane"] = 4 * (row % 8) + col % half // per_register
        if self.dtype is fl:
            owner["register"] = tile * 8 + 2 * k + e
        else:
            owner["register"], owner["bit"] = tile * 4 + k, e * 8 * self.dtype.size_bytes
        return Fragment.of(owner, str(self), "Rows and columns of one warp.")

    def _repr_svg_(self) -> str | None:
        return self.fragment()._repr_svg_()

    @property
    def registers(self) -> tuple[str, ...]:
        """The PTX registers. Raises UsageError where others than the warps that made the tile would use them."""
        require_owner(self.name, self.made_by)
        return self.declared()

    def declared(self) -> tuple[str, ...]:
        """Return the PTX registers, declared on the first call."""
        if not self._registers:
            count = self.height * self.width * self.per_base
            self._registers = declare(self.name, "f32" if self.dtype is fl else "b32", count)
        return self._registers

    def base(self, i: int, j: int) -> tuple[str, ...]:
        """Return the registers of base tile (i, j)."""
        at = (i * self.width + j) * self.per_base
        return self.registers[at : at + self.per_base]

    def positions(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield every element that a lane holds, of types other than fp8: its register, which half of the register (0 for
        f32), its row and its column without the lane's share of them (:meth:`lane_position`).
        """
        for i in range(self.height):
            for j in range(self.width):
                base, per = self.base(i, j), self.per_base // 4
                for k in range(4):
                    for e in range(2):
                        register, half = (base[2 * k + e], 0) if per == 2 else (base[k], e)
                        near, far = 8 * (k % 2), 8 * (k // 2) + e
                        row, col = (near, far) if self.layout == "row" else (far, near)
                        yield register, half, i * BASE_ROWS + row, j * 16 + col

    def lane_position(self) -> tuple[Int, Int]:
        """Emit the lane's share of the row and the column of its elements."""
        l = Int(lane(), nonnegative=True)  # noqa: E741
        near, far = l >> 2, (l & 3) * 2
        return (near, far) if self.layout == "row" else (far, near)

    def unit(self, i: int, j: int, cols: int) -> tuple[str, ...]:
        """Return the registers of row i of base tiles and columns [j * cols, (j + 1) * cols)."""
        per = cols // base_cols(self.dtype)
        return tuple(r for n in range(j * per, (j + 1) * per) for r in self.base(i, n))

    def subtile(self, rows: int, index: int) -> RegisterTile:
        """Return rows [index * rows, (index + 1) * rows) as a tile that shares the registers."""
        if rows % BASE_ROWS or not 0 <= index < self.rows // max(rows, 1) or rows < BASE_ROWS:
            raise usage(f"rows of a subtile of {self} must be a multiple of {BASE_ROWS} within it, not part {index} of {rows}")
        per = rows // BASE_ROWS
        chosen = [self.base(i, j) for i in range(index * per, (index + 1) * per) for j in range(self.width)]
        return RegisterTile(self.dtype, rows, self.cols, self.layout, self.made_by, tuple(r for base in chosen for r in base))

    def columns(self, first: int, cols: int) -> RegisterTile:
        """Return columns [first, first + cols) as a tile that shares the registers."""
        unit = base_cols(self.dtype)
        if first % unit or cols % unit or not 0 <= first < first + cols <= self.cols:
            last = first + cols
            raise usage(f"columns of a slice of {self} must be multiples of {unit} within it, not {first} to {last}")
        chosen = [self.base(i, j) for i in range(self.height) for j in range(first // unit, (first + cols) // unit)]
        return RegisterTile(self.dtype, self.rows, cols, self.layout, self.made_by, tuple(r for base in chosen for r in base))


def declare(name: str, kind: str, count: int) -> tuple[str, ...]:
    current().declare(f".reg .{kind} %{name}_<{count}>")
    return tuple(f"%{name}_{i}" for i in range(count))


def rt(dtype: ElementType, rows: int, cols: int, layout: str = "row", *, name: str | None = None) -> RegisterTile:
    """Make a register tile of a warp; with 16 rows, a warpgroup of four warps holds 64.

    ``layout``: "row", or "col" (not of fp8) as for a B operand of ``warp.mma_AB``.
    """
    require_scope("tk.rt", "cta", "warpgroup", "warp")
    check_dtype(dtype)
    check_shape("rt", dtype, rows, cols)
    if layout not in ("row", "col") or (layout == "col" and dtype.size_bytes == 1):
        raise usage(f"layout of an rt must be row, or col for types other than fp8, not {layout} for {dtype}")
    tile = RegisterTile(dtype, rows, cols, layout)
    current().register_tiles.append(tile)
    current().watch(tile, name)
    return tile
