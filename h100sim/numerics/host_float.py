"""The host's own IEEE 754 instructions: bit casts and fused multiply-add.

Numba offers no fused multiply-add and no cast of a value that it just loaded, so they are one LLVM instruction each
here. With NUMBA_DISABLE_JIT=1 plain Python twins take their place.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from h100sim.native import IS_PLAIN, intrinsic, types

__all__ = ["f32_bits", "f32_value", "f64_bits", "f64_value", "fma32", "fma64"]


def _bit_cast(source: str, target: str):
    """Return an intrinsic that reads the bits of one type as another type of the same width."""

    @intrinsic
    def cast(typingctx, value):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(getattr(types, target)))

        return getattr(types, target)(getattr(types, source)), codegen

    return cast


def _fused(name: str):
    """Return an intrinsic for a * b + c with a single rounding to nearest even."""

    @intrinsic
    def fused(typingctx, a, b, c):
        def codegen(context, builder, signature, args):
            return builder.fma(*args)

        type_ = getattr(types, name)
        return type_(type_, type_, type_), codegen

    return fused


def _exact_fma(a, b, c, dtype):
    """Return a * b + c rounded once, in plain Python."""
    a, b, c = dtype(a), dtype(b), dtype(c)
    with np.errstate(all="ignore"):
        if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
            return dtype(a * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        with np.errstate(all="ignore"):
            return dtype(dtype(a * b) + c) if c == 0 or a == 0 or b == 0 else dtype(0.0)
    return _round_fraction(exact, dtype)


def _round_fraction(exact: Fraction, dtype):
    """Round a non-zero rational to nearest even in a NumPy float type; overflow gives infinity."""
    info = np.finfo(dtype)
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    steps = round(magnitude / quantum)
    if steps * quantum >= Fraction(2) ** int(info.maxexp):
        return dtype(np.copysign(np.inf, -1.0 if exact < 0 else 1.0))
    value = dtype(float(steps * quantum))
    return -value if exact < 0 else value


if IS_PLAIN:

    def f32_value(bits):
        """Return the float32 with the given bits."""
        return np.uint32(bits).view(np.float32)

    def f32_bits(value):
        """Return the bits of a float32."""
        return np.float32(value).view(np.uint32)

    def f64_value(bits):
        """Return the float64 with the given bits."""
        return np.uint64(bits).view(np.float64)

    def f64_bits(value):
        """Return the bits of a float64."""
        return np.float64(value).view(np.uint64)

    def fma32(a, b, c):
        """Return a * b + c in float32 with one rounding."""
        return _exact_fma(a, b, c, np.float32)

    def fma64(a, b, c):
        """Return a * b + c in float64 with one rounding."""
        return _exact_fma(a, b, c, np.float64)

else:
    f32_value = _bit_cast("uint32", "float32")
    f32_bits = _bit_cast("float32", "uint32")
    f64_value = _bit_cast("uint64", "float64")
    f64_bits = _bit_cast("float64", "uint64")
    fma32 = _fused("float32")
    fma64 = _fused("float64")
