"""Conversions between number formats, with every rounding, and the 8- and 16-bit floating-point formats.

A value is widened exactly to float32 or float64 and narrowed by one routine that knows a format by its mantissa bits,
bias and largest finite code. Every NaN becomes the format's canonical one: all magnitude bits set.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: cvt", "Alternate Floating-Point Data Formats".
Measured: tests/data/ptx_scalar.npz, tests/data/scalar_ops.npz.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, float64, int64, uint32, uint64

from ..native import jit
from .float32 import RM, RN, RP, RZ, narrow32, narrow32_ftz
from .float64 import round64
from .host_float import f32_bits, f32_value, f64_bits
from .integers import top_bit64

__all__ = [
    "bf16_cut",
    "bf16_flushed",
    "bf16_from_f32",
    "bf16_of_f64",
    "bf16_round",
    "bf16_value",
    "e4m3_round",
    "e4m3_value",
    "e5m2_round",
    "e5m2_value",
    "f16_cut",
    "f16_flush_tiny",
    "f16_flushed",
    "f16_from_f32",
    "f16_of_f64",
    "f16_round",
    "f16_value",
    "f32_of_f64",
    "f64_from_s64",
    "f64_from_u64",
    "f64_odd_from_s64",
    "f64_odd_from_u64",
    "f64_of_bf16",
    "f64_of_f16",
    "f64_of_f32",
    "finite16",
    "relu8",
    "relu16",
    "relu32",
    "round_to_integral",
    "s64_from_float",
    "saturate16",
    "saturated_bits",
    "tf32_away",
    "tf32_finite",
    "tf32_round",
    "u64_from_float",
]

_FRACTION = (1 << 52) - 1


@jit
def f16_value(bits):
    """Return the float32 value of f16 bits; NaN stays NaN."""
    magnitude = f32_value(uint32((bits & uint32(0x7FFF)) << uint32(13))) * float32(2.0**112)
    if bits & uint32(0x7C00) == uint32(0x7C00):
        magnitude = f32_value(uint32(0x7F800000) | uint32((bits & uint32(0x3FF)) << uint32(13)))
    return -magnitude if bits & uint32(0x8000) else magnitude


@jit
def bf16_value(bits):
    """Return the float32 value of bf16 bits."""
    return f32_value(uint32(uint32(bits) << uint32(16)))


@jit
def e5m2_value(bits):
    """Return the float32 value of e5m2 bits: the upper half of an f16."""
    return f16_value(uint32(uint32(bits) << uint32(8)))


@jit
def e4m3_value(bits):
    """Return the float32 value of e4m3 bits."""
    field, fraction = (bits >> uint32(3)) & uint32(15), bits & uint32(7)
    if bits & uint32(0x7F) == uint32(0x7F):
        return f32_value(uint32(0x7FFFFFFF))
    if field == uint32(0):
        magnitude = float32(fraction) * float32(2.0**-9)
    else:
        magnitude = f32_value(uint32(((field + uint32(120)) << uint32(23)) | (fraction << uint32(20))))
    return -magnitude if bits & uint32(0x80) else magnitude


@jit
def f16_flushed(bits):
    """Return the value of f16 bits, a zero of its sign if it is subnormal."""
    return f16_value(bits & uint32(0x8000)) if bits & uint32(0x7C00) == uint32(0) else f16_value(bits)


@jit
def bf16_flushed(bits):
    return bf16_value(bits & uint32(0x8000)) if bits & uint32(0x7F80) == uint32(0) else bf16_value(bits)


@jit
def _rounds_up(kept, rest, half, negative, mode):
    if mode == RN:
        return rest > half or (rest == half and kept & uint64(1) != uint64(0))
    if mode == RZ or rest == uint64(0):
        return False
    return negative == (mode == RM)


@jit
def narrow(x, mantissa_bits, bias, top, mode):
    """Return the sign (bit 31) and magnitude bits of a float64 rounded to a format whose largest finite code is
    ``top``.

    What is too large becomes ``top + 1`` (infinity), or ``top`` where the mode rounds toward it; a NaN becomes
    0x7FFFFFFF.
    """
    bits = f64_bits(x)
    negative = bits >> uint64(63) != uint64(0)
    exponent = int64((bits >> uint64(52)) & uint64(0x7FF)) - 1023
    significand = (bits & uint64(_FRACTION)) | (uint64(1 << 52) if exponent > -1023 else uint64(0))
    below = max(int64(1 - bias) - exponent, int64(0))
    shift = uint64(min(int64(52 - mantissa_bits) + below, int64(62)))
    kept = significand >> shift
    rest = significand & ((uint64(1) << shift) - uint64(1))
    field = exponent + int64(bias - 1) if below == 0 else int64(0)
    magnitude = (uint64(field) << uint64(mantissa_bits)) + kept
    if _rounds_up(kept, rest, uint64(1) << (shift - uint64(1)), negative, mode):
        magnitude = magnitude + uint64(1)
    if magnitude > uint64(top):
        toward_zero = mode == RZ or mode == (RP if negative else RM)
        magnitude = uint64(top) if toward_zero and exponent < 1024 else uint64(top + 1)
    if x != x:
        return uint32(0x7FFFFFFF)
    return uint32(magnitude) | (uint32(0x80000000) if negative else uint32(0))


@jit
def f16_round(x, mode):
    """Return the f16 bits of a float64."""
    code = narrow(x, 10, 15, 0x7BFF, mode)
    return uint32(0x7FFF) if x != x else uint32((code >> uint32(16)) & uint32(0x8000)) | (code & uint32(0x7FFF))


@jit
def bf16_round(x, mode):
    """Return the bf16 bits of a float64."""
    code = narrow(x, 7, 127, 0x7F7F, mode)
    return uint32(0x7FFF) if x != x else uint32((code >> uint32(16)) & uint32(0x8000)) | (code & uint32(0x7FFF))


@jit
def f16_cut(x):
    """Return the f16 bits of a float32 toward zero, but infinity from 2^16 on: how the special function unit gives
    f16."""
    code = f16_round(float64(x), RZ)
    return (code & uint32(0x8000)) | uint32(0x7C00) if abs(x) >= float32(65536.0) else code


@jit
def bf16_cut(x):
    """Return the bf16 bits of a float32 toward zero."""
    return bf16_round(float64(x), RZ)


@jit
def tf32_round(x, mode):
    """Return the tf32 bits of a float64, in the upper 19 bits of a word."""
    code = narrow(x, 10, 127, 0x3FBFF, mode)
    return uint32(0x7FFFE000) if x != x else (code & uint32(0x80000000)) | uint32(code << uint32(13))


@jit
def tf32_away(x):
    """Return a float32 rounded to tf32 with ties away from zero: cvt.rna.tf32.f32."""
    bits = f32_bits(x)
    if bits & uint32(0x7FFFFFFF) < uint32(0x7F800000):
        bits = uint32(bits + uint32(0x1000))
    return bits & uint32(0xFFFFE000)


@jit
def e4m3_round(x):
    """Return the e4m3 bits of a float64, to nearest even, finite values of the largest magnitude where it is too
    large."""
    code = narrow(x, 3, 7, 0x7E, RN)
    magnitude = min(code & uint32(0x7FFFFFFF), uint32(0x7E))
    return uint32(0x7F) if x != x else uint32(code >> uint32(24)) & uint32(0x80) | magnitude


@jit
def e5m2_round(x):
    """Return the e5m2 bits of a float64, to nearest even, finite values of the largest magnitude where it is too
    large."""
    code = narrow(x, 2, 15, 0x7B, RN)
    magnitude = min(code & uint32(0x7FFFFFFF), uint32(0x7B))
    return uint32(0x7F) if x != x else uint32(code >> uint32(24)) & uint32(0x80) | magnitude


@jit
def bf16_from_f32(x):
    """Return the bf16 bits of a float32, to nearest even."""
    bits = f32_bits(x)
    rounded = uint32(bits + uint32(0x7FFF) + ((bits >> uint32(16)) & uint32(1))) >> uint32(16)
    return uint32(0x7FFF) if x != x else uint32(rounded)


@jit
def f16_from_f32(x):
    """Return the f16 bits of a float32, to nearest even.

    Adding a float that has its last bit where the result's last bit is lets the host round: 2^(e+13) for a normal
    result of exponent e, 0.5 for a subnormal one.
    """
    bits = f32_bits(x)
    sign, magnitude = uint32(bits >> uint32(16)) & uint32(0x8000), bits & uint32(0x7FFFFFFF)
    small = uint32(f32_bits(f32_value(magnitude) + float32(0.5)) - uint32(0x3F000000))
    large = uint32(magnitude + uint32(0xC8000FFF) + ((magnitude >> uint32(13)) & uint32(1))) >> uint32(13)
    rounded = small if magnitude < uint32(0x38800000) else large
    if magnitude >= uint32(0x477FF000):
        rounded = uint32(0x7C00)
    return uint32(0x7FFF) if x != x else sign | uint32(rounded)


@jit
def saturated_bits(x, one, code):
    """Return ``code``, the bits that x was rounded to, clamped to [0, 1]; NaN and negative values give +0."""
    if not x > 0.0:
        return uint32(0)
    return uint32(one) if x >= 1.0 else code


@jit
def saturate16(code, one):
    """Clamp a 16-bit float to [0, 1]; NaN and negative values give +0."""
    return uint32(0) if code >= uint32(0x7FFF) else min(code, uint32(one))


@jit
def f16_flush_tiny(code, exact):
    """Return f16 bits, a zero of the sign if the exact result, rounded to 11 bits, is below the smallest normal.

    Measured: validate/silicon/exhaustive.json (mul.ftz.f16), validate/silicon/lane_forms.json. The exponent of
    that rounding is unbounded: what is nearer to 2^-14 than to the largest subnormal may still be flushed.
    """
    return code & uint32(0x8000) if abs(exact) < 2.0**-14 * (1 - 2.0**-12) else code


@jit
def finite16(code, infinity):
    """Return the bits of a 16-bit float, the largest finite magnitude in place of infinity."""
    return uint32(code - uint32(1)) if code & uint32(0x7FFF) == uint32(infinity) else code


@jit
def tf32_finite(code):
    """Return tf32 bits, the largest finite magnitude in place of infinity; a NaN loses as much of its payload."""
    return uint32(code - uint32(0x2000)) if code & uint32(0x7FFFFFFF) >= uint32(0x7F800000) else code


@jit
def relu8(code):
    """Return the bits of an 8-bit float, +0 in place of a negative one."""
    return uint32(0) if code & uint32(0x80) else code


@jit
def relu16(code):
    """Return the bits of a 16-bit float, +0 in place of a negative one."""
    return uint32(0) if code & uint32(0x8000) else code


@jit
def relu32(code):
    return uint32(0) if code & uint32(0x80000000) else code


@jit
def f64_of_f32(x):
    """Return the float64 bits of a float32; a NaN keeps its payload and becomes quiet."""
    if x == x:
        return f64_bits(float64(x))
    bits = uint64(f32_bits(x))
    return (bits >> uint64(31)) << uint64(63) | uint64(0x7FF8 << 48) | (bits & uint64(0x7FFFFF)) << uint64(29)


@jit
def f64_of_f16(code):
    """Return the float64 bits of f16 bits; a NaN keeps its payload and becomes quiet."""
    x = f16_value(code)
    if x == x:
        return f64_bits(float64(x))
    bits = uint64(code)
    return (bits >> uint64(15)) << uint64(63) | uint64(0x7FF8 << 48) | (bits & uint64(0x3FF)) << uint64(42)


@jit
def f64_of_bf16(code):
    return f64_of_f32(bf16_value(code))


@jit
def f32_of_f64(x, mode, flush):
    """Return the float32 bits of a float64; a NaN keeps the upper part of its payload and becomes quiet."""
    if x == x:
        return f32_bits(narrow32_ftz(x, mode) if flush else narrow32(x, mode))
    bits = f64_bits(x)
    return uint32(bits >> uint64(63)) << uint32(31) | uint32(0x7FC00000) | uint32((bits & uint64(_FRACTION)) >> uint64(29))


@jit
def _half_nan(x, exponent, mantissa_bits):
    """Return the sign and payload of a float64 NaN as a quiet 16-bit one."""
    bits = f64_bits(x)
    payload = uint32((bits & uint64(_FRACTION)) >> uint64(52 - mantissa_bits)) | uint32(1 << (mantissa_bits - 1))
    return uint32(bits >> uint64(63)) << uint32(15) | uint32(exponent) | payload


@jit
def f16_of_f64(x, mode):
    return f16_round(x, mode) if x == x else _half_nan(x, 0x7C00, 10)


@jit
def bf16_of_f64(x, mode):
    return bf16_round(x, mode) if x == x else _half_nan(x, 0x7F80, 7)


@jit
def f64_odd_from_u64(x):
    """Return a uint64 as float64, rounded to odd."""
    drop = max(int64(top_bit64(x)) - int64(52), int64(0))
    kept = x >> uint64(drop)
    if kept << uint64(drop) != x:
        kept = kept | uint64(1)
    return float64(kept) * float64(uint64(1) << uint64(drop))


@jit
def f64_odd_from_s64(x):
    magnitude = f64_odd_from_u64(uint64(0) - uint64(x) if x < 0 else uint64(x))
    return -magnitude if x < 0 else magnitude


@jit
def f64_from_u64(x, mode):
    """Return a uint64 rounded to float64."""
    if x == uint64(0):
        return 0.0
    top = int64(top_bit64(x))
    return round64(False, x << uint64(63 - top), uint64(0), top, mode)


@jit
def f64_from_s64(x, mode):
    if x == 0:
        return 0.0
    magnitude = uint64(0) - uint64(x) if x < 0 else uint64(x)
    top = int64(top_bit64(magnitude))
    return round64(x < 0, magnitude << uint64(63 - top), uint64(0), top, mode)


@jit
def round_to_integral(x, mode):
    """Return a float64 rounded to an integral value."""
    if mode == RN:
        return np.rint(x)
    if mode == RZ:
        return np.trunc(x)
    return np.floor(x) if mode == RM else np.ceil(x)


@jit
def s64_from_float(x, mode, low, high, nan):
    """Return a float64 rounded to an integer and clamped to [low, high]; ``nan`` for NaN."""
    if x != x:
        return int64(nan)
    r = round_to_integral(x, mode)
    if r >= float64(high):
        return int64(high)
    return int64(low) if r <= float64(low) else int64(r)


@jit
def u64_from_float(x, mode, nan):
    """Return a float64 rounded to an integer and clamped to the range of u64; ``nan`` for NaN."""
    if x != x:
        return uint64(nan)
    r = round_to_integral(x, mode)
    if r >= 18446744073709551616.0:
        return uint64(0xFFFFFFFFFFFFFFFF)
    if r <= 0.0:
        return uint64(0)
    if r >= 9223372036854775808.0:
        return uint64(int64(r - 9223372036854775808.0)) | uint64(1 << 63)
    return uint64(int64(r))
