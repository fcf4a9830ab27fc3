"""The special function unit, bit for bit: MUFU.RCP, RSQ, SQRT, EX2, LG2, SIN, COS, TANH, and the instructions built
on them.

The unit interpolates quadratically: a table row (c0, c1, c2) for the leading bits of the argument, and the rest
``t``; the square of ``t`` is a truncated one. All is integer arithmetic. The ``mufu_`` functions flush subnormal
inputs and results; the instructions without .ftz scale around them as ptxas does.

Measured: validate/silicon/exhaustive.json (all 2^32 inputs of each function of f32, with and without .ftz),
tests/data/scalar_ops.npz, tests/data/ptx_scalar.npz. The tables come from the envytools project, which published them for
an older generation; see special_function_tables.json. That Hopper uses the same ones, and the paths of the sine and
cosine, were found on the captures.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy import float32, float64, int64, uint32, uint64

from ..native import jit
from .float32 import RZ, flush32, mul32, mul32_ftz
from .host_float import f32_bits, f32_value, f64_bits, f64_value, fma64
from .integers import top_bit64

__all__ = [
    "approx_factors",
    "approx_factors_ftz",
    "cos_approx",
    "div_approx",
    "div_approx_ftz",
    "div_full",
    "div_full_ftz",
    "ex2_approx",
    "full_factors",
    "full_factors_ftz",
    "lg2_approx",
    "mufu_ex2",
    "mufu_lg2",
    "mufu_rcp",
    "mufu_rcp64h",
    "mufu_rsq",
    "mufu_rsq64h",
    "mufu_sqrt",
    "rcp_approx",
    "rsqrt64_approx",
    "rsqrt_approx",
    "sin_approx",
    "sqrt_approx",
    "tanh_approx",
]

_TABLES = json.loads((Path(__file__).parent / "special_function_tables.json").read_text())["tables"]
_RCP, _RSQ, _SQRT = (np.array(_TABLES[name], np.int64) for name in ("rcp", "rsqrt", "sqrt"))
_SIN, _EX2, _LG2, _TANH = (np.array(_TABLES[name], np.int64) for name in ("sin", "ex2", "lg2", "tanh"))
#: For each binade of tanh from 2^-8 on: how many bits choose the segment, and its first row.
_TANH_SEGMENT_BITS = np.array((0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3), np.int64)
_TANH_FIRST_ROW = np.cumsum(1 << _TANH_SEGMENT_BITS) - (1 << _TANH_SEGMENT_BITS)

_NAN = 0x7FFFFFFF
_INF = 0x7F800000


@jit
def truncated_square(u):
    """Return about u * u / 2^19 of a 17-bit number as the unit's squarer does: partial products are cut one by one."""
    total = int64(0)
    for i in range(17):
        total += (u >> int64(18 - i)) & -((u >> int64(i)) & 1)
    return total >> 1


@jit
def _interpolate(table, segment, t, square, c0_shift, square_shift):
    return (table[segment, 0] << c0_shift) + table[segment, 1] * t + ((table[segment, 2] * square) << square_shift)


@jit
def _compose(negative, exponent, significand):
    """Return the float32 (significand / 2^23) * 2^exponent of a significand in [2^23, 2^24], flushed or infinite."""
    if significand >= int64(1 << 24):
        significand, exponent = significand >> 1, exponent + 1
    if exponent > 127:
        bits = int64(_INF)
    elif exponent < -126:
        bits = int64(0)
    else:
        bits = ((exponent + 126) << 23) + significand
    return f32_value(uint32(bits) | (uint32(0x80000000) if negative else uint32(0)))


@jit
def mufu_rcp(x):
    """Return 1 / x."""
    bits = f32_bits(x)
    field = int64((bits >> uint32(23)) & uint32(255))
    fraction = int64(bits & uint32(0x7FFFFF))
    sign = bits & uint32(0x80000000)
    if field == 0:
        return f32_value(sign | uint32(_INF))
    if field == 255:
        return f32_value(sign) if fraction == 0 else f32_value(uint32(_NAN))
    t = fraction & 0xFFFF
    total = _interpolate(_RCP, fraction >> 16, t, truncated_square(t << 1), 13, 0) + 0x47E7
    return _compose(sign != uint32(0), int64(126) - field, total >> 15)


@jit
def mufu_rsq(x):
    """Return 1 / sqrt(x)."""
    bits = f32_bits(x)
    field = int64((bits >> uint32(23)) & uint32(255))
    fraction = int64(bits & uint32(0x7FFFFF))
    if field == 0:
        return f32_value((bits & uint32(0x80000000)) | uint32(_INF))
    if bits > uint32(_INF):
        return f32_value(uint32(_NAN))
    if bits == uint32(_INF):
        return float32(0)
    exponent = field - 127
    odd = exponent & 1
    half = (exponent - odd) >> 1
    if odd == 0 and fraction == 0:
        return _compose(False, -half, int64(1 << 23))
    u = (odd << 23) | fraction
    t = u & 0x1FFFF
    total = _interpolate(_RSQ, u >> 17, t, truncated_square(t), 14, 2) + 0x7FFF
    return _compose(False, -half - 1, total >> 16)


@jit
def mufu_sqrt(x):
    """Return sqrt(x)."""
    bits = f32_bits(x)
    field = int64((bits >> uint32(23)) & uint32(255))
    if field == 0:
        return f32_value(bits & uint32(0x80000000))
    if bits >= uint32(_INF):
        return x if bits == uint32(_INF) else f32_value(uint32(_NAN))
    exponent = field - 127
    odd = exponent & 1
    u = (odd << 23) | int64(bits & uint32(0x7FFFFF))
    t = u & 0x1FFFF
    total = _interpolate(_SQRT, u >> 17, t, truncated_square(t), 15, 1) + 0x7FFF
    return _compose(False, (exponent - odd) >> 1, total >> 17)


@jit
def mufu_ex2(x):
    """Return 2^x."""
    bits = f32_bits(x)
    if bits & uint32(0x7FFFFFFF) > uint32(_INF):
        return f32_value(uint32(_NAN))
    negative = bits & uint32(0x80000000) != uint32(0)
    if abs(x) >= float32(128):
        return float32(0) if negative else f32_value(uint32(_INF))
    fixed = int64(float64(abs(x)) * 8388608.0)
    whole, fraction = fixed >> 23, fixed & 0x7FFFFF
    if negative:
        whole = -whole
        if fraction:
            whole, fraction = whole - 1, 0x7FFFFF - fraction
    t = fraction & 0x1FFFF
    total = _interpolate(_EX2, fraction >> 17, t, truncated_square(t), 13, 0) + 0x77E2
    return _compose(False, whole, total >> 15)


@jit
def mufu_lg2(x):
    """Return log2(x)."""
    bits = f32_bits(x)
    field = int64((bits >> uint32(23)) & uint32(255))
    fraction = int64(bits & uint32(0x7FFFFF))
    if field == 0:
        return f32_value(uint32(0xFF800000))
    if bits >= uint32(_INF):
        return x if bits == uint32(_INF) else f32_value(uint32(_NAN))
    t = fraction & 0x1FFFF
    # Only 1.0 itself is exact: the table gives a little more than 0 for the fraction 0, so that lg2(0.5) is above -1.
    total = int64(0)
    if fraction != 0 or field != 127:
        total = (_interpolate(_LG2, fraction >> 17, t, truncated_square(t), 12, 1) + 0x3345) >> 2
    total += (field - 127) << 36
    negative = total < 0
    if negative:
        total = ~total
    if total == 0:
        return float32(0)
    magnitude = _truncate(total, 2.0**-36)
    return -magnitude if negative else magnitude


@jit
def _sine(x, quarter):
    """Return sin(x + quarter * pi / 2): x in revolutions with 25 fraction bits, both truncated; the result is too."""
    bits = f32_bits(x)
    if bits & uint32(0x7FFFFFFF) >= uint32(_INF):
        return f32_value(uint32(_NAN))
    revolutions = float64(abs(mul32(x, f32_value(uint32(0x3E22F983)), RZ, False)))
    fixed = int64((revolutions - np.floor(revolutions)) * 33554432.0)
    quadrant = ((fixed >> 23) + quarter) & 3
    u = fixed & 0x7FFFFF
    if quadrant & 1:
        u = 0x7FFFFF - u
    t = u & 0x1FFFF
    total = _interpolate(_SIN, u >> 17, t, truncated_square(t), 11, 0)
    negative = (quadrant >= 2) != (quarter == 0 and bits & uint32(0x80000000) != uint32(0))
    magnitude = _truncate(total, 2.0**-37)
    return -magnitude if negative else magnitude


@jit
def _truncate(total, unit):
    """Return a number of units as float32, toward zero; a negative one is 0."""
    if total <= 0:
        return float32(0)
    drop = max(int64(top_bit64(uint64(total))) - 23, int64(0))
    return float32(float64((total >> drop) << drop) * unit)


@jit
def sin_approx(x):
    return _sine(x, int64(0))


@jit
def cos_approx(x):
    return _sine(x, int64(1))


@jit
def ex2_approx(x):
    """Return 2^x with subnormal results: below -126 the square of 2^(x/2)."""
    if x < float32(-126):
        y = mufu_ex2(float32(x * float32(0.5)))
        return float32(y * y)
    return mufu_ex2(x)


@jit
def lg2_approx(x):
    """Return log2(x), subnormal x included."""
    if f32_bits(x) & uint32(0x7F800000) == uint32(0):
        return float32(mufu_lg2(float32(x * float32(16777216.0))) - float32(24.0))
    return mufu_lg2(x)


@jit
def rcp_approx(x):
    """Return 1 / x, subnormal x and results included."""
    scale = float32(1)
    if f32_bits(x) & uint32(0x7F800000) == uint32(0):
        scale = float32(16777216.0)
    elif abs(x) > float32(2.0**126):
        scale = float32(0.25)
    return float32(scale * mufu_rcp(float32(x * scale)))


@jit
def sqrt_approx(x):
    """Return sqrt(x), subnormal x included."""
    if f32_bits(x) & uint32(0x7F800000) == uint32(0):
        return float32(mufu_sqrt(float32(x * float32(16777216.0))) * float32(2.0**-12))
    return mufu_sqrt(x)


@jit
def rsqrt_approx(x):
    """Return 1 / sqrt(x), subnormal x included."""
    if f32_bits(x) & uint32(0x7F800000) == uint32(0):
        return float32(mufu_rsq(float32(x * float32(16777216.0))) * float32(4096.0))
    return mufu_rsq(x)


@jit
def approx_factors(a, b):
    """Return the factors whose product is a / b by div.approx, subnormal b included; above 2^126 the reciprocal is 0."""
    scale = float32(1)
    if f32_bits(b) & uint32(0x7F800000) == uint32(0):
        scale = float32(16777216.0)
    return float32(a * scale), mufu_rcp(float32(b * scale))


@jit
def full_factors(a, b):
    """Return the factors whose product is a / b by div.full: both scaled by what keeps the reciprocal of b normal."""
    scale = float32(1)
    if f32_bits(b) & uint32(0x7F800000) == uint32(0):
        scale = float32(16777216.0)
    elif abs(b) > float32(2.0**126):
        scale = float32(0.25)
    return float32(a * scale), mufu_rcp(float32(b * scale))


@jit
def approx_factors_ftz(a, b):
    return a, mufu_rcp(b)


@jit
def full_factors_ftz(a, b):
    scale = float32(0.25) if abs(b) > float32(2.0**126) else float32(1)
    return flush32(float32(a * scale)), mufu_rcp(float32(b * scale))


@jit
def div_approx(a, b):
    x, y = approx_factors(a, b)
    return float32(x * y)


@jit
def div_full(a, b):
    x, y = full_factors(a, b)
    return float32(x * y)


@jit
def div_approx_ftz(a, b):
    x, y = approx_factors_ftz(a, b)
    return mul32_ftz(x, y)


@jit
def div_full_ftz(a, b):
    x, y = full_factors_ftz(a, b)
    return mul32_ftz(x, y)


@jit
def mufu_rcp64h(x):
    """Return 1 / x of a float64: 20 fraction bits from the upper word of x, truncated; subnormals are flushed.

    Measured: validate/silicon/lane_forms.json: a NaN whose upper word is an infinity's counts as one.
    """
    high = f64_bits(x) >> uint64(32)
    field = int64((high >> uint64(20)) & uint64(0x7FF))
    sign = (high >> uint64(31)) << uint64(63)
    if field == 2047 and high & uint64(0xFFFFF) != uint64(0):
        return uint64(0x7FFFFFFF << 32)
    if field == 0:
        return sign | uint64(0x7FF << 52)
    if field == 2047:
        return sign
    fraction = int64(high & uint64(0xFFFFF)) << 3
    t = fraction & 0xFFFF
    total = _interpolate(_RCP, fraction >> 16, t, truncated_square(t << 1), 13, 0) + 0x47E7
    return _compose64(sign, int64(2045) - field, total >> 18)


@jit
def mufu_rsq64h(x):
    """Return 1 / sqrt(x) of a float64 the same way."""
    high = f64_bits(x) >> uint64(32)
    field = int64((high >> uint64(20)) & uint64(0x7FF))
    sign = (high >> uint64(31)) << uint64(63)
    if x != x:
        return uint64(0x7FFFFFFF << 32)
    if field == 0:
        return sign | uint64(0x7FF << 52)
    if sign != uint64(0):
        return uint64(0x7FFFFFFF << 32)
    if field == 2047:
        return uint64(0)
    exponent = field - 1023
    odd = exponent & 1
    half = (exponent - odd) >> 1
    u = (odd << 23) | int64(high & uint64(0xFFFFF)) << 3
    t = u & 0x1FFFF
    total = _interpolate(_RSQ, u >> 17, t, truncated_square(t), 14, 2) + 0x7FFF
    if u == 0:
        total = int64(1 << 40)
    return _compose64(uint64(0), int64(1022) - half, total >> 19)


@jit
def _compose64(sign, field, significand):
    """Return float64 bits of a significand in [2^20, 2^21] whose exponent field is given; below normal it is
    flushed."""
    if significand >= int64(1 << 21):
        significand, field = significand >> 1, field + 1
    if field <= 0:
        return sign
    return sign | uint64(((field - 1) << 20) + significand) << uint64(32)


@jit
def rsqrt64_approx(x):
    """Return 1 / sqrt(x) of a float64: the unit's 20 bits refined by one step of third order, as ptxas emits it."""
    if x != x:
        return f64_bits(x) | uint64(1 << 51)
    if x < 0.0:
        return uint64(0xFFF8 << 48)
    scale = 1.0
    if f64_bits(x) & uint64(0x7FF0 << 48) == uint64(0):
        x, scale = x * 2.0**54, 2.0**27
    seed = mufu_rsq64h(x)
    if x == 0.0 or x == np.inf:
        return seed
    y = f64_value(seed)
    rest = fma64(x, -(y * y), 1.0)
    return f64_bits(scale * fma64(fma64(rest, 0.375, 0.5), y * rest, y))


@jit
def tanh_approx(x):
    """Return tanh(x): x itself below 2^-8, 1 from 8 on, in between 1 to 16 segments for each binade."""
    bits = f32_bits(x)
    magnitude = bits & uint32(0x7FFFFFFF)
    if magnitude > uint32(_INF):
        return f32_value(uint32(_NAN))
    if magnitude < uint32(0x3B800000):
        return x
    if magnitude >= uint32(0x41000000):
        return f32_value((bits & uint32(0x80000000)) | uint32(0x3F800000))
    binade = int64(magnitude >> uint32(23)) - 119
    segment_bits = _TANH_SEGMENT_BITS[binade]
    fraction = int64(magnitude & uint32(0x7FFFFF))
    segment = _TANH_FIRST_ROW[binade] + (fraction >> (23 - segment_bits))
    t = (fraction >> (6 - segment_bits)) & 0x1FFFF
    result = _truncate(_interpolate(_TANH, segment, t, truncated_square(t), 16, 0), 2.0**-40)
    return -result if bits & uint32(0x80000000) else result
