"""Register vectors of every layout and type: through shared and global memory, and from layout to layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

TYPES = {"f32": tk.fl, "bf16": tk.bf16, "f16": tk.half}
LAYOUTS = ["naive", "ortho", "align"]


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(list(TYPES)), st.sampled_from(list(TYPES)), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS),
    st.sampled_from([16, 48, 64, 80]), st.integers(0, 15),
)  # fmt: skip
def test_vectors_of_every_layout_and_type(memory, registers, first, second, length, cut):
    """From global memory into one layout, into another, through shared memory into global memory again."""
    t, cols = TYPES[memory], 2 * length - cut

    @tk.kernel(grid=1, warps=1)
    def moves(X: tk.gl(t, 2, cols), Y: tk.gl(t, 2, cols), Z: tk.gl(tk.fl, 1, length)):
        a, b = tk.rv(TYPES[registers], length, first), tk.rv(tk.fl, length, second)
        shared = tk.sv(t, length)
        for i in range(-(-cols // length)):
            tk.warp.load(a, X, (1, i))
            tk.warp.copy(b, a)
            tk.warp.store(shared, b)
            tk.warp.sync()
            tk.warp.load(b, shared)
            tk.warp.store(Y, b, (1, i))
            tk.warp.sync()
        tk.warp.store(Z, b, (0, 0))

    x = normal((2, cols), t.natural)
    narrow = x.astype(TYPES[registers].natural).astype(t.natural)
    y, z = checked(moves, x)
    np.testing.assert_array_equal(y[1], narrow[1])
    last = -(-cols // length) - 1
    np.testing.assert_array_equal(z[0, : cols - last * length], narrow[1, last * length :].astype(np.float32))
    np.testing.assert_array_equal(z[0, cols - last * length :], 0)


def test_warps_share_out_a_vector(on):
    @tk.kernel(grid=1, warpgroups=1)
    def parts(X: tk.gl(tk.bf16, 1, 256), Y: tk.gl(tk.fl, 1, 256)):
        shared, vector = tk.sv(tk.fl, 256), tk.rv(tk.fl, 64)
        tk.warpgroup.load(vector, X, (0, 0))
        tk.warp.mul(vector, vector, 2.0)
        tk.warpgroup.store(shared, vector)
        tk.sync()
        tk.warpgroup.load(vector, shared)
        tk.warpgroup.store(Y, vector, (0, 0))

    x = normal((1, 256), tk.bf16.natural)
    np.testing.assert_array_equal(checked(parts, x, on=on), 2 * x.astype(np.float32))


@pytest.mark.parametrize("dtype", [tk.fl, tk.bf16, tk.half], ids=str)
def test_fills_of_every_type(dtype, on):
    @tk.kernel(grid=1, warps=1)
    def fills(Y: tk.gl(tk.fl, 3, 32)):
        for i, fill in enumerate([tk.warp.zero, tk.warp.one, tk.warp.neg_infty]):
            vector = tk.rv(dtype, 32)
            fill(vector)
            tk.warp.store(Y, vector, (i, 0))

    y = checked(fills, on=on)
    np.testing.assert_array_equal(y, np.repeat([[0], [1], [-np.inf]], 32, 1).astype(np.float32))


@pytest.mark.parametrize("axis", ["row", "col"])
def test_vectors_of_column_layout_tiles_have_the_other_layout(axis, on):
    @tk.kernel(grid=1, warps=1)
    def reduce(X: tk.gl(tk.bf16, 32, 48), Y: tk.gl(tk.fl, 1, 32 if axis == "row" else 48)):
        tile = tk.st(tk.bf16, 32, 48)
        narrow, wide = tk.rt(tk.bf16, 32, 48, "col"), tk.rt(tk.fl, 32, 48, "col")
        vector = (tk.col_vec if axis == "row" else tk.row_vec)(wide)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.sync()
        tk.warp.load(narrow, tile)
        tk.warp.copy(wide, narrow)
        getattr(tk.warp, f"{axis}_max")(vector, wide)
        getattr(tk.warp, f"sub_{axis}")(wide, wide, vector)
        getattr(tk.warp, f"{axis}_max")(vector, wide, vector)
        getattr(tk.warp, f"{axis}_min")(vector, wide)
        tk.warp.store(Y, vector, (0, 0))

    x = normal((32, 48), tk.bf16.natural).astype(np.float32)
    number = 1 if axis == "row" else 0
    expected = (x - x.max(number, keepdims=True)).min(number)
    np.testing.assert_array_equal(checked(reduce, x.astype(tk.bf16.natural), on=on)[0], expected)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(["max", "min", "sum", "prod"]), st.sampled_from(LAYOUTS), st.sampled_from([16, 48, 64, 96, 256]))
def test_vectors_are_reduced_to_numbers(name, layout, length):
    @tk.kernel(grid=1, warps=1)
    def reduce(X: tk.gl(tk.fl, 1, length), Y: tk.gl(tk.fl, 1, 32), Z: tk.gl(tk.fl, 1, length)):
        vector = tk.rv(tk.fl, length, layout)
        tk.warp.load(vector, X, (0, 0))
        result = getattr(tk.warp, f"vec_{name}")(vector)
        tk.write(Y, tk.laneid(), result)
        tk.warp.fill(vector, result)
        tk.warp.store(Z, vector, (0, 0))

    x = 1 + normal((1, length)) / 8
    numpy = {"max": np.max, "min": np.min, "sum": np.sum, "prod": np.prod}[name]
    y, z = checked(reduce, x)
    np.testing.assert_allclose(y, numpy(x.astype(np.float64)), rtol=1e-5)
    assert len({*y[0], *z[0]}) == 1, "all lanes have the same bits"


@pytest.mark.parametrize("axis", ["row", "col"])
def test_rows_and_columns_are_bounded_by_a_vector(axis, on):
    @tk.kernel(grid=1, warps=1)
    def bound(X: tk.gl(tk.fl, 16, 32), V: tk.gl(tk.fl, 2, 16 if axis == "row" else 32), Y: tk.gl(tk.fl, 16, 32)):
        tile = tk.rt(tk.fl, 16, 32)
        low, high = ((tk.col_vec if axis == "row" else tk.row_vec)(tile) for _ in range(2))
        tk.warp.load(tile, X, (0, 0))
        tk.warp.load(low, V, (0, 0))
        tk.warp.load(high, V, (1, 0))
        getattr(tk.warp, f"max_{axis}")(tile, tile, low)
        getattr(tk.warp, f"min_{axis}")(tile, tile, high)
        tk.warp.store(Y, tile, (0, 0))

    x, v = normal((16, 32)), np.sort(normal((2, 16 if axis == "row" else 32), seed=1), 0)
    low, high = (v[i][:, None] if axis == "row" else v[i][None] for i in range(2))
    np.testing.assert_array_equal(checked(bound, x, v, on=on), np.clip(x, low, high))


REFUSED = [
    (lambda: tk.warp.vec_sum(tk.rv(tk.bf16, 32)), "warp.vec_sum operand must be f32, not bf16: copy it to an f32 tile first"),
    (lambda: tk.warp.vec_max(tk.rt(tk.fl, 16, 16)), "warp.vec_max operand must be a register vector, not RegisterTile"),
    (lambda: tk.rv(tk.fp8e4m3, 32), "element type of an rv must be f32, bf16 or f16, not e4m3"),
    (lambda: tk.rv(tk.fl, 24), "length of an rv must be a multiple of 16, not 24"),
    (lambda: tk.rv(tk.fl, 32, "row"), "layout of an rv must be naive, ortho or align, not row"),
    (lambda: tk.warp.load(tk.rv(tk.fl, 32), tk.sv(tk.fl, 64)),
     "warp.load shared vector must have 32 elements, not 64"),
    (lambda: tk.warpgroup.load(tk.rv(tk.fl, 32), tk.sv(tk.fl, 64)),
     "warpgroup.load shared vector must have 128 elements (32 of each of 4 warps), not 64"),
    (lambda: tk.warp.load(tk.rv(tk.fl, 32), tk.sv(tk.fp8e4m3, 32)),
     "warp.load element type in memory must be f32, bf16 or f16, not e4m3"),
    (lambda: tk.warp.add(tk.rv(tk.fl, 32), tk.rv(tk.fl, 32, "ortho"), 1.0),
     "warp.add operands must have one shape, not rv<f32, 32, naive> and rv<f32, 32, ortho>"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=4)(lambda: body() and None)
    assert error.value.message == message
