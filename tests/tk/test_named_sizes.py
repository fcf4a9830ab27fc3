"""Dimensions that only the launch knows: one text for every shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

BF16 = tk.bf16.natural


@tk.kernel(grid=2, warpgroups=1)
def doubled(X: tk.gl(tk.bf16, "b", "h", "n", 64), Y: tk.gl(tk.bf16, "b", "h", "n", 64), N: tk.gl(tk.int32, 1, 4)):
    """Every way through registers or shared memory, one for each of four blocks of rows in turn; CTAs share the blocks."""
    tile, values, arrived = tk.st(tk.bf16, 64, 64), tk.rt(tk.fl, 16, 64), tk.semaphore()
    with tk.elect():
        tk.init_semaphore(arrived, 1)
        tk.fence_mbarrier_init()
    tk.sync()
    phase, blocks = tk.var(0), (X.rows + 63) // 64
    for task in tk.range(tk.blockIdx(), X.batch * X.depth * blocks, 2):
        plane, block = task // blocks, task % blocks
        where = (plane // X.depth, plane % X.depth, block, 0)
        way = block % 2
        with tk.when(way == 0):
            with tk.elect():
                tk.tma.expect(arrived, tile)
                tk.tma.load_async(tile, X, where, arrived)
            tk.wait(arrived, phase)
            phase ^= 1
            tk.warpgroup.load(values, tile)
        with tk.otherwise():
            tk.warpgroup.load(values, X, where)
        tk.warp.add(values, values, values)
        tk.sync()
        with tk.when(way == 0):
            tk.warpgroup.store(tile, values)
            tk.sync()
            with tk.elect():
                tk.tma.store_async(Y, tile, where)
                tk.tma.store_async_read_wait()
            tk.sync()
        with tk.otherwise():
            tk.warpgroup.store(Y, values, where)
    with tk.when(tk.blockIdx() == 0), tk.elect():
        for i, size in enumerate((X.batch, X.depth, X.rows, X.cols)):
            tk.write(N, i, size)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 200))
def test_one_text_serves_every_shape(b, h, n):
    x = normal((b, h, n, 64), BF16)
    y, sizes = checked(doubled, x)
    np.testing.assert_array_equal(y, x + x)
    np.testing.assert_array_equal(sizes[0], [b, h, n, 64])


def test_sizes_are_parameters_in_the_order_of_their_first_argument():
    assert [p.name for p in doubled.parameters] == [
        "X_map_64x64", "X_ptr", "b_size", "h_size", "n_size", "Y_map_64x64", "Y_ptr", "N_ptr",
    ]  # fmt: skip
    assert [str(a.layout) for a in doubled.arguments[:2]] == ["gl<bf16, b, h, n, 64>"] * 2


def test_elements_vectors_and_shared_loads_know_the_sizes(on):
    @tk.kernel(grid=1, warps=1)
    def mixed(X: tk.gl(tk.fl, "d", "n", 32), V: tk.gl(tk.fl, "d", 32), Y: tk.gl(tk.fl, "d", "n", 32)):
        tile, values, vector = tk.st(tk.fl, 32, 32), tk.rt(tk.fl, 32, 32), tk.rv(tk.fl, 32, "align")
        for plane in tk.range(X.depth):
            tk.warp.load(vector, V, (plane, 0))
            for block in tk.range((X.rows + 31) // 32):
                tk.warp.load(tile, X, (plane, block, 0))
                tk.warp.sync()
                tk.warp.load(values, tile)
                tk.warp.add_col(values, values, vector)
                tk.warp.store(Y, values, (plane, block, 0))
                tk.warp.sync()
            first = tk.read(X, (plane, 0, 0))
            tk.warp.sync()
            with tk.elect():
                tk.write(Y, (plane, X.rows - 1, 0), first)

    for d, n in ((1, 16), (3, 50)):
        x, v = normal((d, n, 32)), normal((d, 32), seed=1)
        expected = x + v[:, None]
        expected[:, -1, 0] = x[:, 0, 0]
        np.testing.assert_array_equal(checked(mixed, x, v, on=on), expected)


@pytest.mark.parametrize(
    "x, message",
    [
        (normal((2, 3, 64), BF16), "input X must be bfloat16 (b, h, n, 64), not bfloat16 (2, 3, 64)"),
        (normal((1, 1, 4, 32), BF16), "input X must be bfloat16 (b, h, n, 64), not bfloat16 (1, 1, 4, 32)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(x, message):
    with pytest.raises(UsageError) as error:
        doubled.run(x)
    assert error.value.message == message


def pair(second, output=("n", 16)):
    @tk.kernel(grid=1, warps=1, X=tk.gl(tk.fl, "n", 16), Z=tk.gl(tk.fl, *second), Y=tk.gl(tk.fl, *output))
    def kernel(X, Z, Y):
        tile = tk.rt(tk.fl, 16, 16)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.load(tile, Z, (0, 0))
        tk.warp.store(Y, tile, (0, 0))

    return kernel


def test_names_mean_one_size():
    with pytest.raises(UsageError) as error:
        pair(("n", 16)).run(normal((16, 16)), normal((32, 16)))
    assert error.value.message == "size n of Z must be that of the arguments before, 16, not 32"
    with pytest.raises(UsageError) as error:
        pair(("k", 16), ("m", 16)).run(normal((16, 16)), normal((32, 16)))
    assert error.value.message == "size m of output Y must be a dimension of an input, too, not of outputs alone"


@pytest.mark.parametrize(
    "shape, message",
    [
        ((64, "n"), "columns of a gl must be known when the kernel is traced, not n: only outer dimensions are named"),
        (("a b", 64), "gl must have one to four dimensions, positive or names, not ('a b', 64)"),
        ((0, 64), "gl must have one to four dimensions, positive or names, not (0, 64)"),
    ],
)
def test_layouts_that_cannot_be_are_refused(shape, message):
    with pytest.raises(UsageError) as error:
        tk.gl(tk.bf16, *shape)
    assert error.value.message == message
