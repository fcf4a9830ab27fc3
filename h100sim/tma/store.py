"""Copies and reductions of a box from shared to global memory, as compiled code over a plan.

Rows lie in shared memory as after a load. What lies outside the tensor is not written, except that a row is written in
whole 16-byte chunks: where dimension 0 ends inside a chunk, up to 15 bytes behind the row are written too.

Spec: PTX ISA 9.1, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor". Measured: tests/data/tma_store.npz.
"""

from __future__ import annotations

import numpy as np

from h100sim.layouts.swizzle import swizzled
from h100sim.native import jit, u16, u32, u64
from h100sim.tma import faults
from h100sim.tma import plan as field
from h100sim.tma.load import next_pixel, starts_in_bounding_box
from h100sim.tma.reductions import is_legal, reduce_element

_INNER_START, _SHARED_RANGE = -faults.INNER_START, -faults.SHARED_RANGE
_GLOBAL_RANGE, _SHARED_ALIGNMENT = -faults.GLOBAL_RANGE, -faults.SHARED_ALIGNMENT
_NEGATIVE_START, _REDUCTION_TYPE, _IM2COL_START = -faults.NEGATIVE_START, -faults.REDUCTION_TYPE, -faults.IM2COL_START


@jit
def store_box(plan, coords, arena, arena_base, arena_bytes, shared, shared_bytes, src, reduction):
    """Copy or reduce one box to global memory; return the bytes of the box, or minus a code of :mod:`faults`.

    Arguments as for :func:`h100sim.tma.load.load_box`; ``src`` is the byte offset in the CTA's window, ``reduction`` a
    code of :mod:`h100sim.tma.reductions` (0: plain store).
    """
    if src & 127:
        return _SHARED_ALIGNMENT
    if plan[field.INTERLEAVE] == 0 and (coords[0] * plan[field.ELEMENT_BYTES]) & 15:
        return _INNER_START
    for k in range(plan[field.RANK]):
        if coords[k] < 0:
            return _NEGATIVE_START
    if not is_legal(reduction, plan[field.FORMAT]):
        return _REDUCTION_TYPE
    if plan[field.IS_IM2COL]:
        return store_columns(plan, coords, arena, arena_base, arena_bytes, shared, shared_bytes, src, reduction)
    row = 0
    for i4 in range(plan[field.COUNTS + 4]):
        g4 = coords[4] + i4 * plan[field.ELEMENT_STRIDES + 4]
        for i3 in range(plan[field.COUNTS + 3]):
            g3 = coords[3] + i3 * plan[field.ELEMENT_STRIDES + 3]
            for i2 in range(plan[field.COUNTS + 2]):
                g2 = coords[2] + i2 * plan[field.ELEMENT_STRIDES + 2]
                inside = g4 < plan[field.DIMS + 4] and g3 < plan[field.DIMS + 3] and g2 < plan[field.DIMS + 2]
                plane = g4 * plan[field.STRIDES + 4] + g3 * plan[field.STRIDES + 3] + g2 * plan[field.STRIDES + 2]
                for i1 in range(plan[field.COUNTS + 1]):
                    g1 = coords[1] + i1 * plan[field.ELEMENT_STRIDES + 1]
                    if inside and g1 < plan[field.DIMS + 1]:
                        target = plan[field.ADDRESS] - arena_base + plane + g1 * plan[field.STRIDES + 1]
                        at = src + row * plan[field.PITCH]
                        status = store_row(
                            plan, coords[0], target, arena, arena_bytes, shared, shared_bytes, at, reduction
                        )
                        if status < 0:
                            return status
                    row += 1
    return plan[field.BOX_BYTES]


@jit
def store_columns(plan, coords, arena, arena_base, arena_bytes, shared, shared_bytes, src, reduction):
    """Copy or reduce the pixels of an im2col box without offsets."""
    if not starts_in_bounding_box(plan, coords):
        return _IM2COL_START
    rank = plan[field.RANK]
    base = np.empty(5, np.int64)
    for k in range(5):
        base[k] = coords[k]
    for pixel in range(plan[field.PIXELS]):
        inside, target = True, plan[field.ADDRESS] - arena_base
        for k in range(1, rank):
            inside = inside and 0 <= base[k] < plan[field.DIMS + k]
            target += base[k] * plan[field.STRIDES + k]
        if inside:
            at = src + pixel * plan[field.PITCH]
            status = store_row(plan, base[0], target, arena, arena_bytes, shared, shared_bytes, at, reduction)
            if status < 0:
                return status
        next_pixel(plan, base)
    return plan[field.BOX_BYTES]


@jit
def store_row(plan, start, target, arena, arena_bytes, shared, shared_bytes, at, reduction):
    """Copy or reduce one row of a box. ``target``: offset in the arena of the row's element 0."""
    unit, step, per_unit = plan[field.STRIDES], 1, 1
    if plan[field.INTERLEAVE]:
        step, per_unit = plan[field.ELEMENT_STRIDES], plan[field.INTERLEAVE]
    limit = plan[field.DIMS] * unit
    for k in range(plan[field.ROW_BYTES] >> 4):
        chunk = swizzled(at + 16 * k, plan[field.SPAN])
        if chunk + 16 > shared_bytes:
            return _SHARED_RANGE
        begin = start * unit + 16 * k
        if step != 1:
            begin = (start + (k // per_unit) * step) * unit + 16 * (k % per_unit)
        if begin >= limit:
            continue
        if target + begin < 0 or target + begin + 16 > arena_bytes:
            return _GLOBAL_RANGE
        if reduction:
            reduce_chunk(plan, arena + target + begin, shared + chunk, reduction)
        else:
            to, came_from = u64(arena + target + begin, 2), u64(shared + chunk, 2)
            to[0], to[1] = came_from[0], came_from[1]
    return 0


@jit
def reduce_chunk(plan, to, came_from, reduction):
    """Reduce the 16 bytes at one host address with those at another, element by element."""
    element_bytes, element_format = plan[field.ELEMENT_BYTES], plan[field.FORMAT]
    for i in range(16 // element_bytes):
        if element_bytes == 2:
            old, new = u16(to, 8), u16(came_from, 8)
            old[i] = reduce_element(reduction, element_format, np.int64(old[i]), np.int64(new[i]))
        elif element_bytes == 4:
            old4, new4 = u32(to, 4), u32(came_from, 4)
            old4[i] = reduce_element(reduction, element_format, np.int64(old4[i]), np.int64(new4[i]))
        else:
            old8, new8 = u64(to, 2), u64(came_from, 2)
            old8[i] = np.uint64(reduce_element(reduction, element_format, np.int64(old8[i]), np.int64(new8[i])))
