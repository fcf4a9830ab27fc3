"""The fused sum of Hopper's floating-point tensor core, bit for bit.

One step of one output element is one sum over the whole K of the instruction and C. Every product is exact and is not
renormalised; every term's magnitude is cut at 2^(largest exponent - F); the cut terms are added exactly; the sum is
rounded once. The order of the terms has no influence.

Measured: tests/data/wgmma_numerics.npz (every type triple, 13 classes of input), tests/data/wgmma_sparse.npz.

How it is computed. A product of two significands has at most 22 bits, so it is exact in float32, and scaling it by
2^(F - largest exponent) and converting it to int32 is the truncation that the hardware does. Eight such terms fit in
31 bits, and float64 adds the groups of eight exactly. Both passes (exponents, then terms) run over columns and
vectorise. Rows whose products could leave the range of float32 take the same pass in float64. Elements with NaN or
infinity are settled by the class of their terms alone.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import ELEMENT_TYPES, element_type
from h100sim.native import jit

_U = np.uint64
_ZERO_EXPONENT = np.int16(-10000)
_COLUMNS = np.uint64(64)  # columns per block: its decoded B (16 rows of 6 bytes a column) stays in the L1 cache
_GROUP = 8  # terms per int32 partial sum: 8 * 4 * 2^25 = 2^30

_EXPONENT_BITS = np.array([t.exponent_bits for t in ELEMENT_TYPES], np.int64)
_MANTISSA_BITS = np.array([t.mantissa_bits for t in ELEMENT_TYPES], np.int64)
_BIAS = np.array([t.bias for t in ELEMENT_TYPES], np.int64)
_HAS_INF = np.array([t.has_inf for t in ELEMENT_TYPES], np.bool_)
_IGNORED_BITS = np.array([t.ignored_bits for t in ELEMENT_TYPES], np.int64)
_F16 = element_type("f16").index
_E4M3 = element_type("e4m3").index
_E5M2 = element_type("e5m2").index

# Measured: tests/data/wgmma_numerics.npz. F is the number of fraction bits that a term keeps below the largest
# exponent; e_zero the exponent that a zero term counts with. fp8 keeps 13 bits in the sum and in an f32 result alike.
_FRACTION_BITS = 25
_FRACTION_BITS_FP8 = 13
_E_ZERO_F32 = -133
_E_ZERO_F16 = -21
_DROP_F32 = 52 - 23
_DROP_FP8 = 52 - 13

#: Canonical NaN of an f32 and of an f16 accumulator; the sign and payload of input NaNs are lost.
NAN_F32 = np.uint32(0x7FFFFFFF)
NAN_F16 = np.uint32(0x7FFF)

_ZERO, _FINITE, _INF, _NAN = 0, 1, 2, 3


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
        return _ZERO, sign
    first = special_from(kind)
    if magnitude < first:
        return _FINITE, sign
    return (_INF if _HAS_INF[kind] and magnitude == first else _NAN), sign


@jit
def _decode(kind, bits, values, exponents):
    """Decode flat element bits to float32 values and int16 exponents; return whether one is an infinity or a NaN.

    Zeros, infinities and NaNs get the value 0 and the exponent of nothing. A subnormal keeps the smallest exponent.
    """
    mantissa_bits = np.int32(_MANTISSA_BITS[kind])
    width = np.int32(_EXPONENT_BITS[kind]) + mantissa_bits
    magnitude_mask = np.int32((1 << width) - 1)
    mantissa_mask = np.int32((1 << mantissa_bits) - 1)
    hidden = np.int32(1 << mantissa_bits)
    first_special = np.int32(special_from(kind))
    ignored = np.int32(_IGNORED_BITS[kind])
    bias = np.int32(_BIAS[kind])
    unit = f32_of(np.int32((np.int32(127) - mantissa_bits) << np.int32(23)))
    found = np.int32(0)
    for i in range(bits.size):
        x = np.int32(np.uint32(bits[i]) >> np.uint32(ignored))
        magnitude = np.int32(x & magnitude_mask)
        field = np.int32(magnitude >> mantissa_bits)
        significand = np.int32(magnitude & mantissa_mask)
        if field != 0:
            significand = np.int32(significand | hidden)
        exponent = np.int32(max(field, np.int32(1)) - bias)
        is_special = magnitude >= first_special
        if is_special:
            found = np.int32(1)
            significand = np.int32(0)
            exponent = np.int32(0)
        if (np.int32(x >> width) & np.int32(1)) != 0:
            value = np.float32(np.int32(-significand))
        else:
            value = np.float32(significand)
        power = f32_of(np.int32((exponent + np.int32(127)) << np.int32(23)))
        values[i] = value * unit * power
        exponents[i] = np.int16(exponent) if significand != 0 else _ZERO_EXPONENT
    return found != 0


@jit
def _is_special(kind, bits):
    """Tell whether a flat row of element bits holds an infinity or a NaN."""
    found = False
    for i in range(bits.size):
        found |= class_of(kind, bits[i])[0] >= _INF
    return found


@jit
def _exponent_range(values, exponents, mantissa_bits):
    """Return a lower and an upper bound of log2 of the non-zero magnitudes in a flat row; (0, 0) if there are none."""
    low = np.int32(10000)
    high = np.int32(-10000)
    smallest_normal = np.float32(2.0**-126)
    for i in range(values.size):
        e = np.int32(exponents[i])
        if e != _ZERO_EXPONENT:
            high = max(high, e)
            low = min(low, e if abs(values[i]) >= smallest_normal else np.int32(e - mantissa_bits))
    if high < low:
        return np.int32(0), np.int32(0)
    return low, high


@jit
def _pack_columns(values, exponents, rows, depth, padded, packed_values, packed_exponents):
    """Lay out a decoded (N, K) operand as blocks of 64 columns, K-major inside a block: columns are neighbours."""
    for row in range(rows):
        block = row // 64
        base = block * padded * 64 + row % 64
        for k in range(depth):
            packed_values[base + k * 64] = values[row * depth + k]
            packed_exponents[base + k * 64] = exponents[row * depth + k]
        for k in range(depth, padded):
            packed_values[base + k * 64] = np.float32(0.0)
            packed_exponents[base + k * 64] = _ZERO_EXPONENT


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
def _add_terms(av, bv, scale, total, first_a, first_b, width):
    """Add eight cut products per column to ``total``, in units of 2^(largest - F)."""
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
def _add_terms_wide(av, bv, largest, fraction_bits, total, first_a, first_b, width):
    """Do as :func:`_add_terms` for products beyond the range of float32."""
    for j in range(_U(_GROUP)):
        a = np.float64(av[first_a + j])
        for n in range(width):
            power = f64_of(np.int64((fraction_bits - np.int64(largest[n]) + 1023) << 52))
            total[n] += np.float64(np.int32(a * np.float64(bv[first_b + j * _COLUMNS + n]) * power))


@jit
def _load_f32(row, first, width, is_read, values, exponents):
    """Decode accumulators of f32; return whether one is an infinity or a NaN (its value becomes 0)."""
    found = np.int32(0)
    for n in range(width):
        x = np.int32(row[first + n]) if is_read else np.int32(0)
        magnitude = np.int32(x & np.int32(0x7FFFFFFF))
        field = np.int32(magnitude >> np.int32(23))
        exponent = np.int32(max(field, np.int32(1)) - np.int32(127))
        if magnitude == 0:
            exponent = np.int32(_ZERO_EXPONENT)
        if field == 255:
            found = np.int32(1)
            exponent = np.int32(_ZERO_EXPONENT)
        finite = x if field != 255 else np.int32(0)
        values[n] = np.float64(f32_of(finite))
        exponents[n] = exponent
    return found != 0


@jit
def load_f16(row, first, width, is_read, values, exponents):
    """Decode accumulators of f16; return whether one is an infinity or a NaN (its value becomes 0)."""
    found = np.int32(0)
    for n in range(width):
        x = np.int32(row[first + n]) if is_read else np.int32(0)
        magnitude = np.int32(x & np.int32(0x7FFF))
        field = np.int32(magnitude >> np.int32(10))
        significand = np.int32(magnitude & np.int32(0x3FF))
        if field != 0:
            significand = np.int32(significand | np.int32(0x400))
        exponent = np.int32(max(field, np.int32(1)) - np.int32(15))
        if field == 31:
            found = np.int32(1)
            significand = np.int32(0)
        if significand == 0:
            exponent = np.int32(_ZERO_EXPONENT)
        if (x & np.int32(0x8000)) != 0:
            significand = np.int32(-significand)
        power = f32_of(np.int32((max(field, np.int32(1)) - np.int32(25 - 127)) << np.int32(23)))
        values[n] = np.float64(np.float32(significand) * power)
        exponents[n] = exponent
    return found != 0


@jit
def _settle_exponents(largest, c_exponents, e_zero, fraction_bits, width, exponents, scale):
    """Take C and zero terms into the largest exponents, and derive the float32 scale 2^(F - largest).

    A scale above 2^127 is only asked for where all products are zero, so it may be cut.
    """
    for n in range(width):
        e = max(np.int32(largest[n]), c_exponents[n])
        e = max(e, np.int32(e_zero))
        exponents[n] = e
        shift = min(np.int32(np.int32(fraction_bits) - e), np.int32(127))
        scale[n] = f32_of(np.int32((shift + np.int32(127)) << np.int32(23)))


@jit
def _finish(total, c_values, exponents, fraction_bits, width):
    """Add the cut C and turn the integer sums of ``total`` into values."""
    for n in range(width):
        e = np.int64(exponents[n])
        up = f64_of(np.int64((fraction_bits - e + 1023) << 52))
        down = f64_of(np.int64((e - fraction_bits + 1023) << 52))
        total[n] = (total[n] + np.float64(np.int32(c_values[n] * up))) * down


@jit
def _round_f32(total, drop, width, out):
    """Round toward zero to f32: drop the low ``drop`` of 52 fraction bits, more below 2^-126.

    A magnitude of 2^128 or more gives infinity, not the largest finite number.
    """
    for n in range(width):
        bits = np.float64(total[n]).view(np.int64)
        field = (bits >> 52) & 0x7FF
        shift = drop + max(np.int64(0), np.int64(1023 - 126) - field)
        kept = (bits >> min(shift, np.int64(63))) << min(shift, np.int64(63))
        if shift > 52:
            kept = np.int64(0)
        out[n] = np.uint32(np.float32(f64_of(kept)).view(np.int32))


@jit
def round_f16(total, width, out):
    """Round to the nearest even f16; 65520 and beyond gives infinity."""
    for n in range(width):
        bits = np.float64(total[n]).view(np.int64)
        field = max((bits >> 52) & 0x7FF, np.int64(1023 - 14))
        # Adding and subtracting 1.5 * 2^52 units of the last place rounds to nearest even.
        magic = f64_of(np.int64(((field + 42) << 52) | (np.int64(1) << 51)))
        rounded = min(abs((total[n] + magic) - magic), 65536.0)
        magnitude = np.float32(rounded * 2.0**-112).view(np.uint32) >> np.uint32(13)
        sign = np.uint32(0x8000) if bits < 0 and magnitude != 0 else np.uint32(0)
        out[n] = magnitude | sign


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
        if a_class == _NAN or b_class == _NAN or (a_class + b_class == _INF and a_class != b_class):
            nan = True
        elif a_class == _INF or b_class == _INF:
            if a_sign ^ b_sign ^ negate:
                negative = True
            else:
                positive = True
    c_class, c_sign = class_of(d_kind, c)
    if c_class == _NAN:
        nan = True
    elif c_class == _INF:
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
        if a_special or b_special[first + n] or class_of(d_kind, accumulator)[0] >= _INF:
            found, bits = _special_sum(a_kind, a, present, b_kind, b[first + n], d_kind, accumulator, negate)
            if found:
                out[n] = bits


@jit
def _decode_rows(kind, a, padded, negate):
    """Decode A to (values, exponents) of ``padded`` elements a row, and tell which rows hold an infinity or a NaN."""
    rows, depth = a.shape
    values = np.zeros(rows * padded, np.float32)
    exponents = np.full(rows * padded, _ZERO_EXPONENT, np.int16)
    special = np.zeros(rows, np.bool_)
    for m in range(rows):
        start = m * padded
        special[m] = _decode(kind, a[m], values[start : start + depth], exponents[start : start + depth])
    if negate:
        for i in range(values.size):
            values[i] = -values[i]
    return values, exponents, special


@jit
def _decode_columns(kind, b, padded):
    """Decode B to packed (values, exponents), bounds of its exponents and which columns hold an infinity or a NaN."""
    columns, depth = b.shape
    size = (columns + 63) // 64 * 64 * padded
    flat_values = np.empty(b.size, np.float32)
    flat_exponents = np.empty(b.size, np.int16)
    special = np.zeros(columns, np.bool_)
    if _decode(kind, b.reshape(b.size), flat_values, flat_exponents):
        for n in range(columns):
            special[n] = _is_special(kind, b[n])
    values = np.empty(size, np.float32)
    exponents = np.empty(size, np.int16)
    _pack_columns(flat_values, flat_exponents, columns, depth, padded, values, exponents)
    bounds = _exponent_range(flat_values, flat_exponents, _MANTISSA_BITS[kind])
    return values, exponents, bounds, special


@jit
def _is_wide(kind, values, exponents, bounds):
    """Tell whether products of a row of A with B may leave the range that float32 computes exactly.

    A product must be a normal float32, and 2^(F - largest) must be one too, which asks for exponents of -100 or more.
    """
    if _EXPONENT_BITS[kind] < 8:
        return False
    low, high = _exponent_range(values, exponents, _MANTISSA_BITS[kind])
    return low + bounds[0] < -100 or high + bounds[1] > 125


@jit
def fused_sum(code, a, present, b, d, scale_d, negate):
    """Add A * B^T to D with one fused sum per element; see :func:`accumulate_float` for the arguments.

    ``present`` is uint8 (M, K), zero where sparsity leaves an element of A out, or (M, 0): all are there.
    """
    kinds = (code & 0xFF, (code >> 8) & 0xFF, (code >> 16) & 0xFF)
    is_fp8 = kinds[0] == _E4M3 or kinds[0] == _E5M2
    is_f16 = kinds[2] == _F16
    fraction_bits = _FRACTION_BITS_FP8 if is_fp8 else _FRACTION_BITS
    drop = _DROP_FP8 if is_fp8 else _DROP_F32
    e_zero = _E_ZERO_F16 if is_f16 else _E_ZERO_F32
    rows, depth = a.shape
    columns = b.shape[0]
    padded = (depth + _GROUP - 1) // _GROUP * _GROUP
    av, ae, a_special = _decode_rows(kinds[0], a, padded, negate)
    bv, be, b_bounds, b_special = _decode_columns(kinds[1], b, padded)
    b_any_special = b_special.any()
    largest = np.empty(64, np.int16)
    exponents = np.empty(64, np.int32)
    c_exponents = np.empty(64, np.int32)
    c_values = np.empty(64, np.float64)
    scale = np.empty(64, np.float32)
    total = np.empty(64, np.float64)
    out = np.empty(64, np.uint32)
    groups = _U(padded // _GROUP)
    for m in range(rows):
        row = d[m]
        start = m * padded
        is_wide = _is_wide(kinds[0], av[start : start + padded], ae[start : start + padded], b_bounds)
        for first in range(0, columns, 64):
            width = _U(min(64, columns - first))
            if is_f16:
                c_special = load_f16(row, first, width, scale_d, c_values, c_exponents)
            else:
                c_special = _load_f32(row, first, width, scale_d, c_values, c_exponents)
            largest[:] = np.int16(2 * _ZERO_EXPONENT)
            total[:] = 0.0
            first_a = _U(start)
            first_b = _U(first * padded)
            for g in range(groups):
                k = g * _U(_GROUP)
                _largest_exponents(ae, be, largest, first_a + k, first_b + k * _COLUMNS, width)
            _settle_exponents(largest, c_exponents, e_zero, fraction_bits, width, exponents, scale)
            for g in range(groups):
                k = g * _U(_GROUP)
                if is_wide:
                    _add_terms_wide(av, bv, exponents, fraction_bits, total, first_a + k, first_b + k * _COLUMNS, width)
                else:
                    _add_terms(av, bv, scale, total, first_a + k, first_b + k * _COLUMNS, width)
            _finish(total, c_values, exponents, fraction_bits, width)
            if is_f16:
                round_f16(total, width, out)
            else:
                _round_f32(total, drop, width, out)
            if c_special or b_any_special or a_special[m]:
                terms = present[m]
                _settle_specials(
                    kinds, a[m], a_special[m], terms, b, b_special, row, first, width, scale_d, negate, out
                )
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


@jit
def accumulate_sparse_float(code, a, present, b, d, scale_d, negate_a, negate_b, satfinite):
    """Do :func:`accumulate_float` for a sparse A that was expanded to (M, K) with ``present`` uint8 (M, K)."""
    fused_sum(code, a, present, b, d, scale_d, negate_a != negate_b)
