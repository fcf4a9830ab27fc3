"""The GEMM ladder, rung 3: one thread starts TMA copies; a semaphore counts the bytes that have arrived.

The threads no longer compute addresses, and tiles no longer pass through registers. But copies and products still take
turns: there is one pair of tiles.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 3: TMA loads by one thread, a semaphore with its phases"
CONFIG = {"m": 128, "n": 128, "k": 128}

TILE, BK = 64, 64


def build(m: int = 128, n: int = 128, k: int = 128) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16. Raises UsageError for sizes that do not tile."""
    require_tiles(m=(m, TILE), n=(n, TILE), k=(k, BK))

    @tk.kernel(grid=(m // TILE, n // TILE), warpgroups=1)
    def gemm_tma(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        row, col = tk.blockIdx("x"), tk.blockIdx("y")
        a, b = tk.st(tk.bf16, TILE, BK), tk.st(tk.bf16, BK, TILE)
        arrived = tk.semaphore()
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
        tk.sync()
        acc = tk.rt(tk.fl, 16, TILE)
        tk.warp.zero(acc)
        for step in tk.range(k // BK):
            with tk.elect():
                tk.tma.expect(arrived, a, b)
                tk.tma.load_async(a, A, (row, step), arrived)
                tk.tma.load_async(b, B, (step, col), arrived)
            tk.wait(arrived, step & 1)
            tk.warpgroup.mma_AB(acc, a, b)
            tk.warpgroup.mma_async_wait()
            tk.sync()
        tk.warpgroup.store(C, acc, (row, col))

    return gemm_tma
