"""The 128 bytes of a tensor map, both ways.

::

    0x00  u64 global address
    0x08  [3:0] 1 im2col   [6:4] rank-1   [10:7] element type   [12:11] interleave   [14:13] swizzle
          [15] NaN fill    [16] tf32 rounding   [18:17] L2 promotion
    0x0c  stride[i] >> 4, low 32 bits, i = 0..3            0x1c  [4i+3:4i] stride[i] >> 36
    0x20  dim[i] - 1, i = 0..4 (a dimension of 2^32 is 0xffffffff)
    0x34  [3i+2:3i] element stride[i] - 1   [31:24] box[0] - 1, or channels per pixel - 1
    0x38  byte i = box[i+1] - 1, or the corners: lower in the low half, upper in the high half, in fields of 16, 8 or 5
          bits for 1, 2 or 3 spatial dimensions
    0x3c  pixels per column - 1 (im2col)
    0x40  u64 bytes of a box   0x48  u64 bytes of the swizzle atom: the driver's notes, which the hardware does not read

Spec: CUDA Programming Guide 13.0, "Modifying a tensor map" (a zeroed buffer filled by ``tensormap.replace`` is valid).
Measured: tests/data/tensor_map_encode.npz, every accepted map of both kinds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from h100sim.errors import TensorMapError
from h100sim.layouts.swizzle import SPANS
from h100sim.tma.fields import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES, format_of_hardware

if TYPE_CHECKING:
    from h100sim.tma.tensor_map import TensorMap

_IM2COL = 1


def encode_words(m: TensorMap) -> np.ndarray:
    """Return the 32 little-endian words that the driver writes for a map."""
    words = np.zeros(32, np.dtype("<u4"))
    element = m.format
    words[0:2] = m.address & 0xFFFFFFFF, m.address >> 32
    words[2] = (
        (_IM2COL if m.is_im2col else 0)
        | (m.rank - 1) << 4
        | element.hardware_code << 7
        | INTERLEAVES.index(m.interleave) << 11
        | SWIZZLES.index(m.swizzle) << 13
        | OOB_FILLS.index(m.oob_fill) << 15
        | element.rounds << 16
        | L2_PROMOTIONS.index(m.l2_promotion) << 17
    )
    for i, stride in enumerate(m.strides):
        words[3 + i] = stride >> 4 & 0xFFFFFFFF
        words[7] |= np.uint32(stride >> 36 << 4 * i)
    for i, dim in enumerate(m.dims):
        words[8 + i] = dim - 1
    words[13] = sum((s - 1) << 3 * i for i, s in enumerate(m.element_strides))
    if m.is_im2col:
        words[13] |= np.uint32((m.channels_per_pixel - 1) << 24)
        words[14] = _pack_corners(m)
        words[15] = m.pixels_per_column - 1
    else:
        words[13] |= np.uint32((m.box[0] - 1) << 24)
        words[14] = sum((b - 1) << 8 * i for i, b in enumerate(m.box[1:]))
    words[16:18] = noted_bytes(m) & 0xFFFFFFFF, noted_bytes(m) >> 32
    words[18] = 16 if m.swizzle == "none" else 8 * SPANS[m.swizzle]
    return words


def decode_words(words: np.ndarray) -> dict[str, Any]:
    """Return the fields of a :class:`TensorMap` by name; TensorMapError if sm_90a has no such format."""
    w = [int(x) for x in words]
    rank = (w[2] >> 4 & 7) + 1
    if rank > 5 or w[2] & 15 > _IM2COL or w[2] >> 19:
        raise TensorMapError(f"tensor map format word must be one that sm_90a has, not {w[2]:#010x}")
    interleave, swizzle = w[2] >> 11 & 3, w[2] >> 13 & 3
    if interleave == 3:
        raise TensorMapError("tensor map interleave must be none, 16B or 32B, not code 3")
    fields: dict[str, Any] = {
        "dtype": format_of_hardware(w[2] >> 7 & 15, bool(w[2] >> 16 & 1)).name,
        "address": w[0] | w[1] << 32,
        "dims": tuple(d + 1 for d in w[8 : 8 + rank]),
        "strides": tuple((w[3 + i] | (w[7] >> 4 * i & 15) << 32) << 4 for i in range(rank - 1)),
        "element_strides": tuple((w[13] >> 3 * i & 7) + 1 for i in range(rank)),
        "interleave": INTERLEAVES[interleave],
        "swizzle": SWIZZLES[swizzle],
        "l2_promotion": L2_PROMOTIONS[w[2] >> 17 & 3],
        "oob_fill": OOB_FILLS[w[2] >> 15 & 1],
    }
    if w[2] & 15 == _IM2COL:
        if rank < 3:
            raise TensorMapError(f"im2col tensor map rank must be from 3 to 5, not {rank}")
        fields["lower_corner"], fields["upper_corner"] = _unpack_corners(w[14], rank - 2)
        fields["channels_per_pixel"], fields["pixels_per_column"] = (w[13] >> 24) + 1, (w[15] & 1023) + 1
    else:
        fields["box"] = ((w[13] >> 24) + 1, *((w[14] >> 8 * i & 255) + 1 for i in range(rank - 1)))
    return fields


def noted_bytes(m: TensorMap) -> int:
    """Return the bytes of a box as the driver notes and limits them: without elements that element strides skip."""
    if m.is_im2col:
        return m.format.size_bytes * m.channels_per_pixel * m.pixels_per_column
    return m.format.size_bytes * math.prod(b // s for b, s in zip(m.box, m.element_strides, strict=True))


def corner_bits(spatial: int) -> int:
    """Return the bits of each corner coordinate for 1, 2 or 3 spatial dimensions."""
    return (16, 8, 5)[spatial - 1]


def _pack_corners(m: TensorMap) -> int:
    bits = corner_bits(m.rank - 2)
    mask = (1 << bits) - 1
    low = sum((c & mask) << bits * i for i, c in enumerate(m.lower_corner))
    high = sum((c & mask) << bits * i for i, c in enumerate(m.upper_corner))
    return low | high << 16


def _unpack_corners(word: int, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bits = corner_bits(spatial)

    def corner(half: int) -> tuple[int, ...]:
        fields = [half >> bits * i & ((1 << bits) - 1) for i in range(spatial)]
        return tuple(f - (1 << bits) if f >> bits - 1 else f for f in fields)

    return corner(word & 0xFFFF), corner(word >> 16)
