"""Delta = the sum along each row of dO * O: what the backward pass of attention needs of the forward one, besides L.

No tile is used twice, so nothing goes through shared memory: each warp reads 16 rows straight into its registers.
"""

# mypy: disable-error-code="valid-type"

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "rows straight from global memory into registers, a reduction, a vector straight back"
CONFIG = {"batch": 1, "heads": 2, "n": 128, "d": 64}


def build(batch: int = 1, heads: int = 2, n: int = 128, d: int = 64) -> tk.Kernel:
    """Return the kernel for O and dO of batch x heads x n x d in bf16 and Delta of batch x heads x n in f32.

    Raises UsageError for sizes that do not tile.
    """
    for name, size in (("batch", batch), ("heads", heads), ("n", n)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    if d not in (64, 128):
        raise UsageError(f"d must be 64 or 128, not {d}")
    shape = tk.gl(tk.bf16, batch, heads, n, d)

    @tk.kernel(grid=(-(-n // 64), heads, batch), warpgroups=1)
    def attention_delta(O: shape, dO: shape, Delta: tk.gl(tk.fl, batch, heads, n)):  # noqa: E741
        block, head, sequence = tk.blockIdx("x"), tk.blockIdx("y"), tk.blockIdx("z")
        o, do = tk.rt(tk.fl, 16, d), tk.rt(tk.fl, 16, d)
        delta = tk.col_vec(o)
        tk.warpgroup.load(o, O, (sequence, head, block, 0))
        tk.warpgroup.load(do, dO, (sequence, head, block, 0))
        tk.warp.mul(o, o, do)
        tk.warp.row_sum(delta, o)
        tk.warpgroup.store(Delta, delta, (sequence, head, block))

    return attention_delta


def inputs(seed: int = 0, batch: int = 1, heads: int = 2, n: int = 128, d: int = 64, **_config) -> tuple[np.ndarray, np.ndarray]:
    """Return random normal O and dO in bf16."""
    rng = np.random.default_rng(seed)
    o, do = (rng.standard_normal((batch, heads, n, d), np.float32).astype(ml_dtypes.bfloat16) for _ in range(2))
    return o, do


def reference(o: np.ndarray, do: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Delta in float64 and the error to allow: that of a sum in f32."""
    products = o.astype(np.float64) * do.astype(np.float64)
    return products.sum(-1), 2.0**-20 * np.abs(products).sum(-1)
