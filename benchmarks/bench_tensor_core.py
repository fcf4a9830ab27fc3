"""Measure the tensor core's arithmetic in multiply-accumulates a second, beside NumPy's float32 matrix product.

``python benchmarks/bench_tensor_core.py [--json]``. For each type triple: one m64n256 step at a time as the machine
does it (one thread), and a batch of steps through ``h100sim.wgmma`` (all cores). The yardstick is measured in the same
run: NumPy's float32 product of a batch of (64, 16) by (16, 256). If ``mmasim`` is installed it is timed too. Figures
are the best of several repeats. Targets, on 2 cores: 1 GMAC/s for f16, bf16 and fp8, 0.5 for tf32, 2 for s8.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np

from h100sim.dtypes import element_type
from h100sim.numerics.tensor_core import code_of, run_steps
from h100sim.numerics.wgmma import wgmma

TRIPLES = [
    ("f32", "bf16", "bf16"),
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "tf32", "tf32"),
    ("f32", "e4m3", "e4m3"),
    ("f16", "e5m2", "e5m2"),
    ("s32", "s8", "s8"),
    ("s32", "b1", "b1"),
]
BATCH = 128
#: GMAC/s that a batch must reach on 2 cores, by type of A.
TARGETS = {"bf16": 1.0, "f16": 1.0, "tf32": 0.5, "e4m3": 1.0, "e5m2": 1.0, "s8": 2.0}


def best_seconds(work: Callable[[], object], repeats: int = 12) -> float:
    """Return the shortest time of several runs, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def operand(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return bits of normally distributed values, or random bits for integers."""
    element = element_type(name)
    if element.is_float:
        return rng.standard_normal(shape).astype(np.float32).astype(element.natural).view(element.storage)
    return rng.integers(0, 256, shape, dtype=np.uint8)


def measure(triple: tuple[str, str, str]) -> dict[str, float]:
    """Return MAC/s of one step at a time and of a batch."""
    d, a, b = (element_type(name) for name in triple)
    rng = np.random.default_rng(0)
    k = 256 // a.bits
    length = 32 if a.name == "b1" else k
    x = operand(rng, a.name, (BATCH, 64, length))
    y = operand(rng, b.name, (BATCH, 256, length))
    c = np.zeros((BATCH, 64, 256), d.storage)
    instr = f"wgmma.mma_async.sync.aligned.m64n256k{k}.{d}.{a}.{b}" + (".and.popc" if a.name == "b1" else "")
    one = [np.ascontiguousarray(v[:1].view("<u4") if a.name == "b1" else v[:1].astype(np.uint32)) for v in (x, y)]
    accumulator = np.zeros((1, 64, 256), np.uint32)
    code = code_of(*triple)
    macs = 64 * 256 * k
    single = best_seconds(lambda: run_steps(code, *one, accumulator), 200)
    batch = best_seconds(lambda: wgmma(instr, x, y, c))
    return {"step": macs / single, "batch": macs * BATCH / batch}


def numpy_macs() -> float:
    """Return MAC/s of NumPy's float32 matrix product of one step's size, as many as a batch holds."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, 64, 16)).astype(np.float32)
    y = rng.standard_normal((BATCH, 16, 256)).astype(np.float32)
    return 64 * 256 * 16 * BATCH / best_seconds(lambda: x @ y)


def mmasim_macs() -> float | None:
    """Return MAC/s of mmasim on one m64n256k16 bf16 step, None if it is not installed."""
    try:
        import torch
        from mmasim.nv_ptx import WGMMA
    except ImportError:
        return None
    unit = WGMMA("Hopper", "m64n256k16.f32.bf16.bf16")
    x, y = torch.randn(64, 16, dtype=torch.bfloat16), torch.randn(16, 256, dtype=torch.bfloat16)
    c = torch.zeros(64, 256)
    return 64 * 256 * 16 / best_seconds(lambda: unit(x, y, c))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    numpy_rate, mmasim_rate = numpy_macs(), mmasim_macs()
    rates = {".".join(triple): measure(triple) for triple in TRIPLES}
    if as_json:
        print(json.dumps({"cores": os.cpu_count(), "numpy_f32": numpy_rate, "mmasim_bf16": mmasim_rate, "rates": rates}))
        return
    print(f"{os.cpu_count()} cores, m64n256 steps, GMAC/s. NumPy float32, same size, batched: {numpy_rate / 1e9:.2f}")
    if mmasim_rate:
        ratio = rates["f32.bf16.bf16"]["step"] / mmasim_rate
        print(f"mmasim, one bf16 step: {mmasim_rate / 1e9:.3f}; this package's step is {ratio:.0f} times as fast")
    else:
        print("mmasim is not installed")
    print(f"{'types D.A.B':16} {'one step':>10} {'batch':>10} {'target':>8} {'batch / NumPy':>14}")
    for name, rate in rates.items():
        step, batch = rate["step"] / 1e9, rate["batch"] / 1e9
        target = TARGETS.get(name.split(".")[1], "")
        print(f"{name:16} {step:10.2f} {batch:10.2f} {target:>8} {batch * 1e9 / numpy_rate:14.3f}")


if __name__ == "__main__":
    main()
