"""Register tiles of every type and layout: through shared and global memory, converted, turned and transposed."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

TYPES = {"f32": tk.fl, "bf16": tk.bf16, "f16": tk.half, "e4m3": tk.fp8e4m3, "e5m2": tk.fp8e5m2}


def rounded(x, *types):
    """Return x after a way through these types; e4m3 and e5m2 saturate."""
    for dtype in types:
        wide = x.astype(np.float32)
        x = wide.astype(dtype.natural)
    return x


def is_legal(name, layout):
    return layout == "row" or not name.startswith("e")


CASES = [
    case for case in itertools.product(TYPES, TYPES, ["row", "col"]) if is_legal(case[0], case[2]) and is_legal(*case[1:])
]  # fmt: skip


@pytest.mark.parametrize("memory, registers, layout", CASES)
def test_tiles_of_every_type_through_memory(memory, registers, layout, on):
    """Global to registers, to a shared tile, to registers again, to global memory; two warps with a tile each."""
    m, r = TYPES[memory], TYPES[registers]

    @tk.kernel(grid=1, warps=2)
    def moves(X: tk.gl(m, 64, 64), Y: tk.gl(m, 64, 64)):
        shared = tk.st(m, 32, 64, count=2)
        there, back = tk.rt(r, 32, 64, layout), tk.rt(r, 32, 64, layout)
        tk.warp.load(there, X, (tk.warpid(), 0))
        tk.warp.store(shared[tk.warpid()], there)
        tk.warp.sync()
        tk.warp.load(back, shared[tk.warpid()])
        tk.warp.store(Y, back, (tk.warpid(), 0))

    x = normal((64, 64), m.natural)
    np.testing.assert_array_equal(checked(moves, x, on=on).astype(np.float32), rounded(x, r, m).astype(np.float32))


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(list(TYPES)), st.sampled_from(["row", "col"]), st.sampled_from([0, 32, 64, 128]),
    st.sampled_from([32, 64, 96, 128]), st.sampled_from([16, 32, 48]),
)  # fmt: skip
def test_swizzles_and_shapes_of_shared_tiles(memory, layout, swizzle, cols, rows):
    """What registers write to a shared tile is what TMA reads from it."""
    dtype = TYPES[memory]
    if not is_legal(memory, layout) or (swizzle and cols * dtype.size_bytes % swizzle) or cols * dtype.size_bytes > 512:
        return

    @tk.kernel(grid=1, warpgroups=1)
    def moves(X: tk.gl(dtype, 4 * rows, cols), Y: tk.gl(dtype, 4 * rows, cols)):
        shared, values = tk.st(dtype, 4 * rows, cols, swizzle=swizzle), tk.rt(dtype, rows, cols, layout)
        tk.warpgroup.load(values, X, (0, 0))
        tk.warpgroup.store(shared, values)
        tk.sync()
        with tk.elect():
            tk.tma.store_async(Y, shared, (0, 0))
            tk.tma.store_async_wait()

    x = normal((4 * rows, cols), dtype.natural)
    np.testing.assert_array_equal(checked(moves, x), x)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(list(TYPES)), st.sampled_from(["row", "col"]), st.integers(1, 40), st.integers(1, 10),
    st.sampled_from([tk.fl, tk.bf16]),
)  # fmt: skip
def test_what_sticks_out_of_a_tensor_reads_as_zero_and_is_not_written(memory, layout, rows, quarters, registers):
    dtype, cols = TYPES[memory], 4 * quarters
    if not is_legal(memory, layout):
        layout = "row"

    @tk.kernel(grid=1, warps=1)
    def moves(X: tk.gl(dtype, 2, rows, cols), Y: tk.gl(dtype, 2, rows, cols), S: tk.gl(tk.fl, 32, 32)):
        values, shown = tk.rt(registers, 32, 32, layout), tk.rt(tk.fl, 32, 32, layout)
        for i in range(-(-rows // 32)):
            for j in range(-(-cols // 32)):
                tk.warp.load(values, X, (1, i, j))
                tk.warp.store(Y, values, (1, i, j))
        tk.warp.copy(shown, values)
        tk.warp.store(S, shown, (0, 0))

    x = normal((2, rows, cols), dtype.natural)
    y, s = checked(moves, x)
    expected = rounded(x, registers, dtype)[1]
    np.testing.assert_array_equal(y[1].astype(np.float32), expected.astype(np.float32))
    last = np.zeros((32, 32), np.float32)
    part = expected[(rows - 1) // 32 * 32 :, (cols - 1) // 32 * 32 :]
    last[: part.shape[0], : part.shape[1]] = part
    np.testing.assert_array_equal(s, last)


@pytest.mark.parametrize("source, target", [(a, b) for a, b in itertools.product(TYPES, TYPES) if a != b])
def test_copies_convert_between_all_types(source, target, on):
    a, b = TYPES[source], TYPES[target]

    @tk.kernel(grid=1, warps=1)
    def convert(X: tk.gl(a, 32, 96), Y: tk.gl(b, 32, 96)):
        given, wanted = tk.rt(a, 32, 96), tk.rt(b, 32, 96)
        tk.warp.load(given, X, (0, 0))
        tk.warp.copy(wanted, given)
        tk.warp.store(Y, wanted, (0, 0))

    x = normal((32, 96), a.natural)
    np.testing.assert_array_equal(checked(convert, x, on=on).astype(np.float32), rounded(x, b).astype(np.float32))


def test_fp8_saturates(on):
    @tk.kernel(grid=1, warps=1)
    def convert(X: tk.gl(tk.fl, 16, 32), Y: tk.gl(tk.fp8e4m3, 16, 32)):
        tile = tk.rt(tk.fl, 16, 32)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.store(Y, tile, (0, 0))

    x = normal((16, 32)) * np.float32(1000)
    y = checked(convert, x, on=on).astype(np.float32)
    np.testing.assert_array_equal(y, rounded(np.clip(x, -448, 448), tk.fp8e4m3).astype(np.float32))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("in_place", [False, True])
def test_layouts_are_swapped(dtype, layout, in_place, on):
    t, other = TYPES[dtype], "col" if layout == "row" else "row"

    @tk.kernel(grid=1, warps=1)
    def swap(X: tk.gl(t, 32, 48), Y: tk.gl(t, 32, 48)):
        source = tk.rt(t, 32, 48, layout)
        tk.warp.load(source, X, (0, 0))
        if in_place:
            swapped = tk.warp.swap_layout_inplace(source)
        else:
            swapped = tk.rt(t, 32, 48, other)
            tk.warp.swap_layout(swapped, source)
        assert swapped.layout == other
        tk.warp.store(Y, swapped, (0, 0))

    x = normal((32, 48), t.natural)
    np.testing.assert_array_equal(checked(swap, x, on=on), x)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("source, target", list(itertools.product(["row", "col"], repeat=2)))
def test_tiles_are_transposed(dtype, source, target, on):
    t = TYPES[dtype]

    @tk.kernel(grid=1, warps=1)
    def transpose(X: tk.gl(t, 32, 48), Y: tk.gl(t, 48, 32)):
        a, b = tk.rt(t, 32, 48, source), tk.rt(t, 48, 32, target)
        tk.warp.load(a, X, (0, 0))
        tk.warp.transpose_sep(b, a)
        tk.warp.store(Y, b, (0, 0))

    x = normal((32, 48), t.natural)
    np.testing.assert_array_equal(checked(transpose, x, on=on), x.T)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_square_tile_is_transposed_in_place(dtype, on):
    t = TYPES[dtype]

    @tk.kernel(grid=1, warps=1)
    def transpose(X: tk.gl(t, 48, 48), Y: tk.gl(t, 48, 48)):
        tile = tk.rt(t, 48, 48)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.transpose_inplace(tile)
        tk.warp.store(Y, tile, (0, 0))

    x = normal((48, 48), t.natural)
    np.testing.assert_array_equal(checked(transpose, x, on=on), x.T)


def test_parts_of_a_register_tile_share_its_registers(on):
    @tk.kernel(grid=1, warps=1)
    def parts(X: tk.gl(tk.fl, 32, 32), Y: tk.gl(tk.fl, 32, 32)):
        tile = tk.rt(tk.fl, 32, 32)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.zero(tile.subtile(16, 1))
        tk.warp.one(tile.columns(16, 16).subtile(16, 0))
        tk.warp.store(Y, tile, (0, 0))

    x = normal((32, 32))
    expected = x.copy()
    expected[16:], expected[:16, 16:] = 0, 1
    np.testing.assert_array_equal(checked(parts, x, on=on), expected)


REFUSED = [
    (lambda: tk.rt(tk.fp8e4m3, 16, 32, "col"),
     "layout of an rt must be row, or col for types other than fp8, not col for e4m3"),
    (lambda: tk.warp.swap_layout(tk.rt(tk.fl, 16, 32), tk.rt(tk.fl, 16, 32)),
     "warp.swap_layout destination must be 16x32 in col layout, not rt<f32, 16, 32>"),
    (lambda: tk.warp.swap_layout(tk.rt(tk.fp8e4m3, 16, 32), tk.rt(tk.fp8e4m3, 16, 32)),
     "warp.swap_layout operands must have one element type, of 16 or 32 bits, not e4m3 and e4m3"),
    (lambda: tk.warp.transpose_sep(tk.rt(tk.fl, 16, 32), tk.rt(tk.fl, 16, 32)),
     "warp.transpose_sep destination must be 32x16, not rt<f32, 16, 32>"),
    (lambda: tk.warp.transpose_inplace(tk.rt(tk.fl, 16, 32)),
     "warp.transpose_inplace tile must be square, not rt<f32, 16, 32>: use warp.transpose_sep"),
    (lambda: tk.warp.load(tk.rt(tk.fl, 16, 32, "col"), tk.st(tk.fp8e4m3, 16, 32)),
     "warp.load register tile must be in row layout where the shared one is e4m3, not rt<f32, 16, 32, col>"),
    (lambda: tk.rt(tk.fl, 32, 32).subtile(24, 0),
     "rows of a subtile of rt<f32, 32, 32> must be a multiple of 16 within it, not part 0 of 24"),
    (lambda: tk.warp.copy(tk.rt(tk.bf16, 16, 32), tk.rt(tk.fl, 16, 32, "col")),
     "warp.copy operands must have one shape and layout, not rt<bf16, 16, 32> and rt<f32, 16, 32, col>: "
     "warp.swap_layout changes the layout"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=4)(lambda: body() and None)
    assert error.value.message == message
