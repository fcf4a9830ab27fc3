"""Copies of the TMA unit beyond those of test_operations: other axes, long vectors, policies, bulk copies, views."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

BF16 = tk.bf16.natural


def ready(*semaphores):
    """Set up semaphores for one arrival each."""
    for semaphore in semaphores:
        tk.init_semaphore(semaphore, 1)
    tk.fence_mbarrier_init()


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["row", "depth", "batch"]), st.sampled_from([0, 32, 64, 128]), st.tuples(*[st.integers(1, 3)] * 2),
    st.integers(1, 40), st.sampled_from([tk.bf16, tk.fl]),
)  # fmt: skip
def test_rows_of_a_tile_run_along_any_dimension(axis, swizzle, others, extent, dtype):
    """Every 16 of the extent along the axis go through a tile; what sticks out reads as zeros."""
    place = {"batch": 0, "depth": 1, "row": 2}[axis]
    shape = list(others)
    shape.insert(place, extent)
    steps = [-(-n // (16 if i == place else 1)) for i, n in enumerate(shape)]
    shape += [2 * 64]
    tiles = np.prod(steps) * 2

    @tk.kernel(grid=1, warps=1)
    def copy(X: tk.gl(dtype, *shape), Y: tk.gl(dtype, *shape), Z: tk.gl(tk.fl, int(tiles), 1, 16, 64)):
        tile, arrived, phase = tk.st(dtype, 16, 64, swizzle=swizzle), tk.semaphore(), tk.var(0)
        values = tk.rt(tk.fl, 16, 64)
        with tk.elect():
            ready(arrived)
        tk.warp.sync()
        for n, coord in enumerate(np.ndindex(*steps, 2)):
            with tk.elect():
                tk.tma.expect(arrived, tile)
                tk.tma.load_async(tile, X, tuple(int(i) for i in coord), arrived, axis=axis)
            tk.wait(arrived, phase)
            phase ^= 1
            tk.warp.load(values, tile)
            tk.warp.store(Z, values, (n, 0, 0, 0))
            with tk.elect():
                tk.tma.store_async(Y, tile, tuple(int(i) for i in coord), axis=axis)
                tk.tma.store_async_wait()
            tk.warp.sync()

    x = normal(shape, dtype.natural)
    y, z = checked(copy, x)
    np.testing.assert_array_equal(y, x)
    along = np.moveaxis(x, place, 2).astype(np.float32)
    along = np.pad(along, ((0, 0), (0, 0), (0, -extent % 16), (0, 0)))
    for n, coord in enumerate(np.ndindex(*steps, 2)):
        *outer, col = coord
        step = outer.pop(place)
        np.testing.assert_array_equal(z[n, 0], along[tuple(outer)][step * 16 : step * 16 + 16, col * 64 : col * 64 + 64])


@pytest.mark.parametrize("length, dtype", [(256, tk.bf16), (512, tk.fl), (448, tk.fl), (1024, tk.half)], ids=str)
def test_vectors_of_any_length(length, dtype, on):
    @tk.kernel(grid=1, warps=1)
    def copy(X: tk.gl(dtype, 3, 2 * length), Y: tk.gl(dtype, 3, 2 * length)):
        vector, arrived = tk.sv(dtype, length), tk.semaphore()
        with tk.elect():
            ready(arrived)
            tk.tma.expect(arrived, vector)
            tk.tma.prefetch(vector, X, (2, 1))
            tk.tma.load_async(vector, X, (2, 1), arrived, policy="evict_first")
            tk.wait(arrived, 0)
            tk.tma.store_async(Y, vector, (1, 0), policy="evict_last")
            tk.tma.store_async_wait()

    x = normal((3, 2 * length), dtype.natural)
    np.testing.assert_array_equal(checked(copy, x, on=on)[1, :length], x[2, length:])


def test_bulk_copies_move_contiguous_elements(on):
    @tk.kernel(grid=1, warps=1)
    def copy(X: tk.gl(tk.fl, 64, 32), Y: tk.gl(tk.fl, 64, 32), first: int):
        vector, tile = tk.sv(tk.fl, 64), tk.st(tk.fl, 16, 32, swizzle=0)
        arrived = tk.semaphore()
        with tk.elect():
            ready(arrived)
            tk.tma.expect(arrived, vector, tile)
            tk.tma.load_bulk_async(vector, X, (first, 4), arrived)
            tk.tma.load_bulk_async(tile, X, (first + 16, 0), arrived)
            tk.wait(arrived, 0)
            tk.tma.store_bulk_async(Y, vector, (0, 0))
            tk.tma.store_bulk_async(Y, tile, (32, 0))
            tk.tma.store_async_wait()

    x = normal((64, 32))
    y = checked(copy, x, 3, on=on)
    np.testing.assert_array_equal(y.ravel()[:64], x.ravel()[3 * 32 + 4 :][:64])
    np.testing.assert_array_equal(y[32:48], x[19:35])


def test_the_largest_and_smallest_survive_in_a_tile_with_prefetched_maps(on):
    @tk.kernel(grid=1, warps=1)
    def copy(X: tk.gl(tk.bf16, 16, 64), Y: tk.gl(tk.bf16, 16, 64), Z: tk.gl(tk.bf16, 16, 64)):
        tile, arrived = tk.st(tk.bf16, 16, 64), tk.semaphore()
        with tk.elect():
            ready(arrived)
            tk.tma.prefetch_map(X, tile)
            tk.tma.prefetch(tile, X, (0, 0))
            tk.tma.expect(arrived, tile)
            tk.tma.load_async(tile, X, (0, 0), arrived)
            tk.wait(arrived, 0)
            tk.tma.store_max_async(Y, tile, (0, 0))
            tk.tma.store_min_async(Z, tile, (0, 0))
            tk.tma.store_async_wait()

    x, y, z = (normal((16, 64), BF16, seed) for seed in range(3))
    highest, lowest = checked(copy, x, y, z, on=on)
    np.testing.assert_array_equal(highest, np.maximum(x, y))
    np.testing.assert_array_equal(lowest, np.minimum(x, z))


def test_ctas_of_a_cluster_send_tiles_and_expect_each_others_bytes(on):
    """Each CTA tells the other's semaphore what comes, and sends its tile there; rank 0 also arrives for both."""

    @tk.kernel(grid=4, warps=1, cluster=2)
    def exchange(X: tk.gl(tk.bf16, 64, 64), Y: tk.gl(tk.bf16, 64, 64), I: tk.gl(tk.int32, 4, 3)):  # noqa: E741
        mine, theirs = tk.st(tk.bf16, 16, 64), tk.st(tk.bf16, 16, 64)
        loaded, sent, done = tk.semaphore(), tk.semaphore(), tk.semaphore()
        other = tk.cluster.ctarank() ^ 1
        with tk.elect():
            ready(loaded, sent, done)
        tk.cluster.sync()
        with tk.elect():
            tk.tma.expect(loaded, mine)
            tk.tma.load_async(mine, X, (tk.blockIdx(), 0), loaded)
            tk.wait(loaded, 0)
            tk.tma.cluster.expect(sent, theirs, cta=other)
            tk.tma.cluster.store_async(theirs, mine, other, sent)
            tk.tma.cluster.wait(sent, 0)
            tk.tma.store_async(Y, theirs, (tk.blockIdx(), 0))
            with tk.when(other == 1):
                tk.arrive(done)
                tk.tma.cluster.arrive(done, 1)
            tk.tma.cluster.wait(done, 0)
            for place, value in enumerate((tk.cluster.ctarank(), tk.cluster.ctas(), tk.cluster.clusterIdx())):
                tk.write(I, (tk.blockIdx(), place), value)
            tk.tma.store_async_wait()
        tk.cluster.sync()

    x = normal((64, 64), BF16)
    y, who = checked(exchange, x, on=on)
    np.testing.assert_array_equal(y, x.reshape(2, 2, 16, 64)[:, ::-1].reshape(64, 64))
    np.testing.assert_array_equal(who, [[0, 2, 0], [1, 2, 0], [0, 2, 1], [1, 2, 1]])


# --- views ------------------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([(tk.bf16, 16), (tk.fl, 16), (tk.half, 32), (tk.fp8e4m3, 32)]), st.sampled_from([0, 32, 64, 128]),
    st.sampled_from([16, 32]), st.integers(1, 2),
)  # fmt: skip
def test_registers_go_to_any_part_of_a_tile(type_and_cols, swizzle, rows, times):
    """Every part of a tile, the row index known at run time, is doubled in registers."""
    dtype, cols = type_and_cols[0], type_and_cols[1] * times

    @tk.kernel(grid=1, warps=1)
    def parts(X: tk.gl(dtype, 32, 128), Y: tk.gl(dtype, 32, 128)):
        tile, values = tk.st(dtype, 32, 128, swizzle=swizzle), tk.rt(tk.fl, rows, cols)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.sync()
        for i in tk.range(32 // rows):
            for j in range(128 // cols):
                tk.warp.load(values, tile.subtile(rows, cols, (i, j)))
                tk.warp.mul(values, values, 2.0)
                tk.warp.sync()
                tk.warp.store(tile.subtile(rows, cols, (i, j)), values)
        tk.warp.sync()
        tk.warp.store(Y, tile, (0, 0))

    x = normal((32, 128), dtype.natural)
    expected = (2 * x.astype(np.float32)).astype(dtype.natural)
    np.testing.assert_array_equal(checked(parts, x).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("name", ["mm_AB", "mm_ABt", "mm_AtB", "mm_AtBt"])
def test_wgmma_reads_views_that_begin_at_a_panel(name, on):
    """A and B are parts of larger tiles; A's rows are loaded by TMA one part after the other."""
    a_shape, b_shape = (64, 64), (64, 64)

    @tk.kernel(grid=1, warpgroups=1)
    def product(A: tk.gl(tk.bf16, 128, 128), B: tk.gl(tk.bf16, 128, 128), D: tk.gl(tk.fl, 64, 64)):
        left, right, acc = tk.st(tk.bf16, 128, 128), tk.st(tk.bf16, 128, 128), tk.rt(tk.fl, 16, 64)
        tk.warpgroup.load(left, A, (0, 0))
        tk.warpgroup.load(right, B, (0, 0))
        tk.sync()
        a, b = left.subtile(*a_shape, (tk.blockIdx() + 1, 1)), right.subtile(*b_shape, (1, 0))
        getattr(tk.warpgroup, name)(acc, a, b)
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(D, acc, (0, 0))

    a, b = normal((128, 128), BF16, 1), normal((128, 128), BF16, 2)
    left, right = a[64:, 64:].astype(np.float64), b[64:, :64].astype(np.float64)
    exact = (left.T if "At" in name else left) @ (right.T if "Bt" in name else right)
    np.testing.assert_allclose(checked(product, a, b, on=on), exact, atol=1e-3)


def test_tma_fills_a_tile_in_parts(on):
    @tk.kernel(grid=1, warps=1)
    def parts(X: tk.gl(tk.bf16, 64, 64), Y: tk.gl(tk.bf16, 64, 64), Z: tk.gl(tk.fl, 1, 64)):
        tile, vector, arrived = tk.st(tk.bf16, 64, 64), tk.sv(tk.fl, 64), tk.semaphore()
        with tk.elect():
            ready(arrived)
            tk.tma.expect(arrived, tile)
            for i in range(2):
                tk.tma.load_async(tile.subtile(32, 64, (i, 0)), X, (1 - i, 0), arrived)
            tk.wait(arrived, 0)
            tk.tma.store_async(Y, tile, (0, 0))
            tk.tma.store_async_wait()
            for i in range(2):
                tk.write(vector.subvec(32, i), 5, float(i + 1))
            tk.write(Z, (0, 0), tk.read(vector, 5))
            tk.write(Z, (0, 1), tk.read(vector, 37))
            tk.write(Z, (0, 2), tk.read(tile.subtile(16, 16, (1, 2)), (3, 4)))

    x = normal((64, 64), BF16)
    y, z = checked(parts, x, on=on)
    np.testing.assert_array_equal(y, np.concatenate([x[32:], x[:32]]))
    np.testing.assert_array_equal(z[0, :3], [1, 2, float(y[19, 36])])


def test_a_tile_can_use_the_memory_of_another(on):
    @tk.kernel(grid=1, warps=1)
    def reuse(X: tk.gl(tk.bf16, 32, 64), Y: tk.gl(tk.fl, 16, 32)):
        first, loaded = tk.st(tk.bf16, 16, 64, count=3), tk.semaphore()
        second = tk.st(tk.fl, 16, 32, over=first, offset=2048)
        values = tk.rt(tk.fl, 16, 64)
        with tk.elect():
            ready(loaded)
        tk.warp.sync()
        with tk.elect():
            tk.tma.expect(loaded, first[1])
            tk.tma.load_async(first[1], X, (1, 0), loaded)
        tk.wait(loaded, 0)
        tk.warp.load(values, first[1])
        tk.warp.sync()
        tk.warp.store(second, values.columns(32, 32))
        tk.warp.sync()
        with tk.elect():
            tk.tma.store_async(Y, second, (0, 0))
            tk.tma.store_async_wait()

    x = normal((32, 64), BF16)
    np.testing.assert_array_equal(checked(reuse, x, on=on), x[16:, 32:].astype(np.float32))
    assert reuse.shared_bytes == 3 * 2048 + 8
    assert [(t["name"], t["offset"]) for t in reuse.debug.tiles] == [("first", 0x400), ("second", 0x400 + 2048)]


def loads(make, coord=(0, 0), name="load_async", **options):
    """Return a body that loads what ``make`` returns from X."""

    def body(X):
        tile, arrived = make(), tk.semaphore()
        with tk.elect():
            ready(arrived)
            getattr(tk.tma, name)(tile, X, coord, arrived, **options)

    return body


REFUSED = [
    (loads(lambda: tk.st(tk.bf16, 16, 64), axis="column"), "axis of a tile's rows must be row, depth, batch, not column"),
    (loads(lambda: tk.st(tk.bf16, 16, 64), policy="evict_never"),
     "policy of tma.load_async must be evict_first or evict_last, not evict_never"),
    (loads(lambda: tk.st(tk.bf16, 64, 128).subtile(32, 128, (0, 0))),
     "tma.load_async destination must be a whole tile or rows of one panel, not a view with 32 other rows"),
    (loads(lambda: tk.sv(tk.bf16, 64).subvec(32, 1)),
     "tma.load_async destination must begin at a multiple of 128 bytes, not 64 after one"),
    (loads(lambda: tk.sv(tk.bf16, 272)), "vector of more than 256 that TMA copies must be a multiple of 128 bytes, not 544"),
    (loads(lambda: tk.st(tk.bf16, 16, 64), name="load_bulk_async"),
     "tma.load_bulk_async tile must be row-major (swizzle=0), not st<bf16, 16, 64> with a swizzle of 128 bytes"),
    (loads(lambda: tk.st(tk.bf16, 16, 64, swizzle=0), name="load_bulk_async"),
     "tma.load_bulk_async rows of the tile must be whole rows of X (gl<bf16, 128, 1024>), not 64 columns"),
    (loads(lambda: tk.sv(tk.fl, 64), name="load_bulk_async"),
     "tma.load_bulk_async element type of the shared vector must be that of X (gl<bf16, 128, 1024>), not f32"),
    (lambda X: tk.tma.expect(tk.semaphore(), 3), "tma.expect must be executed by one thread, not all warps of the CTA"),
    (lambda X: tk.st(tk.bf16, 64, 64).subtile(24, 64, (0, 0)),
     "subtile of st<bf16, 64, 64> must be of base tiles that divide it, not 24x64"),
    (lambda X: tk.st(tk.bf16, 64, 64).subtile(16, 32, (0, tk.blockIdx())),
     "column of a subtile of st<bf16, 64, 64> must be a Python integer from 0 to 1, not Int(%ctaid_x)"),
    (lambda X: tk.st(tk.bf16, 16, 64, over=tk.st(tk.bf16, 64, 64, name="big"), offset=512),
     "tile over big must begin at a multiple of 1,024 bytes, not 512 after one: give offset=1024"),
    (lambda X: tk.st(tk.fl, 64, 64, over=tk.st(tk.bf16, 64, 64, name="small")),
     "tile over small must fit its 8,192 bytes, not take 16,384 from 0 on"),
    (lambda X: tk.st(tk.bf16, 16, 64, over=tk.st(tk.bf16, 16, 64, count=2, name="ring")[tk.blockIdx()]),
     "tile over another must be over a shared tile or vector at a fixed place, not ring at a place known at run time"),
    (lambda X: tk.sv(tk.bf16, 64).subvec(24, 0),
     "length of a part of sv<bf16, 64> must be a multiple of 16 that divides it, not 24"),
    (lambda X: tk.warpgroup.mm_AB(tk.rt(tk.fl, 16, 64), tk.st(tk.bf16, 64, 64), tk.st(tk.bf16, 64, 128).subtile(64, 32, (0, 1))),
     "warpgroup.mm_AB D must be rt<f32, 16, 32> (a quarter of the 64 rows in each warp), not rt<f32, 16, 64>"),
    (lambda X: tk.warpgroup.mm_AB(tk.rt(tk.fl, 16, 32), tk.st(tk.bf16, 64, 64), tk.st(tk.bf16, 64, 128).subtile(64, 32, (0, 1))),
     "mma operand must begin at a panel of 64 columns, not at column 32 of one"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=4, X=tk.gl(tk.bf16, 128, 1024))(lambda X: body(X) and None)
    assert error.value.message == message
