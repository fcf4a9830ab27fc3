"""Kernels in CUDA C++, compiled by nvcc (tests/kernels): results against NumPy, and no hazards."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import h100sim

KERNELS = Path(__file__).parent / "kernels"


@cache
def module(name: str) -> h100sim.RawModule:
    return h100sim.RawModule(path=KERNELS / f"{name}.ptx")


def run(file: str, kernel: str, grid: Any, block: Any, *args: Any, **options: Any) -> h100sim.Run:
    """Run a kernel of the corpus, which must be clean; arrays among ``args`` are updated in place."""
    function = module(file).get_function(kernel)
    function.max_dynamic_shared_size_bytes = 232_448
    found = function(grid, block, args, **options)
    assert found.hazards == []
    return found


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- reductions and scans ---------------------------------------------------------------------------------------------


def test_sum_by_shuffles_and_atomics():
    x, total, n = random().integers(-9, 9, 5_000).astype(np.float32), np.zeros(1, np.float32), 5_000
    run("reduction", "sum_atomic", 6, 256, x, total, np.int32(n))
    assert total[0] == x.sum()


def test_maximum_by_the_last_block():
    x = random().integers(-(2**31), 2**31, 3_000, dtype=np.int64).astype(np.int32)
    partial, result = np.zeros(5, np.int32), np.zeros(1, np.int32)
    for _ in range(2):
        run("reduction", "max_by_ticket", 5, 256, x, partial, result, np.int32(3_000))
        assert result[0] == x.max()


def test_scans_of_blocks():
    x, y = random().integers(-99, 99, 1_000).astype(np.int32), np.zeros(1_000, np.int32)
    run("scan", "scan_block", 4, 256, x, y, np.int32(1_000))
    assert np.array_equal(y, np.concatenate([np.cumsum(part) for part in np.split(x, [256, 512, 768])]))


def test_scan_with_look_back():
    x, y, state = random().integers(0, 99, 900, dtype=np.uint32), np.zeros(900, np.uint32), np.zeros(8, np.uint64)
    run("scan", "scan_lookback", 8, 128, x, y, state, np.int32(900), shared_mem=512)
    assert np.array_equal(y, np.cumsum(x, dtype=np.uint32))


# --- moving data ------------------------------------------------------------------------------------------------------


def test_transposes():
    x = random().standard_normal((70, 50)).astype(np.float32)
    y = np.zeros((50, 70), np.float32)
    run("transpose", "transpose_padded", (2, 3), (32, 8), x, y, np.int32(70), np.int32(50))
    assert np.array_equal(y, x.T)
    x = random().integers(0, 1 << 16, (128, 128), dtype=np.uint16)
    y = np.zeros_like(x)
    run("transpose", "transpose_swizzled", (2, 2), 256, x, y, np.int32(128))
    assert np.array_equal(y, x.T)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_layer_normalisation():
    x, gamma, beta = (random(k).standard_normal(shape).astype(np.float32) for k, shape in enumerate([(3, 512), 512, 512]))
    y = np.zeros_like(x)
    run("layernorm", "layernorm_f32", 3, 128, x, gamma, beta, y, np.int32(512), np.float32(1e-5))
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * gamma + beta
    assert np.abs(y - expected).max() < 1e-5


def test_rms_normalisation_in_bf16():
    import ml_dtypes

    x, weight = (random(k).standard_normal(shape).astype(ml_dtypes.bfloat16) for k, shape in enumerate([(2, 256), 256]))
    y = np.zeros_like(x)
    run("layernorm", "rmsnorm_bf16", 2, 64, x, weight, y, np.int32(256))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6) * weight.astype(np.float64)
    assert np.abs(y.astype(np.float64) - expected).max() < 0.02


def test_softmax_in_f16():
    x = random().standard_normal((4, 100)).astype(np.float16)
    y = np.zeros_like(x)
    run("layernorm", "softmax_f16", 1, 128, x, y, np.int32(100))
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    assert np.abs(y - e / e.sum(1, keepdims=True)).max() < 1e-3


# --- atomics and locks ------------------------------------------------------------------------------------------------


def test_histogram():
    x, bins = random().integers(0, 256, 4_000, dtype=np.uint8), np.zeros(256, np.uint32)
    run("atomics", "histogram", 3, 128, x, bins, np.int32(4_000))
    assert np.array_equal(bins, np.bincount(x, minlength=256))


def test_a_lock_that_every_lane_takes():
    x, lock, total = random().integers(-99, 99, 128).astype(np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64)
    run("atomics", "locked_sum", 2, 64, lock, total, x)
    assert total[0] == x.sum() and lock[0] == 0


def test_a_lock_around_a_section_in_the_loop():
    lock, members, count = np.zeros(1, np.uint32), np.zeros(128, np.uint32), np.zeros(1, np.uint32)
    run("atomics", "locked_inside", 2, 64, lock, members, count)
    assert sorted(members.tolist()) == list(range(128)) and count[0] == 128


def test_locks_in_shared_memory():
    x, most, count = random().integers(0, 1_000, 96).astype(np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32)
    run("atomics", "buckets", 1, 96, x, most, count)
    assert most.tolist() == [max(x[x % 8 == b], default=-1) for b in range(8)]
    assert np.array_equal(count, np.bincount(x % 8, minlength=8))


def test_atomics_of_many_kinds():
    x = random().integers(0, 1 << 20, 256).astype(np.int32)
    r, wide = np.array([2**30, -5, -1, 0, 0, 0], np.int32), np.zeros(2, np.uint64)
    f, d, wrapped = np.zeros(1, np.float32), np.zeros(1), np.zeros(2, np.uint32)
    run("atomics", "many_kinds", 2, 128, x, r, wide, f, d, wrapped)
    v = x.astype(np.int64)
    low = np.bitwise_and.reduce(v | 0xFF), np.bitwise_or.reduce(v & 0xFF00), np.bitwise_xor.reduce(v)
    assert r.tolist() == [v.min(), v.max(), *low, -3 * 256]
    assert wide.tolist() == [int(v.sum()) << 20, int((v * v).max())]
    assert f[0] == (v & 7).sum() and d[0] == 0.5 * (v & 3).sum()
    assert wrapped.tolist() == [256 % 100, (50 - 256 % 50) % 50 or 0]


def test_compaction_by_votes():
    x, y, count = random().integers(0, 99, 250).astype(np.int32), np.zeros(256, np.int32), np.zeros(1, np.int32)
    run("atomics", "compact", 1, 256, x, y, count, np.int32(250))
    kept = x[x % 3 == 0]
    assert count[0] == len(kept) and sorted(y[: count[0]]) == sorted(kept)


def test_a_flag_between_blocks():
    flag, data, out = np.zeros(1, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)
    run("atomics", "flag_between_blocks", 2, 64, flag, data, out)
    assert np.array_equal(out, 7 * np.arange(64) + 1)


# --- functions --------------------------------------------------------------------------------------------------------


def test_structures_by_value():
    x, y, t = np.arange(32, dtype=np.float32), np.zeros(32, np.float32), np.arange(32)
    v = np.arange(12, dtype=np.int32) * 7
    run("functions", "structures", 1, 32, x, y, v.tobytes() + np.float64(2.5).tobytes())
    a, b = (x + 1) * 2, x * 2
    expected = a - b * 3 + v[t % 12] + t * (t % 12) + 5 + v[(t + 1) % 12] + 2
    assert np.array_equal(y, expected.astype(np.float32))


def test_recursive_functions():
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def ackermann(m: int, n: int) -> int:
        return n + 1 if m == 0 else ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))

    y = np.zeros(64, np.int32)
    run("functions", "recursion", 1, 64, y)
    assert y.tolist() == [fib(t % 10) * 1000 + ackermann(t % 3, t % 4) * 10 + (t % 2 == 0) for t in range(64)]


def test_quicksort_of_rows():
    x = random().integers(-1_000, 1_000, (64, 40)).astype(np.int32)
    expected = np.sort(x, axis=1)
    run("functions", "sort_rows", 2, 32, x, np.int32(40))
    assert np.array_equal(x, expected)


def test_tables_of_function_pointers():
    which, x = random().integers(0, 4, 64).astype(np.int32), random().uniform(1, 9, 64).astype(np.float32)
    y = np.zeros(64, np.float32)
    run("functions", "pointers", 1, 64, which, x, y)
    f = [lambda v: v + np.float32(1), lambda v: v * np.float32(2), np.sqrt, lambda v: v / np.float32(2)]
    assert y.tolist() == [f[k](f[k](v)) for k, v in zip(which, x, strict=True)]


def test_a_function_pointer_that_another_launch_stored():
    device = h100sim.Device()
    place, y = device.asarray(np.zeros(1, np.uint64)), np.arange(32, dtype=np.float32)
    run("functions", "choose_function", 1, 1, place, np.int32(1), device=device)
    run("functions", "call_from_memory", 1, 32, place, y, device=device)
    assert np.array_equal(y, 2 * np.arange(32))


def test_virtual_calls():
    y = np.zeros(64, np.float32)
    run("functions", "virtual_calls", 1, 64, y)

    def value(t: int) -> float:
        r = t % 5
        square, circle = (t * t, 4.0 * t), (3.0 * r * r, 6.0 * r + t)
        frame = 100 - (square if t & 1 else circle)[0], 4.0 * t
        return sum((square, circle, frame)[t % 3])

    assert y.tolist() == [value(t) for t in range(64)]


def test_an_interpreter_with_a_switch():
    code, length = random().integers(0, 12, 60, dtype=np.uint8), random(1).integers(0, 60, 64).astype(np.int32)
    code[code == 9] = 3
    code[55] = 9
    y = np.zeros(64, np.int32)
    run("functions", "interpreter", 1, 64, code, length, y)

    def wrap(v: int) -> int:
        return (v + 2**31) % 2**32 - 2**31

    def interpret(t: int) -> int:
        a, other = t, 1
        for pc, op in enumerate(code[: length[t]].tolist()):
            if op == 9:
                return a
            a, other = {
                0: (a + 3, other), 1: (a * 5, other), 2: (a, a), 3: (a - other, other), 4: (a ^ (pc << 3), other),
                5: (a >> 1 if a & 1 else a, other), 6: (other, a), 7: (~a + 2 * other, other), 8: (a + 2 * other, other),
                10: (min(a, 1000), other),
            }.get(op, (-pc, other))  # fmt: skip
            a, other = wrap(a), wrap(other)
        return wrap(a + other)

    assert y.tolist() == [interpret(t) for t in range(64)]


def test_lanes_that_return_early_meet_behind_the_call():
    x = np.arange(0, 300, 3, dtype=np.int32)
    x[40] = -5
    y = np.zeros(32, np.int32)
    run("functions", "early_returns", 1, 32, x, np.int32(100), y)
    found = [next((-2 if v < 0 else i for i, v in enumerate(x) if v > t * 8 or v < 0), -1) for t in range(32)]
    assert y.tolist() == [f + 1000 * found[31] for f in found]


def test_shared_variables_of_a_function():
    y = np.zeros(64, np.int32)
    run("functions", "shared_in_a_function", 1, 64, y)
    assert sorted(y.tolist()) == list(range(1, 65))


# --- the device runtime -----------------------------------------------------------------------------------------------


def test_printf():
    lines: list[str] = []
    found = run("runtime", "print", 2, 32, np.int32(5), np.float64(2.5), console=lines.append)
    texts = [str(text) for text in found.texts if text.block == (0, 0, 0)]
    assert texts == [f"thread {t} of 32: n=    5 x=2.500 large {'ab'[t // 16]} 0x10000000000 (nil)\n" for t in (0, 16)]
    assert "block (1, 0, 0), thread (1, 0, 0): plain" in lines and len(lines) == 5


def test_assert():
    x = np.arange(32, dtype=np.int32)
    run("runtime", "check", 1, 32, x, np.int32(32))
    message = r'assertion x\[threadIdx.x\] < limit && "too large" must hold, but it failed at .*runtime.cu:14 in void check'
    with pytest.raises(h100sim.Trap, match=message):
        run("runtime", "check", 1, 32, x, np.int32(31))


def test_linked_lists_on_the_heap():
    y = np.zeros(64, np.int32)
    run("runtime", "lists", 1, 64, y)
    assert y.tolist() == [sum(k * 10 + t for k in range(t % 7 + 1)) for t in range(64)]


def test_new_and_delete():
    y = np.zeros(64, np.int32)
    run("runtime", "objects", 1, 64, y, np.int32(200))
    assert y.tolist() == [(199 - t) ** 2 for t in range(64)]


def test_trap():
    with pytest.raises(h100sim.Trap):
        run("runtime", "stop", 1, 32, np.arange(32, dtype=np.int32))


# --- double precision -------------------------------------------------------------------------------------------------


def test_double_matrix_product():
    a, b, c = random(0).standard_normal((20, 35)), random(1).standard_normal((35, 18)), np.zeros((20, 18))
    run("doubles", "dgemm", (2, 2), (16, 16), a, b, c, np.int32(20), np.int32(18), np.int32(35))
    assert np.abs(c - a @ b).max() < 1e-13


def test_double_mathematics():
    x = np.concatenate([random().standard_normal(60) * 3, [0.0, 1e-9, 30.0, -30.0]])
    y = np.zeros(64)
    run("doubles", "mathematics", 1, 64, x, y, np.int32(64))
    erf = np.array([math.erf(v) for v in x])
    a = np.abs(x)
    parts = np.exp(x), np.log(a + 1), np.sin(x) * np.cos(x), np.sqrt(a), a**0.3, np.cbrt(x), np.arctan2(x, 2), erf
    parts = *parts, np.tanh(x), 1 / (2 + x * x)
    assert np.allclose(y, sum(parts), rtol=1e-14, atol=1e-14)


def test_single_mathematics():
    x = np.concatenate([random().standard_normal(60) * 3, [0.0, 1e-9, 20.0, -20.0]]).astype(np.float32)
    y = np.zeros(64, np.float32)
    run("doubles", "mathematics_f32", 1, 64, x, y, np.int32(64))
    v = x.astype(np.float64)
    erf = np.array([math.erf(u) for u in v])
    a = np.abs(v)
    parts = np.exp(v), np.log(a + 1), np.sin(v) * np.cos(v), np.sqrt(a), a**0.3, np.arctan(v), erf, np.tanh(v), 1 / (2 + v * v)
    parts = *parts, np.fmod(v, np.float32(0.7).astype(np.float64)), np.rint(v), np.floor(v), np.trunc(v)
    assert np.allclose(y, sum(parts), rtol=1e-5, atol=1e-5)


def test_a_jacobi_sweep():
    u, v = random().standard_normal((40, 40)), np.zeros((40, 40))
    run("doubles", "jacobi", (3, 5), (16, 8), u, v, np.int32(40))
    expected = np.zeros_like(v)
    expected[1:-1, 1:-1] = 0.25 * (u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1])
    assert np.allclose(v, expected, atol=1e-15)


def test_mandelbrot():
    y = np.zeros((12, 20), np.int32)
    run("doubles", "mandelbrot", 2, 128, y, np.int32(20), np.int32(12), np.int32(50))
    j, i = np.mgrid[:12, :20]
    c = -2.0 + 3.0 * i / 20 + 1j * (-1.0 + 2.0 * j / 12)
    z, k = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(50):
        inside = (abs(z) < 2) & (k == _)
        k[inside] += 1
        z[inside] = z[inside] ** 2 + c[inside]
    assert np.abs(y - k).max() <= 1 and (y != k).sum() <= 2


# --- matrix products --------------------------------------------------------------------------------------------------


def bf16(*shape: int, seed: int) -> np.ndarray:
    import ml_dtypes

    return random(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("m", "n", "k"), [(100, 72, 96), (64, 64, 32)])
def test_hgemm_with_cp_async(m, n, k):
    a, b = random(0).standard_normal((m, k)).astype(np.float16), random(1).standard_normal((n, k)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    sizes = np.int32(m), np.int32(n), np.int32(k)
    run("matmul", "hgemm", (-(-n // 64), -(-m // 64)), 128, a, b, c, *sizes, shared_mem=3 * 64 * 40 * 4)
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64).T).max() < 1e-3


def test_wmma():
    a, b = random(0).standard_normal((32, 48)).astype(np.float16), random(1).standard_normal((32, 48)).astype(np.float16)
    c = np.zeros((32, 32), np.float32)
    run("matmul", "wmma_gemm", (2, 2), 32, a, b, c, np.int32(32), np.int32(48))
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64).T).max() < 1e-3


def test_dot_products_of_bytes():
    a, b = random(0).integers(-128, 128, (64, 40), dtype=np.int8), random(1).integers(-128, 128, 40, dtype=np.int8)
    c = np.zeros(64, np.int32)
    run("matmul", "dot_products", 1, 64, a, b, c, np.int32(10))
    dots = a.astype(int) @ b.astype(int)
    assert np.array_equal(c, np.repeat(dots.reshape(2, 32).max(1), 32) - dots)


# --- Hopper -----------------------------------------------------------------------------------------------------------


def map_of(buffer: Any, rows: int, columns: int, box_rows: int) -> h100sim.TensorMap:
    """Return the map of a bf16 matrix with boxes of 64 columns in the swizzle of 128 bytes."""
    return h100sim.TensorMap.tiled("bf16", buffer.address, (columns, rows), (2 * columns,), (64, box_rows), swizzle="128B")


def test_gemm_with_tma_multicast_and_specialised_warps():
    m, n, k = 256, 128, 320
    a, b, device = bf16(m, k, seed=0), bf16(n, k, seed=1), h100sim.Device()
    c = np.zeros((m, n), a.dtype)
    on_device = [device.asarray(x) for x in (a, b, c)]
    maps = [map_of(x, *shape) for x, shape in zip(on_device, ((m, k, 64), (n, k, 32), (m, n, 64)), strict=True)]
    run("hopper", "gemm", (m // 128, n // 64), 384, *maps, np.int32(k), device=device, shared_mem=3 * 3 * 8192 + 2 * 8192)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(on_device[2].numpy().astype(np.float64) - expected).max() < 0.3


@pytest.mark.parametrize("keys", [64, 320])
def test_attention_with_tma_and_wgmma(keys):
    q, k, v, device = bf16(128, 64, seed=0), bf16(keys, 64, seed=1), bf16(keys, 64, seed=2), h100sim.Device()
    maps = [map_of(device.asarray(x), len(x), 64, 64) for x in (q, k, v)]
    o = np.zeros_like(q)
    run("hopper", "attention", 2, 160, *maps, o, np.int32(keys), device=device, shared_mem=5 * 8192)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 8
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = weights @ v.astype(np.float64) / weights.sum(1, keepdims=True)
    assert np.abs(o.astype(np.float64) - expected).max() < 0.02


def test_sums_over_distributed_shared_memory():
    x, y = random().integers(-99, 99, 8 * 64).astype(np.int32), np.zeros(8, np.int32)
    run("hopper", "cluster_sum", 8, 64, x, y)
    assert np.array_equal(y, x.reshape(8, 64).sum(1))


def test_memory_taken_from_the_stack():
    x, y = np.arange(32 * 7, dtype=np.int32), np.zeros(32 * 7, np.int32)
    run("stack", "reverse", 1, 32, x, y, np.int32(7))
    assert np.array_equal(y.reshape(32, 7), x.reshape(32, 7)[:, ::-1])
    with pytest.raises(h100sim.OutOfRange, match="stack of a lane must be at most 65,552 bytes, not 4,194,320"):
        run("stack", "reverse", 1, 32, x, y, np.int32(1 << 20))


def test_a_return_gives_memory_of_the_stack_back():
    sums = np.zeros(32, np.int32)
    run("stack", "nested", 1, 32, sums)
    n = np.arange(32) % 8
    assert np.array_equal(sums, 40 * n * (n + 1) * (n + 2) // 6)
