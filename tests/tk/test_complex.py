"""Complex tiles: pairs of parts that operations treat alike, and complex products, against NumPy."""

import numpy as np
import pytest

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

BF16 = tk.bf16.natural


def joined(real, imag):
    return real.astype(np.complex128) + 1j * imag.astype(np.complex128)


def test_elements_are_added_and_multiplied(on):
    @tk.kernel(grid=1, warps=1)
    def elementwise(
        R: tk.gl(tk.fl, 32, 32), I: tk.gl(tk.fl, 32, 32), S: tk.gl(tk.fl, 32, 32), J: tk.gl(tk.fl, 32, 32),  # noqa: E741
        V: tk.gl(tk.fl, 2, 32), P: tk.gl(tk.fl, 32, 32), Q: tk.gl(tk.fl, 32, 32), W: tk.gl(tk.fl, 2, 32),
    ):  # fmt: skip
        x, y, z = (tk.crt(tk.fl, 32, 32) for _ in range(3))
        vector = tk.crv(tk.fl, 32)
        tk.warp.load(x, tk.cgl(R, I), (0, 0))
        tk.warp.load(y, tk.cgl(S, J), (0, 0))
        tk.warp.mul(z, x, y)
        tk.warp.add(z, z, x)
        tk.warp.mul(x, x, x)
        tk.warp.sub(z, z, x)
        tk.warp.mul(z, z, 2.0)
        tk.warp.store(tk.cgl(P, Q), z, (0, 0))
        for i, part in enumerate((vector.real, vector.imag)):
            tk.warp.load(part, V, (i, 0))
        tk.warp.mul(vector, vector, vector)
        tk.warp.neg(vector, vector)
        for i, part in enumerate((vector.real, vector.imag)):
            tk.warp.store(W, part, (i, 0))

    parts = [normal((32, 32), seed=i) for i in range(4)]
    v = normal((2, 32), seed=5)
    p, q, w = checked(elementwise, *parts, v, on=on)
    x, y = joined(*parts[:2]), joined(*parts[2:])
    np.testing.assert_allclose(joined(p, q), 2 * (x * y + x - x * x), atol=1e-5)
    np.testing.assert_allclose(joined(*w), -(joined(*v) ** 2), atol=1e-5)


@pytest.mark.parametrize("name", ["mma_AB", "mma_ABt", "mma_AtB", "mma_AtBt"])
def test_a_warp_multiplies_complex_matrices(name, on):
    a_shape, b_shape = (48, 32) if "At" in name else (32, 48), (64, 48) if "Bt" in name else (48, 64)

    @tk.kernel(grid=1, warps=1)
    def product(
        R: tk.gl(tk.bf16, *a_shape), I: tk.gl(tk.bf16, *a_shape), S: tk.gl(tk.bf16, *b_shape),  # noqa: E741
        J: tk.gl(tk.bf16, *b_shape), P: tk.gl(tk.fl, 32, 64), Q: tk.gl(tk.fl, 32, 64),
    ):  # fmt: skip
        a = tk.crt(tk.bf16, *a_shape, "col" if "At" in name else "row")
        b = tk.crt(tk.bf16, *b_shape, "row" if "Bt" in name else "col")
        acc = tk.crt(tk.fl, 32, 64)
        tk.warp.load(a, tk.cgl(R, I), (0, 0))
        tk.warp.load(b, tk.cgl(S, J), (0, 0))
        tk.warp.zero(acc)
        getattr(tk.warp, name)(acc, a, b, acc)
        tk.warp.store(tk.cgl(P, Q), acc, (0, 0))

    parts = [normal(shape, BF16, i) for i, shape in enumerate((a_shape, a_shape, b_shape, b_shape))]
    left, right = joined(*parts[:2]), joined(*parts[2:])
    exact = (left.T if "At" in name else left) @ (right.T if "Bt" in name else right)
    np.testing.assert_allclose(joined(*checked(product, *parts, on=on)), exact, atol=1e-3)


@pytest.mark.parametrize("name", ["mm_AB", "mma_ABt"])
def test_a_warpgroup_multiplies_complex_tiles_that_tma_brings(name, on):
    @tk.kernel(grid=1, warpgroups=1)
    def product(
        R: tk.gl(tk.bf16, 64, 64), I: tk.gl(tk.bf16, 64, 64), S: tk.gl(tk.bf16, 64, 64), J: tk.gl(tk.bf16, 64, 64),  # noqa: E741
        P: tk.gl(tk.fl, 64, 64), Q: tk.gl(tk.fl, 64, 64),
    ):  # fmt: skip
        tiles, out, arrived = tk.cst(tk.bf16, 64, 64, count=2), tk.cst(tk.fl, 64, 64), tk.semaphore()
        acc = tk.crt(tk.fl, 16, 64)
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
        tk.sync()
        with tk.elect():
            tk.tma.expect(arrived, tiles)
            for i, tensor in enumerate((tk.cgl(R, I), tk.cgl(S, J))):
                tk.tma.load_async(tiles[i], tensor, (0, 0), arrived)
        tk.wait(arrived, 0)
        tk.warp.zero(acc)
        getattr(tk.warpgroup, name)(acc, tiles[0], tiles[1])
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(out, acc)
        tk.sync()
        with tk.elect():
            tk.tma.store_async(tk.cgl(P, Q), out, (0, 0))
            tk.tma.store_async_wait()

    parts = [normal((64, 64), BF16, i) for i in range(4)]
    left, right = joined(*parts[:2]), joined(*parts[2:])
    exact = left @ (right.T if "Bt" in name else right)
    np.testing.assert_allclose(joined(*checked(product, *parts, on=on)), exact, atol=1e-3)


@pytest.mark.parametrize("layout", ["row", "col"])
def test_layouts_are_swapped_and_transposed(layout, on):
    @tk.kernel(grid=1, warps=1)
    def turn(X: tk.gl(tk.bf16, 32, 32), Y: tk.gl(tk.bf16, 32, 32), P: tk.gl(tk.bf16, 32, 32), Q: tk.gl(tk.bf16, 32, 32)):
        a, b = tk.crt(tk.bf16, 32, 32, layout), tk.crt(tk.bf16, 32, 32, "col" if layout == "row" else "row")
        tk.warp.load(a, tk.cgl(X, Y), (0, 0))
        tk.warp.swap_layout(b, a)
        tk.warp.transpose_sep(a, b)
        tk.warp.transpose_inplace(a)
        tk.warp.transpose_sep(b, a)
        tk.warp.store(tk.cgl(P, Q), b, (0, 0))

    x, y = normal((32, 32), BF16, 1), normal((32, 32), BF16, 2)
    p, q = checked(turn, x, y, on=on)
    np.testing.assert_array_equal(p, x.T)
    np.testing.assert_array_equal(q, y.T)


REFUSED = [
    (lambda X: tk.warp.add(tk.crt(tk.fl, 16, 16), tk.crt(tk.fl, 16, 16), tk.rt(tk.fl, 16, 16)),
     "operands of add must be complex if one is, not rt<f32, 16, 16>: take .real and .imag, or tk.cgl of two gl"),
    (lambda X: tk.warp.load(tk.crt(tk.fl, 16, 16), X, (0, 0)),
     "operands of load must be complex if one is, not X (gl<bf16, 64, 64>): take .real and .imag, or tk.cgl of two gl"),
    (lambda X: tk.warpgroup.mm_AB(tk.crt(tk.fl, 16, 64), tk.st(tk.bf16, 64, 64), tk.cst(tk.bf16, 64, 64)),
     "warpgroup.mm_AB operands must all be complex if one is, not complex rt<f32, 16, 64>, st<bf16, 64, 64> and complex "
     "st<bf16, 64, 64>"),
    (lambda X: tk.cgl(X, 3), "parts of tk.cgl must be gl arguments of one layout, not X (gl<bf16, 64, 64>) and 3"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=4, X=tk.gl(tk.bf16, 64, 64))(lambda X: body(X) and None)
    assert error.value.message == message
