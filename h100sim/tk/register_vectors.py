"""Vectors in the registers of a warp (rv): one value per row or column of a register tile, or spread over the lanes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..dtypes import ElementType
from .builder import Scope, current, require_owner, usage
from .control import lane
from .register_tiles import RegisterTile, declare
from .scalars import Int
from .tiles import bf16, fl, half

#: Elements that a register of all lanes together covers, for each layout.
_ELEMENTS = {"ortho": 8, "align": 4, "naive": 32}


@dataclass(eq=False)
class RegisterVector:
    """A vector of a warp, one element per register and lane, 16-bit types in 16-bit registers.

    Layout "ortho" (rows of a row-layout tile): register n of lane l holds element 8 n + l / 4, so 4 lanes hold a copy.
    "align" (its columns): element 8 (n / 2) + 2 (l % 4) + n % 2; 8 lanes hold a copy. "naive": element 32 n + l, no
    copies. Spec: ThunderKittens 2.0 (commit 0b55588d), ``rv``.
    """

    layout: str
    length: int
    dtype: ElementType = fl
    made_by: Scope = field(default_factory=lambda: current().scope, repr=False)
    _registers: tuple[str, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return current().name_of(self, "rv")

    def __str__(self) -> str:
        return f"rv<{self.dtype}, {self.length}, {self.layout}>"

    @property
    def registers(self) -> tuple[str, ...]:
        """The PTX registers. Raises UsageError where others than the warps that made the vector would use them."""
        require_owner(self.name, self.made_by)
        return self.declared()

    def declared(self) -> tuple[str, ...]:
        """Return the PTX registers, declared on the first call."""
        if not self._registers:
            count = -(-self.length // _ELEMENTS[self.layout])
            self._registers = declare(self.name, "f32" if self.dtype is fl else "b16", count)
        return self._registers

    def constant_of(self, n: int) -> int:
        """Return the part of register n's element that all lanes share."""
        return {"ortho": 8 * n, "align": 8 * (n // 2) + n % 2, "naive": 32 * n}[self.layout]

    def lane_element(self) -> Int:
        """Emit the part of the element that depends on the lane."""
        l = Int(lane(), nonnegative=True)  # noqa: E741
        if self.layout == "ortho":
            return l >> 2
        return (l & 3) << 1 if self.layout == "align" else l


def col_vec(tile: RegisterTile, *, name: str | None = None) -> RegisterVector:
    """Make an f32 vector with one value for each row of ``tile``."""
    return _vector("ortho" if tile.layout == "row" else "align", tile.rows, fl, name)


def row_vec(tile: RegisterTile, *, name: str | None = None) -> RegisterVector:
    """Make an f32 vector with one value for each column of ``tile``."""
    return _vector("align" if tile.layout == "row" else "ortho", tile.cols, fl, name)


def rv(dtype: ElementType, length: int, layout: str = "naive", *, name: str | None = None) -> RegisterVector:
    """Make a register vector of f32, bf16 or f16 with a multiple of 16 elements, in layout "naive", "ortho" or
    "align".
    """
    if dtype not in (fl, bf16, half):
        raise usage(f"element type of an rv must be f32, bf16 or f16, not {dtype}")
    if layout not in _ELEMENTS:
        raise usage(f"layout of an rv must be naive, ortho or align, not {layout}")
    if not isinstance(length, int) or length < 16 or length % 16:
        raise usage(f"length of an rv must be a multiple of 16, not {length}")
    return _vector(layout, length, dtype, name)


def _vector(layout: str, length: int, dtype: ElementType, name: str | None) -> RegisterVector:
    vector = RegisterVector(layout, length, dtype)
    current().register_tiles.append(vector)
    current().watch(vector, name)
    return vector
