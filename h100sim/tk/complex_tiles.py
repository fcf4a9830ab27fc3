"""Complex tiles, vectors and tensors: pairs of a real and an imaginary part, in ThunderKittens' names (crt, cst, ...).

Operations that treat both parts alike take pairs wherever they take a tile: loads, stores, TMA copies, copies, fills, sums,
layouts. ``mul`` and the products of matrices are complex: four real ones each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..dtypes import ElementType
from .builder import usage
from .global_memory import GlobalTensor
from .register_tiles import RegisterTile, rt
from .register_vectors import RegisterVector, rv
from .tiles import SharedTile, SharedVector, st, sv


@dataclass(frozen=True)
class Complex:
    """A pair of tiles, vectors or tensors of one kind; indexing an array of them takes both parts."""

    real: Any
    imag: Any

    def __getitem__(self, index: Any) -> Complex:
        return Complex(self.real[index], self.imag[index])

    def __str__(self) -> str:
        return f"complex {self.real}"


def crt(dtype: ElementType, rows: int, cols: int, layout: str = "row") -> Complex:
    """Make a complex register tile."""
    return Complex(rt(dtype, rows, cols, layout), rt(dtype, rows, cols, layout))


def crv(dtype: ElementType, length: int, layout: str = "naive") -> Complex:
    """Make a complex register vector."""
    return Complex(rv(dtype, length, layout), rv(dtype, length, layout))


def cst(dtype: ElementType, rows: int, cols: int, *, swizzle: int | None = None, count: int | tuple[int, ...] = ()) -> Complex:
    """Make a complex shared tile (``count``: an array of them)."""
    return Complex(*(st(dtype, rows, cols, swizzle=swizzle, count=count) for _ in range(2)))


def csv(dtype: ElementType, length: int, *, count: int = 1) -> Complex:
    """Make a complex shared vector (``count``: an array of them)."""
    return Complex(*(sv(dtype, length, count=count) for _ in range(2)))


def cgl(real: GlobalTensor, imag: GlobalTensor) -> Complex:
    """Return two ``gl`` arguments of one layout as a complex tensor."""
    for tensor in (real, imag):
        if not isinstance(tensor, GlobalTensor) or tensor.layout != real.layout:
            raise usage(f"parts of tk.cgl must be gl arguments of one layout, not {real} and {imag}")
    return Complex(real, imag)


def with_complex(function: Callable[..., Any], for_pairs: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, which hands calls with a complex argument to ``for_pairs``. Raises UsageError where the others are
    not complex, too, but tiles, vectors or tensors.
    """

    @functools.wraps(function)
    def either(*args: Any, **options: Any) -> Any:
        if not any(isinstance(x, Complex) for x in args):
            return function(*args, **options)
        return for_pairs(*args, **options)

    return either


def componentwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, which treats the real and the imaginary parts of complex arguments one after the other."""

    def for_pairs(*args: Any, **options: Any) -> None:
        for x in args:
            if isinstance(x, (RegisterTile, RegisterVector, SharedTile, SharedVector, GlobalTensor)):
                name = getattr(function, "__name__", "operation")
                raise usage(f"operands of {name} must be complex if one is, not {x}: take .real and .imag, or tk.cgl of two gl")
        for part in ("real", "imag"):
            function(*(getattr(x, part) if isinstance(x, Complex) else x for x in args), **options)

    return with_complex(function, for_pairs)
