"""The 256x256x256 bf16 GEMM program, bits, cycles and hazards, in a warm process.

    python -m benchmarks.bench_gemm

The peer in the same run is NumPy's float32 product of the same matrices, which gives neither the bits nor the cycles.
"""

from __future__ import annotations

import time

import numpy as np

import tk_programs.gemm


def main() -> None:
    kernel = tk_programs.gemm.build()
    a, b = tk_programs.gemm.inputs(0)
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    start = time.perf_counter()
    for _ in range(10):
        a32 @ b32
    peer = (time.perf_counter() - start) / 10
    print(f"{'values':>7} {'checks':>7} {'seconds':>9} {'x float32 matmul':>17} {'cycles':>8} {'hazards':>8}")
    for values, checks in (("exact", "on"), ("exact", "off"), ("none", "off")):
        kernel.run(a, b, values=values, checks=checks)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            kernel.run(a, b, values=values, checks=checks)
            times.append(time.perf_counter() - start)
        run = kernel.last_run
        print(f"{values:>7} {checks:>7} {min(times):9.3f} {min(times) / peer:17.0f} {run.cycles:8,} {len(run.hazards):8}")


if __name__ == "__main__":
    main()
