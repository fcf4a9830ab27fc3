"""The GEMM ladder, rung 1: every warp for itself, with ``mma.sync``, the tensor core as it was before Hopper.

A warp computes one 32 x 32 tile of C. In every step it copies tiles of A and B through its registers into shared memory,
reads them back as fragments (``ldmatrix``) and multiplies. Nothing overlaps: copy, wait, multiply, copy.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 1: mma.sync by single warps, tiles copied by ordinary loads and stores"
CONFIG = {"m": 64, "n": 64, "k": 128}

TILE, BK = 32, 64


def build(m: int = 64, n: int = 64, k: int = 128) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16. Raises UsageError for sizes that do not tile."""
    require_tiles(m=(m, TILE), n=(n, TILE), k=(k, BK))

    @tk.kernel(grid=(m // TILE, n // TILE), warps=1)
    def gemm_mma_sync(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        row, col = tk.blockIdx("x"), tk.blockIdx("y")
        a, b = tk.st(tk.bf16, TILE, BK), tk.st(tk.bf16, BK, TILE)
        left, right = tk.rt(tk.bf16, TILE, BK), tk.rt(tk.bf16, BK, TILE, "col")
        acc = tk.rt(tk.fl, TILE, TILE)
        tk.warp.zero(acc)
        for step in tk.range(k // BK):
            tk.warp.load(a, A, (row, step))
            tk.warp.load(b, B, (step, col))
            tk.warp.sync()
            tk.warp.load(left, a)
            tk.warp.load(right, b)
            tk.warp.mma_AB(acc, left, right, acc)
            tk.warp.sync()
        tk.warp.store(C, acc, (row, col))

    return gemm_mma_sync
