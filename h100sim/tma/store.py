"""Copies and reductions of a box from shared to global memory, as compiled code over a plan.

Rows lie in shared memory as after a load. What lies outside the tensor is not written, except that a row is written in
whole 16-byte chunks: where dimension 0 ends inside a chunk, up to 15 bytes behind the row are written too.

Spec: PTX ISA 9.1, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor". Measured: tests/data/tma_store.npz.
"""

from __future__ import annotations

import numpy as np

from h100sim.layouts.swizzle import swizzled
from h100sim.native import jit, u64
from h100sim.tma import faults
from h100sim.tma import plan as field
from h100sim.tma.reductions import is_legal, reduce_word
from h100sim.tma.rows import chunk_start, next_pixel, row_start, starts_in_bounding_box

_INNER_START, _SHARED_RANGE, _GLOBAL_RANGE = -faults.INNER_START, -faults.SHARED_RANGE, -faults.GLOBAL_RANGE
_SHARED_ALIGNMENT, _IM2COL_START = -faults.SHARED_ALIGNMENT, -faults.IM2COL_START
_NEGATIVE_START, _REDUCTION_TYPE = -faults.NEGATIVE_START, -faults.REDUCTION_TYPE


@jit
def store_box(plan, coords, arena, arena_base, arena_bytes, shared, shared_bytes, src, reduction):
    """Copy or reduce one box to global memory; return the bytes of the box, or minus a code of :mod:`faults`.

    Arguments as for :func:`h100sim.tma.load.load_box`; ``src`` is the byte offset in the CTA's window, ``reduction`` a
    code of :mod:`h100sim.tma.reductions` (0: plain store). An im2col box has no offsets.
    """
    status = check_store(plan, coords, src, reduction)
    if status < 0:
        return status
    base, offsets = np.empty(5, np.int64), np.zeros(3, np.int64)
    for k in range(5):
        base[k] = coords[k]
    for row in range(plan[field.ROWS]):
        start, address, inside = row_start(plan, base, offsets, row)
        if inside:
            at = src + row * plan[field.PITCH]
            target = address - arena_base
            status = store_row(plan, start, target, arena, arena_bytes, shared, shared_bytes, at, reduction)
            if status < 0:
                return status
        next_pixel(plan, base)
    return plan[field.BOX_BYTES]


@jit
def check_store(plan, coords, src, reduction):
    """Return 0 if a store or reduction may start, else minus a code of :mod:`faults`."""
    if src & 127:
        return _SHARED_ALIGNMENT
    if plan[field.INTERLEAVE] == 0 and (coords[0] * plan[field.ELEMENT_BYTES]) & 15:
        return _INNER_START
    for k in range(plan[field.RANK]):
        if coords[k] < 0:
            return _NEGATIVE_START
    if not is_legal(reduction, plan[field.FORMAT]):
        return _REDUCTION_TYPE
    return 0 if starts_in_bounding_box(plan, coords) else _IM2COL_START


@jit
def store_row(plan, start, target, arena, arena_bytes, shared, shared_bytes, at, reduction):
    """Copy or reduce one row of a box. ``target``: offset in the arena of the row's element 0."""
    span, limit = plan[field.SPAN], plan[field.DIMS] * plan[field.STRIDES]
    for k in range(plan[field.ROW_BYTES] >> 4):
        chunk = swizzled(at + 16 * k, span)
        if chunk + 16 > shared_bytes:
            return _SHARED_RANGE
        begin = target + chunk_start(plan, start, k)
        if begin >= target + limit:
            continue
        if begin < 0 or begin + 16 > arena_bytes:
            return _GLOBAL_RANGE
        to, words = u64(arena + begin, 2), u64(shared + chunk, 2)
        if reduction == 0:
            to[0], to[1] = words[0], words[1]
        else:
            for i in range(2):
                to[i] = reduce_word(plan[field.ELEMENT_BYTES], plan[field.FORMAT], reduction, to[i], words[i])
    return 0
