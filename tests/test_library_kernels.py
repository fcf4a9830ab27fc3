"""Kernels that use the libraries of CUDA (tests/kernels/library.cu), against NumPy and without hazards."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.test_corpus import bf16, random, run


def integers(n: int, high: int = 1000) -> np.ndarray:
    return random().integers(0, high, n).astype(np.int32)


def test_lambda():
    x, y = random().standard_normal(1000).astype(np.float32), np.zeros(1000, np.float32)
    run("library", "lambda", 3, 64, x, y, np.int32(1000))
    assert np.array_equal(y, (3 * x.astype(np.float64) + 1).astype(np.float32))


def test_cub_sum_scan_and_sort():
    x, sums, scanned = integers(256), np.zeros(2, np.int32), np.zeros(128, np.int32)
    run("library", "cub_sum", 2, 128, x, sums)
    assert np.array_equal(sums, x.reshape(2, 128).sum(1))
    run("library", "cub_scan", 1, 128, x, scanned)
    assert np.array_equal(scanned, np.cumsum(x[:128]) - x[:128])
    keys = random().integers(0, 1 << 32, 256, dtype=np.uint32)
    expected = np.sort(keys)
    run("library", "cub_sort", 1, 64, keys)
    assert np.array_equal(keys, expected)


def test_cooperative_groups():
    x, y = integers(128), np.zeros(144, np.int32)
    run("library", "groups", 1, 128, x, y)
    tiles, odd = x.reshape(8, 16), (x & 1).reshape(4, 32)
    assert np.array_equal(y[:16], [*tiles.sum(1), *tiles.max(1)])
    assert np.array_equal(y[16:], np.where(odd, odd.sum(1, keepdims=True) * 100 + odd.cumsum(1) - 1, 0).ravel())


def test_barrier_and_pipeline_of_libcudacxx():
    x, turned, total = integers(640), np.zeros(640, np.int32), np.zeros(64, np.int32)
    run("library", "barrier", 1, 64, x, turned, np.int32(10))
    assert np.array_equal(turned, x.reshape(10, 64)[:, ::-1].ravel())
    run("library", "pipeline", 1, 64, x, total, np.int32(10))
    assert np.array_equal(total, x.reshape(10, 64)[:, ::-1].sum(0))


def test_packed_halves():
    x, u = random().standard_normal(64).astype(np.float16), bf16(64, seed=1)
    y, v = np.zeros_like(x), np.zeros_like(u)
    run("library", "packed", 1, 32, x, y, u, v)
    assert np.array_equal(y, (x.astype(np.float64) ** 2 + 0.5).astype(np.float16))
    assert np.array_equal(v, np.maximum(u.astype(np.float32) * 2, -1).astype(ml_dtypes.bfloat16))


def test_lock_with_nanosleep():
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run("library", "spin", 4, 64, lock, count)
    assert count[0] == 256


def test_shared_memory_of_a_cluster():
    y = np.zeros(256, np.int32)
    run("library", "dsmem", 8, 32, y)
    assert np.array_equal(y, np.tile(600 + 4 * (31 - np.arange(32)), 8))


def test_simd_in_a_word():
    x, y = random().integers(0, 1 << 32, (2, 32), dtype=np.uint32)
    z = np.zeros(160, np.uint32)
    run("library", "sad", 1, 32, x.copy(), y.copy(), z)
    a, b, c, d = (w.copy().view(kind).astype(int).reshape(32, 4) for kind in (np.uint8, np.int8) for w in (x, y))
    halves = np.maximum(x.copy().view(np.int16), y.copy().view(np.int16))
    words = [np.abs(a - b), np.abs(c - d), np.minimum(a + b, 255)]
    expected = [np.abs(a - b).sum(1), *(w.astype(np.uint8).view(np.uint32)[:, 0] for w in words), halves.view(np.uint32)]
    assert np.array_equal(z, np.concatenate(expected))
