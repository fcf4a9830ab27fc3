"""Products of warpgroups and warps in every orientation, type and swizzle: the bits of an H200, and NumPy's values."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from h100sim import tk
from tests.tk.running import arrive_once, checked, load_all, normal

BF16 = ml_dtypes.bfloat16


def product(name, a, b, n, k, d=tk.fl):
    """Return the kernel D = D0 + A op B op for one call of ``tk.warpgroup.<name>``, A in shared memory."""
    a_shape = (k, 64) if "At" in name else (64, k)
    b_shape = (n, k) if "Bt" in name else (k, n)

    @tk.kernel(grid=1, warpgroups=1)
    def mma(A: tk.gl(a, *a_shape), B: tk.gl(b, *b_shape), C: tk.gl(tk.fl, 64, n), D: tk.gl(tk.fl, 64, n)):
        left, right, arrived = tk.st(a, *a_shape), tk.st(b, *b_shape), tk.semaphore()
        acc, wide = tk.rt(d, 16, n), tk.rt(tk.fl, 16, n)
        arrive_once(arrived)
        load_all(arrived, (left, A), (right, B))
        tk.warpgroup.load(wide, C, (0, 0))
        tk.warp.copy(acc, wide)
        getattr(tk.warpgroup, name)(acc, left, right)
        tk.warpgroup.mma_async_wait()
        tk.warp.copy(wide, acc)
        tk.warpgroup.store(D, wide, (0, 0))

    return mma


def check_product(name, a, b, n, k, on, d=tk.fl, tolerance=1e-5):
    x = normal((k, 64) if "At" in name else (64, k), a.natural, 1)
    y = normal((n, k) if "Bt" in name else (k, n), b.natural, 2)
    c = normal((64, n), np.float16, 3).astype(np.float32)
    result = checked(product(name, a, b, n, k, d), x, y, c, on=on, capture=f"{name} {a} {b} {d} {n}x{k}")
    left, right = x.astype(np.float64), y.astype(np.float64)
    exact = (left.T if "At" in name else left) @ (right.T if "Bt" in name else right)
    exact = exact + (c if name.startswith("mma") else 0)
    np.testing.assert_allclose(result, exact, atol=tolerance * k)


@pytest.mark.parametrize("name", ["mma_AB", "mma_ABt", "mma_AtB", "mma_AtBt", "mm_AB", "mm_ABt", "mm_AtB", "mm_AtBt"])
def test_products_of_all_orientations(name, on):
    check_product(name, tk.bf16, tk.bf16, 128, 64, on)


@pytest.mark.parametrize("name", ["mma_AB", "mma_ABt", "mma_AtB"])
@pytest.mark.parametrize("n, k", [(16, 16), (32, 48), (48, 32), (96, 128), (256, 16)])
def test_products_of_other_swizzles(name, n, k, on):
    check_product(name, tk.half, tk.half, n, k, on)


@pytest.mark.parametrize("a, b", list(itertools.product([tk.fp8e4m3, tk.fp8e5m2], repeat=2)))
def test_products_of_fp8(a, b, on):
    # The tensor core keeps 13 fraction bits in fp8 sums.
    check_product("mma_ABt", a, b, 64, 128, on, tolerance=2e-4)


def test_products_into_f16(on):
    check_product("mma_AB", tk.half, tk.half, 64, 64, on, d=tk.half, tolerance=1e-3)


@pytest.mark.parametrize("name", ["mma_AB", "mma_ABt"])
def test_products_with_a_in_registers(name, on):
    b_shape = (96, 64) if name == "mma_ABt" else (64, 96)

    @tk.kernel(grid=1, warpgroups=1)
    def mma(A: tk.gl(tk.bf16, 64, 64), B: tk.gl(tk.bf16, *b_shape), D: tk.gl(tk.fl, 64, 96)):
        right, arrived = tk.st(tk.bf16, *b_shape), tk.semaphore()
        left, acc = tk.rt(tk.bf16, 16, 64), tk.rt(tk.fl, 16, 96)
        arrive_once(arrived)
        load_all(arrived, (right, B))
        tk.warpgroup.load(left, A, (0, 0))
        tk.warp.zero(acc)
        getattr(tk.warpgroup, name)(acc, left, right)
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(D, acc, (0, 0))

    a, b = normal((64, 64), BF16, 1), normal(b_shape, BF16, 2)
    right = b.astype(np.float64)
    exact = a.astype(np.float64) @ (right.T if name == "mma_ABt" else right)
    result = checked(mma, a, b, on=on, capture=f"{name} registers")
    np.testing.assert_allclose(result, exact, atol=1e-3)


def test_a_slice_of_panels_is_a_tile(on):
    @tk.kernel(grid=1, warpgroups=1)
    def mma(A: tk.gl(tk.bf16, 64, 128), B: tk.gl(tk.bf16, 64, 64), D: tk.gl(tk.fl, 64, 64)):
        left, right, arrived = tk.st(tk.bf16, 64, 128), tk.st(tk.bf16, 64, 64), tk.semaphore()
        acc = tk.rt(tk.fl, 16, 64)
        arrive_once(arrived)
        load_all(arrived, (left, A), (right, B))
        tk.warpgroup.mm_AB(acc, left.panels(64, 64), right)
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(D, acc, (0, 0))

    a, b = normal((64, 128), BF16, 1), normal((64, 64), BF16, 2)
    exact = a[:, 64:].astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(checked(mma, a, b, on=on, capture="panels"), exact, atol=1e-3)


@pytest.mark.parametrize("name, layout", [("mma_AB", "col"), ("mma_ABt", "row")])
def test_products_of_one_warp(name, layout, on):
    b_shape = (48, 32) if layout == "col" else (32, 48)

    @tk.kernel(grid=1, warps=1)
    def mma(A: tk.gl(tk.bf16, 32, 48), B: tk.gl(tk.bf16, *b_shape), C: tk.gl(tk.fl, 32, 32), D: tk.gl(tk.fl, 32, 32)):
        right, arrived = tk.st(tk.bf16, *b_shape), tk.semaphore()
        a, b = tk.rt(tk.bf16, 32, 48), tk.rt(tk.bf16, *b_shape, layout)
        c, d = tk.rt(tk.fl, 32, 32), tk.rt(tk.fl, 32, 32)
        arrive_once(arrived)
        load_all(arrived, (right, B))
        tk.warp.load(a, A, (0, 0))
        tk.warp.load(b, right)
        tk.warp.load(c, C, (0, 0))
        getattr(tk.warp, name)(d, a, b, c)
        tk.warp.store(D, d, (0, 0))

    a, b, c = normal((32, 48), BF16, 1), normal(b_shape, BF16, 2), normal((32, 32), seed=3)
    right = b.astype(np.float64)
    exact = a.astype(np.float64) @ (right if layout == "col" else right.T) + c
    np.testing.assert_allclose(checked(mma, a, b, c, on=on, capture=f"{name} warp"), exact, atol=1e-4)
