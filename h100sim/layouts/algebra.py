"""Layout algebra: functions from coordinates to offsets, given as shape:stride, and how they combine.

A layout (4,8):(1,4) maps the coordinate (i, j) to i*1 + j*4, and the integer k to the same as its k-th coordinate, the
first mode running fastest. Shapes and strides nest alike. Every operation is defined by its post-condition, which the
tests check.

Spec: CUTLASS 4.2 documentation, "CuTe Layout Algebra".
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from h100sim.errors import UsageError

Tree: TypeAlias = "int | tuple[Tree, ...]"


@dataclass(frozen=True)
class Layout:
    """A layout: ``shape`` and ``stride`` are integers or tuples that nest alike. Default strides are compact."""

    shape: Tree
    stride: Tree = ()

    def __post_init__(self) -> None:
        if self.stride == () and self.shape != ():
            object.__setattr__(self, "stride", compact_strides(self.shape))
        if not _nest_alike(self.shape, self.stride):
            raise UsageError(f"layout stride must nest as its shape {_text(self.shape)}, not {_text(self.stride)}")
        if any(s < 1 for s in flatten(self.shape)):
            raise UsageError(f"layout shape must be positive, not {_text(self.shape)}")
        if any(d < 0 for d in flatten(self.stride)):
            raise UsageError(f"layout stride must be at least 0, not {_text(self.stride)}")

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    def __call__(self, *coordinate: Tree) -> int:
        """Return the offset of a coordinate: an integer, or one entry per mode, each of which may nest as the mode."""
        return _offset(coordinate[0] if len(coordinate) == 1 else coordinate, self.shape, self.stride)

    def __iter__(self) -> Iterator[Layout]:
        return iter(self.modes)

    def __getitem__(self, index: int) -> Layout:
        return self.modes[index]

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Return the layout of a text such as ``(4,8):(1,4)`` or ``(4,8)``, as :meth:`__str__` writes it."""
        if not re.fullmatch(r"[\d(),:\s]+", text) or text.count(":") > 1:
            raise UsageError(f"layout must be shape:stride such as (4,8):(1,4), not {text}")
        try:
            # Parentheses around one mode are a tuple, too.
            tuples = text.replace(",)", ")").replace(")", ",)").replace("(,)", "()")
            parts = [ast.literal_eval(part.strip()) for part in tuples.split(":")]
        except (SyntaxError, ValueError):
            raise UsageError(f"layout must be shape:stride such as (4,8):(1,4), not {text}") from None
        return cls(*parts)

    def _repr_svg_(self) -> str | None:
        from .pictures import draw_layout

        return draw_layout(self) if len(self.modes) <= 2 else None

    @property
    def modes(self) -> tuple[Layout, ...]:
        """The top-level modes."""
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(Layout(s, d) for s, d in zip(self.shape, self.stride, strict=True))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return math.prod(flatten(self.shape))

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((s - 1) * d for s, d in _pairs(self))

    def offsets(self) -> list[int]:
        """Return the offset of every integer coordinate, in order."""
        return [self(i) for i in range(self.size)]


def flatten(tree: Tree) -> tuple[int, ...]:
    """Return the integers of a tree, from left to right."""
    if isinstance(tree, int):
        return (tree,)
    return tuple(leaf for branch in tree for leaf in flatten(branch))


def compact_strides(shape: Tree, start: int = 1) -> Tree:
    """Return the strides with which a shape fills [0, size) without gaps, first mode fastest."""
    if isinstance(shape, int):
        return start
    strides = []
    for mode in shape:
        strides.append(compact_strides(mode, start))
        start *= math.prod(flatten(mode))
    return tuple(strides)


def make_layout(*layouts: Layout) -> Layout:
    """Return the layout whose modes are the given ones; its offsets are sums of theirs."""
    return Layout(tuple(x.shape for x in layouts), tuple(x.stride for x in layouts))


def coalesce(layout: Layout) -> Layout:
    """Return the layout with the fewest modes that is the same function of an integer."""
    merged: list[tuple[int, int]] = []
    for s, d in _pairs(layout):
        if s == 1:
            continue
        if merged and merged[-1][0] * merged[-1][1] == d:
            merged[-1] = (merged[-1][0] * s, merged[-1][1])
        else:
            merged.append((s, d))
    return _from_pairs(merged)


def composition(a: Layout, b: Layout) -> Layout:
    """Return the layout that maps i to a(b(i)), with the modes of ``b``.

    UsageError where no layout does so: a stride or shape of ``b`` must divide, or be divided by, the shapes of ``a``,
    and modes of ``b`` must not carry into each other.
    """
    result = _compose(a, b)
    if not isinstance(b.shape, int):
        # Whether sums of modes carry depends on all of them at once; trying every coordinate is the plain way to know.
        wide = Layout((coalesce(a).shape, b.cosize), (coalesce(a).stride, _last_step(a)))
        if any(result(i) != wide(b(i)) for i in range(b.size)):
            raise UsageError(f"composition modes of {b} must not carry into each other in {a}")
    return result


def _last_step(a: Layout) -> int:
    """Return the stride of the mode that continues ``a`` beyond its size."""
    *_, (s, d) = _pairs(coalesce(a))
    return s * d


def _compose(a: Layout, b: Layout) -> Layout:
    if not isinstance(b.shape, int):
        return make_layout(*(_compose(a, mode) for mode in b))
    assert isinstance(b.stride, int)
    modes = list(_pairs(coalesce(a)))
    # The last mode of a goes on for as long as b needs it.
    size, step, found = b.shape, b.stride, []
    for i, (s, d) in enumerate(modes):
        if size == 1 or step == 0:
            break
        if i == len(modes) - 1:
            found.append((size, step * d))
            size = 1
            break
        if step % s and s % step:
            raise UsageError(f"composition stride {b.stride} must divide the shape of {a} or be divided by it")
        taken = min(max(s // step, 1), size)
        if taken > 1:
            if size % taken:
                raise UsageError(f"composition shape {b.shape} must be a multiple of what it takes of {a}, {taken}")
            found.append((taken, step * d))
        size //= taken
        step = -(-step // s)
    if step == 0:
        found.append((size, 0))
    return _from_pairs(found)


def complement(a: Layout, size: int) -> Layout:
    """Return the layout, sorted and coalesced, that steps over what ``a`` leaves out of [0, size).

    Together, as ``make_layout(a, complement(a, size))``, they hit no offset twice and at least all below ``size``.
    ``a`` must hit no offset twice.
    """
    found, reached = [], 1
    for d, s in sorted((d, s) for s, d in _pairs(a) if s > 1):
        if d < reached or d % reached:
            raise UsageError(f"complement layout must hit no offset twice and nest its strides, not {a}")
        found.append((d // reached, reached))
        reached = s * d
    found.append((-(-size // reached), reached))
    return coalesce(_from_pairs(found))


def right_inverse(a: Layout) -> Layout:
    """Return the largest layout r with a(r(i)) = i for all i below its size."""
    starts, start = [], 1
    for s, d in _pairs(a):
        starts.append((d, s, start))
        start *= s
    found, reached = [], 1
    for d, s, first in sorted(x for x in starts if x[1] > 1):
        if d != reached:
            break
        found.append((s, first))
        reached *= s
    return coalesce(_from_pairs(found))


def left_inverse(a: Layout) -> Layout:
    """Return a layout l with l(a(i)) = i for all i below the size of ``a``, which must hit no offset twice."""
    return right_inverse(make_layout(a, complement(a, a.cosize)))


def logical_divide(a: Layout, tiler: Layout) -> Layout:
    """Return ``a`` split in two modes: what lies in the tile that ``tiler`` picks, and the tiles."""
    return composition(a, make_layout(tiler, complement(tiler, a.size)))


def logical_product(a: Layout, tiler: Layout) -> Layout:
    """Return two modes: ``a``, and the places where ``tiler`` repeats it so that no two copies overlap."""
    return make_layout(a, composition(complement(a, a.size * tiler.cosize), tiler))


def _pairs(layout: Layout) -> Iterator[tuple[int, int]]:
    return zip(flatten(layout.shape), flatten(layout.stride), strict=True)


def _from_pairs(pairs: list[tuple[int, int]]) -> Layout:
    if not pairs:
        return Layout(1, 0)
    if len(pairs) == 1:
        return Layout(*pairs[0])
    return Layout(tuple(s for s, _ in pairs), tuple(d for _, d in pairs))


def _nest_alike(shape: Tree, stride: Tree) -> bool:
    if isinstance(shape, int) or isinstance(stride, int):
        return isinstance(shape, int) and isinstance(stride, int)
    return len(shape) == len(stride) and all(map(_nest_alike, shape, stride))


def _offset(coordinate: Tree, shape: Tree, stride: Tree) -> int:
    if isinstance(shape, int) or isinstance(stride, int):
        if not (isinstance(coordinate, int) and isinstance(stride, int)):
            raise UsageError(f"coordinate must be an integer for a mode of shape {_text(shape)}, not {_text(coordinate)}")
        return coordinate * stride
    if isinstance(coordinate, int):
        total = 0
        for i, (s, d) in enumerate(zip(shape, stride, strict=True)):
            size = math.prod(flatten(s))
            total += _offset(coordinate if i == len(shape) - 1 else coordinate % size, s, d)
            coordinate //= size
        return total
    if len(coordinate) != len(shape):
        raise UsageError(f"coordinate must have {len(shape)} entries for shape {_text(shape)}, not {len(coordinate)}")
    return sum(map(_offset, coordinate, shape, stride))


def _text(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({','.join(map(_text, tree))})"
