"""Products beyond those of test_operations: warps in every orientation and type, A of a warpgroup in registers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@st.composite
def warpgroup_products(draw):
    """A call, types, shapes and swizzles that wgmma takes: fp8 has K along its rows."""
    a, b, d = draw(
        st.sampled_from([
            (tk.bf16, tk.bf16, tk.fl), (tk.half, tk.half, tk.fl), (tk.half, tk.half, tk.half),
            (tk.fp8e4m3, tk.fp8e5m2, tk.fl), (tk.fp8e5m2, tk.fp8e4m3, tk.half), (tk.fp8e4m3, tk.fp8e4m3, tk.fl),
        ])
    )  # fmt: skip
    is_fp8 = a in FP8
    name = (
        draw(st.sampled_from(["mm", "mma"])) + "_" + (draw(st.sampled_from(["AB", "ABt", "AtB", "AtBt"])) if not is_fp8 else "ABt")
    )
    k = draw(st.sampled_from([32, 64, 96, 160] if is_fp8 else [16, 32, 48, 64, 128]))
    n = draw(st.sampled_from([32, 64, 96, 256] if is_fp8 else [16, 48, 64, 80, 128]))
    in_registers = "At" not in name and draw(st.booleans())
    a_shape, b_shape = (k, 64) if "At" in name else (64, k), (n, k) if "Bt" in name else (k, n)
    swizzles = [draw(st.sampled_from([w for w in (32, 64, 128) if s[1] * a.size_bytes % w == 0])) for s in (a_shape, b_shape)]
    return name, a, b, d, n, k, a_shape, b_shape, swizzles, in_registers


@settings(max_examples=25, deadline=None)
@given(warpgroup_products())
def test_a_warpgroup_multiplies_any_shape_type_and_swizzle(case):
    name, a, b, d, n, k, a_shape, b_shape, swizzles, in_registers = case

    @tk.kernel(grid=1, warpgroups=1)
    def product(A: tk.gl(a, *a_shape), B: tk.gl(b, *b_shape), D: tk.gl(tk.fl, 64, n)):
        right, acc = tk.st(b, *b_shape, swizzle=swizzles[1]), tk.rt(d, 16, n)
        left = tk.rt(a, 16, k) if in_registers else tk.st(a, *a_shape, swizzle=swizzles[0])
        tk.warpgroup.load(left, A, (0, 0))
        tk.warpgroup.load(right, B, (0, 0))
        tk.sync()
        tk.warp.one(acc)
        getattr(tk.warpgroup, name)(acc, left, right)
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(D, acc, (0, 0))

    x, y = normal(a_shape, a.natural, 1), normal(b_shape, b.natural, 2)
    left, right = x.astype(np.float64), y.astype(np.float64)
    exact = (left.T if "At" in name else left) @ (right.T if "Bt" in name else right) + name.startswith("mma")
    # The tensor core keeps 13 fraction bits in fp8 sums; an f16 accumulator rounds every step of K.
    tolerance = 0.06 * k**0.5 if d is tk.half else 2e-4 * k if a in FP8 else 1e-5 * k
    np.testing.assert_allclose(checked(product, x, y), exact, atol=tolerance)


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
