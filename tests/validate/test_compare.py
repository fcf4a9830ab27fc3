"""Bit comparison: NaN payloads and signed zeros count, and the first differences are spelt out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from h100sim.errors import UsageError
from validate import compare


def test_equal_bits_are_equal_whatever_they_mean() -> None:
    nan = np.full((2, 2), 0x7FC00001, np.uint32)
    assert compare.compare(nan, nan.view(np.float32)).is_equal


def test_a_signed_zero_is_a_difference() -> None:
    result = compare.compare(np.zeros((2, 3), ml_dtypes.bfloat16), np.array([[0, -0.0, 0]] * 2, ml_dtypes.bfloat16))
    assert (result.elements, result.differing) == (6, 2)
    assert str(result).splitlines() == [
        "2 of 6 elements differ; the first:",
        "  [0, 1]: 0x8000, not 0x0000",
        "  [1, 1]: 0x8000, not 0x0000",
    ]


def test_shapes_must_agree() -> None:
    with pytest.raises(UsageError, match=r"^arrays must have the same shape and width, not \(2,\) of uint8 and \(3,\)"):
        compare.compare(np.zeros(2, np.uint8), np.zeros(3, np.uint8))


def test_the_digest_of_ptx_ignores_where_the_source_lies() -> None:
    here = '.file 1 "/home/a/gemm.py"\n.loc 1 3 0\nadd.u32 %r1, %r2, 1; // one\n'
    there = '.file 1 "/b/gemm.py"\n.loc 1 9 0\n\n  add.u32 %r1, %r2, 1;\n'
    assert compare.ptx_sha256(here) == compare.ptx_sha256(there)
    assert compare.ptx_sha256(here) != compare.ptx_sha256(here.replace("1;", "2;"))
