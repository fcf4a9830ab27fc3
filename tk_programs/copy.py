"""One tile in, one tile out: the smallest kernel that uses the TMA engine."""

# mypy: disable-error-code="valid-type"

import numpy as np

from h100sim import tk

TEACHES = "one TMA box into shared memory and out again: a semaphore that counts bytes, a bulk group"
CONFIG = {"rows": 64, "cols": 64}


def build(rows: int = 64, cols: int = 64) -> tk.Kernel:
    """Return the kernel that copies a rows x cols tile of f32 by one warp."""

    @tk.kernel(grid=1, warps=1)
    def tile_copy(X: tk.gl(tk.fl, rows, cols), Y: tk.gl(tk.fl, rows, cols)):
        tile = tk.st(tk.fl, rows, cols)
        arrived = tk.semaphore()
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
            tk.tma.expect_bytes(arrived, tile.size_bytes)
            tk.tma.load_async(tile, X, (0, 0), arrived)
            tk.wait(arrived, 0)
            tk.tma.store_async(Y, tile, (0, 0))
            tk.tma.store_async_wait()

    return tile_copy


def inputs(seed: int = 0, rows: int = 64, cols: int = 64) -> tuple[np.ndarray]:
    """Return a random X."""
    return (np.random.default_rng(seed).standard_normal((rows, cols), np.float32),)


def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return X itself; a copy has no error."""
    return x.astype(np.float64), np.zeros(x.shape)
