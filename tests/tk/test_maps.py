"""Element-wise operations on every type and layout, in registers and in shared memory, and PTX written by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

TYPES = {"f32": tk.fl, "bf16": tk.bf16, "f16": tk.half}
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "abs": np.abs, "relu": lambda x: np.maximum(x, 0),
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "neg": np.negative, "copy": lambda x: x,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
#: Half a unit of the last place, and what an approximation may miss.
ERRORS = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}


def close(actual, exact, type_, error=1e-5):
    tolerance = ERRORS[type_] + error
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary_operations_on_tiles_vectors_and_shared_memory(name, type_, on):
    t = TYPES[type_]

    @tk.kernel(grid=1, warps=2)
    def unary(X: tk.gl(t, 32, 64), Y: tk.gl(t, 32, 64), V: tk.gl(t, 1, 64), Z: tk.gl(t, 32, 64)):
        tile, vector, shared = tk.rt(t, 16, 64), tk.rv(t, 64), tk.st(t, 32, 64)
        both, operation = tk.group(2), getattr(tk.warp, name)
        both.load(tile, X, (0, 0))
        tk.warp.load(vector, X, (0, 0))
        both.load(shared, X, (0, 0))
        both.sync(1)
        operation(tile, tile)
        operation(vector, vector)
        getattr(both, name)(shared, shared)
        both.sync(1)
        both.store(Y, tile, (0, 0))
        both.store(Z, shared, (0, 0))
        with tk.warps(0):
            tk.warp.store(V, vector, (0, 0))

    x = normal((32, 64), t.natural)
    x = np.abs(x) + t.natural.type(0.01) if name in ("log", "log2", "sqrt", "rsqrt", "rcp") else x
    y, v, z = checked(unary, x, on=on)
    close(y, UNARY[name](x.astype(np.float64)), type_, 1e-3 if name == "tanh" else 1e-5)
    np.testing.assert_array_equal(z, y)
    np.testing.assert_array_equal(v[0], y[0])


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_on_tiles_and_shared_memory(name, type_, on):
    t = TYPES[type_]

    @tk.kernel(grid=1, warps=1)
    def binary(X: tk.gl(t, 16, 64), W: tk.gl(t, 16, 64), s: float, Y: tk.gl(t, 16, 64), N: tk.gl(t, 16, 64), Z: tk.gl(t, 16, 64)):
        a, b, c = (tk.rt(t, 16, 64, "col") for _ in range(3))
        shared = tk.st(t, 16, 64, count=2)
        one = tk.group(1)
        for i, (tile, tensor) in enumerate(((a, X), (b, W))):
            tk.warp.load(tile, tensor, (0, 0))
            tk.warp.load(shared[i], tensor, (0, 0))
        tk.warp.sync()
        getattr(tk.warp, name)(c, a, b)
        tk.warp.store(Y, c, (0, 0))
        getattr(tk.warp, name)(c, a, s)
        tk.warp.store(N, c, (0, 0))
        getattr(one, name)(shared[1], shared[0], shared[1])
        tk.warp.sync()
        tk.warp.store(Z, shared[1], (0, 0))

    x, w = normal((16, 64), t.natural, 1), normal((16, 64), t.natural, 2)
    number = t.natural.type(0.3)
    y, n, z = checked(binary, x, w, 0.3, on=on)
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    for actual, other in ((y, wide_w), (n, float(number))):
        exact = BINARY[name](wide_x, other)
        if name == "div":
            close(actual, exact, type_)
        else:
            np.testing.assert_array_equal(actual, exact.astype(np.float32).astype(t.natural))
    np.testing.assert_array_equal(z, y)


@pytest.mark.parametrize("type_", TYPES)
def test_fma_takes_tiles_and_numbers(type_, on):
    t = TYPES[type_]

    @tk.kernel(grid=1, warps=1)
    def fused(X: tk.gl(t, 16, 32), W: tk.gl(t, 16, 32), Y: tk.gl(t, 16, 32), Z: tk.gl(t, 16, 32)):
        a, b, c = (tk.rt(t, 16, 32) for _ in range(3))
        tk.warp.load(a, X, (0, 0))
        tk.warp.load(b, W, (0, 0))
        tk.warp.fma(c, a, b, a)
        tk.warp.store(Y, c, (0, 0))
        tk.warp.fma(c, a, 1.5, b)
        tk.warp.store(Z, c, (0, 0))

    x, w = normal((16, 32), t.natural, 1), normal((16, 32), t.natural, 2)
    y, z = checked(fused, x, w, on=on)
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    for actual, exact in ((y, wide_x * wide_w + wide_x), (z, wide_x * 1.5 + wide_w)):
        close(actual, exact, type_, 1e-7)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["tril", "triu", "make_causal", "make_causal_t", "left_fill", "right_fill", "upper_fill", "lower_fill"]),
    st.sampled_from(list(TYPES)), st.sampled_from(["row", "col"]), st.integers(-40, 60), st.integers(-40, 60),
)  # fmt: skip
def test_masks_in_every_type_and_layout(name, type_, layout, at, col):
    t = TYPES[type_]
    causal = name.startswith("make")

    @tk.kernel(grid=1, warps=1)
    def masked(X: tk.gl(t, 32, 48), Y: tk.gl(t, 32, 48), Z: tk.gl(t, 32, 48), where: int, fill: float):
        tile, other = tk.rt(t, 32, 48, layout), tk.rt(t, 32, 48, layout)
        tk.warp.load(tile, X, (0, 0))
        getattr(tk.warp, name)(other, tile, where, *([col] if causal else []), fill)
        tk.warp.store(Y, other, (0, 0))
        getattr(tk.warp, name)(other, tile, at, *([col] if causal else []), -1.0)
        tk.warp.store(Z, other, (0, 0))

    r, c = np.indices((32, 48))
    keep = {
        "tril": c <= r + at, "triu": c >= r + at, "make_causal": c + col <= r + at, "make_causal_t": c + col >= r + at,
        "left_fill": c >= at, "right_fill": c < at, "upper_fill": r >= at, "lower_fill": r < at,
    }[name]  # fmt: skip
    x = normal((32, 48), t.natural)
    y, z = checked(masked, x, at, -1.0)
    np.testing.assert_array_equal(y, np.where(keep, x, t.natural.type(-1)))
    np.testing.assert_array_equal(z, y)


@pytest.mark.parametrize("layout", ["row", "col"])
def test_functions_of_the_position(layout, on):
    @tk.kernel(grid=1, warps=1)
    def positions(X: tk.gl(tk.fl, 32, 16), Y: tk.gl(tk.fl, 32, 16)):
        tile = tk.rt(tk.fl, 32, 16, layout)
        tk.warp.load(tile, X, (0, 0))
        tk.warp.apply(tile, tile, lambda r, c, x: tk.select(r > c, x * 2, tk.to_float(r * 16 + c)))
        tk.warp.store(Y, tile, (0, 0))

    x = normal((32, 16))
    r, c = np.indices((32, 16))
    np.testing.assert_array_equal(checked(positions, x, on=on), np.where(r > c, 2 * x, (r * 16 + c).astype(np.float32)))


@pytest.mark.parametrize("warps, rows, cols", [(1, 16, 16), (4, 64, 48), (3, 16, 80)])
def test_groups_fill_and_scale_shared_memory(warps, rows, cols, on):
    """A tile whose words do not divide among the threads, a vector, and each fill."""

    @tk.kernel(grid=1, warps=warps)
    def fills(Y: tk.gl(tk.bf16, 5, 1, rows, cols), V: tk.gl(tk.fl, 1, 48)):
        everyone, tile, vector = tk.everyone(), tk.st(tk.bf16, rows, cols), tk.sv(tk.fl, 48)
        for i, name in enumerate(("zero", "one", "pos_infty", "neg_infty")):
            getattr(everyone, name)(tile)
            tk.sync()
            everyone.store(Y, tile, (i, 0, 0, 0))
            tk.sync()
        everyone.one(tile)
        everyone.mul(tile, tile, -3.0)
        everyone.one(vector)
        everyone.add(vector, vector, vector)
        tk.sync()
        everyone.store(Y, tile, (4, 0, 0, 0))
        with tk.elect():
            tk.tma.store_async(V, vector, (0, 0))
            tk.tma.store_async_wait()

    y, v = checked(fills, on=on)
    for i, value in enumerate((0, 1, np.inf, -np.inf, -3)):
        np.testing.assert_array_equal(y[i].astype(np.float32), value)
    np.testing.assert_array_equal(v, 2)


def test_instructions_can_be_written_by_hand(on):
    @tk.kernel(grid=1, warps=1)
    def inline(Y: tk.gl(tk.int32, 1, 32), Z: tk.gl(tk.fl, 1, 32)):
        lane = tk.laneid()
        bits = tk.ptx("popc.b32 {d}, {0};", lane * 5, out="r")
        even = tk.ptx("setp.eq.u32 {d}, {0}, 0", bits & 1, out="p")
        root = tk.ptx("sqrt.rn.f32 {d}, {0}", tk.to_float(lane), out="f")
        tk.ptx("bar.warp.sync 0xffffffff")
        tk.write(Y, lane, tk.select(even, bits, -bits))
        tk.write(Z, lane, root)

    y, z = checked(inline, on=on)
    bits = np.array([bin(5 * i).count("1") for i in range(32)])
    np.testing.assert_array_equal(y[0], np.where(bits % 2 == 0, bits, -bits))
    np.testing.assert_array_equal(z[0], np.sqrt(np.arange(32, dtype=np.float32)))


def shared(make, name="add", *operands):
    return lambda: getattr(tk.group(4), name)(make(), *operands)


REFUSED = [
    (shared(lambda: tk.st(tk.fp8e4m3, 16, 32), "zero"), "group<4>.zero operand must be of f32, bf16 or f16, not e4m3"),
    (shared(lambda: tk.st(tk.bf16, 16, 32, count=2, name="t"), "zero"),
     "group<4>.zero operand must be one whole tile or vector, not an array or a view of t"),
    (shared(lambda: tk.rt(tk.fl, 16, 32), "zero"),
     "group<4>.zero operand must be a shared tile or vector, or a number, not RegisterTile"),
    (shared(lambda: tk.st(tk.bf16, 16, 32), "add", 1.0), "group<4>.add must be given a destination and 2 operands, not 1"),
    (lambda: tk.group(4).copy(tk.st(tk.bf16, 16, 32), tk.st(tk.bf16, 16, 32, swizzle=32)),
     "group<4>.copy operands must have one type, shape and swizzle, not st<bf16, 16, 32> and st<bf16, 16, 32>"),
    (lambda: tk.ptx("add.s32 {d}, {0}, 1", 2),
     'result of tk.ptx must be out="r", "f" or "p" with {d} in the template, or neither, not ""'),
    (lambda: tk.ptx("add.s32 {d}, {1}, 1", 2, out="r"),
     "names in the template of tk.ptx must be d, 0 (other braces doubled), not Replacement index 1 out of range for positional "
     "args tuple"),
    (lambda: tk.warp.apply(tk.rt(tk.bf16, 16, 16), tk.rt(tk.bf16, 16, 16), lambda r, c, x: x),
     "warp.apply operand must be f32, not bf16: copy it to an f32 tile first"),
    (lambda: tk.warp.tril(tk.rv(tk.fl, 16), tk.rv(tk.fl, 16)), "warp.tril operand must be a register tile, not rv<f32, 16, naive>"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=4)(lambda: body() and None)
    assert error.value.message == message
