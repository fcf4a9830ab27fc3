"""Y = softmax(X) along rows, in one pass over global memory: one warpgroup for 64 rows, which stay in shared memory.

A row arrives in pieces of ``chunk`` columns, each with a semaphore of its own. The first walk over the pieces keeps the
running maximum and sum of every row and begins when the first piece is there; the second walk writes the quotients into
the same pieces, from where TMA takes them away. Rows past the end of X arrive as zeros and are not written.
"""

# mypy: disable-error-code="valid-type"

import math

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "a fused softmax: online maximum and sum over pieces of a row, in place, one TMA load and store of each element"
CONFIG = {"rows": 96, "cols": 512, "chunk": 128}


def build(rows: int = 96, cols: int = 512, chunk: int = 128) -> tk.Kernel:
    """Return the kernel for X and Y of rows x cols in bf16. Raises UsageError for sizes that do not tile."""
    if rows < 1:
        raise UsageError(f"rows must be at least 1, not {rows}")
    if chunk not in (64, 128, 256):
        raise UsageError(f"chunk must be 64, 128 or 256, not {chunk}")
    if cols < chunk or cols % chunk:
        raise UsageError(f"cols must be a multiple of {chunk}, not {cols}")
    chunks = cols // chunk
    shape = tk.gl(tk.bf16, rows, cols)

    @tk.kernel(grid=-(-rows // 64), warpgroups=1)
    def softmax(X: shape, Y: shape):
        x = tk.st(tk.bf16, 64, chunk, count=chunks)
        arrived = tk.semaphores(chunks)
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
            for piece in range(chunks):
                tk.tma.expect_bytes(arrived[piece], x[0].size_bytes)
                tk.tma.load_async(x[piece], X, (tk.blockIdx(), piece), arrived[piece])
        tk.sync()

        # Values are kept times log2(e), so that exp2 serves for exp.
        scale = math.log2(math.e)
        tile = tk.rt(tk.fl, 16, chunk)
        highest, lowered, before, norm = (tk.col_vec(tile, name=x) for x in ("highest", "lowered", "before", "norm"))
        tk.warp.neg_infty(highest)
        tk.warp.zero(norm)

        def exponentials():
            """Turn a piece into exp(piece - highest)."""
            tk.warp.mul(tile, tile, scale)
            tk.warp.add_row(tile, tile, lowered)
            tk.warp.exp2(tile, tile)

        for i in tk.range(chunks):
            tk.wait(arrived[i], 0)
            tk.warpgroup.load(tile, x[i])
            tk.warp.mul(before, highest, scale)
            tk.warp.row_max(highest, tile, highest)
            tk.warp.mul(lowered, highest, -scale)
            tk.warp.add(before, before, lowered)
            tk.warp.exp2(before, before)
            tk.warp.mul(norm, norm, before)
            exponentials()
            tk.warp.row_sum(norm, tile, norm)
        tk.warp.rcp(norm, norm)
        for i in tk.range(chunks):
            tk.warpgroup.load(tile, x[i])
            exponentials()
            tk.warp.mul_row(tile, tile, norm)
            tk.warpgroup.store(x[i], tile)
            tk.warpgroup.sync(1)
            with tk.elect():
                tk.tma.store_async(Y, x[i], (tk.blockIdx(), i))
        with tk.elect():
            tk.tma.store_async_wait()

    return softmax


def inputs(seed: int = 0, rows: int = 96, cols: int = 512, **_config) -> tuple[np.ndarray]:
    """Return random normal X in bf16, of a standard deviation of 2."""
    x = np.random.default_rng(seed).standard_normal((rows, cols), np.float32)
    return ((2 * x).astype(ml_dtypes.bfloat16),)


def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the softmax in float64 and the error to allow: half a unit of a bf16 result, and 2^-14 for exponentials of
    sums in f32.
    """
    x64 = x.astype(np.float64)
    weights = np.exp(x64 - x64.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True)
    return exact, (2.0**-8 + 2.0**-14) * exact
