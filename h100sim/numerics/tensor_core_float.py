"""The fused sum of Hopper's floating-point tensor core, bit for bit.

One step of one output element is one sum over the whole K of the instruction and C. Every product is exact and is not
renormalised; every term's magnitude is cut at 2^(largest exponent - F); the cut terms are added exactly; the sum is
rounded once. The order of the terms has no influence.

Measured: tests/data/wgmma_numerics.npz (every type triple, 13 classes of input), tests/data/wgmma_sparse.npz.

How it is computed. A product of two significands has at most 22 bits, so it is exact in float32, and scaling it by
2^(F - largest exponent) and converting it to int32 is the truncation that the hardware does. Eight such terms fit in
31 bits, and float64 adds the groups of eight exactly. Both passes (exponents, then terms) run over columns and
vectorise. Tiles whose products or scales could leave the range of float32 take the same pass in float64. Elements
with NaN or infinity are settled by the class of their terms alone.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import element_type
from h100sim.native import jit
from h100sim.numerics.tensor_core_decode import (
    INF,
    NAN,
    class_of,
    decode,
    f32_of,
    f64_of,
    is_beyond_float32,
    load_f16,
    load_f32,
    pad_rows,
)

_U = np.uint64
_BLOCK = 128  # columns that are done together: their decoded B (K * 6 bytes a column) stays in the L1 cache
_COLUMNS = np.uint64(_BLOCK)
_GROUP = 8  # terms per int32 partial sum: 8 * 4 * 2^25 is below 2^31

_F16 = element_type("f16").index
_E4M3 = element_type("e4m3").index
_E5M2 = element_type("e5m2").index

# Measured: tests/data/wgmma_numerics.npz. F is the number of fraction bits that a term keeps below the largest
# exponent; e_zero the exponent that a zero term counts with. fp8 keeps 13 bits in the sum and in an f32 result alike.
_FRACTION_BITS = 25
_FRACTION_BITS_FP8 = 13
_KEPT_BITS = 23
_KEPT_BITS_FP8 = 13
_E_ZERO_F32 = -133
_E_ZERO_F16 = -21

#: Canonical NaN of an f32 and of an f16 accumulator; the sign and payload of input NaNs are lost.
NAN_F32 = np.uint32(0x7FFFFFFF)
NAN_F16 = np.uint32(0x7FFF)


@jit
def _pack_columns(values, exponents, columns, depth, packed_values, packed_exponents):
    """Lay out a decoded (N, K) operand as blocks of columns, K-major inside a block: columns are neighbours."""
    for first in range(0, columns, _BLOCK):
        width = min(_BLOCK, columns - first)
        for k in range(depth):
            start = first * depth + k * _BLOCK
            row_values = packed_values[start : start + _BLOCK]
            row_exponents = packed_exponents[start : start + _BLOCK]
            for n in range(width):
                row_values[n] = values[(first + n) * depth + k]
                row_exponents[n] = exponents[(first + n) * depth + k]


@jit
def _largest_exponents(ae, be, largest, first_a, first_b, width):
    """Raise ``largest`` to the exponents of eight products per column."""
    a0, a1, a2, a3 = ae[first_a], ae[first_a + _U(1)], ae[first_a + _U(2)], ae[first_a + _U(3)]
    a4, a5, a6, a7 = ae[first_a + _U(4)], ae[first_a + _U(5)], ae[first_a + _U(6)], ae[first_a + _U(7)]
    for n in range(width):
        i = first_b + n
        e = largest[n]
        e = max(e, np.int16(a0 + be[i]))
        e = max(e, np.int16(a1 + be[i + _COLUMNS]))
        e = max(e, np.int16(a2 + be[i + _U(2) * _COLUMNS]))
        e = max(e, np.int16(a3 + be[i + _U(3) * _COLUMNS]))
        e = max(e, np.int16(a4 + be[i + _U(4) * _COLUMNS]))
        e = max(e, np.int16(a5 + be[i + _U(5) * _COLUMNS]))
        e = max(e, np.int16(a6 + be[i + _U(6) * _COLUMNS]))
        e = max(e, np.int16(a7 + be[i + _U(7) * _COLUMNS]))
        largest[n] = e


@jit
def _settle_exponents(largest, e_zero, fraction_bits, width, scale):
    """Turn largest exponents into scales 2^(F - largest); return the least of them where anything is not zero.

    ``largest`` ends as the exponent that a column's terms are cut against; where all is zero it is 0, any would do. A
    scale above 2^127 is cut: the caller then takes the pass in float64, which makes its own.
    """
    least = np.int16(1000)
    for n in range(width):
        e = largest[n]
        e = np.int16(0) if e < -5000 else max(e, np.int16(e_zero))
        largest[n] = e
        least = min(least, e)
        shift = min(np.int32(np.int32(fraction_bits) - np.int32(e)), np.int32(127))
        scale[n] = f32_of(np.int32((shift + np.int32(127)) << np.int32(23)))
    return least


@jit
def _start_with_c(c, scale, total, width):
    """Set ``total`` to the cut accumulators, in units of 2^(largest - F)."""
    for n in range(width):
        total[n] = np.float64(np.int32(c[n] * scale[n]))


@jit
def _add_terms(av, bv, scale, total, first_a, first_b, width):
    """Add eight cut products per column to ``total``."""
    a0, a1, a2, a3 = av[first_a], av[first_a + _U(1)], av[first_a + _U(2)], av[first_a + _U(3)]
    a4, a5, a6, a7 = av[first_a + _U(4)], av[first_a + _U(5)], av[first_a + _U(6)], av[first_a + _U(7)]
    for n in range(width):
        i = first_b + n
        s = scale[n]
        t = np.int32(np.int32(a0 * bv[i] * s) + np.int32(a1 * bv[i + _COLUMNS] * s))
        t = np.int32(t + np.int32(a2 * bv[i + _U(2) * _COLUMNS] * s))
        t = np.int32(t + np.int32(a3 * bv[i + _U(3) * _COLUMNS] * s))
        t = np.int32(t + np.int32(a4 * bv[i + _U(4) * _COLUMNS] * s))
        t = np.int32(t + np.int32(a5 * bv[i + _U(5) * _COLUMNS] * s))
        t = np.int32(t + np.int32(a6 * bv[i + _U(6) * _COLUMNS] * s))
        t = np.int32(t + np.int32(a7 * bv[i + _U(7) * _COLUMNS] * s))
        total[n] += np.float64(t)


@jit
def _add_all_wide(av, bv, c, largest, fraction_bits, depth, total, first_a, first_b, width):
    """Set ``total`` to the cut accumulators and all cut products, where float32 does not reach."""
    for n in range(width):
        power = f64_of(np.int64((fraction_bits - np.int64(largest[n]) + 1023) << 52))
        total[n] = np.float64(np.int32(np.float64(c[n]) * power))
    for k in range(_U(depth)):
        a = np.float64(av[first_a + k])
        for n in range(width):
            power = f64_of(np.int64((fraction_bits - np.int64(largest[n]) + 1023) << 52))
            total[n] += np.float64(np.int32(a * np.float64(bv[first_b + k * _COLUMNS + n]) * power))


@jit
def _round_f32(total, largest, fraction_bits, kept_bits, width, out):
    """Turn integer sums into f32, rounded toward zero to ``kept_bits`` fraction bits, fewer below 2^-126.

    A magnitude of 2^128 or more gives infinity, not the largest finite number.
    """
    drop = 52 - kept_bits
    for n in range(width):
        down = f64_of(np.int64((np.int64(largest[n]) - fraction_bits + 1023) << 52))
        bits = np.float64(total[n] * down).view(np.int64)
        shift = drop + max(np.int64(0), np.int64(1023 - 126) - ((bits >> 52) & 0x7FF))
        kept = (bits >> min(shift, np.int64(63))) << min(shift, np.int64(63))
        if shift > 52:
            kept = np.int64(0)
        out[n] = np.uint32(np.float32(f64_of(kept)).view(np.int32))


@jit
def _round_f16(total, largest, fraction_bits, width, out):
    """Turn integer sums into f16, rounded to nearest even; 65520 and beyond gives infinity."""
    for n in range(width):
        down = f64_of(np.int64((np.int64(largest[n]) - fraction_bits + 1023) << 52))
        out[n] = f16_of(total[n] * down)


@jit
def f16_of(value):
    """Return the bits (uint32) of the f16 nearest to a finite float64, ties to even; a zero is +0."""
    bits = np.float64(value).view(np.int64)
    field = max((bits >> 52) & 0x7FF, np.int64(1023 - 14))
    # Adding and subtracting 1.5 * 2^52 units of the last place rounds to nearest even.
    magic = f64_of(np.int64(((field + 42) << 52) | (np.int64(1) << 51)))
    rounded = min(abs((value + magic) - magic), 65536.0)
    # A float32 with the exponent 112 lower has the f16's fields, subnormals included, 13 bits higher.
    magnitude = np.uint32(np.float32(rounded * 2.0**-112).view(np.int32)) >> np.uint32(13)
    sign = np.uint32(0x8000) if bits < 0 and magnitude != 0 else np.uint32(0)
    return np.uint32(magnitude | sign)


@jit
def _special_sum(a_kind, a, present, b_kind, b, d_kind, c, negate):
    """Tell whether an infinity or a NaN is among the terms of one element, and the result bits that it leads to.

    ``a`` and ``b`` are the K element bits, ``c`` the accumulator's. An element of A that sparsity leaves out
    (``present`` is zero; empty means all are there) is no term: its partner in B is never looked at.
    """
    nan = False
    positive = False
    negative = False
    for k in range(a.size):
        if present.size and not present[k]:
            continue
        a_class, a_sign = class_of(a_kind, a[k])
        b_class, b_sign = class_of(b_kind, b[k])
        if a_class == NAN or b_class == NAN or (a_class + b_class == INF and a_class != b_class):
            nan = True
        elif a_class == INF or b_class == INF:
            if a_sign ^ b_sign ^ negate:
                negative = True
            else:
                positive = True
    c_class, c_sign = class_of(d_kind, c)
    if c_class == NAN:
        nan = True
    elif c_class == INF:
        if c_sign:
            negative = True
        else:
            positive = True
    is_f16 = d_kind == _F16
    if nan or (positive and negative):
        return True, NAN_F16 if is_f16 else NAN_F32
    infinity = np.uint32(0x7C00) if is_f16 else np.uint32(0x7F800000)
    sign = np.uint32(0x8000) if is_f16 else np.uint32(0x80000000)
    return positive or negative, infinity | sign if negative else infinity


@jit
def _settle_specials(kinds, a, a_special, present, b, b_special, c, first, width, scale_d, negate, out):
    """Overwrite the results of one row and block whose terms hold an infinity or a NaN."""
    a_kind, b_kind, d_kind = kinds
    for n in range(width):
        accumulator = c[first + n] if scale_d else np.uint32(0)
        if a_special or b_special[first + n] or class_of(d_kind, accumulator)[0] >= INF:
            found, bits = _special_sum(a_kind, a, present, b_kind, b[first + n], d_kind, accumulator, negate)
            if found:
                out[n] = bits


@jit
def fused_sum(code, a, present, b, d, scale_d, negate):
    """Add A * B^T to D with one fused sum per element; see :func:`accumulate_float` for the arguments.

    ``present`` is uint8 (M, K), zero where sparsity leaves an element of A out, or (M, 0): all are there. With
    sparsity K must be a multiple of 8.
    """
    kinds = (code & 0xFF, (code >> 8) & 0xFF, (code >> 16) & 0xFF)
    is_fp8 = kinds[0] == _E4M3 or kinds[0] == _E5M2
    is_f16 = kinds[2] == _F16
    fraction_bits = _FRACTION_BITS_FP8 if is_fp8 else _FRACTION_BITS
    kept_bits = _KEPT_BITS_FP8 if is_fp8 else _KEPT_BITS
    e_zero = _E_ZERO_F16 if is_f16 else _E_ZERO_F32
    a = pad_rows(a, _GROUP)
    b = pad_rows(b, _GROUP)
    rows, depth = a.shape
    columns = b.shape[0]
    groups = depth // _GROUP
    av, ae, _, a_special = decode(kinds[0], a)
    flat_bv, flat_be, b_any_special, b_special = decode(kinds[1], b)
    if negate:
        for i in range(av.size):
            av[i] = -av[i]
    is_wide = is_beyond_float32(kinds, av, ae, flat_bv, flat_be)
    bv = np.empty((columns + _BLOCK - 1) // _BLOCK * _BLOCK * depth, np.float32)
    be = np.empty(bv.size, np.int16)
    _pack_columns(flat_bv, flat_be, columns, depth, bv, be)
    largest = np.empty(_BLOCK, np.int16)
    c = np.empty(_BLOCK, np.float32)
    scale = np.empty(_BLOCK, np.float32)
    total = np.empty(_BLOCK, np.float64)
    out = np.empty(_BLOCK, np.uint32)
    for m in range(rows):
        row = d[m]
        for first in range(0, columns, _BLOCK):
            width = _U(min(_BLOCK, columns - first))
            first_a = _U(m * depth)
            first_b = _U(first * depth)
            if is_f16:
                c_special = load_f16(row, first, width, scale_d, c, largest)
            else:
                c_special = load_f32(row, first, width, scale_d, c, largest)
            for g in range(groups):
                k = _U(g * _GROUP)
                _largest_exponents(ae, be, largest, first_a + k, first_b + k * _COLUMNS, width)
            least = _settle_exponents(largest, e_zero, fraction_bits, width, scale)
            if is_wide or least < -100:
                _add_all_wide(av, bv, c, largest, fraction_bits, depth, total, first_a, first_b, width)
            else:
                _start_with_c(c, scale, total, width)
                for g in range(groups):
                    k = _U(g * _GROUP)
                    _add_terms(av, bv, scale, total, first_a + k, first_b + k * _COLUMNS, width)
            if is_f16:
                _round_f16(total, largest, fraction_bits, width, out)
            else:
                _round_f32(total, largest, fraction_bits, kept_bits, width, out)
            if c_special or b_any_special or a_special[m]:
                _settle_specials(kinds, a[m], a_special[m], present[m], b, b_special, row, first, width, scale_d, negate, out)
            for n in range(width):
                row[first + n] = out[n]


@jit
def accumulate_float(code, a, b, d, scale_d, negate_a, negate_b, satfinite):
    """Do one step of a floating-point ``wgmma`` or ``mma.sync``: D = A * B^T + D, in place.

    ``code`` from :func:`h100sim.numerics.tensor_core.code_of`. ``a`` uint32 (M, K) and ``b`` uint32 (N, K) element
    bits, ``d`` uint32 (M, N) accumulator bits (f16 in the low half), all C-contiguous. ``scale_d`` false: D is not
    read. ``negate_a``, ``negate_b``: the operand's elements are negated. ``satfinite`` is for integers and must be
    false.
    """
    fused_sum(code, a, np.ones((a.shape[0], 0), np.uint8), b, d, scale_d, negate_a != negate_b)
