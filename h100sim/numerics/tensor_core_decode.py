"""How the floating-point tensor core reads its operands: element bits to values, exponents and classes.

A value is kept as float32 (every element of at most 16 significant bits is one) beside the exponent that the fused sum
takes it with: a subnormal has the smallest exponent of its type, a zero has none.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import ELEMENT_TYPES
from h100sim.native import jit

#: The exponent of a zero: with any other exponent added it stays below all that occur.
NO_EXPONENT = np.int16(-10000)

_EXPONENT_BITS = np.array([t.exponent_bits for t in ELEMENT_TYPES], np.int64)
_MANTISSA_BITS = np.array([t.mantissa_bits for t in ELEMENT_TYPES], np.int64)
_BIAS = np.array([t.bias for t in ELEMENT_TYPES], np.int64)
_HAS_INF = np.array([t.has_inf for t in ELEMENT_TYPES], np.bool_)
_IGNORED_BITS = np.array([t.ignored_bits for t in ELEMENT_TYPES], np.int64)

#: The classes of an element, in the order that :func:`class_of` counts them.
ZERO, FINITE, INF, NAN = 0, 1, 2, 3


@jit
def f32_of(bits):
    """Return the float32 with the given int32 bits."""
    return np.int32(bits).view(np.float32)


@jit
def f64_of(bits):
    """Return the float64 with the given int64 bits."""
    return np.int64(bits).view(np.float64)


@jit
def special_from(kind):
    """Return the smallest magnitude (bits without sign) of type index ``kind`` that is an infinity or a NaN."""
    if _HAS_INF[kind]:
        return ((np.int64(1) << _EXPONENT_BITS[kind]) - 1) << _MANTISSA_BITS[kind]
    return (np.int64(1) << (_EXPONENT_BITS[kind] + _MANTISSA_BITS[kind])) - 1


@jit
def class_of(kind, bits):
    """Return (zero 0, finite 1, infinity 2 or NaN 3; sign) of one element."""
    width = _EXPONENT_BITS[kind] + _MANTISSA_BITS[kind]
    x = np.int64(bits) >> _IGNORED_BITS[kind]
    magnitude = x & ((np.int64(1) << width) - 1)
    sign = (x >> width) & 1
    if magnitude == 0:
        return ZERO, sign
    first = special_from(kind)
    if magnitude < first:
        return FINITE, sign
    return (INF if _HAS_INF[kind] and magnitude == first else NAN), sign


@jit
def _decode_flat(kind, bits, values, exponents):
    """Decode flat element bits; return whether one is an infinity or a NaN (decoded like zeros)."""
    mantissa_bits = np.int32(_MANTISSA_BITS[kind])
    width = np.int32(_EXPONENT_BITS[kind]) + mantissa_bits
    magnitude_mask = np.int32((1 << width) - 1)
    mantissa_mask = np.int32((1 << mantissa_bits) - 1)
    hidden = np.int32(1 << mantissa_bits)
    first_special = np.int32(special_from(kind))
    ignored = np.uint32(_IGNORED_BITS[kind])
    bias = np.int32(_BIAS[kind])
    unit = f32_of(np.int32((np.int32(127) - mantissa_bits) << np.int32(23)))
    found = np.int32(0)
    for i in range(bits.size):
        x = np.int32(np.uint32(bits[i]) >> ignored)
        magnitude = np.int32(x & magnitude_mask)
        is_special = np.int32(magnitude >= first_special)
        found = np.int32(found | is_special)
        if is_special:
            magnitude = np.int32(0)
        field = np.int32(magnitude >> mantissa_bits)
        significand = np.int32(magnitude & mantissa_mask)
        if field != 0:
            significand = np.int32(significand | hidden)
        exponent = np.int32(max(field, np.int32(1)) - bias)
        sign = np.int32(np.int32(x >> width) & np.int32(1))
        power = f32_of(np.int32((exponent + np.int32(127)) << np.int32(23)))
        values[i] = np.float32(np.int32(significand - np.int32(2) * sign * significand)) * unit * power
        exponents[i] = np.int16(exponent) if significand != 0 else NO_EXPONENT
    return found != 0


@jit
def pad_rows(operand, group):
    """Return an operand (rows, K) with zeros added until K is a multiple of ``group``: zero terms change no sum."""
    rows, depth = operand.shape
    padded = (depth + group - 1) // group * group
    if padded == depth:
        return operand
    result = np.zeros((rows, padded), np.uint32)
    for row in range(rows):
        for k in range(depth):
            result[row, k] = operand[row, k]
    return result


@jit
def decode(kind, operand):
    """Decode an operand (rows, K) of type index ``kind`` to flat float32 values and int16 exponents.

    Also returns whether there is an infinity or a NaN (decoded like zeros), and in which rows.
    """
    rows, depth = operand.shape
    values = np.empty(rows * depth, np.float32)
    exponents = np.empty(rows * depth, np.int16)
    special_rows = np.zeros(rows, np.bool_)
    has_special = _decode_flat(kind, operand.reshape(rows * depth), values, exponents)
    if has_special:
        for row in range(rows):
            for k in range(depth):
                special_rows[row] |= class_of(kind, operand[row, k])[0] >= INF
    return values, exponents, has_special, special_rows


@jit
def exponent_range(kind, values, exponents):
    """Return a lower and an upper bound of log2 of the non-zero magnitudes; (0, 0) if there are none."""
    mantissa_bits = np.int32(_MANTISSA_BITS[kind])
    low = np.int32(10000)
    high = np.int32(-10000)
    smallest_normal = np.float32(2.0**-126)
    for i in range(values.size):
        e = np.int32(exponents[i])
        if e != NO_EXPONENT:
            high = max(high, e)
            low = min(low, e if abs(values[i]) >= smallest_normal else np.int32(e - mantissa_bits))
    if high < low:
        return np.int32(0), np.int32(0)
    return low, high


@jit
def is_beyond_float32(kinds, av, ae, bv, be):
    """Tell whether a product of A and B, or the scale that it asks for, may be no normal float32.

    The scale is 2^(F - exponent), F at most 25. Products of f16 and fp8 always fit.
    """
    if _EXPONENT_BITS[kinds[0]] < 8:
        return False
    low_a, high_a = exponent_range(kinds[0], av, ae)
    low_b, high_b = exponent_range(kinds[1], bv, be)
    return low_a + low_b < -100 or high_a + high_b > 125


@jit
def load_f32(row, first, width, is_read, values, exponents):
    """Decode accumulators of f32; return whether one is an infinity or a NaN (decoded like zeros)."""
    found = np.int32(0)
    for n in range(width):
        x = np.int32(row[first + n]) if is_read else np.int32(0)
        magnitude = np.int32(x & np.int32(0x7FFFFFFF))
        is_special = np.int32(magnitude >= np.int32(0x7F800000))
        found = np.int32(found | is_special)
        field = np.int32(magnitude >> np.int32(23))
        finite = x if is_special == 0 else np.int32(0)
        values[n] = f32_of(finite)
        is_zero = magnitude == 0 or is_special != 0
        exponents[n] = NO_EXPONENT if is_zero else np.int16(max(field, np.int32(1)) - np.int32(127))
    return found != 0


@jit
def load_f16(row, first, width, is_read, values, exponents):
    """Decode accumulators of f16; return whether one is an infinity or a NaN (decoded like zeros)."""
    found = np.int32(0)
    for n in range(width):
        x = np.int32(row[first + n]) if is_read else np.int32(0)
        magnitude = np.int32(x & np.int32(0x7FFF))
        is_special = np.int32(magnitude >= np.int32(0x7C00))
        found = np.int32(found | is_special)
        if is_special:
            magnitude = np.int32(0)
        field = np.int32(magnitude >> np.int32(10))
        significand = np.int32(magnitude & np.int32(0x3FF))
        if field != 0:
            significand = np.int32(significand | np.int32(0x400))
        exponent = np.int32(max(field, np.int32(1)) - np.int32(15))
        sign = np.int32(np.int32(x >> np.int32(15)) & np.int32(1))
        power = f32_of(np.int32((exponent + np.int32(127 - 10)) << np.int32(23)))
        values[n] = np.float32(np.int32(significand - np.int32(2) * sign * significand)) * power
        exponents[n] = NO_EXPONENT if magnitude == 0 else np.int16(exponent)
    return found != 0
