"""The compiled arithmetic against a slow twin in plain integers, on random bit patterns with every special value."""

import numpy as np
import pytest

from h100sim.dtypes import ElementType, element_type
from h100sim.numerics.tensor_core import WGMMA_TYPES, code_of, function_of, run_steps

FLOAT_TRIPLES = sorted(triple for triple in WGMMA_TYPES if triple[0] != "s32")
INTEGER_TRIPLES = sorted(triple for triple in WGMMA_TYPES if triple[1] in ("s8", "u8"))
ZERO, FINITE, INF, NAN = "zero", "finite", "inf", "nan"


def decode(element: ElementType, bits: int) -> tuple[str, int, int, int]:
    """Return (class, sign, significand, exponent) where the value is significand * 2^(exponent - mantissa_bits)."""
    bits >>= element.ignored_bits
    mantissa = bits & ((1 << element.mantissa_bits) - 1)
    top = (1 << element.exponent_bits) - 1
    field = bits >> element.mantissa_bits & top
    sign = -1 if bits >> (element.mantissa_bits + element.exponent_bits) & 1 else 1
    if field == top and element.has_inf:
        return (NAN if mantissa else INF), sign, 0, 0
    if field == top and mantissa == (1 << element.mantissa_bits) - 1:
        return NAN, sign, 0, 0
    significand = mantissa | (1 << element.mantissa_bits if field else 0)
    return (FINITE if significand else ZERO), sign, significand, max(field, 1) - element.bias


def pack(element: ElementType, sign: int, magnitude_bits: int) -> int:
    return magnitude_bits | (1 << (element.bits - 1) if sign < 0 else 0)


def round_to(element: ElementType, total: int, unit: int, fraction_bits: int, is_nearest: bool) -> int:
    """Round total * 2^unit to ``fraction_bits``: toward zero, or to nearest even; too large gives infinity."""
    smallest = 1 - element.bias
    exponent = max(abs(total).bit_length() - 1 + unit, smallest)
    last_place = exponent - fraction_bits
    shift = last_place - unit
    magnitude = abs(total) << -shift if shift <= 0 else abs(total) >> shift
    if is_nearest and shift > 0:
        rest = abs(total) - (magnitude << shift)
        half = 1 << (shift - 1)
        magnitude += rest > half or (rest == half and magnitude & 1)
    magnitude <<= element.mantissa_bits - fraction_bits
    if magnitude == 0:
        return 0
    # Adding the significand with its hidden bit to the exponent field below it also carries a rounding into it.
    bits = magnitude + ((exponent + element.bias - 1) << element.mantissa_bits)
    infinity = ((1 << element.exponent_bits) - 1) << element.mantissa_bits
    return pack(element, 1 if total > 0 else -1, min(bits, infinity))


def twin(d_name: str, a_name: str, b_name: str, a: list[int], b: list[int], c: int) -> int:
    """Return the accumulator bits after one step: the rule of docs/arithmetic.md, one term at a time."""
    d_type, a_type, b_type = element_type(d_name), element_type(a_name), element_type(b_name)
    is_fp8 = a_type.bits == 8
    fraction_bits = 13 if is_fp8 else 25
    infinity = ((1 << d_type.exponent_bits) - 1) << d_type.mantissa_bits
    nan = (1 << (d_type.bits - 1)) - 1
    terms, infinities = [], set()
    for x, y in zip(a, b, strict=True):
        x_class, x_sign, x_significand, x_exponent = decode(a_type, x)
        y_class, y_sign, y_significand, y_exponent = decode(b_type, y)
        if NAN in (x_class, y_class) or {INF, ZERO} == {x_class, y_class}:
            return nan
        if INF in (x_class, y_class):
            infinities.add(x_sign * y_sign)
        fraction = a_type.mantissa_bits + b_type.mantissa_bits
        terms.append((x_sign * y_sign, x_significand * y_significand, x_exponent + y_exponent, fraction))
    c_class, c_sign, c_significand, c_exponent = decode(d_type, c)
    if c_class == NAN:
        return nan
    if c_class == INF:
        infinities.add(c_sign)
    if infinities:
        return nan if len(infinities) == 2 else pack(d_type, infinities.pop(), infinity)
    terms.append((c_sign, c_significand, c_exponent, d_type.mantissa_bits))
    largest = max([-21 if d_name == "f16" else -133, *(e for _, m, e, _ in terms if m)])
    unit = largest - fraction_bits
    total = 0
    for sign, significand, exponent, fraction in terms:
        shift = exponent - fraction - unit
        total += sign * (significand << shift if shift >= 0 else significand >> -shift)
    if d_name == "f16":
        return round_to(d_type, total, unit, 10, True)
    return round_to(d_type, total, unit, 13 if is_fp8 else 23, False)


def random_bits(rng: np.random.Generator, element: ElementType, shape: tuple, spread: int | None) -> np.ndarray:
    """Uniform bit patterns, or (``spread``) exponents within that many steps of a random one, and a few zeros."""
    if spread is None:
        return rng.integers(0, 1 << element.bits, shape, dtype=np.uint64).astype(np.uint32)
    top = (1 << element.exponent_bits) - 1
    middle = rng.integers(1, top)
    field = np.clip(middle + rng.integers(-spread, spread + 1, shape), 0, top - 1).astype(np.uint64)
    sign = rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(element.bits - 1)
    mantissa = rng.integers(0, 1 << (element.mantissa_bits + element.ignored_bits), shape, dtype=np.uint64)
    bits = sign | field << np.uint64(element.mantissa_bits + element.ignored_bits) | mantissa
    return np.where(rng.random(shape) < 0.1, bits & sign, bits).astype(np.uint32)


@pytest.mark.parametrize("spread", [None, 1, 6, 40], ids=["any bits", "narrow", "middling", "wide"])
@pytest.mark.parametrize("triple", FLOAT_TRIPLES, ids=".".join)
def test_float_steps_equal_the_twin(triple, spread):
    rng = np.random.default_rng([len(triple[1]), spread or 0, *map(ord, "".join(triple))])
    d_type, a_type, b_type = (element_type(name) for name in triple)
    k = 256 // a_type.bits
    batch, rows, columns = 12, 3, 5
    a = random_bits(rng, a_type, (batch, rows, k), spread)
    b = random_bits(rng, b_type, (batch, columns, k), spread)
    if spread is not None:  # let terms cancel, and let one or another dominate
        a[1::3, :, 1::2] = a[1::3, :, ::2] ^ np.uint32(1 << (a_type.bits - 1))
        b[1::3, :, 1::2] = b[1::3, :, ::2]
        b[2::3, :, 2:] = 0
    c = np.concatenate(
        [
            random_bits(rng, d_type, (4, rows, columns), None),
            random_bits(rng, d_type, (4, rows, columns), 8),
            np.zeros((4, rows, columns), np.uint32),
        ]
    )
    d = c.copy()
    run_steps(code_of(*triple), a, b, d)
    expected = [
        [[twin(*triple, a[i, m].tolist(), b[i, n].tolist(), int(c[i, m, n])) for n in range(columns)] for m in range(rows)]
        for i in range(batch)
    ]
    np.testing.assert_array_equal(d, np.array(expected, np.uint32))


@pytest.mark.parametrize("satfinite", [False, True], ids=["wrap", "satfinite"])
@pytest.mark.parametrize("triple", INTEGER_TRIPLES, ids=".".join)
def test_integer_steps_equal_exact_integers(triple, satfinite):
    rng = np.random.default_rng(7)
    a, b = (rng.choice(np.array([0, 1, 127, 128, 255], np.uint32), (4, rows, 32)) for rows in (3, 70))
    c = rng.choice(np.array([0, 0x7FFFFFFF, 0x80000000, 0x7FFF0000, 0xFFFFFFFF], np.uint32), (4, 3, 70))
    d = c.copy()
    run_steps(code_of(*triple), a, b, d, satfinite=satfinite)
    values = [
        x.astype(np.uint8).view(np.int8 if name == "s8" else np.uint8).astype(np.int64)
        for x, name in zip((a, b), triple[1:], strict=True)
    ]
    total = c.view(np.int32).astype(np.int64) + values[0] @ values[1].transpose(0, 2, 1)
    total = np.clip(total, -(2**31), 2**31 - 1) if satfinite else total
    np.testing.assert_array_equal(d, (total & 0xFFFFFFFF).astype(np.uint32))


@pytest.mark.parametrize("xor", [False, True])
def test_bit_steps_count_ones(xor):
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 1 << 32, (2, rows, 8), dtype=np.uint64).astype(np.uint32) for rows in (3, 9))
    c = rng.integers(0, 1 << 32, (2, 3, 9), dtype=np.uint64).astype(np.uint32)
    d = c.copy()
    run_steps(code_of("s32", "b1", "b1", xor=xor), a, b, d)
    met = a[:, :, None] ^ b[:, None] if xor else a[:, :, None] & b[:, None]
    np.testing.assert_array_equal(d, c + np.bitwise_count(met).sum(-1).astype(np.uint32))


def test_function_of_does_what_the_argument_block_does():
    rng = np.random.default_rng(9)
    for triple in (("f32", "bf16", "bf16"), ("s32", "s8", "u8")):
        code = code_of(*triple)
        a, b = (rng.integers(0, 1 << element_type(triple[1]).bits, (1, rows, 16), dtype=np.uint32) for rows in (64, 24))
        d = np.zeros((1, 64, 24), np.uint32)
        run_steps(code, a, b, d)
        in_place = np.zeros((64, 24), np.uint32)
        function_of(code)(code, a[0], b[0], in_place, True, False, False, False)
        np.testing.assert_array_equal(in_place, d[0])
