"""The GEMM ladder, rung 7: as many clusters as the machine holds, each working through tiles in an order kind to L2.

A CTA that ends takes its pipeline with it: the next one begins with an empty ring. A persistent CTA goes on: while the
consumers write one tile of C, the producer already fetches the next. The tiles that run at the same time form a band of
``group`` pairs of rows, so that they share tiles of A and B in the L2 cache.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs.gemm_6_multicast import BK, BM, BN, CLUSTER, CONSUMERS, HALF
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 7: persistent clusters, an order of tiles for the L2 cache, phases that run on across tiles"
CONFIG = {"m": 512, "n": 512, "k": 128, "stages": 4, "ctas": 4}

#: Pairs of row tiles in a band, at most.
GROUP = 8


def build(m: int = 512, n: int = 512, k: int = 128, stages: int = 4, ctas: int = 132) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16, with at most ``ctas`` CTAs.

    Raises UsageError for sizes that do not tile.
    """
    require_tiles(m=(m, CLUSTER * BM), n=(n, BN), k=(k, BK), ctas=(ctas, CLUSTER))
    if not 1 <= stages <= 4:
        raise UsageError(f"stages must be from 1 to 4, not {stages}")
    pairs, cols, steps = m // (CLUSTER * BM), n // BN, k // BK
    clusters = min(pairs * cols, ctas // CLUSTER)
    group = max(g for g in range(1, GROUP + 1) if pairs % g == 0)

    @tk.kernel(grid=CLUSTER * clusters, warpgroups=1 + CONSUMERS, cluster=CLUSTER)
    def gemm_persistent(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        rank, first = tk.cluster.ctarank(), tk.blockIdx() // CLUSTER
        a, b = tk.st(tk.bf16, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.bf16, BK, BN, count=stages)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, CONSUMERS * CLUSTER)
            tk.fence_mbarrier_init()
        tk.cluster.sync()

        def tile_at(task):
            band, place = task // (group * cols), task % (group * cols)
            return (band * group + place % group) * CLUSTER + rank, place // group

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(40)
            with tk.elect():
                ring = tk.ring(stages)
                for task in tk.range(first, pairs * cols, clusters):
                    row, col = tile_at(task)
                    for step in tk.range(steps):
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
            ring = tk.ring(stages)
            acc = tk.rt(tk.fl, 16, BN)
            for task in tk.range(first, pairs * cols, clusters):
                row, col = tile_at(task)
                tk.warp.zero(acc)
                for _ in tk.range(steps):
                    tk.wait(full[ring.stage], ring.phase)
                    tk.warpgroup.mma_AB(acc, a[ring.stage, consumer], b[ring.stage])
                    tk.warpgroup.mma_async_wait()
                    with tk.elect():
                        for cta in range(CLUSTER):
                            tk.tma.cluster.arrive(empty[ring.stage], cta, publish=False)
                    ring.advance()
                tk.warpgroup.store(C, acc, (row * CONSUMERS + consumer, col))
        tk.cluster.sync()

    return gemm_persistent
