"""The GEMM ladder, rung 5: two consumers share every tile of B and compute 128 x 256 of C.

A 64 x 64 tile of C takes as many bytes as it does multiplications by 64; a tile of 128 x 256 five times fewer. Two
warpgroups are needed to hold it: 128 registers of accumulator in each thread, which the producer gives up (``setmaxnreg``).
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 5: two consumer warpgroups, tiles of 128 x 256, registers moved from producer to consumers"
CONFIG = {"m": 256, "n": 256, "k": 256, "stages": 4}

BM, BN, BK, CONSUMERS = 128, 256, 64, 2


def build(m: int = 256, n: int = 256, k: int = 256, stages: int = 4) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16. Raises UsageError for sizes that do not tile."""
    require_tiles(m=(m, BM), n=(n, BN), k=(k, BK))
    if not 1 <= stages <= 4:
        raise UsageError(f"stages must be from 1 to 4, not {stages}")

    @tk.kernel(grid=(m // BM, n // BN), warpgroups=1 + CONSUMERS)
    def gemm_two_consumers(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        row, col = tk.blockIdx("x"), tk.blockIdx("y")
        a, b = tk.st(tk.bf16, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.bf16, BK, BN, count=stages)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, CONSUMERS)
            tk.fence_mbarrier_init()
        tk.sync()

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(40)
            with tk.elect():
                ring = tk.ring(stages)
                for step in tk.range(k // BK):
                    tk.wait(empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(full[ring.stage], (BM + BN) * BK * 2)
                    for i in range(CONSUMERS):
                        tk.tma.load_async(a[ring.stage, i], A, (row * CONSUMERS + i, step), full[ring.stage])
                    tk.tma.load_async(b[ring.stage], B, (step, col), full[ring.stage])
                    ring.advance()

        with tk.warpgroups(1, 2, name="consumer") as consumer:
            tk.warpgroup.increase_registers(232)
            acc = tk.rt(tk.fl, 16, BN)
            tk.warp.zero(acc)
            ring = tk.ring(stages)
            for _ in tk.range(k // BK):
                tk.wait(full[ring.stage], ring.phase)
                tk.warpgroup.mma_AB(acc, a[ring.stage, consumer], b[ring.stage])
                tk.warpgroup.mma_async_wait()
                tk.warpgroup.arrive(empty[ring.stage])
                ring.advance()
            tk.warpgroup.store(C, acc, (row * CONSUMERS + consumer, col))

    return gemm_two_consumers
