"""Single precision: flushing, saturation, minimum and maximum, and every rounding mode.

Rounding to nearest even is the host's. The other modes take the exact result rounded to odd in float64 (53 bits are
more than twice 24 plus two, so that loses nothing that a later rounding needs) and round that once.

With .ftz a result becomes zero if it is subnormal after rounding to 24 bits with an unbounded exponent. So a product just
below 2^-126 stays 2^-126 if that is the nearest number of 24 bits, and is 0 although 2^-126 is the nearest float32 if a
smaller number of 24 bits is nearer.

Spec: PTX ISA 9.1, "Floating Point Instructions". Measured: tests/data/ptx_scalar.npz, validate/silicon/lane_forms.json.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, float64, uint32, uint64

from ..native import jit
from .host_float import f32_bits, f32_value, f64_bits, f64_value, fma32, fma64

__all__ = [
    "add32",
    "div32",
    "div32_nearest",
    "f32_canonical",
    "flush32",
    "fma32_directed",
    "fma32_ftz",
    "max32",
    "max32_nan",
    "max32_nan_xorsign",
    "max32_xorsign",
    "min32",
    "min32_nan",
    "min32_nan_xorsign",
    "min32_xorsign",
    "mul32",
    "mul32_ftz",
    "narrow32",
    "narrow32_ftz",
    "saturate32",
    "sqrt32",
    "sqrt32_nearest",
    "sum_to_odd",
]

#: Rounding modes: to nearest even, toward zero, down, up. The names of PTX are rn, rz, rm, rp.
RN, RZ, RM, RP = 0, 1, 2, 3

_SIGN = 0x80000000
_LEAST_NORMAL = float32(2.0**-126)


@jit
def f32_canonical(x):
    """Return the bits of a float32; every NaN becomes 0x7FFFFFFF."""
    return f32_bits(x) if x == x else uint32(0x7FFFFFFF)


@jit
def flush32(x):
    """Return x, or a zero of its sign if it is subnormal."""
    bits = f32_bits(x)
    return f32_value(bits & uint32(_SIGN)) if bits & uint32(0x7F800000) == uint32(0) else x


@jit
def saturate32(x):
    """Clamp to [0, 1]; NaN and -0 become +0."""
    if x >= float32(1):
        return float32(1)
    return x if x > float32(0) else float32(0)


@jit
def next_bits32(bits, up):
    """Return the bits of the next float32 above (or below) a finite one or the infinity on the other side."""
    if bits & uint32(0x7FFFFFFF) == uint32(0):
        return uint32(1) if up else uint32(_SIGN | 1)
    grows = up != (bits & uint32(_SIGN) != uint32(0))
    return uint32(bits + uint32(1)) if grows else uint32(bits - uint32(1))


@jit
def narrow32(x, mode):
    """Round a float64 to float32."""
    nearest = float32(x)
    if mode == RN or x != x or float64(nearest) == x:
        return nearest
    above = float64(nearest) > x
    if mode == RZ:
        wrong = above == (x > 0)
    elif mode == RM:
        wrong = above
    else:
        wrong = not above
    return f32_value(next_bits32(f32_bits(nearest), not above)) if wrong else nearest


@jit
def narrow32_ftz(x, mode):
    """Round a float64 (an exact value, or one rounded to odd) to float32 with .ftz."""
    y = narrow32(x, mode)
    magnitude = abs(x)
    if mode == RN:
        is_tiny = magnitude < 2.0**-126 * (1 - 2.0**-25)
    elif mode == RZ or (mode == RP) == (x < 0):
        is_tiny = magnitude < 2.0**-126
    else:
        is_tiny = magnitude <= 2.0**-126 * (1 - 2.0**-24)
    return f32_value(f32_bits(y) & uint32(_SIGN)) if is_tiny else y


@jit
def mul32_ftz(a, b):
    """Return a * b rounded to nearest with .ftz. Scaled by 2^24, a result near 2^-126 is rounded to 24 bits."""
    y = float32(a * b)
    is_tiny = abs(float32(float32(a * float32(16777216.0)) * b)) < float32(2.0**-102)
    return f32_value(f32_bits(y) & uint32(_SIGN)) if is_tiny else y


@jit
def fma32_ftz(a, b, c):
    """Return a * b + c rounded to nearest with .ftz; the operands have been flushed."""
    y = fma32(a, b, c)
    scale = float32(16777216.0)
    is_tiny = abs(fma32(float32(a * scale), b, float32(c * scale))) < float32(2.0**-102)
    return f32_value(f32_bits(y) & uint32(_SIGN)) if is_tiny else y


@jit
def to_odd(nearest, error):
    """Turn a float64 rounded to nearest, with the sign of the exact rest, into the exact value rounded to odd."""
    bits = f64_bits(nearest)
    if error == 0.0 or error != error or bits & uint64(1) != uint64(0) or abs(nearest) == np.inf:
        return nearest
    return f64_value(uint64(bits + uint64(1))) if (error > 0) == (nearest > 0) else f64_value(uint64(bits - uint64(1)))


@jit
def sum_to_odd(a, b):
    """Return a + b of two float64, rounded to odd."""
    total = a + b
    large, small = (a, b) if abs(a) >= abs(b) else (b, a)
    return to_odd(total, small - (total - large))


@jit
def _signed_zero(total, x, y, mode):
    """Return an exact sum of x and y, whose zero is negative if rounded down and the terms' signs differ."""
    if total == 0.0 and mode == RM and (f64_bits(x) ^ f64_bits(y)) >> uint64(63) != uint64(0):
        return -0.0
    return total


@jit
def add32(a, b, mode):
    """Return a + b of two float32 in a rounding mode."""
    x, y = float64(a), float64(b)
    return narrow32(_signed_zero(sum_to_odd(x, y), x, y, mode), mode)


@jit
def _narrow(x, mode, ftz):
    return narrow32_ftz(x, mode) if ftz else narrow32(x, mode)


@jit
def mul32(a, b, mode, ftz):
    """Return a * b in a rounding mode."""
    return _narrow(float64(a) * float64(b), mode, ftz)


@jit
def fma32_directed(a, b, c, mode, ftz):
    """Return a * b + c rounded once: the product is exact in float64."""
    x, y = float64(a) * float64(b), float64(c)
    return _narrow(_signed_zero(sum_to_odd(x, y), x, y, mode), mode, ftz)


@jit
def div32(a, b, mode, ftz):
    """Return a / b in a rounding mode."""
    x, y = float64(a), float64(b)
    if y == 0.0 or abs(x) == np.inf or abs(y) == np.inf:
        return float32(np.true_divide(x, y))
    quotient = np.true_divide(x, y)
    rest = fma64(-quotient, y, x)
    return _narrow(to_odd(quotient, rest if y > 0 else -rest), mode, ftz)


@jit
def sqrt32(a, mode):
    x = float64(a)
    if not x > 0.0 or x == np.inf:
        return float32(np.sqrt(x))
    root = np.sqrt(x)
    return narrow32(to_odd(root, fma64(-root, root, x)), mode)


@jit
def div32_nearest(a, b):
    return float32(np.true_divide(a, b))


@jit
def sqrt32_nearest(a):
    return float32(np.sqrt(a))


@jit
def _least(a, b):
    """Return the smaller of two numbers; -0 is smaller than +0."""
    return a if a < b or (a == b and f32_bits(a) >= f32_bits(b)) else b


@jit
def _greatest(a, b):
    return a if a > b or (a == b and f32_bits(a) <= f32_bits(b)) else b


@jit
def min32(a, b):
    """Return the smaller operand, the other one if one is NaN."""
    return b if a != a else a if b != b else _least(a, b)


@jit
def max32(a, b):
    """Return the larger operand, the other one if one is NaN."""
    return b if a != a else a if b != b else _greatest(a, b)


@jit
def min32_nan(a, b):
    return a if a != a else b if b != b else _least(a, b)


@jit
def max32_nan(a, b):
    return a if a != a else b if b != b else _greatest(a, b)


@jit
def _with_xor_sign(magnitude, a, b):
    return f32_value((f32_bits(magnitude) & uint32(0x7FFFFFFF)) | ((f32_bits(a) ^ f32_bits(b)) & uint32(_SIGN)))


@jit
def min32_xorsign(a, b):
    """Return the smaller magnitude with the product's sign."""
    return _with_xor_sign(min32(abs(a), abs(b)), a, b)


@jit
def max32_xorsign(a, b):
    return _with_xor_sign(max32(abs(a), abs(b)), a, b)


@jit
def min32_nan_xorsign(a, b):
    """Return the smaller magnitude with the product's sign, NaN if either is."""
    return _with_xor_sign(min32_nan(abs(a), abs(b)), a, b)


@jit
def max32_nan_xorsign(a, b):
    return _with_xor_sign(max32_nan(abs(a), abs(b)), a, b)
