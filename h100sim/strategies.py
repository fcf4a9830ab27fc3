"""Hypothesis strategies for tests of this package and of its users. Needs ``hypothesis``.

``hypothesis.strategies.from_type`` knows TensorMap, MatrixDescriptor and Layout once both packages are imported, in
whichever order: Hypothesis calls the entry point, ``h100sim.hypothesis_entry_point``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hypothesis import strategies as st

from h100sim.layouts.algebra import Layout, Tree, flatten
from h100sim.layouts.descriptor import MODES, MatrixDescriptor
from h100sim.layouts.swizzle import SPANS
from h100sim.tma.fields import DTYPES, L2_PROMOTIONS
from h100sim.tma.tensor_map import TensorMap

_ADDRESSES = st.integers(0, 1 << 20).map(lambda k: 0x7F0000000000 + 16 * k)


@st.composite
def _common(draw: st.DrawFn, element: str) -> dict:
    return {
        "swizzle": draw(st.sampled_from(sorted(SPANS))),
        "l2_promotion": draw(st.sampled_from(L2_PROMOTIONS)),
        "oob_fill": draw(st.sampled_from(["zero", "nan"] if DTYPES[element].kind == "f" else ["zero"])),
    }


def _strides(draw: st.DrawFn, row_bytes: int, dims: list[int]) -> list[int]:
    """Draw strides of a tensor whose rows do not overlap."""
    strides, stride = [], row_bytes
    for dim in dims[1:]:
        stride = -(-stride // 16) * 16 + 16 * draw(st.integers(0, 2))
        strides.append(stride)
        stride *= dim
    return strides


def _inner(draw: st.DrawFn, size_bytes: int, swizzle: str) -> int:
    """Draw an inner box extent in elements: whole 16-byte chunks, within the span of the swizzle."""
    most = SPANS[swizzle] // 16 if swizzle != "none" else min(256 * size_bytes, 256) // 16
    return 16 * draw(st.integers(1, most)) // size_bytes


@st.composite
def tiled_maps(draw: st.DrawFn, max_box_bytes: int = 1 << 17) -> TensorMap:
    """Return legal tiled maps without interleave, of small tensors."""
    element = draw(st.sampled_from(sorted(DTYPES)))
    size, rank = DTYPES[element].size_bytes, draw(st.integers(1, 5))
    options = draw(_common(element))
    box = [_inner(draw, size, options["swizzle"])]
    room = max_box_bytes // max(box[0] * size, SPANS[options["swizzle"]])
    for _ in range(rank - 1):
        box.append(draw(st.integers(1, max(1, min(9, room // math.prod(box[1:]))))))
    dims = [draw(st.integers(1, 70))] + [draw(st.integers(1, 9)) for _ in range(rank - 1)]
    return TensorMap.tiled(
        element,
        draw(_ADDRESSES),
        dims,
        _strides(draw, dims[0] * size, dims),
        box,
        [draw(st.integers(1, 8)) for _ in range(rank)],
        **options,
    )


@st.composite
def im2col_maps(draw: st.DrawFn) -> TensorMap:
    """Return legal im2col maps without interleave, of small tensors."""
    element = draw(st.sampled_from(sorted(DTYPES)))
    size, spatial = DTYPES[element].size_bytes, draw(st.integers(1, 3))
    options = draw(_common(element))
    dims = [draw(st.integers(1, 70))] + [draw(st.integers(4, 9)) for _ in range(spatial + 1)]
    return TensorMap.im2col(
        element,
        draw(_ADDRESSES),
        dims,
        _strides(draw, dims[0] * size, dims),
        [draw(st.integers(-3, 1)) for _ in range(spatial)],
        [draw(st.integers(-2, 3)) for _ in range(spatial)],
        _inner(draw, size, options["swizzle"]),
        draw(st.integers(1, 256)),
        [1, *(draw(st.integers(1, 3)) for _ in range(spatial + 1))],
        **options,
    )


def swizzles() -> st.SearchStrategy[str]:
    """Return swizzle modes by name."""
    return st.sampled_from(sorted(SPANS))


def matrix_descriptors() -> st.SearchStrategy[MatrixDescriptor]:
    """Return matrix descriptors with any fields that their bits can hold."""
    field = st.integers(0, 0x3FFF).map(lambda chunks: 16 * chunks)
    return st.builds(MatrixDescriptor, field, field, field, st.sampled_from(MODES), st.integers(0, 7))


def lane_addresses(width_bytes: int = 4, size_bytes: int = 4096) -> st.SearchStrategy[list[int]]:
    """Return shared addresses of 32 lanes for accesses of ``width_bytes``; -1 for lanes that take no part."""
    address = st.integers(0, size_bytes // width_bytes - 1).map(lambda i: i * width_bytes)
    return st.lists(st.one_of(st.just(-1), address), min_size=32, max_size=32)


@st.composite
def layouts(draw: st.DrawFn, injective: bool = False, max_modes: int = 4) -> Layout:
    """Return small layouts with nested modes of 1, 2 and 4; ``injective`` ones hit no offset twice."""
    sizes = st.sampled_from([1, 2, 4])
    shape: Tree = draw(st.recursive(sizes, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=max_modes))
    leaves = flatten(shape)
    if not injective:
        return Layout(shape, _nested(shape, iter([draw(st.sampled_from([0, 1, 2, 3, 4, 8, 16])) for _ in leaves])))
    strides, reached = [0] * len(leaves), 1
    for i in draw(st.permutations(range(len(leaves)))):
        reached *= draw(st.sampled_from([1, 1, 2, 3]))
        strides[i] = reached
        reached *= leaves[i]
    return Layout(shape, _nested(shape, iter(strides)))


def _nested(shape: Tree, leaves: Iterator[int]) -> Tree:
    return next(leaves) if isinstance(shape, int) else tuple(_nested(mode, leaves) for mode in shape)


st.register_type_strategy(TensorMap, st.one_of(tiled_maps(), im2col_maps()))
st.register_type_strategy(MatrixDescriptor, matrix_descriptors())
st.register_type_strategy(Layout, layouts())
