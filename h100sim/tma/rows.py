"""The rows of a box: where in the tensor each begins. Row r of a box lies at ``r * pitch`` in shared memory.

A tiled box visits the positions of its outer dimensions, the innermost of them fastest. An im2col box visits pixels: a
base pixel runs through the bounding box along W, then H, then D, then on to the next image, and offsets shift it to a
filter tap.

Spec: PTX ISA 9.1, "Tensors". Measured: tests/data/tma_load.npz, tma_im2col.npz, tma_interleave.npz.
"""

from __future__ import annotations

from h100sim.native import jit
from h100sim.tma import plan as field


@jit
def row_start(plan, base, offsets, row):
    """Return (first coordinate, address of element 0 of the row, whether the row lies in the tensor).

    ``base``: start coordinates, or for im2col the base pixel, which :func:`next_pixel` moves on after each row.
    """
    start, address, inside = base[0], plan[field.ADDRESS], True
    is_im2col, first = plan[field.IS_IM2COL] != 0, first_spatial(plan)
    rank = plan[field.RANK]
    for k in range(rank):
        g = base[k]
        if is_im2col:
            if first <= k < first + rank - 2:
                g += offsets[k - first]
        elif k > 0:
            count = plan[field.COUNTS + k]
            g += row % count * plan[field.ELEMENT_STRIDES + k]
            row //= count
        if k == 0:
            start = g
        else:
            inside = inside and 0 <= g < plan[field.DIMS + k]
            address += g * plan[field.STRIDES + k]
    return start, address, inside


@jit
def first_spatial(plan):
    """Return the dimension of W: 1, or 0 in interleaved maps, whose slices of channels come after the spatial ones."""
    return 0 if plan[field.INTERLEAVE] else 1


@jit
def next_pixel(plan, base):
    """Advance the base pixel of an im2col box; do nothing for a tiled one."""
    if plan[field.IS_IM2COL] == 0:
        return
    rank, first = plan[field.RANK], first_spatial(plan)
    for s in range(rank - 2):
        k = first + s
        base[k] += plan[field.ELEMENT_STRIDES + k]
        if base[k] < plan[field.DIMS + k] + plan[field.UPPER + s]:
            return
        base[k] = plan[field.LOWER + s]
    base[rank - 1] += plan[field.ELEMENT_STRIDES + rank - 1]


@jit
def starts_in_bounding_box(plan, coords):
    """Return whether the first base pixel lies between the corners; true for a tiled box."""
    if plan[field.IS_IM2COL]:
        first = first_spatial(plan)
        for s in range(plan[field.RANK] - 2):
            c = coords[first + s]
            if c < plan[field.LOWER + s] or c >= plan[field.DIMS + first + s] + plan[field.UPPER + s]:
                return False
    return True


@jit
def chunk_start(plan, start, k):
    """Return the byte offset in its row of the tensor of the k-th 16-byte chunk of a row of a box."""
    interleave = plan[field.INTERLEAVE]
    if interleave == 0:
        return start * plan[field.ELEMENT_BYTES] + 16 * k
    position = start + k // interleave * plan[field.ELEMENT_STRIDES]
    return position * plan[field.STRIDES] + 16 * (k % interleave)
