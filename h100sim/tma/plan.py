"""The plan of a tensor map: its fields as a flat int64 array, laid out for compiled code.

The constants are indices of words. DIMS, STRIDES, BOX, ELEMENT_STRIDES and COUNTS are the first of five words, one for
each dimension, innermost first, unused ones neutral; LOWER and UPPER are the first of three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from h100sim.native import jit

if TYPE_CHECKING:
    from h100sim.tma.tensor_map import TensorMap

IS_IM2COL, RANK, ELEMENT_BYTES, FORMAT, INTERLEAVE, SPAN, NAN_FILL, ROUNDS, ADDRESS = range(9)
DIMS = 9
STRIDES = 14  # bytes; the first is the element size, or the unit of an interleaved map
BOX = 19  # elements
ELEMENT_STRIDES = 24
COUNTS = 29  # positions that a box visits
LOWER = 34
UPPER = 37
CHANNELS, PIXELS = 40, 41
PITCH = 42  # bytes from one shared row to the next
ROWS = 43  # rows of a box in shared memory
BOX_BYTES = 44  # what complete_tx counts
ROW_BYTES = 45  # bytes of a row that are copied
#: Words of a plan.
PLAN_WORDS = 48


def make_plan(m: TensorMap) -> np.ndarray:
    """Return the plan, int64 (PLAN_WORDS,)."""
    element = m.format
    p = np.zeros(PLAN_WORDS, np.int64)
    p[IS_IM2COL], p[RANK], p[ELEMENT_BYTES], p[FORMAT] = m.is_im2col, m.rank, element.size_bytes, element.driver_code
    p[INTERLEAVE], p[SPAN] = ("none", "16B", "32B").index(m.interleave), m.span_bytes
    p[NAN_FILL], p[ROUNDS], p[ADDRESS] = m.oob_fill == "nan", element.rounds, m.address
    for first, values, neutral in (
        (DIMS, m.dims, 1),
        (STRIDES, (element.size_bytes, *m.strides), 0),
        (BOX, m.box, 1),
        (ELEMENT_STRIDES, m.element_strides, 1),
    ):
        p[first : first + 5] = neutral
        p[first : first + len(values)] = values
    p[LOWER : LOWER + len(m.lower_corner)] = m.lower_corner
    p[UPPER : UPPER + len(m.upper_corner)] = m.upper_corner
    p[CHANNELS], p[PIXELS] = m.channels_per_pixel, m.pixels_per_column
    if m.is_im2col:
        # An interleaved pixel is one slice of channels. Measured: tests/data/tma_interleave.npz.
        channels = m.channels_per_pixel if m.interleave == "none" else 1
        p[COUNTS : COUNTS + 5] = (channels, m.pixels_per_column, 1, 1, 1)
    else:
        p[COUNTS : COUNTS + 5] = -(-p[BOX : BOX + 5] // p[ELEMENT_STRIDES : ELEMENT_STRIDES + 5])
        if m.interleave == "none":
            # Spec: CUDA 13.0 driver API, cuTensorMapEncodeTiled, elementStrides: the first one is ignored.
            p[COUNTS] = p[BOX]
        else:
            # The slice of channels, the last dimension but one, is always one. Measured: tests/data/tma_interleave.npz.
            p[COUNTS + m.rank - 2] = 1
    if m.interleave != "none":
        p[STRIDES] = 16 * p[INTERLEAVE]
    p[ROW_BYTES] = p[COUNTS] * p[STRIDES]
    p[ROWS] = np.prod(p[COUNTS + 1 : COUNTS + 5])
    # Rows are a swizzle span apart even where the box is narrower. Measured: tests/data/tma_load.npz.
    is_dense = m.swizzle == "none" or m.interleave != "none"
    p[PITCH] = p[ROW_BYTES] if is_dense else m.span_bytes
    p[BOX_BYTES] = p[ROWS] * p[ROW_BYTES]
    return p


@jit
def plan_rank(plan):
    """Return the rank of the map of a plan."""
    return plan[RANK]


@jit
def box_bytes(plan):
    """Return the bytes that a copy of one box counts, whether or not they lie in the tensor."""
    return plan[BOX_BYTES]
