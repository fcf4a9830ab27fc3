"""Small floating-point formats against NumPy and ml_dtypes: every code of 8 and 16 bits, and rounding on the way
down."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from h100sim.numerics.scalar import scalar

CODES = np.arange(65536, dtype=np.uint32)
BYTES = np.arange(256, dtype=np.uint16)
RUNS = settings(max_examples=60, deadline=None)
SINGLES = arrays.arrays(np.uint32, 64, elements=st.integers(0, 2**32 - 1))


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    """Are two float arrays the same bits where they are numbers, and NaN in the same places?"""
    with np.errstate(invalid="ignore"):
        nan, got_nan = np.isnan(expected.astype(np.float64)), np.isnan(got.astype(np.float64))
    word = f"u{expected.itemsize}"
    return bool(np.array_equal(got_nan, nan) and np.all((got.view(word) == expected.view(word)) | nan))


@pytest.mark.parametrize(("type_", "natural"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_every_16_bit_code_widens_exactly_and_comes_back(type_, natural):
    wide = scalar(f"cvt.f32.{type_}", CODES).view(np.float32)
    assert same(wide, CODES.astype(np.uint16).view(natural).astype(np.float32))
    for mode in ("rn", "rz", "rm", "rp"):
        back = scalar(f"cvt.{mode}.{type_}.f32", wide.view(np.uint32))
        assert np.array_equal(back[~np.isnan(wide)], CODES.astype(np.uint16)[~np.isnan(wide)])


@pytest.mark.parametrize(("type_", "natural"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_every_pair_of_8_bit_codes_widens_exactly_and_comes_back(type_, natural):
    pairs = scalar(f"cvt.rn.f16x2.{type_}x2", CODES)
    values = BYTES.astype(np.uint8).view(natural).astype(np.float16)
    assert same((pairs & 0xFFFF).astype(np.uint16).view(np.float16), values[CODES & 255])
    assert same((pairs >> 16).astype(np.uint16).view(np.float16), values[CODES >> 8])
    back = scalar(f"cvt.rn.satfinite.{type_}x2.f16x2", pairs)
    finite = np.isfinite(values[CODES & 255]) & np.isfinite(values[CODES >> 8])
    assert np.array_equal(back[finite], CODES[finite])


@given(SINGLES)
@RUNS
def test_rounding_to_nearest_agrees_with_numpy_and_ml_dtypes(bits):
    x = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        assert same(scalar("cvt.rn.f16.f32", bits).view(np.float16), x.astype(np.float16))
        assert same(scalar("cvt.rn.bf16.f32", bits).view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
    packed = scalar("cvt.rn.bf16x2.f32", bits, bits[::-1])
    assert np.array_equal(packed >> 16, scalar("cvt.rn.bf16.f32", bits))
    assert np.array_equal(packed & 0xFFFF, scalar("cvt.rn.bf16.f32", bits[::-1]))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@given(SINGLES)
@RUNS
def test_directed_modes_enclose_the_value(type_, bits):
    x = bits.view(np.float32).astype(np.float64)
    natural = np.float16 if type_ == "f16" else ml_dtypes.bfloat16
    down, up, zero, near = (
        scalar(f"cvt.{mode}.{type_}.f32", bits).view(natural).astype(np.float64) for mode in ("rm", "rp", "rz", "rn")
    )
    number = ~np.isnan(x)
    assert np.all((down <= x)[number]) and np.all((up >= x)[number])
    assert np.all((np.where(x > 0, down, up) == zero)[number])
    assert np.all(((near == down) | (near == up))[number])


@pytest.mark.parametrize(("type_", "top"), [("e4m3", 448.0), ("e5m2", 57344.0)])
@given(SINGLES)
@RUNS
def test_8_bit_conversions_saturate(type_, top, bits):
    x = bits.view(np.float32)
    natural = ml_dtypes.float8_e4m3fn if type_ == "e4m3" else ml_dtypes.float8_e5m2
    got = scalar(f"cvt.rn.satfinite.{type_}x2.f32", np.uint32(0), bits)
    with np.errstate(invalid="ignore"):
        expected = np.clip(x, -np.float32(top), np.float32(top)).astype(natural)
    assert same(got.astype(np.uint8).view(natural), expected)


@pytest.mark.parametrize("source", ["u64", "s64"])
@given(st.lists(st.integers(0, 2**64 - 1), min_size=32, max_size=32))
@RUNS
def test_64_bit_integers_round_once(source, values):
    x = np.array(values, np.uint64)
    signed = x.view(np.int64) if source == "s64" else x
    exact = [int(v) for v in signed]
    near = scalar(f"cvt.rn.f32.{source}", x).view(np.float32)
    assert np.array_equal(near, signed.astype(np.float32))
    for mode, holds in (
        ("rm", lambda f, v: f <= v),
        ("rp", lambda f, v: f >= v),
        ("rz", lambda f, v: abs(f) <= abs(v)),
    ):
        result = scalar(f"cvt.{mode}.f64.{source}", x).view(np.float64)
        assert all(holds(int(f), v) for f, v in zip(result, exact, strict=True))
        assert np.all(np.abs(result - signed.astype(np.float64)) <= np.spacing(np.abs(signed.astype(np.float64))))


@given(SINGLES)
@RUNS
def test_integers_from_floats_clamp(bits):
    x = bits.view(np.float32).astype(np.float64)
    number = ~np.isnan(x)
    got = scalar("cvt.rzi.s32.f32", bits).view(np.int32)
    assert np.array_equal(got[number], np.clip(np.trunc(x[number]), -(2**31), 2**31 - 1).astype(np.int64))
    assert np.all(got[~number] == 0)
    low = scalar("cvt.rni.u8.f32", bits)
    assert np.array_equal(low[number], np.clip(np.rint(x[number]), 0, 255).astype(np.uint8))
