"""The GEMM ladder, rung 8: C leaves through shared memory, in whole lines, while the next tile is multiplied.

Registers straight to global memory means two elements a thread and rows far apart. ``stmatrix`` puts them into a swizzled
tile without bank conflicts, and TMA carries it off. C has two places of its own beside the ring, for pieces of 64 columns: a
piece is written when the store before the last has read its place.

A product is left running while the next step is waited for, so that the tensor core need not drain between steps.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs.gemm_6_multicast import BK, BM, BN, CLUSTER, CONSUMERS, HALF
from tk_programs.gemm_7_persistent import GROUP
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "GEMM ladder 8: stmatrix and TMA stores for C, a product left running between steps"
CONFIG = {"m": 512, "n": 512, "k": 192, "stages": 4, "ctas": 4}

#: Columns of C that leave at a time.
PIECE = 64


def build(m: int = 512, n: int = 512, k: int = 192, stages: int = 4, ctas: int = 132) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16, with at most ``ctas`` CTAs.

    Raises UsageError for sizes that do not tile.
    """
    require_tiles(m=(m, CLUSTER * BM), n=(n, BN), k=(k, BK), ctas=(ctas, CLUSTER))
    if not 2 <= stages <= 4:
        raise UsageError(f"stages must be from 2 to 4, not {stages}")
    pairs, cols, steps = m // (CLUSTER * BM), n // BN, k // BK
    clusters = min(pairs * cols, ctas // CLUSTER)
    group = max(g for g in range(1, GROUP + 1) if pairs % g == 0)

    @tk.kernel(grid=CLUSTER * clusters, warpgroups=1 + CONSUMERS, cluster=CLUSTER)
    def gemm_tma_store(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        rank, first = tk.cluster.ctarank(), tk.blockIdx() // CLUSTER
        a, b = tk.st(tk.bf16, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.bf16, BK, BN, count=stages)
        c = tk.st(tk.bf16, 64, PIECE, count=(CONSUMERS, 2))
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
            ring, done = tk.ring(stages), tk.ring(stages)
            acc = tk.rt(tk.fl, 16, BN)

            def free():
                """Tell the producers of both CTAs that the oldest slot has been read."""
                with tk.elect():
                    for cta in range(CLUSTER):
                        tk.tma.cluster.arrive(empty[done.stage], cta, publish=False)
                done.advance()

            for task in tk.range(first, pairs * cols, clusters):
                row, col = tile_at(task)
                tk.warp.zero(acc)
                for step in tk.range(steps):
                    tk.wait(full[ring.stage], ring.phase)
                    tk.warpgroup.mma_AB(acc, a[ring.stage, consumer], b[ring.stage])
                    ring.advance()
                    tk.warpgroup.mma_async_wait(1)
                    with tk.when(step > 0):
                        free()
                tk.warpgroup.mma_async_wait()
                free()
                for i in range(BN // PIECE):
                    with tk.elect():
                        tk.tma.store_async_read_wait(1)
                    tk.warpgroup.sync(consumer + 1)
                    tk.warpgroup.store(c[consumer, i % 2], acc.columns(i * PIECE, PIECE))
                    tk.warpgroup.sync(consumer + 1)
                    with tk.elect():
                        tk.tma.store_async(C, c[consumer, i % 2], (row * CONSUMERS + consumer, col * (BN // PIECE) + i))
            with tk.elect():
                tk.tma.store_async_wait()
        tk.cluster.sync()

    return gemm_tma_store
