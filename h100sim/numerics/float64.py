"""Double precision: minimum, maximum, and the rounding modes that the host does not have.

Rounding to nearest even is the host's. The directed modes work on integers: a result is a 128-bit significand whose
lowest bit also stands for everything below it, rounded once.

Spec: PTX ISA 9.1, "Floating Point Instructions". Measured: tests/data/ptx_scalar.npz.
"""

from __future__ import annotations

import numpy as np
from numpy import float64, int64, uint64

from ..native import jit
from .float32 import RM, RN, RP, RZ
from .host_float import f64_bits, f64_value
from .integers import high_u64, top_bit64

__all__ = [
    "add64",
    "div64",
    "div64_nearest",
    "f64_canonical",
    "f64_with_nan",
    "fma64_directed",
    "max64",
    "min64",
    "mul64",
    "saturate64",
    "sqrt64",
    "sqrt64_nearest",
]

_INF = 0x7FF0000000000000
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_FRACTION = 0x000FFFFFFFFFFFFF


@jit
def f64_canonical(x):
    """Return the bits of a float64; every NaN becomes 0x7FF8000000000000."""
    return f64_bits(x) if x == x else uint64(0x7FF8000000000000)


@jit
def f64_with_nan(result, a, b, c):
    """Return the bits of a result; in place of a NaN the first operand that is one, made quiet, or the default NaN."""
    if result == result:
        return f64_bits(result)
    source = a if a != a else b if b != b else c
    return f64_bits(source) | uint64(1 << 51) if source != source else uint64(0xFFF8000000000000)


@jit
def saturate64(x):
    if x >= 1.0:
        return 1.0
    return x if x > 0.0 else 0.0


@jit
def _is_finite(x):
    return f64_bits(x) & uint64(_MAGNITUDE) < uint64(_INF)


@jit
def _significand(x):
    """Return the significand of a non-zero finite float64 with its top bit at bit 63."""
    fraction = f64_bits(x) & uint64(_FRACTION)
    field = (f64_bits(x) >> uint64(52)) & uint64(0x7FF)
    if field != uint64(0):
        return (fraction | uint64(1 << 52)) << uint64(11)
    return fraction << uint64(63 - top_bit64(fraction))


@jit
def _exponent(x):
    """Return floor(log2 |x|) of a non-zero finite float64."""
    field = int64((f64_bits(x) >> uint64(52)) & uint64(0x7FF))
    if field != 0:
        return field - 1023
    return int64(top_bit64(f64_bits(x) & uint64(_FRACTION))) - 1074


@jit
def _is_negative(x):
    return f64_bits(x) >> uint64(63) != uint64(0)


@jit
def _rounds_up(odd, half, below, negative, mode):
    """Does a magnitude round up? ``odd``: its last kept bit; ``half``: the first dropped bit; ``below``: any later
    one."""
    if mode == RN:
        return half and (below or odd)
    if mode == RZ or not (half or below):
        return False
    return negative == (mode == RM)


@jit
def round64(negative, high, low, exponent, mode):
    """Round (high:low) * 2^(exponent - 127), top bit set, to float64; bit 0 of ``low`` is sticky."""
    drop = int64(11) if exponent >= -1022 else int64(11) + (int64(-1022) - exponent)
    if drop > 64:
        low = uint64(1)
        high, drop = (uint64(1), int64(64)) if drop > 65 else (high >> uint64(1) | (high & uint64(1)), int64(64))
    kept = high >> uint64(drop) if drop < 64 else uint64(0)
    rest = high << uint64(64 - drop) if drop < 64 else high
    half = rest >> uint64(63) != uint64(0)
    below = (rest << uint64(1)) != uint64(0) or low != uint64(0)
    field = exponent + 1022 if exponent >= -1022 else int64(0)
    bits = (uint64(field) << uint64(52)) + kept if exponent < 1024 else uint64(_INF)
    if exponent < 1024 and _rounds_up(kept & uint64(1) != uint64(0), half, below, negative, mode):
        bits = bits + uint64(1)
    if bits >= uint64(_INF) and (mode == RZ or mode == (RP if negative else RM)):
        bits = uint64(_INF - 1)
    return f64_value(bits | uint64(1 << 63) if negative else bits)


@jit
def _shift_right(high, low, count):
    """Shift a 128-bit number right; what falls off sets bit 0."""
    if count == 0:
        return high, low
    if count >= 128:
        return uint64(0), uint64(1)
    if count >= 64:
        lost = low != uint64(0) or (count > 64 and (high << uint64(128 - count)) != uint64(0))
        low = high >> uint64(count - 64)
        return uint64(0), low | uint64(1) if lost else low
    lost = (low << uint64(64 - count)) != uint64(0)
    low = (low >> uint64(count)) | (high << uint64(64 - count))
    return high >> uint64(count), low | uint64(1) if lost else low


@jit
def _normalize(high, low):
    """Return a non-zero 128-bit number shifted left until its top bit is set, and by how much."""
    count = int64(0)
    if high == uint64(0):
        high, low, count = low, uint64(0), int64(64)
    shift = int64(63 - top_bit64(high))
    if shift > 0:
        high = (high << uint64(shift)) | (low >> uint64(64 - shift))
        low = low << uint64(shift)
    return high, low, count + shift


@jit
def _sum(negative, high, low, exponent, c, mode):
    """Return (high:low) * 2^(exponent - 127) plus a non-zero c, rounded."""
    c_high, c_low, c_exponent, c_negative = _significand(c), uint64(0), _exponent(c), _is_negative(c)
    high, low = _shift_right(high, low, int64(1))
    c_high, c_low = _shift_right(c_high, c_low, int64(1))
    larger = exponent > c_exponent or (exponent == c_exponent and (high > c_high or (high == c_high and low >= c_low)))
    if not larger:
        high, low, exponent, negative, c_high, c_low, c_exponent, c_negative = (
            c_high, c_low, c_exponent, c_negative, high, low, exponent, negative,
        )  # fmt: skip
    c_high, c_low = _shift_right(c_high, c_low, exponent - c_exponent)
    if negative == c_negative:
        total = low + c_low
        high = high + c_high + (uint64(1) if total < low else uint64(0))
    else:
        total = low - c_low
        high = high - c_high - (uint64(1) if low < c_low else uint64(0))
    if high == uint64(0) and total == uint64(0):
        return -0.0 if mode == RM else 0.0
    high, low, shift = _normalize(high, total)
    return round64(negative, high, low, exponent + 1 - shift, mode)


@jit
def fma64_directed(a, b, c, mode):
    """Return a * b + c of float64, rounded once in a mode."""
    if abs(c) == np.inf and _is_finite(a) and _is_finite(b):
        return c  # also where the product would overflow to the other infinity
    if not (_is_finite(a) and _is_finite(b) and _is_finite(c)) or a == 0.0 or b == 0.0:
        product = a * b
        total = product + c
        if total == 0.0 and mode == RM and _is_negative(product) != _is_negative(c):
            return -0.0
        return total
    negative = _is_negative(a) != _is_negative(b)
    x, y = _significand(a), _significand(b)
    high, low, shift = _normalize(high_u64(x, y), uint64(x * y))
    exponent = _exponent(a) + _exponent(b) + 1 - shift
    if c == 0.0:
        return round64(negative, high, low, exponent, mode)
    return _sum(negative, high, low, exponent, c, mode)


@jit
def add64(a, b, mode):
    return fma64_directed(a, 1.0, b, mode)


@jit
def mul64(a, b, mode):
    return fma64_directed(a, b, 0.0, mode) if a * b != 0.0 or (a != 0.0 and b != 0.0) else a * b


@jit
def div64(a, b, mode):
    """Return a / b of float64 in a mode: 66 quotient bits by long division."""
    if not (_is_finite(a) and _is_finite(b)) or a == 0.0 or b == 0.0:
        return float64(np.true_divide(a, b))
    x, y = _significand(a) >> uint64(1), _significand(b) >> uint64(1)
    exponent = _exponent(a) - _exponent(b)
    if x < y:
        x, exponent = x << uint64(1), exponent - 1
    quotient = uint64(0)
    for _ in range(64):
        quotient = quotient << uint64(1)
        if x >= y:
            x, quotient = x - y, quotient | uint64(1)
        x = x << uint64(1)
    return round64(_is_negative(a) != _is_negative(b), quotient, uint64(1) if x != uint64(0) else uint64(0), exponent, mode)


@jit
def sqrt64(a, mode):
    """Return the square root of a float64 in a mode: 64 root bits, one at a time."""
    if not (_is_finite(a) and a > 0.0):
        return float64(np.sqrt(a))
    exponent = _exponent(a)
    odd = exponent & 1
    high, low = _significand(a) >> uint64(1 - odd), uint64(0)
    if odd == 0:
        low = _significand(a) << uint64(63)
    root, rest_high, rest = uint64(0), uint64(0), uint64(0)
    for _ in range(64):
        rest_high = (rest_high << uint64(2)) | (rest >> uint64(62))
        rest = (rest << uint64(2)) | (high >> uint64(62))
        high = (high << uint64(2)) | (low >> uint64(62))
        low = low << uint64(2)
        trial_high, trial = root >> uint64(62), (root << uint64(2)) | uint64(1)
        root = root << uint64(1)
        if rest_high > trial_high or (rest_high == trial_high and rest >= trial):
            rest_high = rest_high - trial_high - (uint64(1) if rest < trial else uint64(0))
            rest = rest - trial
            root = root | uint64(1)
    sticky = uint64(1) if rest != uint64(0) or rest_high != uint64(0) else uint64(0)
    return round64(False, root, sticky, (exponent - odd) // 2, mode)


@jit
def div64_nearest(a, b):
    return float64(np.true_divide(a, b))


@jit
def sqrt64_nearest(a):
    return float64(np.sqrt(a))


@jit
def min64(a, b):
    """Return the smaller operand, the other one if one is NaN; -0 is smaller than +0."""
    if a != a:
        return b
    return a if b != b or a < b or (a == b and f64_bits(a) >= f64_bits(b)) else b


@jit
def max64(a, b):
    if a != a:
        return b
    return a if b != b or a > b or (a == b and f64_bits(a) <= f64_bits(b)) else b
