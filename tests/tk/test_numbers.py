"""Numbers of a kernel: scalar arguments, arithmetic in f32, variables, single elements in memory."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal

TYPES = [tk.fl, tk.bf16, tk.half, tk.fp8e4m3, tk.fp8e5m2]


@tk.kernel(grid=2, warps=1)
def scaled(X: tk.gl(tk.fl, 64, 32), rows: int, alpha: float, Y: tk.gl(tk.fl, 64, 32)):
    """Scale the first ``rows`` rows; the others become -1."""
    tile = tk.rt(tk.fl, 32, 32)
    tk.warp.load(tile, X, (tk.blockIdx(), 0))
    tk.warp.mul(tile, tile, alpha)
    tk.warp.lower_fill(tile, tile, rows - tk.blockIdx() * 32, -1.0)
    tk.warp.store(Y, tile, (tk.blockIdx(), 0))


@pytest.mark.parametrize("rows, alpha", [(0, 2.0), (7, -0.1), (40, np.float32(3)), (np.int64(64), 1)])
def test_numbers_are_arguments(rows, alpha, on):
    x = normal((64, 32))
    expected = np.where(np.arange(64)[:, None] < rows, x * np.float32(alpha), np.float32(-1))
    np.testing.assert_array_equal(checked(scaled, x, rows, alpha, on=on), expected)


def test_arguments_keep_the_order_of_the_function():
    assert [(a.name, str(a.layout), a.is_input, a.is_output) for a in scaled.arguments] == [
        ("X", "gl<f32, 64, 32>", True, False), ("rows", "s32", True, False), ("alpha", "f32", True, False),
        ("Y", "gl<f32, 64, 32>", False, True),
    ]  # fmt: skip
    assert [p.name for p in scaled.parameters] == ["X_ptr", "rows_value", "alpha_value", "Y_ptr"]


@pytest.mark.parametrize(
    "rows, alpha, message",
    [
        (1.5, 1.0, "input rows must be an integer, not float"),
        (1 << 31, 1.0, "input rows must fit 32 bits, not 2147483648"),
        (1, "x", "input alpha must be a number, not str"),
        (1, np.zeros(2), "input alpha must be a number, not float64 (2,)"),
    ],
)
def test_numbers_of_the_wrong_kind_are_refused(rows, alpha, message):
    with pytest.raises(UsageError) as error:
        scaled.run(normal((64, 32)), rows, alpha)
    assert error.value.message == message


@tk.kernel(grid=1, warps=1)
def arithmetic(x: float, y: float, n: int, Y: tk.gl(tk.fl, 1, 16), I: tk.gl(tk.int32, 1, 8)):  # noqa: E741
    with tk.elect():
        total = tk.var(0.0)
        for i in tk.range(n):
            total += x * tk.to_float(i)
        total -= 1.0
        values = [
            x + y, x - y, 2 - x, x * y, x / y, 1 / y, -x, abs(x), tk.minimum(x, y), tk.maximum(x, 0.5),
            tk.select(x < y, x, -1.0), tk.exp2(x), tk.log2(abs(x)), tk.rsqrt(abs(x)), tk.rcp(y), total,
        ]  # fmt: skip
        for i, value in enumerate(values):
            tk.write(Y, i, value)
        for i, condition in enumerate([x < y, x <= y, x > y, x >= y, x == y, x != y]):
            tk.write(I, (0, i), tk.select(condition, 1, 0))
        tk.write(I, (0, 6), tk.to_int(x))
        tk.write(I, (0, 7), tk.atomic_add(I, (0, 6), n))


numbers = st.floats(-100, 100, width=32).filter(lambda x: abs(x) > 1e-3)


@settings(max_examples=10, deadline=None)
@given(numbers, numbers, st.integers(0, 4))
def test_arithmetic_is_that_of_f32(x, y, n):
    floats, integers = arithmetic.run(x, y, n, np.zeros((1, 8), np.int32))
    x, y = np.float32(x), np.float32(y)
    total = np.float32(0)
    for i in range(n):
        total += x * np.float32(i)
    exact = [x + y, x - y, np.float32(2) - x, x * y]
    np.testing.assert_array_equal(floats[0, :4], exact)
    np.testing.assert_allclose(floats[0, 4:6], [x / y, 1 / y], rtol=1e-6)
    chosen = [-x, abs(x), min(x, y), max(x, np.float32(0.5)), x if x < y else np.float32(-1)]
    np.testing.assert_array_equal(floats[0, 6:11], chosen)
    special = [np.exp2(x), np.log2(abs(x)), 1 / np.sqrt(abs(x)), 1 / y]
    np.testing.assert_allclose(floats[0, 11:15], special, rtol=2e-6, atol=1e-6)
    assert floats[0, 15] == total - np.float32(1)
    assert list(integers[0, :6]) == [x < y, x <= y, x > y, x >= y, x == y, x != y]
    assert integers[0, 6] == int(x) + n and integers[0, 7] == int(x)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_elements_of_every_type_are_read_and_written(dtype, on):
    """Thread t moves element t of a row through a swizzled tile and a vector."""

    @tk.kernel(grid=1, warps=1)
    def elements(X: tk.gl(dtype, 3, 16, 64), Y: tk.gl(dtype, 2, 32), r: int):
        tile, vector = tk.st(dtype, 16, 64), tk.sv(dtype, 32)
        thread = tk.laneid()
        tk.write(tile, (r + 3, thread + 32), tk.read(X, (2, r, thread * 2)))
        tk.write(vector, thread, tk.read(tile, (r + 3, thread + 32)))
        tk.warp.sync()
        tk.write(Y, (0, thread), tk.read(vector, 31 - thread))
        tk.write(Y, (1, thread), tk.read(tile, (r + 3, 63 - thread)))

    x = normal((3, 16, 64), dtype.natural)
    y = checked(elements, x, 5, on=on)
    np.testing.assert_array_equal(y.astype(np.float32), np.tile(x[2, 5, 62::-2], (2, 1)).astype(np.float32))


def test_a_tile_element_lies_where_tma_stores_it(on):
    @tk.kernel(grid=1, warps=1)
    def fill(Y: tk.gl(tk.bf16, 16, 128)):
        tile, thread = tk.st(tk.bf16, 16, 128), tk.laneid()
        for r in tk.range(16):
            for part in range(4):
                tk.write(tile, (r, thread + 32 * part), tk.to_float(r * 8 + part))
        tk.fence_proxy_async()
        tk.warp.sync()
        with tk.elect():
            tk.tma.store_async(Y, tile, (0, 0))
            tk.tma.store_async_wait()

    expected = np.add.outer(8 * np.arange(16), np.arange(128) // 32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(checked(fill, on=on), expected)


def test_ctas_hand_over_with_release_and_acquire(on):
    """The last CTA to arrive adds what all wrote."""

    @tk.kernel(grid=8, warps=1)
    def last(P: tk.gl(tk.fl, 1, 8), C: tk.gl(tk.int32, 1, 1), Y: tk.gl(tk.fl, 1, 1)):
        with tk.elect():
            tk.write(P, tk.blockIdx(), tk.to_float(tk.blockIdx() + 1))
            with tk.when(tk.atomic_add(C, 0, 1, order="acq_rel") == 7):
                total = tk.var(0.0)
                for i in tk.range(8):
                    total += tk.read(P, i)
                tk.write(Y, 0, total)

    outputs = checked(last, np.zeros((1, 8), np.float32), np.zeros((1, 1), np.int32), on=on)
    assert outputs[1][0, 0] == 8 and outputs[2][0, 0] == 36


@pytest.mark.parametrize("dtype", [tk.fl, tk.int32], ids=str)
def test_a_cta_waits_for_a_flag_of_another(dtype, on):
    """CTA 0 publishes a value with a flag; CTA 1 reads the flag until it is up."""

    @tk.kernel(grid=2, warps=1)
    def handover(F: tk.gl(tk.int32, 1, 1), D: tk.gl(dtype, 1, 8), Y: tk.gl(dtype, 1, 8)):
        with tk.elect():
            with tk.when(tk.blockIdx() == 0):
                for i in range(8):
                    tk.write(D, i, i * i if dtype is tk.int32 else float(i * i))
                tk.write(F, 0, 1, order="release")
            with tk.otherwise():
                for _ in tk.while_(lambda: tk.read(F, 0, order="acquire") == 0):
                    pass
                for i in range(8):
                    tk.write(Y, i, tk.read(D, i))

    outputs = checked(handover, np.zeros((1, 1), np.int32), np.zeros((1, 8), dtype.natural), on=on)
    np.testing.assert_array_equal(outputs[-1][0], np.arange(8) ** 2)


REFUSED = [
    (lambda X: tk.read(X, (64, 0)), "row coordinate of X (gl<f32, 64, 32>) must be from 0 to 63 (it counts elements), not 64"),
    (lambda X: tk.read(X, 0, order="release"), 'order of tk.read must be "" or "acquire", not "release"'),
    (lambda X: tk.write(X, 0, "1"), "scalar operand must be a Python number or a tk.Float, not str"),
    (lambda X: tk.write(X, 0, tk.blockIdx()), "scalar operand must be a number, not a tk integer: convert it with tk.to_float"),
    (lambda X: tk.read(tk.st(tk.fl, 16, 32, name="t"), (16, 0)), "index of rows of t must be from 0 to 15, not 16"),
    (lambda X: tk.read(3, 0), "tk.read must be given a gl argument, a shared tile or a shared vector, not int"),
    (lambda X: tk.atomic_add(tk.sv(tk.bf16, 16), 0, 1.0), "element type of tk.atomic_add must be f32 or s32, not bf16"),
    (lambda X: float(tk.read(X, 0)), "number of the kernel must be used with tk operations, not where Python needs its value"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=1, X=tk.gl(tk.fl, 64, 32))(lambda X: body(X) and None)
    assert error.value.message == message
