"""Time of tensor copies, warm: microseconds per box and the ratio to a plain NumPy copy in the same run.

Run: python -m benchmarks.bench_tma
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from h100sim.memory.global_memory import GlobalMemory
from h100sim.tma import TensorMap, tma_load, tma_store
from h100sim.tma.load import load_box

ROUNDS, REPEATS = 20, 50


def best_microseconds(work: Callable[[], object]) -> float:
    """Return the least mean time of a call over several rounds."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(REPEATS):
            work()
        best = min(best, (time.perf_counter() - start) / REPEATS)
    return best * 1e6


def main() -> None:
    memory, shared = GlobalMemory(), np.zeros(65536, np.uint8)
    tensor = np.arange(1024 * 1024, dtype=np.uint16).reshape(1024, 1024)
    address = memory.upload(tensor, name="A")
    coords, offsets = np.array([64, 128, 0, 0, 0]), np.zeros(3, np.int64)
    print(f"{'128 x 64 bf16 box':32}{'us':>8}{'x NumPy':>9}")
    plain = best_microseconds(lambda: shared[:16384].view(np.uint16).reshape(128, 64).__setitem__(..., tensor[128:256, 64:128]))
    print(f"{'NumPy copy':32}{plain:8.1f}{1:9.1f}")
    for swizzle in ("none", "128B"):
        m = TensorMap.tiled("bf16", address, [1024, 1024], [2048], [64, 128], swizzle=swizzle)
        place = (memory.arena.ctypes.data, memory.base, memory.arena.size, shared.ctypes.data, shared.size, 0)
        for name, work in (
            ("tma_load", lambda m=m: tma_load(m, [64, 128], memory, shared, 0)),
            ("tma_store", lambda m=m: tma_store(m, [64, 128], memory, shared, 0)),
            ("load_box (in the machine)", lambda m=m, place=place: load_box(m.plan, coords, offsets, *place)),
        ):
            taken = best_microseconds(work)
            print(f"{f'{name}, {swizzle}':32}{taken:8.1f}{taken / plain:9.1f}")


if __name__ == "__main__":
    main()
