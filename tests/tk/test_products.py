"""Products beyond those of test_operations: warps in every orientation and type, A of a warpgroup in registers."""

import itertools

import numpy as np
import pytest

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

FP8 = [tk.fp8e4m3, tk.fp8e5m2]


@pytest.mark.parametrize("name", ["mma_AB", "mma_ABt", "mma_AtB", "mma_AtBt"])
@pytest.mark.parametrize("dtype, d", [(tk.bf16, tk.fl), (tk.half, tk.fl), (tk.half, tk.half)], ids=str)
def test_warps_multiply_in_every_orientation(name, dtype, d, on):
    m, n, k = 32, 48, 64
    a_shape, b_shape = (k, m) if "At" in name else (m, k), (n, k) if "Bt" in name else (k, n)

    @tk.kernel(grid=1, warps=1)
    def product(A: tk.gl(dtype, *a_shape), B: tk.gl(dtype, *b_shape), C: tk.gl(tk.fl, m, n), D: tk.gl(tk.fl, m, n)):
        a = tk.rt(dtype, *a_shape, "col" if "At" in name else "row")
        b = tk.rt(dtype, *b_shape, "row" if "Bt" in name else "col")
        acc = tk.rt(d, m, n)
        tk.warp.load(a, A, (0, 0))
        tk.warp.load(b, B, (0, 0))
        tk.warp.load(acc, C, (0, 0))
        getattr(tk.warp, name)(acc, a, b, acc)
        tk.warp.store(D, acc, (0, 0))

    a, b, c = normal(a_shape, dtype.natural, 1), normal(b_shape, dtype.natural, 2), normal((m, n), np.float16, 3)
    left, right = a.astype(np.float64), b.astype(np.float64)
    exact = (left.T if "At" in name else left) @ (right.T if "Bt" in name else right) + c
    result = checked(product, a, b, c.astype(np.float32), on=on)
    np.testing.assert_allclose(result, exact, atol=1e-4 if d is tk.fl else 0.1)


@pytest.mark.parametrize("a, b", list(itertools.product(FP8, FP8)), ids=str)
def test_warps_multiply_fp8(a, b, on):
    @tk.kernel(grid=1, warps=1)
    def product(A: tk.gl(a, 32, 64), B: tk.gl(b, 48, 64), D: tk.gl(tk.fl, 32, 48)):
        left, right, acc = tk.rt(a, 32, 64), tk.rt(b, 48, 64), tk.rt(tk.fl, 32, 48)
        tk.warp.load(left, A, (0, 0))
        tk.warp.load(right, B, (0, 0))
        tk.warp.zero(acc)
        tk.warp.mma_ABt(acc, left, right, acc)
        tk.warp.store(D, acc, (0, 0))

    x, y = normal((32, 64), a.natural, 1), normal((48, 64), b.natural, 2)
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    np.testing.assert_allclose(checked(product, x, y, on=on), exact, atol=0.02)


@pytest.mark.parametrize(
    "name, a, d, rows",
    [
        ("mm_AB", tk.half, tk.half, 16), ("mm_ABt", tk.bf16, tk.fl, 32), ("mm_AB", tk.bf16, tk.fl, 48),
        ("mm_ABt", tk.fp8e4m3, tk.fl, 32),
    ],
    ids=str,
)  # fmt: skip
def test_a_warpgroup_multiplies_registers_of_several_rows_of_base_tiles(name, a, d, rows, on):
    n, k = 64, 64
    b_shape = (n, k) if "Bt" in name else (k, n)

    @tk.kernel(grid=1, warpgroups=1)
    def product(A: tk.gl(a, 4 * rows, k), B: tk.gl(a, *b_shape), D: tk.gl(tk.fl, 4 * rows, n)):
        right, left, acc = tk.st(a, *b_shape), tk.rt(a, rows, k), tk.rt(d, rows, n)
        tk.warpgroup.load(right, B, (0, 0))
        tk.warpgroup.load(left, A, (0, 0))
        tk.sync()
        getattr(tk.warpgroup, name)(acc, left, right)
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(D, acc, (0, 0))

    x, y = normal((4 * rows, k), a.natural, 1), normal(b_shape, a.natural, 2)
    right = y.astype(np.float64)
    exact = x.astype(np.float64) @ (right.T if "Bt" in name else right)
    np.testing.assert_allclose(checked(product, x, y, on=on), exact, atol=0.05 if d is tk.half else 0.02)


def tiles(a, b, d=("f32", 16, 16), name="mma_AB"):
    """Return a body that multiplies register tiles of these (type, rows, cols, layout)."""
    types = {"f32": tk.fl, "bf16": tk.bf16, "f16": tk.half, "e4m3": tk.fp8e4m3}

    def body():
        left, right, acc = (tk.rt(types[t], *rest) for t, *rest in (a, b, d))
        getattr(tk.warp, name)(acc, left, right, acc)

    return body


REFUSED = [
    (tiles(("bf16", 16, 16), ("bf16", 16, 16)),
     "warp.mma_AB layouts of A and B must be row and col, not row and row: warp.swap_layout changes one"),
    (tiles(("e4m3", 16, 32), ("e4m3", 32, 32)),
     "warp.mma_AB of fp8 must be mma_ABt, whose operands have K along their rows, not another orientation"),
    (tiles(("bf16", 16, 16), ("bf16", 32, 16, "col")), "warp.mma_AB B must have the 16 of A along K, not 32"),
    (tiles(("bf16", 16, 16), ("f16", 16, 16, "col")),
     "warp.mma_AB A and B must be both bf16, both f16, or both fp8, not bf16 and f16"),
    (tiles(("bf16", 16, 16), ("bf16", 16, 16, "col"), ("f16", 16, 16)),
     "warp.mma_AB D must be f32, or f16 for operands of f16, not f16"),
    (tiles(("bf16", 16, 16), ("bf16", 16, 16, "col"), ("f32", 16, 32)),
     "warp.mma_AB C and D must be rt<f32, 16, 16>, not rt<f32, 16, 32>"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=1)(body)
    assert error.value.message == message
