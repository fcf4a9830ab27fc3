"""C = A B on the tensor cores, as ThunderKittens' producer/consumer GEMM: one warpgroup copies, the others multiply.

The grid is persistent: each CTA works through its share of C's tiles. A ring of ``stages`` slots holds tiles of A and
B; ``full`` tells consumers that a slot's bytes have arrived, ``empty`` tells the producer that every consumer has
read them.
"""

# mypy: disable-error-code="valid-type"

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "a persistent, warp-specialised GEMM: TMA ring, mbarriers, wgmma, stmatrix, TMA store"
CONFIG = {"m": 256, "n": 256, "k": 256, "bm": 128, "bn": 128, "bk": 64, "stages": 4}

#: SMs of an H100 SXM: at most one CTA on each.
SMS = 132
#: Registers per thread of a producer and of each of 1, 2 or 3 consumers; together at most what the CTA starts with.
PRODUCER_REGISTERS, CONSUMER_REGISTERS = {1: 40, 2: 40, 3: 32}, {1: 248, 2: 232, 3: 160}


def build(
    m: int = 256,
    n: int = 256,
    k: int = 256,
    bm: int = 128,
    bn: int = 128,
    bk: int = 64,
    stages: int = 4,
    out: str = "bf16",
    ctas: int = SMS,
) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16, in tiles of bm x bn x bk.

    ``out``: "bf16" or "f32", the type of C. ``ctas``: the most CTAs in the grid. Raises UsageError for sizes that do
    not tile.
    """
    for name, size, unit in (("bm", bm, 64), ("bn", bn, 64), ("bk", bk, 64), ("m", m, bm), ("n", n, bn), ("k", k, bk)):
        if size < unit or size % unit:
            raise UsageError(f"{name} must be a multiple of {unit}, not {size}")
    if bm > 192 or bn > 256:
        raise UsageError(f"tile of C must be at most 192 x 256, not {bm} x {bn}")
    if out not in ("bf16", "f32"):
        raise UsageError(f"out must be bf16 or f32, not {out}")
    consumers, rows, cols, steps = bm // 64, m // bm, n // bn, k // bk
    grid = min(rows * cols, ctas)
    c_type = tk.bf16 if out == "bf16" else tk.fl
    # C leaves in one piece if shared memory has room for it beside the ring, else in pieces of 64 columns.
    ring_bytes = stages * (bm + bn) * bk * 2
    piece = bn if ring_bytes + bm * bn * c_type.size_bytes + 1024 <= tk.MAX_SHARED_BYTES else 64
    # Neighbouring CTAs work on tiles of the same columns, so that the L2 cache holds B for them.
    group = max(g for g in range(1, 9) if rows % g == 0)

    @tk.kernel(grid=grid, warpgroups=1 + consumers)
    def gemm(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(c_type, m, n)):
        a = tk.st(tk.bf16, 64, bk, count=(stages, consumers))
        b = tk.st(tk.bf16, bk, bn, count=stages)
        c = tk.st(c_type, 64, piece, count=consumers)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)

        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, consumers)
            tk.fence_mbarrier_init()
        tk.sync()

        def tile_at(task):
            band, place = task // (group * cols), task % (group * cols)
            return band * group + place % group, place // group

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(PRODUCER_REGISTERS[consumers])
            with tk.elect():
                ring = tk.ring(stages)
                for task in tk.range(tk.blockIdx(), rows * cols, grid):
                    row, col = tile_at(task)
                    for step in tk.range(steps):
                        tk.wait(empty[ring.stage], ring.phase ^ 1)
                        tk.tma.expect_bytes(full[ring.stage], (bm + bn) * bk * 2)
                        for i in range(consumers):
                            tk.tma.load_async(a[ring.stage, i], A, (row * consumers + i, step), full[ring.stage])
                        tk.tma.load_async(b[ring.stage], B, (step, col), full[ring.stage])
                        ring.advance()

        with tk.warpgroups(*range(1, 1 + consumers), name="consumer") as consumer:
            tk.warpgroup.increase_registers(CONSUMER_REGISTERS[consumers])
            ring = tk.ring(stages)
            acc = tk.rt(tk.fl, 16, bn)
            for task in tk.range(tk.blockIdx(), rows * cols, grid):
                row, col = tile_at(task)
                tk.warp.zero(acc)
                for _ in tk.range(steps):
                    tk.wait(full[ring.stage], ring.phase)
                    tk.warpgroup.mma_AB(acc, a[ring.stage, consumer], b[ring.stage])
                    tk.warpgroup.mma_async_wait()
                    tk.warpgroup.arrive(empty[ring.stage])
                    ring.advance()
                for i in range(bn // piece):
                    with tk.elect():
                        tk.tma.store_async_read_wait()
                    tk.warpgroup.sync(consumer + 1)
                    tk.warpgroup.store(c[consumer], acc.columns(i * piece, piece))
                    tk.warpgroup.sync(consumer + 1)
                    with tk.elect():
                        tk.tma.store_async(C, c[consumer], (row * consumers + consumer, col * (bn // piece) + i))
            with tk.elect():
                tk.tma.store_async_wait()

    return gemm


def inputs(seed: int = 0, m: int = 256, n: int = 256, k: int = 256, **_config) -> tuple[np.ndarray, np.ndarray]:
    """Return random normal A and B in bf16."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    return a, b


def reference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the product in float64 and the error to allow: half a unit of a bf16 result, and of the sum in the
    tensor core 2^-21 of the magnitudes that are added (it keeps about 25 bits of a step's largest product and rounds
    towards zero).
    """
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    exact = a64 @ b64
    return exact, 2.0**-8 * np.abs(exact) + 2.0**-21 * np.abs(a64) @ np.abs(b64)
