"""Hypothesis strategies for tensor maps, for tests of this package and of its users. Needs ``hypothesis``."""

from __future__ import annotations

import math

from hypothesis import strategies as st

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
