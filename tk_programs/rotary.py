"""Rotary position embedding: pairs (x[i], x[i + d/2]) of every head are turned by an angle that grows with the position.

A CTA has 64 positions and walks over the heads: its sines and cosines stay in registers for all of them. While a head is
turned, TMA already fetches the next and still stores the last one.
"""

# mypy: disable-error-code="valid-type"

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "rotary embedding: halves of a register tile, tables kept in registers, loads ahead and stores behind"
CONFIG = {"batch": 2, "heads": 3, "n": 96, "d": 64}

STAGES = 2


def build(batch: int = 2, heads: int = 3, n: int = 96, d: int = 64) -> tk.Kernel:
    """Return the kernel for X and Y of batch x heads x n x d in bf16; cosine and sine of n x d/2 in f32.

    Raises UsageError for sizes that do not tile.
    """
    for name, size in (("batch", batch), ("heads", heads), ("n", n)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    if d not in (64, 128):
        raise UsageError(f"d must be 64 or 128, not {d}")
    shape, tables = tk.gl(tk.bf16, batch, heads, n, d), tk.gl(tk.fl, n, d // 2)

    @tk.kernel(grid=(-(-n // 64), batch), warpgroups=1)
    def rotary(X: shape, cosine: tables, sine: tables, Y: shape):
        block, sequence = tk.blockIdx("x"), tk.blockIdx("y")
        x, y = tk.st(tk.bf16, 64, d, count=STAGES), tk.st(tk.bf16, 64, d, count=STAGES)
        arrived = tk.semaphores(STAGES)

        def fetch(head, stage):
            tk.tma.expect_bytes(arrived[stage], x[0].size_bytes)
            tk.tma.load_async(x[stage], X, (sequence, head, block, 0), arrived[stage])

        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
            for ahead in range(min(STAGES, heads)):
                fetch(ahead, ahead)
        tk.sync()

        cos, sin = tk.rt(tk.fl, 16, d // 2), tk.rt(tk.fl, 16, d // 2)
        tk.warpgroup.load(cos, cosine, (block, 0))
        tk.warpgroup.load(sin, sine, (block, 0))
        source, turned = tk.rt(tk.fl, 16, d), tk.rt(tk.fl, 16, d)
        part = tk.rt(tk.fl, 16, d // 2)
        low, high = source.columns(0, d // 2), source.columns(d // 2, d // 2)

        ring = tk.ring(STAGES)
        for head in tk.range(heads):
            tk.wait(arrived[ring.stage], ring.phase)
            tk.warpgroup.load(source, x[ring.stage])
            tk.warp.mul(turned.columns(0, d // 2), low, cos)
            tk.warp.mul(part, high, sin)
            tk.warp.sub(turned.columns(0, d // 2), turned.columns(0, d // 2), part)
            tk.warp.mul(turned.columns(d // 2, d // 2), high, cos)
            tk.warp.mul(part, low, sin)
            tk.warp.add(turned.columns(d // 2, d // 2), turned.columns(d // 2, d // 2), part)
            # The slot of Y is free when the store before the last has read it; that of X when all warps have.
            with tk.elect():
                tk.tma.store_async_read_wait(STAGES - 1)
            tk.warpgroup.sync(1)
            tk.warpgroup.store(y[ring.stage], turned)
            tk.warpgroup.sync(1)
            with tk.elect():
                tk.tma.store_async(Y, y[ring.stage], (sequence, head, block, 0))
                with tk.when(head + STAGES < heads):
                    fetch(head + STAGES, ring.stage)
            ring.advance()
        with tk.elect():
            tk.tma.store_async_wait()

    return rotary


def inputs(seed: int = 0, batch: int = 2, heads: int = 3, n: int = 96, d: int = 64, **_config) -> tuple[np.ndarray, ...]:
    """Return random normal X in bf16, and the cosines and sines of the usual angles, position / 10000^(2 i / d)."""
    x = np.random.default_rng(seed).standard_normal((batch, heads, n, d), np.float32)
    angles = np.arange(n)[:, None] / 10000.0 ** (np.arange(d // 2) / (d // 2))
    return x.astype(ml_dtypes.bfloat16), np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def reference(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the turned pairs in float64 and the error to allow: half a unit of a bf16 result, and f32 arithmetic."""
    low, high = np.split(x.astype(np.float64), 2, -1)
    exact = np.concatenate([low * cosine - high * sine, low * sine + high * cosine], -1)
    size = np.concatenate([abs(low * cosine) + abs(high * sine), abs(low * sine) + abs(high * cosine)], -1)
    return exact, 2.0**-8 * np.abs(exact) + 2.0**-22 * size
