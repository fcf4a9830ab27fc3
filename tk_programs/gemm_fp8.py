"""C = A B^T in fp8 with scales for tiles, as large models are trained: the tensor core sums 128 products, f32 sums those.

A has a scale for every row and 128 columns, B one for every block of 128 x 128. The tensor core adds fp8 products with few
bits, so its sum is taken out after each 128 of K: the consumers multiply it by both scales and add it to an accumulator in
f32, while the next product runs into a second set of registers. The scales of A travel through the ring with the tiles that
they belong to; those of B are read ahead of the wait.
"""

# mypy: disable-error-code="valid-type"

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "fp8 GEMM: e4m3 operands, scales per 1 x 128 and 128 x 128 tile, a second accumulator in f32"
CONFIG = {"m": 256, "n": 256, "k": 512, "stages": 4}

BM, BN, BK, CONSUMERS = 128, 128, 128, 2
#: The largest e4m3. Spec: PTX ISA 9.1, "Alternate Floating-Point Data Formats".
LARGEST = 448.0


def build(m: int = 256, n: int = 256, k: int = 512, stages: int = 4) -> tk.Kernel:
    """Return the kernel for A (m x k) and B (n x k) in e4m3, their scales (k/128 x m and n/128 x k/128, f32), C (m x n) in
    bf16. Raises UsageError for sizes that do not tile.
    """
    for name, size, unit in (("m", m, BM), ("n", n, BN), ("k", k, BK)):
        if size < unit or size % unit:
            raise UsageError(f"{name} must be a multiple of {unit}, not {size}")
    if not 2 <= stages <= 5:
        raise UsageError(f"stages must be from 2 to 5, not {stages}")
    steps = k // BK
    scales_a, scales_b = tk.gl(tk.fl, steps, m), tk.gl(tk.fl, n // BN, steps)

    @tk.kernel(grid=(m // BM, n // BN), warpgroups=1 + CONSUMERS)
    def gemm_fp8(
        A: tk.gl(tk.fp8e4m3, m, k),
        B: tk.gl(tk.fp8e4m3, n, k),
        A_scale: scales_a,
        B_scale: scales_b,
        C: tk.gl(tk.bf16, m, n),
    ):
        row, col = tk.blockIdx("x"), tk.blockIdx("y")
        a, b = tk.st(tk.fp8e4m3, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.fp8e4m3, BN, BK, count=stages)
        c = tk.st(tk.bf16, 64, BN, count=CONSUMERS)
        scale = tk.sv(tk.fl, 64, count=stages * CONSUMERS)
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
                for step in tk.range(steps):
                    tk.wait(empty[ring.stage], ring.phase ^ 1)
                    arrived = full[ring.stage]
                    tk.tma.expect_bytes(arrived, (BM + BN) * BK + CONSUMERS * scale.size_bytes)
                    for i in range(CONSUMERS):
                        tk.tma.load_async(a[ring.stage, i], A, (row * CONSUMERS + i, step), arrived)
                        tk.tma.load_async(scale[ring.stage * CONSUMERS + i], A_scale, (step, row * CONSUMERS + i), arrived)
                    tk.tma.load_async(b[ring.stage], B, (col, step), arrived)
                    ring.advance()

        with tk.warpgroups(1, 2, name="consumer") as consumer:
            tk.warpgroup.increase_registers(232)
            acc = tk.rt(tk.fl, 16, BN)
            parts = [tk.rt(tk.fl, 16, BN, name=f"part_{i}") for i in range(2)]
            factors = [tk.col_vec(acc, name=f"factor_{i}") for i in range(2)]
            tk.warp.zero(acc)
            ring, done = tk.ring(stages), tk.ring(stages)

            def start(i, step):
                """Start the product of a step into part i, and read the scales that go with it."""
                of_b = tk.read(B_scale, (col, step))
                assert isinstance(of_b, tk.Float), "scales are f32"
                tk.wait(full[ring.stage], ring.phase)
                tk.warpgroup.mm_ABt(parts[i], a[ring.stage, consumer], b[ring.stage])
                tk.warpgroup.load(factors[i], scale[ring.stage * CONSUMERS + consumer])
                tk.warp.mul(factors[i], factors[i], of_b)
                ring.advance()

            def finish(i, running):
                """Wait for part i, free its slot and add it up, while ``running`` later products go on."""
                tk.warpgroup.mma_async_wait(running)
                # All warps have read their scales, too, before one thread says that the slot is free.
                tk.warpgroup.sync(consumer + 1)
                tk.warpgroup.arrive(empty[done.stage])
                done.advance()
                tk.warp.mul_row(parts[i], parts[i], factors[i])
                tk.warp.add(acc, acc, parts[i])

            # Steps in pairs, one of them always running; an odd one goes first, alone.
            odd = steps % 2
            if odd:
                start(0, 0)
                finish(0, running=0)
            if steps > 1:
                start(0, odd)
                for pair in tk.range(steps // 2 - 1):
                    start(1, pair * 2 + odd + 1)
                    finish(0, running=1)
                    start(0, pair * 2 + odd + 2)
                    finish(1, running=1)
                start(1, steps - 1)
                finish(0, running=1)
                finish(1, running=0)
            tk.warpgroup.store(c[consumer], acc)
            tk.warpgroup.sync(consumer + 1)
            with tk.elect():
                tk.tma.store_async(C, c[consumer], (row * CONSUMERS + consumer, col))
                tk.tma.store_async_wait()

    return gemm_fp8


def quantised(x: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x (r x k) in e4m3 and its scales (r/rows x k/128) in f32, for tiles of ``rows`` x 128."""
    r, k = x.shape
    tiles = x.reshape(r // rows, rows, k // BK, BK)
    scales = (np.abs(tiles).max((1, 3)) / LARGEST).astype(np.float32)
    scales = np.where(scales > 0, scales, np.float32(1))
    return (tiles / scales[:, None, :, None]).reshape(r, k).astype(ml_dtypes.float8_e4m3fn), scales


def inputs(seed: int = 0, m: int = 256, n: int = 256, k: int = 512, **_config) -> tuple[np.ndarray, ...]:
    """Return random normal A and B with rows of different size, quantised: A, B, A's scales (k/128 x m), B's scales."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((r, k), np.float32) * np.exp(rng.standard_normal((r, 1), np.float32)) for r in (m, n))
    (a, a_scale), (b, b_scale) = quantised(a, 1), quantised(b, BN)
    return a, b, np.ascontiguousarray(a_scale.T), b_scale


def reference(a: np.ndarray, b: np.ndarray, a_scale: np.ndarray, b_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the product of the scaled matrices in float64 and the error to allow: half a unit of a bf16 result, and
    2^-12 of the magnitudes that are added in the tensor core, whose fp8 sums keep about 13 bits.
    """
    a64 = a.astype(np.float64) * np.repeat(a_scale.T.astype(np.float64), BK, 1)
    b64 = b.astype(np.float64) * np.repeat(np.repeat(b_scale.astype(np.float64), BN, 0), BK, 1)
    exact = a64 @ b64.T
    return exact, 2.0**-8 * np.abs(exact) + 2.0**-12 * np.abs(a64) @ np.abs(b64).T
