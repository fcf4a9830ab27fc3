"""The text forms of kernel arguments, sizes and settings, and what is said of wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from h100sim import UsageError
from h100sim.cli import arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i32:-5", np.int32(-5)),
        ("u64:0xffffffffffffffff", np.uint64(2**64 - 1)),
        ("f32:1.5", np.float32(1.5)),
        ("bf16:3", ml_dtypes.bfloat16(3)),
        ("f64:nan", np.float64("nan")),
    ],
)
def test_numbers_have_the_width_of_their_type(text: str, value: np.generic) -> None:
    got = arguments.kernel_argument(text)
    assert type(got) is type(value) and got.tobytes() == value.tobytes()


def test_arrays() -> None:
    assert np.array_equal(arguments.kernel_argument("zeros:f32:3x4"), np.zeros((3, 4), np.float32))
    assert arguments.kernel_argument("ones:e4m3:16").dtype == ml_dtypes.float8_e4m3fn
    assert np.array_equal(arguments.kernel_argument("arange:u32:2x3"), np.arange(6, dtype=np.uint32).reshape(2, 3))
    assert arguments.kernel_argument("randint:s8:64").dtype == np.int8


def test_random_arrays_depend_on_the_seed_alone() -> None:
    first, second = (arguments.kernel_argument("randn:bf16:8x8:1") for _ in range(2))
    assert np.array_equal(first.view(np.uint16), second.view(np.uint16))
    other = arguments.kernel_argument("randn:bf16:8x8", seed=2)
    assert not np.array_equal(first.view(np.uint16), other.view(np.uint16))


def test_an_array_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5))
    assert np.array_equal(arguments.kernel_argument(f"file:{tmp_path}/x.npy"), np.arange(5))


def test_a_tensor_map_names_its_box_in_the_order_of_the_shape() -> None:
    argument = arguments.kernel_argument("map:zeros:bf16:256x128;box=64x32;swizzle=64B")
    assert (argument.array.shape, argument.box, argument.settings) == ((256, 128), (64, 32), {"swizzle": "64B"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x",
            "argument must be TYPE:NUMBER, file:NAME.npy, map:FORM or one of zeros, ones, arange, randn, randint with ",
        ),
        ("i32:1.5", "argument must be a number of type s32, not i32:1.5"),
        ("u8:256", "argument must be a number of type u8, not u8:256"),
        ("zeros:q7:4", "type of an argument must be one of f16, bf16, "),
        ("zeros:f32", "argument must be zeros:TYPE:SHAPE, not zeros:f32"),
        ("zeros:f32:4x0", "shape of an argument must be positive integers such as 256x256, not zeros:f32:4x0"),
        ("randn:s32:4", "randn must have a floating-point type, not s32 (use randint)"),
        ("file:nowhere.npy", "argument file must be a NumPy .npy file, not nowhere.npy"),
        (
            "map:zeros:f32:64x64",
            "map must have a box such as ;box=64x64, not only map:zeros:f32:64x64",
        ),
        ("map:zeros:f32:64x64;box=64", "box of a map must have 2 sizes as the array, not map:zeros:f32:64x64;box=64"),
    ],
)
def test_wrong_arguments_are_told_what_they_must_be(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"^" + re.escape(message)):
        arguments.kernel_argument(text)


def test_dimensions() -> None:
    assert arguments.dimensions("grid", "4") == (4, 1, 1)
    assert arguments.dimensions("grid", "4x2") == arguments.dimensions("grid", "4,2,1") == (4, 2, 1)
    with pytest.raises(UsageError, match=r"^grid must be one to three integers such as 4,1,1, not 4,y$"):
        arguments.dimensions("grid", "4,y")


def test_settings() -> None:
    assert arguments.settings(["m=512", "out=f32", "causal=True"]) == {"m": 512, "out": "f32", "causal": True}
    with pytest.raises(UsageError, match=r"^--set must be NAME=VALUE, not m$"):
        arguments.settings(["m"])


def test_saved_outputs() -> None:
    assert arguments.saved_outputs(["1=y.npy"], 2) == [(1, Path("y.npy"))]
    with pytest.raises(UsageError, match=r"^--save must have an index below 2 \(the number of arrays\), not 2$"):
        arguments.saved_outputs(["2=y.npy"], 2)


@pytest.mark.parametrize("text", ["file:/dev/null", "zeros:u32:" + "x".join(["1"] * 65)])
def test_a_file_without_an_array_and_too_many_dimensions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^(argument file|shape of an argument) must be "):
        arguments.kernel_argument(text)


def test_a_number_too_large_for_its_type_is_infinite_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert np.isinf(arguments.kernel_argument("f16:1e10")) and not recwarn.list
