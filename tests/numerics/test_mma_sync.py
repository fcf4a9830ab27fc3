"""h100sim.numerics.mma_sync: opcodes, and how its fp8 differs from the fp8 of wgmma."""

import ml_dtypes
import numpy as np
import pytest

from h100sim.dtypes import element_type
from h100sim.errors import PtxError
from h100sim.numerics.mma_sync import mma_sync, parse_mma
from h100sim.numerics.tensor_core_fp8 import f16_of_fp8
from h100sim.numerics.wgmma import wgmma


@pytest.mark.parametrize(
    "rest, message",
    [
        ("m16n8k8.row.col.f32.f16.f16.f32", "mma.sp shape of f16 must be one of m16n8k16, m16n8k32, not m16n8k8"),
        ("m16n8k64.row.col.f16.e4m3.e4m3.f16", "mma.sp type of D for e4m3 must be f32, not f16"),
        (
            "m16n8k256.row.col.s32.b1.b1.s32.and.popc",
            "mma.sp type of A must be one of f16, bf16, tf32, e4m3, e5m2, s8, u8, s4, u4, not b1",
        ),
    ],
)
def test_wrong_sparse_opcodes(rest, message):
    with pytest.raises(PtxError) as error:
        parse_mma(f"mma.sp::ordered_metadata.sync.aligned.{rest}")
    assert error.value.message == message


@pytest.mark.parametrize(
    "rest, message",
    [
        ("m16n8k32.row.col.f32.bf16.bf16.f32", "mma.sync shape of bf16 must be one of m16n8k8, m16n8k16, not m16n8k32"),
        ("m8n8k4.row.col.f16.f16.f16.f16", "mma.sync shape of f16 must be one of m16n8k8, m16n8k16, not m8n8k4"),
        ("m16n8k16.row.col.f32.f16.f16.f16", "mma.sync type of C must be the type of D, f32, not f16"),
        ("m16n8k16.row.col.satfinite.f32.f16.f16.f32", ".satfinite must go with s8, u8, s4, u4, not f16"),
        ("m16n8k256.row.col.s32.b1.b1.s32", "mma.sync of b1 must end in .and.popc or .xor.popc, not nothing"),
    ],
)
def test_wrong_opcodes(rest, message):
    with pytest.raises(PtxError) as error:
        parse_mma(f"mma.sync.aligned.{rest}")
    assert error.value.message == message


@pytest.mark.parametrize("types", ["s32.s8.s4.s32", "f32.f32.f32.f32"])
def test_types_that_are_not_there_are_named(types):
    with pytest.raises(PtxError, match=rf"^mma.sync types of D, A, B and C must be one of .*, not {types}"):
        parse_mma(f"mma.sync.aligned.m16n8k32.row.col.{types}")


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_fp8_value_converts_to_f16(name):
    element = element_type(name)
    bits = np.arange(256, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        expected = bits.view(element.natural).astype(np.float16)
    got = np.array([f16_of_fp8(element.index, x) for x in bits], np.uint16).view(np.float16)
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(got.view(np.uint16)[~is_nan], expected.view(np.uint16)[~is_nan])
    assert (got.view(np.uint16)[is_nan] == 0x7FFF).all()


def test_fp8_of_mma_sync_keeps_more_bits_than_that_of_wgmma():
    a = np.full((64, 32), 2.0**-4, ml_dtypes.float8_e4m3fn)
    b = np.full((8, 32), 2.0**-4, ml_dtypes.float8_e4m3fn)
    c = np.full((64, 8), 64.0, np.float32)
    assert (mma_sync("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", a, b, c) == 64.125).all()
    assert (wgmma("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", a, b, c) == 64.0).all()


def test_f64_is_a_chain_in_rising_k():
    a, b = np.array([[2.0**-60, 1.0, 0.0, -1.0]]), np.ones((1, 4))
    assert mma_sync("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", a, b, np.zeros((1, 1)))[0, 0] == 0.0
    assert mma_sync("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", a[:, ::-1], b, np.zeros((1, 1)))[0, 0] == 2.0**-60


def test_b1_takes_bytes():
    a, b = np.full((16, 16), 0x0F, np.uint8), np.full((8, 16), 0x3C, np.uint8)
    c = np.full((16, 8), 5, np.int32)
    assert (mma_sync("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc", a, b, c) == 5 + 16 * 2).all()
    assert (mma_sync("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc", a, b, c) == 5 + 16 * 4).all()
