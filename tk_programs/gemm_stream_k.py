"""C += A B by stream-K: the steps of all tiles are laid in a row and cut into equal parts, one for each CTA.

Six tiles on four SMs keep half of them idle in a second round. Here every CTA does the same number of steps, wherever
tiles begin and end. A CTA that has only some of a tile's steps has only a part of its sum: it adds that to C in global
memory by a TMA reduction, which the L2 cache performs. With as many CTAs as parts of K for each tile this is split-K.

With at most two CTAs at a tile (ctas <= tiles) the bits do not depend on who comes first: 0 + x + y has one value.
"""

# mypy: disable-error-code="valid-type"

import numpy as np

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs import gemm

TEACHES = "stream-K: equal shares of all steps, parts of sums added to global memory by TMA reductions"
CONFIG = {"m": 256, "n": 384, "k": 320, "stages": 4, "ctas": 4}

BM, BN, BK, CONSUMERS = 128, 128, 64, 2


def build(m: int = 256, n: int = 384, k: int = 320, stages: int = 4, ctas: int = 4) -> tk.Kernel:
    """Return the kernel for A (m x k) and B (k x n) in bf16, C (m x n) in f32, which is added to.

    Raises UsageError for sizes that do not tile, and for more CTAs than steps.
    """
    for name, size, unit in (("m", m, BM), ("n", n, BN), ("k", k, BK)):
        if size < unit or size % unit:
            raise UsageError(f"{name} must be a multiple of {unit}, not {size}")
    if not 1 <= stages <= 5:
        raise UsageError(f"stages must be from 1 to 5, not {stages}")
    rows, cols, steps = m // BM, n // BN, k // BK
    total = rows * cols * steps
    if not 1 <= ctas <= total:
        raise UsageError(f"ctas must be from 1 to the {total} steps of all tiles, not {ctas}")

    @tk.kernel(grid=ctas, warpgroups=1 + CONSUMERS)
    def gemm_stream_k(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.fl, m, n)):
        a, b = tk.st(tk.bf16, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.bf16, BK, BN, count=stages)
        c = tk.st(tk.fl, 64, BN, count=CONSUMERS)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, CONSUMERS)
            tk.fence_mbarrier_init()
        tk.sync()

        begin, end = tk.blockIdx() * total // ctas, (tk.blockIdx() + 1) * total // ctas

        def my_tiles():
            return tk.range(begin // steps, (end + steps - 1) // steps)

        def my_steps(tile):
            return tk.range(tk.maximum(begin - tile * steps, 0), tk.minimum(end - tile * steps, steps))

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(40)
            with tk.elect():
                ring = tk.ring(stages)
                for tile in my_tiles():
                    row, col = tile % rows, tile // rows
                    for step in my_steps(tile):
                        tk.wait(empty[ring.stage], ring.phase ^ 1)
                        tk.tma.expect_bytes(full[ring.stage], (BM + BN) * BK * 2)
                        for i in range(CONSUMERS):
                            tk.tma.load_async(a[ring.stage, i], A, (row * CONSUMERS + i, step), full[ring.stage])
                        tk.tma.load_async(b[ring.stage], B, (step, col), full[ring.stage])
                        ring.advance()

        with tk.warpgroups(1, 2, name="consumer") as consumer:
            tk.warpgroup.increase_registers(232)
            ring = tk.ring(stages)
            acc = tk.rt(tk.fl, 16, BN)
            for tile in my_tiles():
                row, col = tile % rows, tile // rows
                tk.warp.zero(acc)
                for _ in my_steps(tile):
                    tk.wait(full[ring.stage], ring.phase)
                    tk.warpgroup.mma_AB(acc, a[ring.stage, consumer], b[ring.stage])
                    tk.warpgroup.mma_async_wait()
                    tk.warpgroup.arrive(empty[ring.stage])
                    ring.advance()
                with tk.elect():
                    tk.tma.store_async_read_wait()
                tk.warpgroup.sync(consumer + 1)
                tk.warpgroup.store(c[consumer], acc)
                tk.warpgroup.sync(consumer + 1)
                with tk.elect():
                    tk.tma.store_add_async(C, c[consumer], (row * CONSUMERS + consumer, col))
            with tk.elect():
                tk.tma.store_async_wait()

    return gemm_stream_k


def inputs(seed: int = 0, m: int = 256, n: int = 384, k: int = 320, **_config) -> tuple[np.ndarray, ...]:
    """Return random normal A and B in bf16, and C of zeros."""
    return *gemm.inputs(seed, m=m, n=n, k=k), np.zeros((m, n), np.float32)


def reference(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return C + A B in float64 and the error to allow: of the sum in the tensor core and of adding its parts, 2^-20 of
    the magnitudes that are added.
    """
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    return c + a64 @ b64, 2.0**-20 * (np.abs(c) + np.abs(a64) @ np.abs(b64))
