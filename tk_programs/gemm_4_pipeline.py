"""The GEMM ladder, rung 4: a ring of tiles between a warpgroup that copies and one that multiplies.

The producer runs ahead by as many steps as the ring has slots. Two semaphores for each slot carry the news: ``full``
when its bytes have arrived, ``empty`` when the product has read them.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 4: a producer and a consumer warpgroup, a ring of stages, full and empty semaphores"
CONFIG = {"m": 128, "n": 128, "k": 256, "stages": 4}

TILE, BK = 64, 64


def build(m: int = 128, n: int = 128, k: int = 256, stages: int = 4) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16. Raises UsageError for sizes that do not tile."""
    require_tiles(m=(m, TILE), n=(n, TILE), k=(k, BK))
    if not 1 <= stages <= 12:
        raise UsageError(f"stages must be from 1 to 12, not {stages}")

    @tk.kernel(grid=(m // TILE, n // TILE), warpgroups=2)
    def gemm_pipeline(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        row, col = tk.blockIdx("x"), tk.blockIdx("y")
        a, b = tk.st(tk.bf16, TILE, BK, count=stages), tk.st(tk.bf16, BK, TILE, count=stages)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, 1)
            tk.fence_mbarrier_init()
        tk.sync()

        with tk.warpgroups(0, name="producer"), tk.elect():
            ring = tk.ring(stages)
            for step in tk.range(k // BK):
                tk.wait(empty[ring.stage], ring.phase ^ 1)
                tk.tma.expect_bytes(full[ring.stage], a[0].size_bytes + b[0].size_bytes)
                tk.tma.load_async(a[ring.stage], A, (row, step), full[ring.stage])
                tk.tma.load_async(b[ring.stage], B, (step, col), full[ring.stage])
                ring.advance()

        with tk.warpgroups(1, name="consumer"):
            acc = tk.rt(tk.fl, 16, TILE)
            tk.warp.zero(acc)
            ring = tk.ring(stages)
            for _ in tk.range(k // BK):
                tk.wait(full[ring.stage], ring.phase)
                tk.warpgroup.mma_AB(acc, a[ring.stage], b[ring.stage])
                tk.warpgroup.mma_async_wait()
                tk.warpgroup.arrive(empty[ring.stage])
                ring.advance()
            tk.warpgroup.store(C, acc, (row, col))

    return gemm_pipeline
