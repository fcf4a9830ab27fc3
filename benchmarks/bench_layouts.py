"""Time of layouts, warm: addresses of a wgmma operand, pictures and their size, wavefronts of an access.

Run: python -m benchmarks.bench_layouts
"""

from __future__ import annotations

import time
from collections.abc import Callable

from h100sim.layouts import operand_addresses, pictures, wavefronts

WGMMA = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16"
DESCRIPTOR = 0x4000004000010040
ROUNDS = 30


def best_seconds(work: Callable[[], object]) -> float:
    """Return the least time of a call."""
    best = float("inf")
    work()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    operand = best_seconds(lambda: operand_addresses(WGMMA.format(256), "b", DESCRIPTOR))
    access = best_seconds(lambda: wavefronts([136 * lane for lane in range(32)], 8))
    print(f"operand_addresses, 256 x 16      {operand * 1e6:8.1f} us")
    print(f"wavefronts of an access          {access * 1e6:8.1f} us")
    for name, draw in (
        ("swizzle of a 64 x 64 tile", lambda: pictures.draw_swizzle(64, 64, 2, "128B")),
        ("accumulator of 64 x 64", lambda: pictures.draw_fragment(WGMMA.format(64), "d")),
        ("descriptor of 256 x 16", lambda: pictures.draw_descriptor(WGMMA.format(256), "b", DESCRIPTOR)),
    ):
        print(f"picture: {name:<24}{best_seconds(draw) * 1e3:8.1f} ms {len(draw()) / 1000:8.0f} kB")


if __name__ == "__main__":
    main()
