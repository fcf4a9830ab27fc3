import numpy as np
import pytest
from hypothesis import given

from h100sim.errors import TensorMapError
from h100sim.strategies import im2col_maps, tiled_maps
from h100sim.tma import TensorMap


def test_the_driver_and_we_agree_on_every_map(captures, make_map):
    """10,397 calls of cuTensorMapEncode*: which are refused, and all 128 bytes of those that are not."""
    capture = captures("tensor_map_encode.npz")
    words = iter(capture["words"])
    wrong = []
    for i, row in enumerate(capture.rows):
        expected = next(words).tobytes() if capture["has_words"][i] else None
        try:
            m = make_map(row, int(capture["base"][i]), bool(capture["is_im2col"][i]))
        except TensorMapError:
            m = None
        is_right = (m is None) == bool(capture["result"][i])
        if is_right and expected is not None:
            is_right = bytes(m) == expected and TensorMap.decode(expected) == m
        if not is_right:
            wrong.append(row)
    assert len(capture.rows) == 10_397 and not wrong


@given(tiled_maps())
def test_decoding_undoes_encoding(m):
    assert TensorMap.decode(bytes(m)) == m


@given(im2col_maps())
def test_decoding_undoes_encoding_of_im2col(m):
    assert TensorMap.decode(bytes(m)) == m


def test_a_map_that_the_kernel_filled_in_is_read_without_the_drivers_notes():
    m = TensorMap.tiled("bf16", 0x7F0000000000, [64, 64], [128], [64, 64], swizzle="128B")
    words = np.frombuffer(bytes(m), "<u4").copy()
    words[16:] = 0
    assert TensorMap.decode(words) == m


GOOD = {"dtype": "f16", "address": 512, "dims": [64, 64], "strides": [128], "box": [32, 8]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "f15"}, "tensor map dtype must be one of u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32_ftz, "
         "tf32, tf32_ftz, not f15"),
        ({"address": 520}, "tensor map address must be a multiple of 16, not 0x208"),
        ({"dims": [64, 0]}, "tensor map dims[1] must be from 1 to 2^32, not 0"),
        ({"strides": [130]}, "tensor map strides[0] must be a multiple of 16 bytes below 2^40, not 130"),
        ({"strides": [128, 128]}, "tensor map strides must be 1 numbers for rank 2, not 2"),
        ({"box": [32, 257]}, "tensor map box[1] must be from 1 to 256, not 257"),
        ({"box": [4, 8]}, "tensor map box[0] of f16 must be a multiple of 16 bytes, not 8"),
        ({"swizzle": "32B"}, "tensor map box[0] with swizzle 32B must be at most 32 bytes, not 64"),
        ({"swizzle": "96B"}, "tensor map swizzle must be one of none, 32B, 64B, 128B, not 96B"),
        ({"element_strides": [1, 9]}, "tensor map element_strides[1] must be from 1 to 8, not 9"),
        ({"interleave": "16B"}, "tensor map rank of a map with interleave 16B must be from 3 to 5, not 2"),
        ({"dtype": "u16", "oob_fill": "nan"},
         "tensor map oob_fill of u16 must be zero (nan needs a float type), not nan"),
        ({"dims": [64] * 3, "strides": [128, 8192], "box": [256, 256, 2]},
         "tensor map box must be at most 233,472 bytes, not 262,144"),
    ],
)  # fmt: skip
def test_the_error_names_the_rule_and_the_value(change, message):
    with pytest.raises(TensorMapError) as error:
        TensorMap.tiled(**GOOD | change)
    assert error.value.message == message


def test_im2col_errors_name_the_rule_and_the_value():
    good = {"dtype": "f16", "address": 0, "dims": [64, 8, 8, 2], "strides": [128, 1024, 8192], "lower_corner": [-1, -1],
            "upper_corner": [1, 1], "channels_per_pixel": 64, "pixels_per_column": 32}  # fmt: skip
    for change, message in (
        ({"lower_corner": [-129, 0]}, "tensor map lower_corner[0] must be from -128 to 127 for rank 4, not -129"),
        ({"lower_corner": [9, 0]}, "tensor map lower_corner[0] must be below dims[1] + upper_corner[0], not 9"),
        ({"pixels_per_column": 1025}, "tensor map pixels_per_column must be from 1 to 1024, not 1025"),
    ):
        with pytest.raises(TensorMapError) as error:
            TensorMap.im2col(**good | change)
        assert error.value.message == message


def test_bytes_that_are_no_map_are_refused():
    with pytest.raises(TensorMapError, match=r"^tensor map must be 128 bytes, not 64$"):
        TensorMap.decode(bytes(64))
    words = np.zeros(32, np.uint32)
    words[2] = 5 << 4
    with pytest.raises(TensorMapError, match=r"^tensor map format word must be one that sm_90a has, not 0x00000050$"):
        TensorMap.decode(words)
