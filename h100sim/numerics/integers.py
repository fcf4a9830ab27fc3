"""Integer arithmetic that one host operation does not give: wide products, division, bit counts, permutations.

All functions work on the unsigned or signed NumPy integer of the operand's width and wrap as two's complement does.
"""

from __future__ import annotations

import numpy as np
from numpy import int16, int32, int64, uint32, uint64

from ..native import jit
from .host_float import f64_bits

__all__ = [
    "bit_reverse32",
    "bit_reverse64",
    "clamp_s32",
    "count_bits32",
    "count_bits64",
    "dot2_hi",
    "dot2_lo",
    "dot4",
    "extract_s",
    "extract_u",
    "find_nth_set",
    "high16",
    "high_s16",
    "high_s64",
    "high_u64",
    "insert32",
    "insert64",
    "low16",
    "low_s16",
    "pack16",
    "permute",
    "quotient_s16",
    "quotient_s32",
    "quotient_s64",
    "quotient_u16",
    "quotient_u32",
    "quotient_u64",
    "remainder_s16",
    "remainder_s32",
    "remainder_s64",
    "remainder_u16",
    "remainder_u32",
    "remainder_u64",
    "top_bit32",
    "top_bit64",
]


@jit
def clamp_s32(x):
    """Clamp an int64 to the range of s32."""
    return int32(min(max(x, int64(-0x80000000)), int64(0x7FFFFFFF)))


@jit
def pack16(low, high):
    """Return two 16-bit halves, taken modulo 2^16, in a uint32."""
    return uint32((uint32(low) & uint32(0xFFFF)) | (uint32(high) << uint32(16)))


@jit
def low16(x):
    return uint32(x & uint32(0xFFFF))


@jit
def high16(x):
    return uint32(x >> uint32(16))


@jit
def low_s16(x):
    return int32(int16(x))


@jit
def high_s16(x):
    return int32(int32(x) >> int32(16))


@jit
def high_u64(a, b):
    """Return bits 127..64 of the product of two uint64."""
    low = uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> uint64(32), b & low, b >> uint64(32)
    middle = a1 * b0 + (a0 * b0 >> uint64(32))
    other = a0 * b1 + (middle & low)
    return uint64(a1 * b1 + (middle >> uint64(32)) + (other >> uint64(32)))


@jit
def high_s64(a, b):
    """Return bits 127..64 of the product of two int64."""
    high = high_u64(uint64(a), uint64(b))
    if a < 0:
        high = uint64(high - uint64(b))
    if b < 0:
        high = uint64(high - uint64(a))
    return int64(high)


@jit
def quotient_u64(a, b):
    """Return a / b. Measured: all ones for b = 0, as for a remainder (tests/data/ptx_scalar.npz, div.u64, rem.u64)."""
    return uint64(0xFFFFFFFFFFFFFFFF) if b == uint64(0) else uint64(a // b)


@jit
def remainder_u64(a, b):
    return uint64(0xFFFFFFFFFFFFFFFF) if b == uint64(0) else uint64(a % b)


@jit
def quotient_u32(a, b):
    return uint32(0xFFFFFFFF) if b == uint32(0) else uint32(uint64(a) // uint64(b))


@jit
def remainder_u32(a, b):
    return uint32(0xFFFFFFFF) if b == uint32(0) else uint32(uint64(a) % uint64(b))


@jit
def quotient_u16(a, b):
    return uint32(0xFFFF) if b == uint32(0) else uint32(uint64(a) // uint64(b))


@jit
def remainder_u16(a, b):
    return uint32(0xFFFFFFFF) if b == uint32(0) else uint32(uint64(a) % uint64(b))


@jit
def quotient_s64(a, b):
    """Return a / b rounded toward zero, from magnitudes, so that INT_MIN / -1 wraps."""
    ua = uint64(0) - uint64(a) if a < 0 else uint64(a)
    ub = uint64(0) - uint64(b) if b < 0 else uint64(b)
    if ub == uint64(0):
        return int64(-1)
    q = uint64(ua // ub)
    return int64(uint64(0) - q) if (a < 0) != (b < 0) else int64(q)


@jit
def remainder_s64(a, b):
    ua = uint64(0) - uint64(a) if a < 0 else uint64(a)
    ub = uint64(0) - uint64(b) if b < 0 else uint64(b)
    if ub == uint64(0):
        return int64(-1)
    r = uint64(ua % ub)
    return int64(uint64(0) - r) if a < 0 else int64(r)


@jit
def quotient_s32(a, b):
    return int32(quotient_s64(int64(a), int64(b)))


@jit
def remainder_s32(a, b):
    return int32(remainder_s64(int64(a), int64(b)))


@jit
def quotient_s16(a, b):
    return int32(quotient_s64(int64(a), int64(b)))


@jit
def remainder_s16(a, b):
    return int32(remainder_s64(int64(a), int64(b)))


@jit
def dot4(a, b, a_signed, b_signed):
    """Return the sum of four products of bytes."""
    total = int64(0)
    for k in range(4):
        shift = uint32(8 * k)
        x = int64((a >> shift) & uint32(0xFF))
        y = int64((b >> shift) & uint32(0xFF))
        x = x - int64(256) if a_signed and x > 127 else x
        y = y - int64(256) if b_signed and y > 127 else y
        total += x * y
    return total


@jit
def dot2_lo(a, b, a_signed, b_signed):
    """Return the sum of the products of two 16-bit halves and the two low bytes."""
    total = int64(0)
    for k in range(2):
        x = int64((a >> uint32(16 * k)) & uint32(0xFFFF))
        y = int64((b >> uint32(8 * k)) & uint32(0xFF))
        x = x - int64(0x10000) if a_signed and x > 0x7FFF else x
        y = y - int64(256) if b_signed and y > 127 else y
        total += x * y
    return total


@jit
def dot2_hi(a, b, a_signed, b_signed):
    """Return the sum of the products of two 16-bit halves and the two high bytes."""
    return dot2_lo(a, uint32(b >> uint32(16)), a_signed, b_signed)


@jit
def count_bits32(x):
    x = x - ((x >> uint32(1)) & uint32(0x55555555))
    x = (x & uint32(0x33333333)) + ((x >> uint32(2)) & uint32(0x33333333))
    x = (x + (x >> uint32(4))) & uint32(0x0F0F0F0F)
    return uint32(uint32(x * uint32(0x01010101)) >> uint32(24))


@jit
def count_bits64(x):
    return uint32(count_bits32(uint32(x & uint64(0xFFFFFFFF))) + count_bits32(uint32(x >> uint64(32))))


@jit
def bit_reverse32(x):
    x = ((x >> uint32(1)) & uint32(0x55555555)) | ((x & uint32(0x55555555)) << uint32(1))
    x = ((x >> uint32(2)) & uint32(0x33333333)) | ((x & uint32(0x33333333)) << uint32(2))
    x = ((x >> uint32(4)) & uint32(0x0F0F0F0F)) | ((x & uint32(0x0F0F0F0F)) << uint32(4))
    x = ((x >> uint32(8)) & uint32(0x00FF00FF)) | ((x & uint32(0x00FF00FF)) << uint32(8))
    return uint32(uint32(x >> uint32(16)) | uint32(x << uint32(16)))


@jit
def bit_reverse64(x):
    low = bit_reverse32(uint32(x & uint64(0xFFFFFFFF)))
    return uint64(uint64(low) << uint64(32)) | uint64(bit_reverse32(uint32(x >> uint64(32))))


@jit
def top_bit32(x):
    """Return the position of the highest set bit, -1 if there is none."""
    return int32((f64_bits(np.float64(x)) >> uint64(52)) - uint64(1023)) if x != uint32(0) else int32(-1)


@jit
def top_bit64(x):
    """Return the position of the highest set bit, -1 if there is none."""
    high = uint32(x >> uint64(32))
    return int32(top_bit32(high) + 32) if high != uint32(0) else top_bit32(uint32(x & uint64(0xFFFFFFFF)))


@jit
def extract_u(x, position, length):
    """Return ``length`` bits of a uint64 from ``position`` on; bits above the register are 0."""
    shifted = x >> uint64(position) if position < 64 else uint64(0)
    return shifted & ((uint64(1) << uint64(length)) - uint64(1)) if length < 64 else shifted


@jit
def extract_s(x, position, length):
    """Return the same of an int64, with the field's highest bit, or the register's, repeated above."""
    if length == 0:
        return int64(0)
    shifted = x >> int64(min(position, 63))
    if length >= 64:
        return shifted
    up = int64(64 - length)
    return int64(uint64(shifted) << uint64(up)) >> up


@jit
def insert64(field, into, position, length):
    """Return ``into`` with ``length`` bits at ``position`` replaced by the low bits of ``field``."""
    if position > 63 or length == 0:
        return into
    mask = (uint64(1) << uint64(length)) - uint64(1) if length < 64 else ~uint64(0)
    return uint64(into & ~(mask << uint64(position))) | ((field & mask) << uint64(position))


@jit
def insert32(field, into, position, length):
    return uint32(insert64(uint64(field), uint64(into), position, length) & uint64(0xFFFFFFFF))


@jit
def find_nth_set(mask, base, offset):
    """Return the position of the ``offset``-th set bit of ``mask`` from ``base`` on, down if negative; all ones if
    none.

    Spec: PTX ISA 9.1, "Integer Arithmetic Instructions: fns". An offset of 0 asks whether bit ``base`` is set.
    Measured: tests/data/ptx_scalar.npz, validate/silicon/lane_forms.json: the offset -2^31, whose magnitude overflows in
    the sequence that ptxas makes of fns, gives 0 whatever the mask.
    """
    if int64(int32(offset)) == int64(-2147483648):
        return uint32(0)
    if base > 31:
        return uint32(0xFFFFFFFF)
    step = 1 if offset >= 0 else -1
    wanted = int64(max(abs(int64(offset)), 1))  # type: ignore[arg-type]
    if offset == 0:
        return uint32(base) if (mask >> uint32(base)) & uint32(1) else uint32(0xFFFFFFFF)
    position = int64(base)
    while 0 <= position <= 31:
        if (int64(mask) >> position) & 1:
            wanted -= 1
            if wanted == 0:
                return uint32(position)
        position += step
    return uint32(0xFFFFFFFF)


@jit
def permute(a, b, selector, mode):
    """Return four bytes chosen from {b, a}: prmt. ``mode``: 0 default, 1 f4e, 2 b4e, 3 rc8, 4 ecl, 5 ecr, 6 rc16.

    Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: prmt".
    """
    source = uint64(a) | uint64(b) << uint64(32)
    result = uint32(0)
    for k in range(4):
        control = selector >> uint32(4 * k) & uint32(15) if mode == 0 else uint32(_permute_index(k, int64(selector) & 3, mode))
        byte = uint32(source >> uint64(8 * (control & uint32(7)))) & uint32(0xFF)
        if mode == 0 and control & uint32(8):
            byte = uint32(0xFF) if byte & uint32(0x80) else uint32(0)
        result |= uint32(byte << uint32(8 * k))
    return result


@jit
def _permute_index(k, s, mode):
    """Return which of the eight bytes goes to byte ``k`` in a special mode with selector ``s``."""
    if mode == 1:
        return s + k
    if mode == 2:
        return (s - k) & 7
    if mode == 3:
        return s
    if mode == 4:
        return max(k, s)
    if mode == 5:
        return min(k, s)
    return (s & 1) * 2 + (k & 1)
