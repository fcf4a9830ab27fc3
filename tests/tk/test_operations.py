"""Every operation of the DSL on data, in the simulator and (with --gpu) on a Hopper GPU, against NumPy and silicon.

Measured: tests/data/tk_operations.npz has the bits that an NVIDIA H200 gave (driver 580.159, CUDA 13.0, 2026-11-29)
for the same kernels and inputs, wherever NumPy alone does not settle them.
"""

import ml_dtypes
import numpy as np
import pytest

from h100sim import tk
from tests.tk.running import arrive_once, checked, load_all, normal, store_one

BF16 = ml_dtypes.bfloat16
TYPES = {"bf16": tk.bf16, "f16": tk.half, "f32": tk.fl}


# --- moves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cols", [16, 32, 48, 64, 128])
@pytest.mark.parametrize("shared, registers", [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f32"), ("f32", "f32")])
def test_a_tile_survives_the_way_through_shared_memory_and_registers(shared, registers, cols, on):
    s = TYPES[shared]

    @tk.kernel(grid=1, warpgroups=1)
    def moves(X: tk.gl(s, 64, cols), Y: tk.gl(s, 64, cols), Z: tk.gl(s, 64, cols)):
        there, back = tk.st(s, 64, cols), tk.st(s, 64, cols)
        arrived = tk.semaphore()
        values = tk.rt(TYPES[registers], 16, cols)
        arrive_once(arrived)
        load_all(arrived, (there, X))
        tk.warpgroup.load(values, there)
        tk.warpgroup.store(back, values)
        tk.warpgroup.store(Z, values, (0, 0))
        tk.sync()
        store_one(Y, back)

    x = normal((64, cols), s.natural)
    y, z = checked(moves, x, on=on)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_swizzle_can_be_chosen(swizzle, on):
    @tk.kernel(grid=1, warpgroups=1)
    def moves(X: tk.gl(tk.bf16, 64, 64), Y: tk.gl(tk.bf16, 64, 64)):
        tile = tk.st(tk.bf16, 64, 64, swizzle=swizzle)
        values = tk.rt(tk.bf16, 16, 64)
        tk.warpgroup.load(values, X, (0, 0))
        tk.warpgroup.store(tile, values)
        tk.sync()
        store_one(Y, tile)

    x = normal((64, 64), BF16)
    np.testing.assert_array_equal(checked(moves, x, on=on), x)


def test_warps_move_tiles_of_their_own(on):
    @tk.kernel(grid=2, warps=2)
    def moves(X: tk.gl(tk.fl, 2, 1, 64, 32), Y: tk.gl(tk.bf16, 2, 1, 64, 32)):
        tile = tk.st(tk.bf16, 32, 32, count=2)
        values = tk.rt(tk.fl, 32, 32)
        warp = tk.warpid()
        tk.warp.load(values, X, (tk.blockIdx(), 0, warp, 0))
        tk.warp.store(tile[warp], values)
        tk.warp.sync()
        tk.warp.load(values, tile[warp])
        tk.warp.store(Y, values, (tk.blockIdx(), 0, warp, 0))

    x = normal((2, 1, 64, 32))
    np.testing.assert_array_equal(checked(moves, x, on=on), x.astype(BF16))


@pytest.mark.parametrize("rows, cols, dtype", [(64, 64, "bf16"), (48, 32, "bf16"), (64, 96, "f16"), (70, 32, "f32")])
def test_shared_tiles_are_filled_and_written_without_tma(rows, cols, dtype, on):
    t, count = TYPES[dtype], -(-rows // 64)

    @tk.kernel(grid=1, warpgroups=1)
    def moves(X: tk.gl(t, 2, rows, cols), Y: tk.gl(t, 2, rows, cols), Z: tk.gl(t, 64 * count, cols)):
        swizzled, plain = tk.st(t, 64, cols), tk.st(t, 16, cols, count=4, swizzle=0)
        values = tk.rt(t, 16, cols)
        for i in range(count):
            tk.warpgroup.load(swizzled, X, (1, i, 0))
            tk.sync()
            tk.warpgroup.load(values, swizzled)
            tk.warpgroup.store(Z, values, (i, 0))
            tk.sync()
        warp = tk.warpid()
        tk.warp.load(plain[warp], X, (warp % 2, warp // 2, 0))
        tk.warp.sync()
        tk.warp.store(Y, plain[warp], (warp % 2, warp // 2, 0))

    x = normal((2, rows, cols), t.natural)
    y, z = checked(moves, x, on=on)
    np.testing.assert_array_equal(z[:rows], x[1])
    np.testing.assert_array_equal(z[rows:], 0)
    np.testing.assert_array_equal(y[:, :32], x[:, :32])


def test_rows_past_the_end_are_zero_and_are_not_written(on):
    @tk.kernel(grid=1, warps=1)
    def moves(X: tk.gl(tk.fl, 21, 16), Y: tk.gl(tk.fl, 21, 16), S: tk.gl(tk.fl, 32, 16)):
        values = tk.rt(tk.fl, 32, 16)
        tk.warp.load(values, X, (0, 0))
        tk.warp.store(Y, values, (0, 0))
        tk.warp.store(S, values, (0, 0))

    x = normal((21, 16))
    y, s = checked(moves, x, on=on)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(s, np.concatenate([x, np.zeros((11, 16), np.float32)]))


def test_vectors_go_to_shared_memory_and_back(on):
    @tk.kernel(grid=1, warpgroups=1)
    def vectors(X: tk.gl(tk.fl, 64, 32), R: tk.gl(tk.fl, 1, 64), Y: tk.gl(tk.fl, 64, 32), C: tk.gl(tk.fl, 1, 32)):
        rows, cols = tk.sv(tk.fl, 64), tk.sv(tk.fl, 32, count=4)
        tile = tk.rt(tk.fl, 16, 32)
        sums, again, columns = tk.col_vec(tile), tk.col_vec(tile), tk.row_vec(tile)
        tk.warpgroup.load(tile, X, (0, 0))
        tk.warp.row_sum(sums, tile)
        tk.warp.col_max(columns, tile)
        tk.warpgroup.store(rows, sums)
        tk.warp.store(cols[tk.warpid()], columns)
        tk.sync()
        tk.warpgroup.load(again, rows)
        tk.warp.load(columns, cols[0])
        tk.warp.broadcast_row(tile, again)
        tk.warp.add_col(tile, tile, columns)
        tk.warpgroup.store(Y, tile, (0, 0))
        with tk.elect():
            tk.tma.store_async(R, rows, (0, 0))
            tk.tma.store_async(C, cols[0], (0, 0))
            tk.tma.store_async_wait()

    x = normal((64, 32))
    r, y, c = checked(vectors, x, on=on, capture="row_sum vector")
    np.testing.assert_allclose(r[0], x.sum(1), atol=1e-5)
    np.testing.assert_array_equal(c[0], x[:16].max(0))
    np.testing.assert_array_equal(y, r.T + c)


@pytest.mark.parametrize("operation, dtype", [("add", "f32"), ("add", "bf16"), ("min", "bf16"), ("max", "f16")])
def test_stores_can_reduce(operation, dtype, on):
    t = TYPES[dtype]

    @tk.kernel(grid=1, warpgroups=1)
    def reduce(X: tk.gl(t, 64, 64), Y: tk.gl(t, 64, 64)):
        tile, arrived = tk.st(t, 64, 64), tk.semaphore()
        arrive_once(arrived)
        load_all(arrived, (tile, X))
        with tk.elect():
            getattr(tk.tma, f"store_{operation}_async")(Y, tile, (0, 0))
            tk.tma.store_async_wait()

    x, y = normal((64, 64), t.natural, 1), normal((64, 64), t.natural, 2)
    numpy = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
    expected = numpy(x.astype(np.float32), y.astype(np.float32)).astype(t.natural)
    result = checked(reduce, x, y, on=on, capture=f"store {operation} {dtype}")
    np.testing.assert_array_equal(result, expected)


def test_column_layout_survives_shared_memory(on):
    @tk.kernel(grid=1, warpgroups=1)
    def moves(X: tk.gl(tk.half, 64, 96), Y: tk.gl(tk.half, 64, 96)):
        there, back, arrived = tk.st(tk.half, 64, 96), tk.st(tk.half, 64, 96), tk.semaphore()
        values = tk.rt(tk.half, 16, 96, "col")
        arrive_once(arrived)
        load_all(arrived, (there, X))
        tk.warpgroup.load(values, there)
        tk.warpgroup.store(back, values)
        tk.sync()
        store_one(Y, back)

    x = normal((64, 96), np.float16)
    np.testing.assert_array_equal(checked(moves, x, on=on), x)


# --- register operations ----------------------------------------------------------------------------------------------


def on_tile(operation, on, *inputs, capture=None, rows=32, cols=32):
    """Return what ``operation(dst, *tiles)`` gives on register tiles of one warp that hold ``inputs``."""
    layout = tk.gl(tk.fl, rows, cols)

    def traced(*tensors):
        tiles = [tk.rt(tk.fl, rows, cols, name=f"x{i}") for i in range(len(inputs))]
        result = tk.rt(tk.fl, rows, cols)
        for tile, tensor in zip(tiles, tensors[1:], strict=True):
            tk.warp.load(tile, tensor, (0, 0))
        operation(result, *tiles)
        tk.warp.store(tensors[0], result, (0, 0))

    if len(inputs) == 1:

        @tk.kernel(grid=1, warps=1)
        def kernel(Y: layout, X: layout):
            traced(Y, X)
    else:

        @tk.kernel(grid=1, warps=1)
        def kernel(Y: layout, X: layout, Z: layout):
            traced(Y, X, Z)

    return checked(kernel, *inputs, on=on, capture=capture)


UNARY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": lambda x: np.log(np.abs(x)),
    "log2": lambda x: np.log2(np.abs(x)),
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)),
    "rcp": lambda x: 1 / x,
    "copy": lambda x: x,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_maps(name, on):
    x = normal((32, 32))
    if name in ("log", "log2", "rsqrt"):
        x = np.abs(x)
    result = on_tile(lambda dst, src: getattr(tk.warp, name)(dst, src), on, x, capture=name)
    np.testing.assert_allclose(result, UNARY[name](x.astype(np.float64)), rtol=1e-5, atol=1e-6)


BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_maps(name, on):
    x, z = normal((32, 32), seed=1), normal((32, 32), seed=2)
    result = on_tile(lambda dst, a, b: getattr(tk.warp, name)(dst, a, b), on, x, z, capture=name)
    np.testing.assert_allclose(result, BINARY[name](x, z), rtol=1e-6 if name == "div" else 0)
    result = on_tile(lambda dst, a: getattr(tk.warp, name)(dst, a, 0.3), on, x, capture=f"{name} number")
    np.testing.assert_allclose(result, BINARY[name](x, np.float32(0.3)), rtol=1e-6 if name == "div" else 0)


def test_fma_rounds_once(on):
    x, z = normal((32, 32), seed=1), normal((32, 32), seed=2)
    result = on_tile(lambda dst, a, c: tk.warp.fma(dst, a, 1.7, c), on, x, z, capture="fma")
    exact = x.astype(np.float64) * float(np.float32(1.7)) + z.astype(np.float64)
    np.testing.assert_array_equal(result, exact.astype(np.float32))


def test_fills(on):
    def operation(dst, src):
        tk.warp.pos_infty(dst)
        tk.warp.min(dst, src, dst)
        tk.warp.neg_infty(src)
        tk.warp.max(dst, dst, src)
        tk.warp.one(src)
        tk.warp.add(dst, dst, src)

    x = normal((32, 32))
    np.testing.assert_array_equal(on_tile(operation, on, x), x + np.float32(1))


@pytest.mark.parametrize("axis", ["row", "col"])
@pytest.mark.parametrize("name", ["max", "min", "sum", "prod"])
def test_reductions_with_and_without_an_accumulator(axis, name, on):
    def operation(dst, src):
        make = tk.col_vec if axis == "row" else tk.row_vec
        vector, total = make(src), make(src)
        reduce = getattr(tk.warp, f"{axis}_{name}")
        reduce(vector, src)
        reduce(total, src, vector)
        getattr(tk.warp, f"broadcast_{axis}")(dst, total)

    x = normal((32, 32))
    numpy = {"max": np.max, "min": np.min, "sum": np.sum, "prod": np.prod}[name]
    once = numpy(x.astype(np.float64), axis=1 if axis == "row" else 0, keepdims=True)
    twice = {"sum": 2 * once, "prod": once * once}.get(name, once)
    result = on_tile(operation, on, x, capture=f"{axis}_{name}")
    np.testing.assert_allclose(result, np.broadcast_to(twice, (32, 32)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", ["row", "col"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_a_vector_is_combined_with_every_row_or_column(axis, name, on):
    def operation(dst, src):
        vector = tk.col_vec(src) if axis == "row" else tk.row_vec(src)
        getattr(tk.warp, f"{axis}_max")(vector, src)
        getattr(tk.warp, f"{name}_{axis}")(dst, src, vector)

    x = normal((32, 32))
    vector = x.max(axis=1 if axis == "row" else 0, keepdims=True)
    result = on_tile(operation, on, x, capture=f"{name}_{axis}")
    np.testing.assert_allclose(result, BINARY[name](x, vector), rtol=1e-6)


ROW, COL = np.indices((32, 32))
MASKS = {
    "tril": (lambda d, s: tk.warp.tril(d, s, 3, -1.0), COL <= ROW + 3),
    "triu": (lambda d, s: tk.warp.triu(d, s, -2, -1.0), COL >= ROW - 2),
    "make_causal": (lambda d, s: tk.warp.make_causal(d, s, 64, 48, -1.0), COL + 48 <= ROW + 64),
    "left_fill": (lambda d, s: tk.warp.left_fill(d, s, 5, -1.0), COL >= 5),
    "right_fill": (lambda d, s: tk.warp.right_fill(d, s, 5, -1.0), COL < 5),
    "upper_fill": (lambda d, s: tk.warp.upper_fill(d, s, 9, -1.0), ROW >= 9),
    "lower_fill": (lambda d, s: tk.warp.lower_fill(d, s, 9, -1.0), ROW < 9),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name, on):
    operation, keep = MASKS[name]
    x = normal((32, 32))
    np.testing.assert_array_equal(on_tile(operation, on, x), np.where(keep, x, np.float32(-1)))


# --- control ----------------------------------------------------------------------------------------------------------


def test_loops_branches_and_integers(on):
    """Column t of task t keeps what Python's own arithmetic says about t; the loop bounds are variables."""

    @tk.kernel(grid=3, warps=1)
    def loops(X: tk.gl(tk.fl, 32, 32), Y: tk.gl(tk.fl, 3, 1, 32, 32)):
        tile, total = tk.rt(tk.fl, 32, 32), tk.rt(tk.fl, 32, 32)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.zero(total)
        n = tk.var(0)
        for i in tk.range(tk.blockIdx(), 10, 3):
            with tk.when((i % 5 != 2) & ((i - 7) // 3 < 0)):
                tk.warp.add(total, total, tile)
            n += 1
        for _ in tk.range(n, 5):
            tk.warp.add(total, total, 100.0)
        for _ in tk.range(0):
            tk.warp.zero(total)
        tk.warp.store(Y, total, (tk.blockIdx(), 0, 0, 0))

    x = np.ones((32, 32), np.float32)
    y = checked(loops, x, on=on)
    for block in range(3):
        tasks = range(block, 10, 3)
        expected = sum(i % 5 != 2 and (i - 7) // 3 < 0 for i in tasks) + 100 * (5 - len(tasks))
        np.testing.assert_array_equal(y[block, 0], expected)


def test_warpgroups_take_turns_at_named_barriers(on):
    """Two warpgroups pass a value to and fro: each adds its share when the other has arrived."""

    @tk.kernel(grid=1, warpgroups=2)
    def pingpong(X: tk.gl(tk.fl, 64, 32), Y: tk.gl(tk.fl, 64, 32)):
        tile = tk.st(tk.fl, 64, 32)
        values = tk.rt(tk.fl, 16, 32)
        ping, pong = tk.barrier(1, warpgroups=2), tk.barrier(2, warpgroups=2)
        with tk.warpgroups(0):
            tk.warpgroup.load(values, X, (0, 0))
            for _ in tk.range(3):
                tk.warp.add(values, values, 1.0)
                tk.warpgroup.store(tile, values)
                tk.warpgroup.arrive(ping)
                tk.warpgroup.sync(pong)
                tk.warpgroup.load(values, tile)
            tk.warpgroup.store(Y, values, (0, 0))
        with tk.warpgroups(1):
            for _ in tk.range(3):
                tk.warpgroup.sync(ping)
                tk.warpgroup.load(values, tile)
                tk.warp.mul(values, values, 2.0)
                tk.warpgroup.store(tile, values)
                tk.warpgroup.arrive(pong)

    x = normal((64, 32))
    expected = x
    for _ in range(3):
        expected = (expected + np.float32(1)) * np.float32(2)
    np.testing.assert_array_equal(checked(pingpong, x, on=on), expected)


def test_a_cluster_shares_what_each_of_its_ctas_loads(on):
    """CTA r loads tile r for both CTAs; each waits for both tiles, and for both CTAs to have said that they are
    done."""

    @tk.kernel(grid=4, warpgroups=1, cluster=2)
    def share(X: tk.gl(tk.bf16, 256, 64), Y: tk.gl(tk.bf16, 512, 64)):
        tiles = tk.st(tk.bf16, 64, 64, count=2)
        arrived, done = tk.semaphore(), tk.semaphore()
        rank = tk.cluster.ctarank()
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.init_semaphore(done, 2)
            tk.fence_mbarrier_init()
        tk.cluster.sync()
        with tk.elect():
            tk.tma.expect(arrived, tiles)
            tk.tma.cluster.load_async(tiles[rank], X, (tk.blockIdx(), 0), arrived, 0b11)
        tk.wait(arrived, 0)
        with tk.elect():
            for i in range(2):
                tk.tma.store_async(Y, tiles[i], (tk.blockIdx() * 2 + i, 0))
            tk.tma.store_async_wait()
            for i in range(2):
                tk.tma.cluster.arrive(done, i)
        tk.tma.cluster.wait(done, 0)
        tk.cluster.sync()

    x = normal((256, 64), BF16)
    pairs = x.reshape(2, 1, 128, 64)
    np.testing.assert_array_equal(checked(share, x, on=on), np.concatenate([pairs, pairs], 1).reshape(512, 64))
