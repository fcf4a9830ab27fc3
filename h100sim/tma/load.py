"""Copies of a box from global to shared memory, as compiled code over a plan.

Each row of the box is moved in 16-byte chunks to their swizzled places. What lies outside the tensor is filled with
zeros or NaNs. tf32 maps round what they copy, not what they fill.

Spec: PTX ISA 9.1, "Tensors", "cp.async.bulk.tensor". Measured: tests/data/tma_load.npz, tma_im2col.npz,
tma_interleave.npz.
"""

from __future__ import annotations

import numpy as np

from h100sim.layouts.swizzle import swizzled
from h100sim.native import jit, u64
from h100sim.tma import faults
from h100sim.tma import plan as field
from h100sim.tma.rows import chunk_start, next_pixel, row_start, starts_in_bounding_box

_INNER_START, _SHARED_RANGE, _GLOBAL_RANGE = -faults.INNER_START, -faults.SHARED_RANGE, -faults.GLOBAL_RANGE
_SHARED_ALIGNMENT, _IM2COL_START = -faults.SHARED_ALIGNMENT, -faults.IM2COL_START
#: Bits that fill what lies outside the tensor with oob_fill nan. Measured: tests/data/tma_load.npz.
NAN_FILL = np.uint64(0x7FF77FF77FF77FF7)
_TF32_NAN = 0x7FFFE000


@jit
def load_box(plan, coords, offsets, arena, arena_base, arena_bytes, shared, shared_bytes, dst):
    """Copy one box to shared memory; return the bytes that complete_tx counts, or minus a code of :mod:`faults`.

    ``plan``: int64 words; ``coords``: start coordinates, five int64, innermost first; ``offsets``: im2col offsets,
    three int64 (W, H, D). ``arena``, ``shared``: host addresses of global byte ``arena_base`` and of byte 0 of the
    CTA's window, multiples of 16; ``dst``: byte offset in the window.
    """
    if dst & 127:
        return _SHARED_ALIGNMENT
    if plan[field.INTERLEAVE] == 0 and (coords[0] * plan[field.ELEMENT_BYTES]) & 15:
        return _INNER_START
    if not starts_in_bounding_box(plan, coords):
        return _IM2COL_START
    base = np.empty(5, np.int64)
    for k in range(5):
        base[k] = coords[k]
    for row in range(plan[field.ROWS]):
        start, address, inside = row_start(plan, base, offsets, row)
        at = dst + row * plan[field.PITCH]
        status = load_row(plan, start, inside, address - arena_base, arena, arena_bytes, shared, shared_bytes, at)
        if status < 0:
            return status
        next_pixel(plan, base)
    return plan[field.BOX_BYTES]


@jit
def load_row(plan, start, is_inside, source, arena, arena_bytes, shared, shared_bytes, at):
    """Copy one row of a box. ``source``: offset in the arena of the row's element 0; ``start``: first coordinate."""
    span, rounds = plan[field.SPAN], plan[field.ROUNDS] != 0
    # Bytes of the row that lie in the tensor: [0, limit).
    limit = plan[field.DIMS] * plan[field.STRIDES] if is_inside else 0
    fill = NAN_FILL if plan[field.NAN_FILL] else np.uint64(0)
    for k in range(plan[field.ROW_BYTES] >> 4):
        chunk = swizzled(at + 16 * k, span)
        if chunk + 16 > shared_bytes:
            return _SHARED_RANGE
        low, high = fill, fill
        begin = chunk_start(plan, start, k)
        if 0 <= begin < limit:
            if source + begin < 0 or source + begin + 16 > arena_bytes:
                return _GLOBAL_RANGE
            words = u64(arena + source + begin, 2)
            low, high = words[0], words[1]
            if rounds:
                low, high = round_pair(low), round_pair(high)
            if begin + 16 > limit:
                low = keep_bytes(low, fill, limit - begin)
                high = keep_bytes(high, fill, limit - begin - 8)
        to = u64(shared + chunk, 2)
        to[0], to[1] = low, high
    return 0


@jit
def keep_bytes(word, fill, count):
    """Return the first ``count`` bytes of a word and the rest of ``fill``."""
    if count >= 8:
        return word
    if count <= 0:
        return fill
    kept = (np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)
    return (word & kept) | (fill & ~kept)


@jit
def round_pair(word):
    """Round the two f32 in a word to tf32."""
    high = np.uint64(round_to_tf32(np.int64(word >> np.uint64(32))))
    return high << np.uint64(32) | np.uint64(round_to_tf32(np.int64(word & np.uint64(0xFFFFFFFF))))


@jit
def round_to_tf32(bits):
    """Return f32 bits (int64) rounded to 10 mantissa bits, to nearest with ties to even; every NaN becomes 0x7FFFE000.

    Subnormals are rounded, not flushed. Measured: tests/data/tma_load.npz.
    """
    if bits & 0x7FFFFFFF > 0x7F800000:
        return _TF32_NAN
    return (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
