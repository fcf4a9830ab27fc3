"""Worked examples of the arithmetic by their bits: each shows one rule. Elements that are not listed are +0."""

import numpy as np
import pytest

from h100sim.dtypes import element_type
from h100sim.numerics.wgmma import wgmma

# what, types D.A.B, A, B, C, D
EXAMPLES = [
    (
        "2^-25 below the largest is kept, 2^-26 is not",
        "f32.f16",
        "3C00 0C00 0800",
        "3C00 0800 0800",
        "BF800000",
        "33000000",
    ),
    ("two 2^-26 are cut one by one", "f32.f16", "3C00 0800 0800", "3C00 0800 0800", "BF800000", "00000000"),
    ("the result is rounded toward zero", "f32.f16", "3C00 0C00 0C00", "3C00 0C00 0800", "00000000", "3F800000"),
    ("also a negative one", "f32.f16", "BC00 8C00 8C00", "3C00 0C00 0800", "00000000", "BF800000"),
    ("1.5 * 1.5 has exponent 0", "f32.f16", "3E00 BE00 0C00", "3E00 3E00 0800", "00000000", "33000000"),
    ("C sets the largest exponent", "f32.bf16", "3E40 3E40 3E40", "3F80 3F80 3F80", "4A800000", "4A800000"),
    ("magnitudes are cut, not floored", "f32.bf16", "BE40 BE40 BE40", "3F80 3F80 3F80", "4A800000", "4A7FFFFE"),
    (
        "carries of 17 terms are kept",
        "f32.bf16",
        " ".join(["3FFF"] * 16),
        " ".join(["3FFF"] * 16),
        "3F800000",
        "42810080",
    ),
    ("fp8 cuts C to 13 fraction bits", "f32.e4m3", "00", "00", "3F801FFF", "3F801C00"),
    (
        "fp8: 64 swallows 32 times 2^-8",
        "f32.e4m3",
        " ".join(["18"] * 32),
        " ".join(["18"] * 32),
        "42800000",
        "42800000",
    ),
    ("fp8: 63.875 does not", "f32.e4m3", " ".join(["18"] * 32), " ".join(["18"] * 32), "427F8000", "42800000"),
    (
        "fp8 keeps 13 fraction bits of a result",
        "f32.e4m3",
        " ".join(["3F"] * 31 + ["08"]),
        " ".join(["3F"] * 31 + ["39"]),
        "00000000",
        "42DA0000",
    ),
    ("fp8: 2^-13 beside 2.25 - 2.25", "f32.e4m3", "3C BC 08", "3C 3C 04", "00000000", "39000000"),
    ("f16 result: a tie goes to even", "f16.f16", "3C00 1000", "3C00 3C00", "0000", "3C00"),
    ("f16 result: a tie and 2^-24 goes up", "f16.f16", "3C00 1000 0C00", "3C00 3C00 0C00", "0000", "3C01"),
    ("fp8 to f16: the tie breaker 2^-14 is lost", "f16.e4m3", "38 08 04", "38 10 04", "0000", "3C00"),
    ("fp8 to f16: the tie breaker 2^-13 is kept", "f16.e4m3", "38 08 04", "38 10 08", "0000", "3C01"),
    ("subnormals are kept", "f16.f16", "0001", "3C00", "0000", "0001"),
    ("overflow is an infinity although rounding is toward zero", "f32.bf16", "7F7F", "4000", "00000000", "7F800000"),
    ("the largest float and 2^103", "f32.bf16", "7300", "3F80", "7F7FFFFF", "7F7FFFFF"),
    ("the largest float and 2^104", "f32.bf16", "7380", "3F80", "7F7FFFFF", "7F800000"),
    (
        "2^254 - 2^254 never overflows inside, but C is lost",
        "f32.bf16",
        "7F00 FF00",
        "7F00 7F00",
        "3F800000",
        "00000000",
    ),
    ("there is no negative zero", "f32.bf16", " ".join(["8000"] * 16), " ".join(["3F80"] * 16), "80000000", "00000000"),
    ("NaN is canonical", "f32.bf16", "FFC1", "3F80", "00000000", "7FFFFFFF"),
    ("infinity times zero", "f32.bf16", "7F80", "0000", "00000000", "7FFFFFFF"),
    ("infinity minus infinity", "f32.bf16", "7F80", "3F80", "FF800000", "7FFFFFFF"),
    ("NaN of f16", "f16.f16", "7E01", "3C00", "0000", "7FFF"),
    ("e4m3 has one NaN and no infinity", "f32.e4m3", "7F", "38", "00000000", "7FFFFFFF"),
    ("tf32 ignores the low 13 bits", "f32.tf32", "3F801FFF", "3F800000", "00000000", "3F800000"),
    ("a NaN with payload only there is an infinity", "f32.tf32", "7F800001", "3F800000", "00000000", "7F800000"),
    ("subnormal result", "f32.bf16", "0D80", "2700", "00000000", "00000001"),
    ("a zero term counts with exponent -133", "f32.bf16", "2A7F 1800 1800", "0A00 1800 1800", "00000000", "00000001"),
    (
        "so smaller products are cut",
        "f32.bf16",
        "2A7F 1800 1800 1800 1800",
        "0A00 1780 1780 1780 1780",
        "00000000",
        "00000000",
    ),
    ("with f16 results it is -21", "f16.f16", "0400 0002", "1000 0002", "0000", "0001"),
    ("and not smaller", "f16.f16", "0400 0001", "1000 0002", "0000", "0000"),
]


@pytest.mark.parametrize("what, types, a, b, c, d", EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_example(what, types, a, b, c, d):
    d_type, a_type = (element_type(name) for name in types.split("."))
    k = 256 // a_type.bits

    def row(text: str) -> np.ndarray:
        values = [int(word, 16) for word in text.split()]
        return np.array([values + [0] * (k - len(values))], a_type.storage)

    accumulator = np.array([[int(c, 16)]], d_type.storage)
    result = wgmma(f"wgmma.mma_async.sync.aligned.m64n8k{k}.{types}.{a_type}", row(a), row(b), accumulator)
    assert f"{result[0, 0]:0{d_type.bits // 4}X}" == d
