"""What cp.reduce.async.bulk.tensor does to one element of global memory, in bits.

Sums of the _ftz types flush subnormal numbers, others do not. A NaN of f64 is passed on; all others become 0x7FFF...

Spec: PTX ISA 9.1, "cp.reduce.async.bulk.tensor". Measured: tests/data/tma_store.npz (which types take which operation),
tests/data/tma_reduction.npz (sums and extremes of special values).
"""

from __future__ import annotations

import numpy as np

from h100sim.native import jit
from h100sim.numerics.conversions import bf16_value, f16_value, narrow
from h100sim.numerics.float32 import RN, f32_canonical, flush32
from h100sim.numerics.host_float import f32_value, f64_bits, f64_value
from h100sim.tma.fields import DTYPES

#: Reductions in the order of their codes; code 0 is a plain store.
REDUCTIONS = ("", "add", "min", "max", "inc", "dec", "and", "or", "xor")
NONE, ADD, MIN, MAX, INC, DEC, AND, OR, XOR = range(9)

_ORDERED = ("u32", "s32", "u64", "s64", "f16", "bf16")
#: Element formats that each reduction takes; any other is an illegal instruction. Measured: tests/data/tma_store.npz.
REDUCTION_FORMATS: dict[str, tuple[str, ...]] = {
    "": tuple(DTYPES),
    "add": ("u32", "s32", "u64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"),
    "min": _ORDERED,
    "max": _ORDERED,
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("u32", "s32", "u64"),
    "or": ("u32", "s32", "u64"),
    "xor": ("u32", "s32", "u64"),
}
_LEGAL = np.array([[name in REDUCTION_FORMATS[r] for name in DTYPES] for r in REDUCTIONS])
#: What inf - inf gives.
_F64_NAN = np.uint64(0xFFF8000000000000).astype(np.int64)
_U8, _U16, _U32, _S32, _U64, _S64, _F16, _F32, _F64, _BF16, _F32_FTZ, _TF32, _TF32_FTZ = range(13)


@jit
def is_legal(reduction, element_format):
    """Return whether an element format (driver code) takes a reduction (code)."""
    return _LEGAL[reduction, element_format]


@jit
def reduce_word(element_bytes, element_format, reduction, old, new):
    """Return 8 bytes (uint64) of global memory reduced with 8 bytes of the source."""
    if element_bytes == 8:
        return np.uint64(reduce_element(reduction, element_format, np.int64(old), np.int64(new)))
    bits = np.uint64(8 * element_bytes)
    ones = (np.uint64(1) << bits) - np.uint64(1)
    result, shift = np.uint64(0), np.uint64(0)
    while shift < np.uint64(64):
        a, b = np.int64(old >> shift & ones), np.int64(new >> shift & ones)
        result |= np.uint64(reduce_element(reduction, element_format, a, b)) << shift
        shift += bits
    return result


@jit
def reduce_element(reduction, element_format, old, new):
    """Return the bits of an element (int64, zero-extended below 64 bits) after ``old = old op new``."""
    if reduction == ADD:
        return add(element_format, old, new)
    if reduction in (MIN, MAX):
        if element_format in (_F16, _BF16):
            return float_minmax(reduction == MAX, element_format == _BF16, old, new)
        a, b = order(element_format, old), order(element_format, new)
        return old if (a >= b if reduction == MAX else a <= b) else new
    if reduction == INC:
        return 0 if old >= new else old + 1
    if reduction == DEC:
        return new if old == 0 or old > new else old - 1
    if reduction == AND:
        return old & new
    if reduction == OR:
        return old | new
    return old ^ new


@jit
def order(element_format, bits):
    """Return an int64 that orders integers of the format as the format does."""
    if element_format == _S32:
        return bits - (1 << 32) if bits >> 31 else bits
    if element_format == _U64:
        return bits ^ np.int64(-(1 << 63))
    return bits


@jit
def add(element_format, old, new):
    """Return the bits of a sum; integers wrap."""
    if element_format in (_U32, _S32):
        return (old + new) & 0xFFFFFFFF
    if element_format == _U64:
        return old + new
    if element_format == _F64:
        return add_f64(old, new)
    if element_format in (_F16, _BF16):
        return add_half(element_format == _BF16, old, new)
    if element_format in (_F32_FTZ, _TF32_FTZ):
        return add_f32_ftz(old, new)
    return add_f32(old, new)


@jit
def add_f64(old, new):
    """Add f64; a NaN comes out as it went in, that of the source first."""
    a, b = f64_value(np.uint64(old)), f64_value(np.uint64(new))
    if b != b:
        return np.int64(new)
    if a != a:
        return np.int64(old)
    total = a + b
    return np.int64(f64_bits(total)) if total == total else np.int64(_F64_NAN)


@jit
def add_f32(old, new):
    return np.int64(f32_canonical(np.float32(f32_value(np.uint32(old)) + f32_value(np.uint32(new)))))


@jit
def add_f32_ftz(old, new):
    """Add f32 with subnormal operands and sums flushed to zero of the same sign."""
    total = flush32(f32_value(np.uint32(old))) + flush32(f32_value(np.uint32(new)))
    return np.int64(f32_canonical(flush32(np.float32(total))))


@jit
def add_half(is_bf16, old, new):
    """Add two 16-bit floats with one rounding.

    float64 holds the sum of two f16 exactly, and that of two bf16 so closely that its rounding does not change the
    second.
    """
    if is_bf16:
        total = np.float64(bf16_value(np.uint32(old))) + np.float64(bf16_value(np.uint32(new)))
    else:
        total = np.float64(f16_value(np.uint32(old))) + np.float64(f16_value(np.uint32(new)))
    if total != total:
        return np.int64(0x7FFF)
    bits = narrow(total, 7 if is_bf16 else 10, 127 if is_bf16 else 15, 0x7F7F if is_bf16 else 0x7BFF, RN)
    return np.int64(bits >> np.uint32(16) & np.uint32(0x8000) | bits & np.uint32(0x7FFF))


@jit
def float_minmax(is_max, is_bf16, old, new):
    """Return the smaller or larger of two 16-bit floats: a NaN gives way to a number, -0 is below +0."""
    infinity = 0x7F80 if is_bf16 else 0x7C00
    if old & 0x7FFF > infinity:
        return np.int64(0x7FFF) if new & 0x7FFF > infinity else new
    if new & 0x7FFF > infinity:
        return old
    a = old if old < 0x8000 else 0x7FFF - old
    b = new if new < 0x8000 else 0x7FFF - new
    return old if (a >= b if is_max else a <= b) else new
