"""The GEMM ladder, rung 6: two CTAs of a cluster need the same tile of B; each fetches half of it for both.

A copy with a mask delivers the same bytes at the same offset in every CTA of the mask, and counts them at the semaphore of
each. So a slot is empty only when the consumers of both CTAs have read it: they arrive at the semaphores of both. That
arrival makes no memory known to the other CTA: one that did would wait for a fence of the whole GPU in every step.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 6: clusters of two CTAs, TMA multicast of B, arrivals at another CTA's semaphore"
CONFIG = {"m": 256, "n": 256, "k": 256, "stages": 4}

BM, BN, BK, CONSUMERS, CLUSTER = 128, 256, 64, 2, 2
#: Columns of B that each CTA of the cluster fetches.
HALF = BN // CLUSTER


def build(m: int = 256, n: int = 256, k: int = 256, stages: int = 4) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16. Raises UsageError for sizes that do not tile."""
    require_tiles(m=(m, CLUSTER * BM), n=(n, BN), k=(k, BK))
    if not 1 <= stages <= 4:
        raise UsageError(f"stages must be from 1 to 4, not {stages}")

    @tk.kernel(grid=(m // BM, n // BN), warpgroups=1 + CONSUMERS, cluster=CLUSTER)
    def gemm_multicast(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        row, col, rank = tk.blockIdx("x"), tk.blockIdx("y"), tk.cluster.ctarank()
        a, b = tk.st(tk.bf16, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.bf16, BK, BN, count=stages)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, CONSUMERS * CLUSTER)
            tk.fence_mbarrier_init()
        tk.cluster.sync()

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(40)
            with tk.elect():
                ring = tk.ring(stages)
                for step in tk.range(k // BK):
                    tk.wait(empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(full[ring.stage], (BM + BN) * BK * 2)
                    for i in range(CONSUMERS):
                        tk.tma.load_async(a[ring.stage, i], A, (row * CONSUMERS + i, step), full[ring.stage])
                    for half in range(CLUSTER):
                        with tk.when(rank == half):
                            part = b[ring.stage].panels(half * HALF, HALF)
                            tk.tma.cluster.load_async(part, B, (step, col * CLUSTER + half), full[ring.stage], 0b11)
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
                with tk.elect():
                    for cta in range(CLUSTER):
                        tk.tma.cluster.arrive(empty[ring.stage], cta, publish=False)
                ring.advance()
            tk.warpgroup.store(C, acc, (row * CONSUMERS + consumer, col))
        # A CTA must not end while the other may still arrive at its semaphores.
        tk.cluster.sync()

    return gemm_multicast
