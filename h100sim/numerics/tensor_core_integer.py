"""The integer and one-bit arithmetic of Hopper's tensor core.

s8 and u8 in any mix, s4 and u4 in any mix (``mma.sync`` only; the assembler makes products of bytes of them): an exact
dot product over the whole K of the instruction is added to the s32 accumulator once, which then wraps modulo 2^32, or is
clamped once with ``.satfinite``. b1: the number of ones of A AND B (or A XOR B)
is added and wraps.

Measured: tests/data/wgmma_numerics.npz (kernels s8_s32, s8_s32_sat, u8_s32, s8u8_s32, b1_s32),
tests/data/wgmma_sparse.npz, tests/data/mma_sparse.npz (4-bit elements).

How it is computed. A product of two bytes and a sum of eight are below 2^24, so float32 is exact for them, and float32
multiplies twice as fast as int32 in vector registers. Columns are neighbours in memory, so the inner loops vectorise.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import element_type
from h100sim.native import jit

_U = np.uint64
_COLUMNS = np.uint64(64)
_GROUP = 8
_S8 = element_type("s8").index
_S4, _U4 = element_type("s4").index, element_type("u4").index

#: Bit of a code that asks for ``.xor.popc`` in place of ``.and.popc``.
XOR = 1 << 24


@jit
def _byte_value(kind, bits):
    """Return the value of one s8, u8, s4 or u4 element as float32."""
    width = np.int32(4) if kind in (_S4, _U4) else np.int32(8)
    low = np.int32(bits & np.uint32((1 << width) - 1))
    if kind in (_S8, _S4) and (low >> (width - np.int32(1))) != 0:
        low = np.int32(low - (np.int32(1) << width))
    return np.float32(low)


@jit
def _pack_byte_columns(kind, b, padded, packed):
    """Lay out B (N, K) as blocks of 64 columns, K-major inside a block, so that columns are neighbours."""
    columns, depth = b.shape
    for n in range(columns):
        base = n // 64 * padded * 64 + n % 64
        for k in range(depth):
            packed[base + k * 64] = _byte_value(kind, b[n, k])
        for k in range(depth, padded):
            packed[base + k * 64] = np.float32(0.0)


@jit
def _add_products(av, bv, total, first_a, first_b, width):
    """Add eight products per column to the int32 ``total``."""
    a0, a1, a2, a3 = av[first_a], av[first_a + _U(1)], av[first_a + _U(2)], av[first_a + _U(3)]
    a4, a5, a6, a7 = av[first_a + _U(4)], av[first_a + _U(5)], av[first_a + _U(6)], av[first_a + _U(7)]
    for n in range(width):
        i = first_b + n
        t = a0 * bv[i] + a1 * bv[i + _COLUMNS]
        t += a2 * bv[i + _U(2) * _COLUMNS] + a3 * bv[i + _U(3) * _COLUMNS]
        t += a4 * bv[i + _U(4) * _COLUMNS] + a5 * bv[i + _U(5) * _COLUMNS]
        t += a6 * bv[i + _U(6) * _COLUMNS] + a7 * bv[i + _U(7) * _COLUMNS]
        total[n] = np.int32(total[n] + np.int32(t))


@jit
def _add_to_row(row, first, total, width, scale_d, satfinite):
    """Add the dot products to one row of accumulators: wrap, or clamp to s32."""
    for n in range(width):
        s = np.int64(total[n])
        if scale_d:
            s += np.int64(np.int32(row[first + n]))
        if satfinite:
            s = min(max(s, np.int64(-(2**31))), np.int64(2**31 - 1))
        row[first + n] = np.uint32(s & np.int64(0xFFFFFFFF))


@jit
def accumulate_integer(code, a, b, d, scale_d, negate_a, negate_b, satfinite):
    """Do one step of an s8/u8 ``wgmma`` or ``mma.sync``, or an s4/u4 ``mma.sync``: D = A * B^T + D, in place.

    ``code`` from :func:`h100sim.numerics.tensor_core.code_of`. ``a`` uint32 (M, K) and ``b`` uint32 (N, K) hold elements,
    ``d`` uint32 (M, N) the bits of s32, all C-contiguous; K at most 32768. ``scale_d`` false: D is not read.
    ``satfinite``: clamp instead of wrap. ``negate_a`` and ``negate_b`` are for floats and must be false.
    """
    a_kind = code & 0xFF
    b_kind = (code >> 8) & 0xFF
    rows, depth = a.shape
    columns = b.shape[0]
    padded = (depth + _GROUP - 1) // _GROUP * _GROUP
    bv = np.empty((columns + 63) // 64 * 64 * padded, np.float32)
    _pack_byte_columns(b_kind, b, padded, bv)
    av = np.zeros(padded, np.float32)
    total = np.empty(64, np.int32)
    for m in range(rows):
        for k in range(depth):
            av[k] = _byte_value(a_kind, a[m, k])
        for first in range(0, columns, 64):
            width = _U(min(64, columns - first))
            total[:] = np.int32(0)
            for g in range(_U(padded // _GROUP)):
                first_k = g * _U(_GROUP)
                _add_products(av, bv, total, first_k, _U(first * padded) + first_k * _COLUMNS, width)
            _add_to_row(d[m], first, total, width, scale_d, satfinite)


@jit
def _ones(x):
    """Count the ones of a 32-bit word."""
    x = np.uint32(x - ((x >> np.uint32(1)) & np.uint32(0x55555555)))
    x = np.uint32((x & np.uint32(0x33333333)) + ((x >> np.uint32(2)) & np.uint32(0x33333333)))
    x = np.uint32((x + (x >> np.uint32(4))) & np.uint32(0x0F0F0F0F))
    return np.uint32(np.uint32(x * np.uint32(0x01010101)) >> np.uint32(24))


@jit
def accumulate_bits(code, a, b, d, scale_d, negate_a, negate_b, satfinite):
    """Do one step of a b1 ``wgmma`` or ``mma.sync``: D = popc(A op B) + D, in place.

    ``a`` uint32 (M, K/32) and ``b`` uint32 (N, K/32) hold 32 elements a word, least significant bit first; ``d`` uint32
    (M, N) the bits of s32. op is AND, or XOR if ``code`` has the bit :data:`XOR`. ``scale_d`` false: D is not read.
    The other flags must be false.
    """
    is_xor = (code & XOR) != 0
    columns, words = b.shape
    packed = np.empty((words, columns), np.uint32)
    for n in range(columns):
        for w in range(words):
            packed[w, n] = b[n, w]
    for m in range(a.shape[0]):
        row = d[m]
        if not scale_d:
            row[:] = np.uint32(0)
        for w in range(words):
            x = a[m, w]
            y = packed[w]
            if is_xor:
                for n in range(columns):
                    row[n] = np.uint32(row[n] + _ones(np.uint32(x ^ y[n])))
            else:
                for n in range(columns):
                    row[n] = np.uint32(row[n] + _ones(np.uint32(x & y[n])))
