"""h100sim.scalar: shapes, types, broadcasting, several results, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from h100sim.errors import PtxError
from h100sim.numerics.scalar import scalar


def test_bits_give_bits_of_the_destination():
    assert scalar("ex2.approx.ftz.f32", np.uint32([0x3F800000])).tolist() == [0x40000000]
    assert scalar("cvt.rn.satfinite.e4m3x2.f32", np.uint32([0x3F800000]), np.uint32([0x40000000])).dtype == np.uint16
    assert scalar("mul.wide.u32", np.uint32(0xFFFFFFFF), np.uint32(2)).dtype == np.uint64


def test_floats_give_floats_where_the_result_is_one():
    assert scalar("add.f32", np.float32([1.5]), np.float32([2])).dtype == np.float32
    assert scalar("cvt.rn.bf16.f32", np.float32([1.0])).dtype == ml_dtypes.bfloat16
    assert scalar("cvt.rn.bf16x2.f32", np.float32([1.0]), np.float32([2.0])).tolist() == [0x3F804000]
    assert scalar("set.lt.u32.f32", np.float32([1.0]), np.float32([2.0])).tolist() == [0xFFFFFFFF]


def test_operands_broadcast_and_keep_their_shape():
    x = np.arange(70, dtype=np.uint32).reshape(7, 10)
    assert np.array_equal(scalar("add.u32", x, np.uint32(5)), x + 5)
    assert scalar("neg.s32", np.int32([-3])).view(np.int32).tolist() == [3]


def test_predicates_are_booleans():
    assert scalar("setp.lt.and.s32", np.int32([-1, 1]), np.int32([0, 0]), np.array([True, True])).tolist() == [
        True,
        False,
    ]
    assert scalar("selp.b32", np.uint32(1), np.uint32(2), np.array([True, False])).tolist() == [1, 2]
    low, high = scalar("setp.lt.f16x2", np.uint32([0x3C004000]), np.uint32([0x40003C00]))
    assert (low.tolist(), high.tolist()) == ([False], [True])


def test_a_sum_comes_with_its_carry():
    total, carry = scalar("add.cc.u32", np.uint32([0xFFFFFFFF, 1]), np.uint32(1))
    assert (total.tolist(), carry.tolist()) == ([0, 2], [True, False])
    assert scalar("addc.u32", np.uint32(1), np.uint32(2), True) == 4


def test_the_table_of_lop3_is_an_int():
    assert scalar("lop3.b32", np.uint32(0xF0), np.uint32(0xCC), np.uint32(0xAA), 0x80) == 0x80


def test_the_table_of_lop3_is_the_low_byte_as_for_ptxas():
    operands = (np.uint32(0b11110000), np.uint32(0b11001100), np.uint32(0b10101010))
    assert scalar("lop3.b32", *operands, 0x1E8) == scalar("lop3.b32", *operands, 0xE8) == 0b11101000


def test_says_what_is_wrong():
    with pytest.raises(
        PtxError, match=r"^opcode must be a form of ex2 that sm_90a has \(ex2\.approx\.ftz\.f32, .*\), not ex2\.f32"
    ):
        scalar("ex2.f32", np.uint32(1))
    with pytest.raises(PtxError, match=r"^opcode must be one that works on registers alone \(abs, add, .*\), not ld\.global\.u32"):
        scalar("ld.global.u32", np.uint32(1))
    with pytest.raises(PtxError, match=r"^add\.s32 must have 2 operands, not 1"):
        scalar("add.s32", np.uint32(1))
    with pytest.raises(TypeError, match=r"^operand of add\.f32 must hold bits or values of \.f32, not float64"):
        scalar("add.f32", np.float64([1]), np.float64([1]))
