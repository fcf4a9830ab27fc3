"""The GEMM ladder, rung 2: four warps together, with ``wgmma``, which reads A and B from shared memory by itself.

A warpgroup computes one 64 x 64 tile of C. Its fragments of A and B are gone: the tensor core is given descriptors of the
tiles. What writes them must be known to it, which is a matter of proxies: ``warpgroup.load`` ends with the fence.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 2: wgmma by a warpgroup, operands in shared memory, proxy fences"
CONFIG = {"m": 128, "n": 128, "k": 128}

TILE, BK = 64, 64


def build(m: int = 128, n: int = 128, k: int = 128) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16. Raises UsageError for sizes that do not tile."""
    require_tiles(m=(m, TILE), n=(n, TILE), k=(k, BK))

    @tk.kernel(grid=(m // TILE, n // TILE), warpgroups=1)
    def gemm_wgmma(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        row, col = tk.blockIdx("x"), tk.blockIdx("y")
        a, b = tk.st(tk.bf16, TILE, BK), tk.st(tk.bf16, BK, TILE)
        acc = tk.rt(tk.fl, 16, TILE)
        tk.warp.zero(acc)
        for step in tk.range(k // BK):
            tk.warpgroup.load(a, A, (row, step))
            tk.warpgroup.load(b, B, (step, col))
            tk.sync()
            tk.warpgroup.mma_AB(acc, a, b)
            tk.warpgroup.mma_async_wait()
            tk.sync()
        tk.warpgroup.store(C, acc, (row, col))

    return gemm_wgmma
