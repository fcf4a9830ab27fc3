"""Copies of a box from global to shared memory, as compiled code over a plan.

A box is a list of rows. Row r starts in shared memory at ``dst + r * pitch``; its 16-byte chunks are moved to their
swizzled places. What lies outside the tensor is filled with zeros or NaNs. tf32 maps round.

Spec: PTX ISA 9.1, "Tensors", "cp.async.bulk.tensor". Measured: tests/data/tma_load.npz, tma_im2col.npz,
tma_interleave.npz.
"""

from __future__ import annotations

import numpy as np

from h100sim.layouts.swizzle import swizzled
from h100sim.native import jit, u8, u32, u64
from h100sim.tma import faults
from h100sim.tma import plan as field

_INNER_START, _SHARED_RANGE = -faults.INNER_START, -faults.SHARED_RANGE
_GLOBAL_RANGE, _SHARED_ALIGNMENT = -faults.GLOBAL_RANGE, -faults.SHARED_ALIGNMENT
_IM2COL_START = -faults.IM2COL_START
#: Bits that fill what lies outside the tensor with oob_fill nan. Measured: tests/data/tma_load.npz.
NAN_FILL_WORD = 0x7FF77FF77FF77FF7
_TF32_NAN = 0x7FFFE000
_MANY = 1 << 40


@jit
def load_box(plan, coords, offsets, arena, arena_base, arena_bytes, shared, shared_bytes, dst):
    """Copy one box to shared memory; return the bytes that complete_tx counts, or minus a code of :mod:`faults`.

    ``plan``: int64 words; ``coords``: start coordinates, five int64, innermost first; ``offsets``: im2col offsets,
    three int64 (W, H, D). ``arena``, ``shared``: host addresses of global byte ``arena_base`` and of byte 0 of the
    CTA's window; ``dst``: byte offset in the window.
    """
    if dst & 127:
        return _SHARED_ALIGNMENT
    if plan[field.INTERLEAVE] == 0 and (coords[0] * plan[field.ELEMENT_BYTES]) & 15:
        return _INNER_START
    if plan[field.IS_IM2COL]:
        return load_columns(plan, coords, offsets, arena, arena_base, arena_bytes, shared, shared_bytes, dst)
    row = 0
    for i4 in range(plan[field.COUNTS + 4]):
        g4 = coords[4] + i4 * plan[field.ELEMENT_STRIDES + 4]
        for i3 in range(plan[field.COUNTS + 3]):
            g3 = coords[3] + i3 * plan[field.ELEMENT_STRIDES + 3]
            for i2 in range(plan[field.COUNTS + 2]):
                g2 = coords[2] + i2 * plan[field.ELEMENT_STRIDES + 2]
                inside = (
                    0 <= g4 < plan[field.DIMS + 4] and 0 <= g3 < plan[field.DIMS + 3] and 0 <= g2 < plan[field.DIMS + 2]
                )
                plane = g4 * plan[field.STRIDES + 4] + g3 * plan[field.STRIDES + 3] + g2 * plan[field.STRIDES + 2]
                for i1 in range(plan[field.COUNTS + 1]):
                    g1 = coords[1] + i1 * plan[field.ELEMENT_STRIDES + 1]
                    is_inside = inside and 0 <= g1 < plan[field.DIMS + 1]
                    source = plan[field.ADDRESS] - arena_base + plane + g1 * plan[field.STRIDES + 1]
                    at = dst + row * plan[field.PITCH]
                    status = load_row(plan, coords[0], is_inside, source, arena, arena_bytes, shared, shared_bytes, at)
                    if status < 0:
                        return status
                    row += 1
    return plan[field.BOX_BYTES]


@jit
def load_columns(plan, coords, offsets, arena, arena_base, arena_bytes, shared, shared_bytes, dst):
    """Copy the pixels of an im2col box: the channels of each pixel that a filter tap meets."""
    if not starts_in_bounding_box(plan, coords):
        return _IM2COL_START
    rank, first = plan[field.RANK], first_spatial(plan)
    base = np.empty(5, np.int64)
    for k in range(5):
        base[k] = coords[k]
    for pixel in range(plan[field.PIXELS]):
        inside, start, source = True, base[0], plan[field.ADDRESS] - arena_base
        for k in range(first, rank):
            g = base[k] + (offsets[k - first] if k - first < rank - 2 else 0)
            if k == 0:
                start = g
            else:
                inside = inside and 0 <= g < plan[field.DIMS + k]
                source += g * plan[field.STRIDES + k]
        at = dst + pixel * plan[field.PITCH]
        status = load_row(plan, start, inside, source, arena, arena_bytes, shared, shared_bytes, at)
        if status < 0:
            return status
        next_pixel(plan, base)
    return plan[field.BOX_BYTES]


@jit
def first_spatial(plan):
    """Return the dimension of W: 1, or 0 in interleaved maps, whose slices of channels come after the spatial ones."""
    return 0 if plan[field.INTERLEAVE] else 1


@jit
def starts_in_bounding_box(plan, coords):
    """Return whether the base pixel lies between the corners. Measured: tests/data/tma_im2col.npz."""
    first = first_spatial(plan)
    for s in range(plan[field.RANK] - 2):
        c = coords[first + s]
        if c < plan[field.LOWER + s] or c >= plan[field.DIMS + first + s] + plan[field.UPPER + s]:
            return False
    return True


@jit
def next_pixel(plan, base):
    """Advance the base pixel inside the bounding box along W, then H, then D, then to the next image."""
    rank, first = plan[field.RANK], first_spatial(plan)
    for s in range(rank - 2):
        k = first + s
        base[k] += plan[field.ELEMENT_STRIDES + k]
        if base[k] < plan[field.DIMS + k] + plan[field.UPPER + s]:
            return
        base[k] = plan[field.LOWER + s]
    base[rank - 1] += plan[field.ELEMENT_STRIDES + rank - 1]


@jit
def load_row(plan, start, is_inside, source, arena, arena_bytes, shared, shared_bytes, at):
    """Copy one row of a box. ``source``: offset in the arena of the row's element 0; ``start``: first coordinate."""
    if plan[field.INTERLEAVE]:
        return load_slices(plan, start, is_inside, source, arena, arena_bytes, shared, shared_bytes, at)
    element_bytes, span = plan[field.ELEMENT_BYTES], plan[field.SPAN]
    first = start * element_bytes
    # Bytes of the row that lie in the tensor: [0, limit).
    limit = plan[field.DIMS] * element_bytes if is_inside else 0
    low, high = max(first, 0), min(first + plan[field.ROW_BYTES], limit)
    if low < high and (source + low < 0 or source + high > arena_bytes):
        return _GLOBAL_RANGE
    fill = NAN_FILL_WORD if plan[field.NAN_FILL] else 0
    to = u64(shared, _MANY)
    for k in range(plan[field.ROW_BYTES] >> 4):
        chunk = swizzled(at + 16 * k, span)
        if chunk + 16 > shared_bytes:
            return _SHARED_RANGE
        begin = first + 16 * k
        if begin >= 0 and begin + 16 <= limit:
            came_from = u64(arena + source + begin, 2)
            to[chunk >> 3], to[(chunk >> 3) + 1] = came_from[0], came_from[1]
            if plan[field.ROUNDS]:
                round_words(shared + chunk, 4)
        else:
            to[chunk >> 3], to[(chunk >> 3) + 1] = fill, fill
            if 0 <= begin < limit:
                for b in range(limit - begin):
                    u8(shared, _MANY)[chunk + b] = u8(arena + source + begin + b, 1)[0]
                if plan[field.ROUNDS]:
                    round_words(shared + chunk, (limit - begin) >> 2)
    return 0


@jit
def load_slices(plan, start, is_inside, source, arena, arena_bytes, shared, shared_bytes, at):
    """Copy one row of an interleaved box: positions along dimension 0 are slices of 16 or 32 bytes."""
    per_slice, fill = plan[field.INTERLEAVE], NAN_FILL_WORD if plan[field.NAN_FILL] else 0
    to = u64(shared, _MANY)
    for k in range(plan[field.ROW_BYTES] >> 4):
        chunk = swizzled(at + 16 * k, plan[field.SPAN])
        if chunk + 16 > shared_bytes:
            return _SHARED_RANGE
        position = start + (k // per_slice) * plan[field.ELEMENT_STRIDES]
        if is_inside and 0 <= position < plan[field.DIMS]:
            begin = source + position * plan[field.STRIDES] + 16 * (k % per_slice)
            if begin < 0 or begin + 16 > arena_bytes:
                return _GLOBAL_RANGE
            came_from = u64(arena + begin, 2)
            to[chunk >> 3], to[(chunk >> 3) + 1] = came_from[0], came_from[1]
            if plan[field.ROUNDS]:
                round_words(shared + chunk, 4)
        else:
            to[chunk >> 3], to[(chunk >> 3) + 1] = fill, fill
    return 0


@jit
def round_words(address, count):
    """Round f32 words at a host address to tf32. What fills a box outside the tensor is not rounded."""
    words = u32(address, count)
    for i in range(count):
        words[i] = round_to_tf32(words[i])


@jit
def round_to_tf32(bits):
    """Return an f32 (bits) rounded to 10 mantissa bits, to nearest with ties to even; every NaN becomes 0x7FFFE000.

    Subnormals are rounded, not flushed. Measured: tests/data/tma_load.npz.
    """
    value = int(bits)
    if value & 0x7FFFFFFF > 0x7F800000:
        return _TF32_NAN
    return (value + 0xFFF + ((value >> 13) & 1)) & 0xFFFFE000
