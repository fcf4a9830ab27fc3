"""The f64 ``mma.sync`` (DMMA): a chain of fused multiply-adds, k ascending, that starts from C, each rounded as the opcode says.

A NaN operand is passed on, quieted: B's before the accumulator's before A's. A NaN that an operation makes is
0xFFF8000000000000.

Measured: tests/data/mma_sync.npz (kernels f64_m8k4, f64_m16k4, f64_m16k8, f64_m16k16; NaN payloads too); other roundings than to
nearest in validate/silicon/warp_matrix_bits.json.
"""

from __future__ import annotations

import numpy as np

from h100sim.native import intrinsic, jit, types
from h100sim.numerics.float64 import fma64_directed

#: Where a code has the rounding: 0 to nearest even, 1 toward zero, 2 down, 3 up.
ROUNDING_SHIFT = 26

_QUIET = np.uint64(1 << 51)
_MADE_NAN = np.uint64(0xFFF8000000000000)
_INFINITY = np.uint64(0x7FF0000000000000)
_MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)


@intrinsic
def fma_f64(typingctx, a, b, c):
    """Return a * b + c of three float64, rounded once to nearest even."""
    signature = types.float64(types.float64, types.float64, types.float64)

    def codegen(context, builder, sig, args):
        return builder.fma(*args)

    return signature, codegen


@jit
def _is_nan(bits):
    return (bits & _MAGNITUDE) > _INFINITY


@jit
def _f64_of(bits):
    return np.uint64(bits).view(np.float64)


@jit
def fma_bits(a, b, c, mode):
    """Return the bits of a * b + c, rounded in a mode, from the bits of three float64, with the NaN that DMMA gives."""
    if _is_nan(b):
        return b | _QUIET
    if _is_nan(c):
        return c | _QUIET
    if _is_nan(a):
        return a | _QUIET
    if mode == 0:
        result = np.float64(fma_f64(_f64_of(a), _f64_of(b), _f64_of(c))).view(np.uint64)
    else:
        result = np.float64(fma64_directed(_f64_of(a), _f64_of(b), _f64_of(c), mode)).view(np.uint64)
    return _MADE_NAN if _is_nan(result) else result


@jit
def accumulate_double(code, a, b, d, scale_d, negate_a, negate_b, satfinite):
    """Do one f64 ``mma.sync``: D = A * B^T + D, in place.

    ``a`` uint64 (M, K), ``b`` uint64 (N, K), ``d`` uint64 (M, N), the bits of f64. ``scale_d`` must be true and the
    other flags false: ``mma.sync`` has none of them.
    """
    mode = (code >> ROUNDING_SHIFT) & 3
    for m in range(d.shape[0]):
        for n in range(d.shape[1]):
            total = d[m, n]
            for k in range(a.shape[1]):
                total = fma_bits(a[m, k], b[n, k], total, mode)
            d[m, n] = total
