"""The 8-bit floating-point ``mma.sync`` of sm_90, which has no instruction of its own.

The assembler converts both operands to f16, multiplies in two HMMA instructions and adds C with an ordinary addition.
The first HMMA takes the elements whose index k has k % 4 in {0, 1} and starts from zero, the second those with k % 4
in {2, 3} and starts from the first's result. So it keeps more bits than the fp8 ``wgmma``, and rounds to nearest
once.

The sparse form takes the even chunks of four elements in its first HMMA and the odd ones in its second.

Measured: tests/data/mma_sync.npz (kernels e4m3, e5m2 and e4m3e5m2, k16 and k32, f32 and f16), tests/data/mma_sparse.npz.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import element_type
from h100sim.native import jit
from h100sim.numerics.tensor_core_decode import INF, NAN, class_of, f32_of, load_f16
from h100sim.numerics.tensor_core_float import NAN_F16, NAN_F32, f16_of, fused_sum

_U = np.uint64
_F16 = element_type("f16").index
_F32 = element_type("f32").index
_E5M2 = element_type("e5m2").index
_F16_TO_F16 = _F16 | _F16 << 8 | _F16 << 16
_F16_TO_F32 = _F16 | _F16 << 8 | _F32 << 16


@jit
def f16_of_fp8(kind, bits):
    """Return the f16 bits (uint32) of one e4m3 or e5m2 element, exactly; a NaN becomes the canonical one."""
    x = np.uint32(bits)
    sign = np.uint32((x & np.uint32(0x80)) << np.uint32(8))
    magnitude = np.uint32(x & np.uint32(0x7F))
    if class_of(kind, bits)[0] == NAN:
        return NAN_F16
    if kind == _E5M2:
        return np.uint32(sign | magnitude << np.uint32(8))
    if magnitude >= 8:
        return np.uint32(sign | np.uint32((magnitude << np.uint32(7)) + np.uint32(8 << 10)))
    exponent = np.uint32(8)
    while magnitude != 0 and magnitude < 8:
        magnitude = np.uint32(magnitude << np.uint32(1))
        exponent = np.uint32(exponent - np.uint32(1))
    if magnitude == 0:
        return sign
    # The hidden bit of the normalised significand (bit 3) adds one to the exponent field.
    return np.uint32(sign | np.uint32((magnitude << np.uint32(7)) + (exponent << np.uint32(10))))


@jit
def _half_of_k(kind, x, second):
    """Return the f16 elements of one HMMA: those with k % 4 in {0, 1}, or in {2, 3} if ``second``."""
    rows, depth = x.shape
    half = np.empty((rows, depth // 2), np.uint32)
    for m in range(rows):
        for i in range(depth // 2):
            half[m, i] = f16_of_fp8(kind, x[m, i // 2 * 4 + i % 2 + 2 * second])
    return half


@jit
def _add_f32(products, d):
    """Add to ``d`` as FADD does: round to nearest even, canonical NaN."""
    for i in range(d.size):
        total = f32_of(np.int32(products[i])) + f32_of(np.int32(d[i]))
        d[i] = NAN_F32 if np.isnan(total) else np.uint32(np.float32(total).view(np.int32))


@jit
def _add_f16(products, d):
    """Add to ``d`` as HADD2 does: round to nearest even, canonical NaN. float64 holds the sum of two f16 exactly."""
    x = np.empty(1, np.float32)
    y = np.empty(1, np.float32)
    exponent = np.empty(1, np.int16)
    for i in range(d.size):
        p_class, p_sign = class_of(_F16, products[i])
        d_class, d_sign = class_of(_F16, d[i])
        if p_class == NAN or d_class == NAN or (p_class == INF and d_class == INF and p_sign != d_sign):
            d[i] = NAN_F16
        elif p_class == INF:
            d[i] = products[i]
        elif d_class != INF:
            load_f16(products, i, _U(1), True, x, exponent)
            load_f16(d, i, _U(1), True, y, exponent)
            d[i] = f16_of(np.float64(x[0]) + np.float64(y[0]))


@jit
def accumulate_fp8_by_hmma(code, a, b, d, scale_d, negate_a, negate_b, satfinite):
    """Do one fp8 ``mma.sync``: D = A * B^T + D, in place.

    Arguments as for :func:`h100sim.numerics.tensor_core_float.accumulate_float`; K is a multiple of 4. ``scale_d``
    must be true and the other flags false: ``mma.sync`` has none of them.
    """
    a_kind = code & 0xFF
    b_kind = (code >> 8) & 0xFF
    is_f16 = (code >> 16) & 0xFF == _F16
    hmma = _F16_TO_F16 if is_f16 else _F16_TO_F32
    products = np.zeros(d.shape, np.uint32)
    everything = np.empty((a.shape[0], 0), np.uint8)
    for second in range(2):
        a_half = _half_of_k(a_kind, a, second)
        b_half = _half_of_k(b_kind, b, second)
        fused_sum(hmma, a_half, everything, b_half, products, True, False)
    if is_f16:
        _add_f16(products.reshape(d.size), d.reshape(d.size))
    else:
        _add_f32(products.reshape(d.size), d.reshape(d.size))


@jit
def _f16_rows(kind, x):
    """Return fp8 elements as f16 ones."""
    result = np.empty(x.shape, np.uint32)
    for m in range(x.shape[0]):
        for k in range(x.shape[1]):
            result[m, k] = f16_of_fp8(kind, x[m, k])
    return result


@jit
def add_sparse_fp8_by_hmma(code, a, present, b, d):
    """Do one fp8 ``mma.sp``: D = A * B^T + D, in place. ``present`` uint8 (M, K) marks the kept elements of A; D is f32."""
    rows, depth = a.shape
    b_values = _f16_rows((code >> 8) & 0xFF, b)
    a_values = _f16_rows(code & 0xFF, a)
    products = np.zeros(d.shape, np.uint32)
    a_part = np.empty(a.shape, np.uint32)
    kept = np.empty(a.shape, np.uint8)
    for second in range(2):
        for m in range(rows):
            for k in range(depth):
                taken = k // 4 % 2 == second
                a_part[m, k] = a_values[m, k] if taken else np.uint32(0)
                kept[m, k] = present[m, k] if taken else np.uint8(0)
        fused_sum(_F16_TO_F32, a_part, kept, b_values, products, True, False)
    _add_f32(products.reshape(d.size), d.reshape(d.size))
