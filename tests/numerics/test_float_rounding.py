"""Directed rounding of f32 and f64 against exact rational arithmetic, and the plain Python twins of the host's
operations."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim.numerics.host_float import _exact_fma
from h100sim.numerics.scalar import scalar

MODES = ("rn", "rz", "rm", "rp")
FORMATS = {"f32": (np.float32, np.uint32, 24, -149, 128), "f64": (np.float64, np.uint64, 53, -1074, 1024)}
RUNS = settings(max_examples=150, deadline=None)


def rounded(exact: Fraction, mode: str, type_: str) -> float:
    """Round a non-zero rational: an independent oracle."""
    dtype, _, precision, least, top = FORMATS[type_]
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude
    quantum = Fraction(2) ** max(exponent - precision + 1, least)
    steps, rest = divmod(magnitude, quantum)
    up = {
        "rn": rest > quantum / 2 or (rest == quantum / 2 and steps % 2 == 1),
        "rz": False,
        "rm": rest > 0 and exact < 0,
        "rp": rest > 0 and exact > 0,
    }[mode]
    value = (steps + up) * quantum
    sign = -1 if exact < 0 else 1
    if value >= Fraction(2) ** top:
        largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** (top - 1)
        toward_zero = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        return dtype(sign * float(largest)) if toward_zero else dtype(sign * np.inf)
    return dtype(sign * float(value))


def floats(type_: str):
    dtype, *_ = FORMATS[type_]
    width = 32 if type_ == "f32" else 64
    close = st.floats(0.5, 2.0, width=width)
    return st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=width), close).map(dtype)


def bits(value) -> int:
    return int(value.view(f"u{value.itemsize}"))


def check(opcode: str, type_: str, mode: str, exact: Fraction, *operands) -> None:
    if exact == 0:
        return
    got = scalar(opcode, *(np.array([x]) for x in operands))[0]
    assert bits(got) == bits(rounded(exact, mode, type_)), (opcode, operands)


@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("mode", MODES)
@given(st.data())
@RUNS
def test_sum_product_and_fma_are_rounded_once(type_, mode, data):
    a, b, c = (data.draw(floats(type_)) for _ in range(3))
    x, y, z = (Fraction(float(v)) for v in (a, b, c))
    check(f"add.{mode}.{type_}", type_, mode, x + y, a, b)
    check(f"mul.{mode}.{type_}", type_, mode, x * y, a, b)
    check(f"fma.{mode}.{type_}", type_, mode, x * y + z, a, b, c)


@pytest.mark.parametrize("type_", FORMATS)
@pytest.mark.parametrize("mode", MODES)
@given(st.data())
@RUNS
def test_quotient_and_root_are_rounded_once(type_, mode, data):
    a, b = (data.draw(floats(type_)) for _ in range(2))
    if b != 0:
        check(f"div.{mode}.{type_}", type_, mode, Fraction(float(a)) / Fraction(float(b)), a, b)
    root = abs(a)
    if root != 0:
        x = Fraction(float(root))
        # 2^-400 of a root's own size is far below any format's last bit; an exact root stays exact.
        scale = 2**2000
        whole = isqrt(x.numerator * x.denominator * scale * scale)
        exact = Fraction(whole, x.denominator * scale)
        if exact * exact != x:
            exact += Fraction(1, 2 * x.denominator * scale)
        check(f"sqrt.{mode}.{type_}", type_, mode, exact, root)


@pytest.mark.parametrize("type_", FORMATS)
def test_exact_zero_is_negative_only_when_rounding_down(type_):
    dtype = FORMATS[type_][0]
    one = np.array([1, 0, -0.0, 0], dtype)
    other = np.array([-1, 0, -0.0, -0.0], dtype)
    for mode in MODES:
        signs = np.signbit(scalar(f"add.{mode}.{type_}", one, other)).tolist()
        assert signs == [mode == "rm", False, True, mode == "rm"]


@given(st.data())
@RUNS
def test_plain_twin_of_the_fused_multiply_add(data):
    for type_, (dtype, *_) in FORMATS.items():
        a, b, c = (data.draw(floats(type_)) for _ in range(3))
        expected = scalar(f"fma.rn.{type_}", *(np.array([x], dtype) for x in (a, b, c)))[0]
        assert bits(_exact_fma(a, b, c, dtype)) == bits(expected)
