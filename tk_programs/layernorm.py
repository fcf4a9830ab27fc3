"""R = X + residual and Y = layernorm(R) * weight + bias: what stands between two blocks of a transformer.

Each warp works alone on 16 rows: two semaphores, no barrier, nothing shared with other warps. Rows arrive in pieces of 64
columns and stay in shared memory for three walks: sum (and the new residual), squares of deviations, result.
"""

# mypy: disable-error-code="valid-type"

from typing import Any

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "layernorm with a residual: warps that work alone, statistics in three walks, vectors along rows and columns"
CONFIG = {"rows": 80, "d": 512, "warps": 2}

#: Columns of a piece: one 128-byte panel of bf16.
PIECE = 64


def build(rows: int = 80, d: int = 512, warps: int = 2, eps: float = 1e-5) -> tk.Kernel:
    """Return the kernel for X, residual, R and Y of rows x d in bf16; weight and bias of d in f32.

    A CTA has ``warps`` warps with 16 rows each. Raises UsageError for sizes that do not tile.
    """
    if rows < 1:
        raise UsageError(f"rows must be at least 1, not {rows}")
    if d < PIECE or d % PIECE:
        raise UsageError(f"d must be a multiple of {PIECE}, not {d}")
    if not 1 <= warps <= 8:
        raise UsageError(f"warps must be from 1 to 8, not {warps}")
    if not 0 < eps < 1:
        raise UsageError(f"eps must be between 0 and 1, not {eps}")
    pieces = d // PIECE
    shape, vector = tk.gl(tk.bf16, rows, d), tk.gl(tk.fl, d)

    @tk.kernel(grid=-(-rows // (16 * warps)), warps=warps)
    def layernorm(X: shape, residual: shape, weight: vector, bias: vector, R: shape, Y: shape):
        x, r = (tk.st(tk.bf16, 16, PIECE, count=(warps, pieces), name=name) for name in "xr")
        arrived = tk.semaphores(warps)
        mine = tk.warpid()
        block = tk.blockIdx() * warps + mine
        with tk.elect(each_warp=True):
            tk.init_semaphore(arrived[mine], 1)
            tk.fence_mbarrier_init()
            tk.tma.expect_bytes(arrived[mine], 2 * pieces * x[0, 0].size_bytes)
            for piece in range(pieces):
                tk.tma.load_async(x[mine, piece], X, (block, piece), arrived[mine])
                tk.tma.load_async(r[mine, piece], residual, (block, piece), arrived[mine])
        tk.warp.sync()
        tk.wait(arrived[mine], 0)

        tile, other, rounded = tk.rt(tk.fl, 16, PIECE), tk.rt(tk.fl, 16, PIECE), tk.rt(tk.bf16, 16, PIECE)
        mean, spread = (tk.col_vec(tile, name=name) for name in ("mean", "spread"))
        gain, shift = tk.row_vec(tile, name="gain"), tk.row_vec(tile, name="shift")

        tk.warp.zero(mean)
        for i in tk.range(pieces):
            tk.warp.load(tile, x[mine, i])
            tk.warp.load(other, r[mine, i])
            tk.warp.add(tile, tile, other)
            # Statistics are those of the residual as it is stored, in bf16.
            tk.warp.copy(rounded, tile)
            tk.warp.store(r[mine, i], rounded)
            tk.warp.copy(tile, rounded)
            tk.warp.row_sum(mean, tile, mean)
        tk.warp.mul(mean, mean, 1 / d)

        tk.warp.sync()
        with tk.elect(each_warp=True):
            for piece in range(pieces):
                tk.tma.store_async(R, r[mine, piece], (block, piece))

        tk.warp.zero(spread)
        for i in tk.range(pieces):
            tk.warp.load(tile, r[mine, i])
            tk.warp.sub_row(tile, tile, mean)
            tk.warp.mul(tile, tile, tile)
            tk.warp.row_sum(spread, tile, spread)
        tk.warp.mul(spread, spread, 1 / d)
        tk.warp.add(spread, spread, eps)
        tk.warp.rsqrt(spread, spread)

        for i in tk.range(pieces):
            tk.warp.load(gain, weight, (i,))
            tk.warp.load(shift, bias, (i,))
            tk.warp.load(tile, r[mine, i])
            tk.warp.sub_row(tile, tile, mean)
            tk.warp.mul_row(tile, tile, spread)
            tk.warp.mul_col(tile, tile, gain)
            tk.warp.add_col(tile, tile, shift)
            tk.warp.store(x[mine, i], tile)
        tk.warp.sync()
        with tk.elect(each_warp=True):
            for piece in range(pieces):
                tk.tma.store_async(Y, x[mine, piece], (block, piece))
            tk.tma.store_async_wait()

    return layernorm


def inputs(seed: int = 0, rows: int = 80, d: int = 512, **_config) -> tuple[np.ndarray, ...]:
    """Return random normal X and residual in bf16, weight near 1 and bias near 0 in f32."""
    rng = np.random.default_rng(seed)
    x, residual = (rng.standard_normal((rows, d), np.float32).astype(ml_dtypes.bfloat16) for _ in range(2))
    weight, bias = (rng.standard_normal(d, np.float32) * np.float32(0.1) for _ in range(2))
    return x, residual, 1 + weight, bias


def reference(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> Any:
    """Return R and Y in float64, each with the error to allow: R is rounded to bf16, and Y is computed from it so."""
    total = x.astype(np.float64) + residual.astype(np.float64)
    r = total.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    deviation = r - r.mean(-1, keepdims=True)
    y = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + eps) * weight + bias
    return (total, 2.0**-8 * np.abs(total)), (y, 2.0**-8 * np.abs(y) + 2.0**-16 * (np.abs(bias) + np.abs(y)) + 2.0**-18)
