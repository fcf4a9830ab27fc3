"""h100sim.wgmma: opcodes, shapes, natural types, and the messages of its errors."""

import ml_dtypes
import numpy as np
import pytest

from h100sim.errors import PtxError, UsageError
from h100sim.numerics.tensor_core import WGMMA_TYPES
from h100sim.numerics.wgmma import legal_columns, parse_wgmma, wgmma, wgmma_sparse

BF16 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}


@pytest.mark.parametrize("triple", sorted(WGMMA_TYPES), ids=".".join)
def test_every_legal_opcode_parses(triple):
    tail = ".and.popc" if triple[1] == "b1" else ""
    for n in legal_columns(parse_wgmma(f"wgmma.mma_async.sync.aligned.m64n8k{K[triple[1]]}.{'.'.join(triple)}{tail}").a):
        parse_wgmma(f"wgmma.mma_async.sync.aligned.m64n{n}k{K[triple[1]]}.{'.'.join(triple)}{tail}")


@pytest.mark.parametrize("where", ["m64n8k32.satfinite.s32.s8.u8", "m64n8k32.s32.s8.u8.satfinite"])
def test_satfinite_stands_after_the_shape_or_at_the_end(where):
    assert parse_wgmma(f"wgmma.mma_async.sync.aligned.{where}").satfinite


@pytest.mark.parametrize(
    "rest, message",
    [
        ("m64n12k16.f32.bf16.bf16", "N of bf16 must be a multiple of 8 from 8 to 256, not 12"),
        ("m64n40k32.s32.s8.s8", "N of s8 must be 8, 16, 24, 32 or a multiple of 16 up to 256, not 40"),
        ("m64n8k8.f32.bf16.bf16", "K of bf16 must be 16, not 8"),
        ("m128n8k16.f32.bf16.bf16", "M must be 64, not 128"),
        ("n8k16.f32.bf16.bf16", "shape must have the form m64nNkK, not n8k16"),
    ],
)
def test_wrong_shapes(rest, message):
    with pytest.raises(PtxError) as error:
        parse_wgmma(f"wgmma.mma_async.sync.aligned.{rest}")
    assert error.value.message == f"wgmma.mma_async {message}"


def test_wrong_modifiers():
    b1 = "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1"
    with pytest.raises(PtxError, match=rf"^wgmma.mma_async of b1 must end in \.and\.popc, not {b1}\n"):
        parse_wgmma(b1)
    with pytest.raises(PtxError, match=r"^\.satfinite must go with s8 and u8, not bf16\n"):
        parse_wgmma(BF16 + ".satfinite")
    with pytest.raises(PtxError, match=r"^wgmma.mma_async K of bf16 must be 32, not 16\n"):
        parse_wgmma(BF16.replace("mma_async", "mma_async.sp"))
    with pytest.raises(PtxError, match=r"^sparse wgmma.mma_async must have float, s8 or u8 elements, not b1\n"):
        parse_wgmma(b1.replace("mma_async", "mma_async.sp") + ".and.popc")


@pytest.mark.parametrize("types", ["f16.bf16.bf16", "f32.f16.bf16", "f32.s8.s8", "f32.f32.f32"])
def test_wrong_types_name_the_legal_ones(types):
    with pytest.raises(PtxError, match=rf"must be one of .*f32\.bf16\.bf16.*, not {types}\n"):
        parse_wgmma(f"wgmma.mma_async.sync.aligned.m64n8k16.{types}")


def test_values_give_values_and_bits_give_bits():
    a = np.full((64, 16), 1.5, ml_dtypes.bfloat16)
    b = np.full((8, 16), 2.0, ml_dtypes.bfloat16)
    values = wgmma(BF16, a, b, np.ones((64, 8), np.float32))
    assert values.dtype == np.float32 and (values == 49.0).all()
    bits = wgmma(BF16, a.view(np.uint16), b, np.ones((64, 8), np.float32).view(np.uint32))
    assert bits.dtype == np.uint32 and (bits.view(np.float32) == 49.0).all()


def test_integers_may_be_signed_or_bits():
    a, b = np.full((64, 32), -1, np.int8), np.full((8, 32), 255, np.uint8)
    instr = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8"
    assert (wgmma(instr, a, b, np.zeros((64, 8), np.int32)) == -32 * 255).all()
    assert wgmma(instr, a.view(np.uint8), b, np.zeros((64, 8), np.uint32)).dtype == np.uint32


def test_batch_axes_broadcast_and_large_batches_use_all_cores():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((40, 1, 64, 16)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((3, 128, 16)).astype(ml_dtypes.bfloat16)
    c = np.zeros((64, 128), np.float32)
    d = wgmma(BF16, a, b, c)
    assert d.shape == (40, 3, 64, 128) and not c.any()
    np.testing.assert_array_equal(d[17, 2], wgmma(BF16, a[17, 0], b[2], c))
    np.testing.assert_allclose(d, a.astype(np.float32) @ b.astype(np.float32).transpose(0, 2, 1), atol=1e-4)


def test_an_empty_batch_gives_an_empty_result():
    shapes = ((0, 64, 16), (0, 8, 16), (0, 64, 8))
    a, b, c = (np.zeros(shape, t) for shape, t in zip(shapes, (np.uint16, np.uint16, np.uint32), strict=True))
    assert wgmma(BF16, a, b, c).shape == (0, 64, 8)


def test_operands_are_not_changed_and_may_be_strided():
    rng = np.random.default_rng(2)
    a = rng.integers(0, 1 << 14, (16, 64), dtype=np.uint16).T
    b, c = rng.integers(0, 1 << 14, (8, 32), dtype=np.uint16)[:, ::2], np.zeros((64, 16), np.uint32)[:, ::2]
    before = a.copy(), b.copy(), c.copy()
    d = wgmma(BF16, a, b, c)
    np.testing.assert_array_equal(d, wgmma(BF16, *(np.ascontiguousarray(x) for x in before)))
    for array, copy in zip((a, b, c), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_wrong_arrays():
    a, b, c = np.zeros((64, 16), np.uint16), np.zeros((8, 16), np.uint16), np.zeros((64, 8), np.uint32)
    with pytest.raises(TypeError, match=r"^array of bf16 must hold uint16 bits or bfloat16 values, not float32$"):
        wgmma(BF16, a.astype(np.float32), b, c)
    with pytest.raises(UsageError, match=r"^A must have rows of 16 elements of bf16, not shape \(64, 8\)$"):
        wgmma(BF16, a[:, :8], b, c)
    with pytest.raises(UsageError, match=r"^C must be \(\.\.\., 64, 8\), rows of A by rows of B, not \(8, 64\)$"):
        wgmma(BF16, a, b, c.T)
    with pytest.raises(UsageError, match=r"^batch axes of A, B and C must broadcast, not \(\(2,\), \(3,\), \(\)\)$"):
        wgmma(BF16, np.stack([a] * 2), np.stack([b] * 3), c)


def test_wrong_flags():
    a, b, c = np.zeros((64, 32), np.int8), np.zeros((8, 32), np.int8), np.zeros((64, 8), np.int32)
    instr = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"
    with pytest.raises(UsageError, match=r"^scale_a of s8 must be 1, not -1"):
        wgmma(instr, a, b, c, scale_a=-1)
    with pytest.raises(UsageError, match=r"^scale_d must be 0 or 1, not 2"):
        wgmma(instr, a, b, c, scale_d=2)
    with pytest.raises(UsageError, match=r"^wgmma instruction must be dense"):
        wgmma("wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8", a, b, c)
    with pytest.raises(UsageError, match=r"^wgmma_sparse instruction must be wgmma\.mma_async\.sp"):
        wgmma_sparse(instr, a, np.zeros(128, np.uint32), b, c)
