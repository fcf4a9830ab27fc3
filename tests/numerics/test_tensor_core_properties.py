"""What must hold of the fused sum for any operands."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim.dtypes import element_type
from h100sim.numerics.tensor_core import code_of, run_steps

TRIPLES = [("f32", "bf16", "bf16"), ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "tf32", "tf32"),
           ("f32", "e4m3", "e5m2"), ("f16", "e4m3", "e4m3")]  # fmt: skip


@st.composite
def steps(draw):
    """Draw (triple, a (1, K), b (1, K), c (1, 1)) of any bits."""
    triple = draw(st.sampled_from(TRIPLES))
    d, a, b = (element_type(name) for name in triple)
    k = 256 // a.bits

    def bits(element, count):
        words = draw(st.lists(st.integers(0, (1 << element.bits) - 1), min_size=count, max_size=count))
        return np.array([words], np.uint32)

    return triple, bits(a, k), bits(b, k), bits(d, 1)


def step(triple, a, b, c, **flags):
    d = c.copy()[None]
    run_steps(code_of(*triple), a[None], b[None], d, **flags)
    return d[0]


def value(triple, d):
    element = element_type(triple[0])
    return float(d.astype(element.storage).view(element.natural)[0, 0])


@given(steps(), st.randoms())
@settings(max_examples=150, deadline=None)
def test_the_order_of_terms_has_no_influence(case, random):
    triple, a, b, c = case
    order = list(range(a.shape[1]))
    random.shuffle(order)
    assert step(triple, a, b, c) == step(triple, np.ascontiguousarray(a[:, order]), np.ascontiguousarray(b[:, order]), c)


@given(steps())
@settings(max_examples=150, deadline=None)
def test_negating_a_and_c_negates_the_result(case):
    triple, a, b, c = case
    d_type = element_type(triple[0])
    sign = np.uint32(1 << (d_type.bits - 1))
    plain = int(step(triple, a, b, c)[0, 0])
    mirrored = int(step(triple, a, b, c ^ sign, negate_a=True)[0, 0])
    is_nan = plain == (1 << (d_type.bits - 1)) - 1
    assert mirrored == (plain if is_nan or plain == 0 else plain ^ int(sign))


@given(steps())
@settings(max_examples=100, deadline=None)
def test_two_negations_are_none(case):
    triple, a, b, c = case
    assert step(triple, a, b, c) == step(triple, a, b, c, negate_a=True, negate_b=True)


@given(steps())
@settings(max_examples=100, deadline=None)
def test_without_scale_d_the_accumulator_is_not_read(case):
    triple, a, b, c = case
    assert step(triple, a, b, c, scale_d=False) == step(triple, a, b, np.zeros_like(c))


@given(st.lists(st.integers(-64, 64), min_size=16, max_size=16), st.integers(-20, 20), st.integers(-1000, 1000))
@settings(max_examples=150, deadline=None)
def test_scaling_by_a_power_of_two_is_exact(numbers, power, start):
    bf16 = element_type("bf16")
    a = np.array([numbers], bf16.natural)
    b = np.array([[(7 * i) % 23 - 11 for i in range(16)]], bf16.natural)
    scaled = np.array([[n * 2.0**power for n in numbers]], bf16.natural)

    def result(x, c):
        words = (x.view(np.uint16).astype(np.uint32), b.view(np.uint16).astype(np.uint32))
        return value(("f32", "bf16", "bf16"), step(("f32", "bf16", "bf16"), *words, np.array([[c]], np.float32).view("u4")))

    assert result(scaled, start * 2.0**power) == result(a, start) * 2.0**power


@given(steps(), st.integers(0, 2**23 - 1), st.integers(0, 2**23 - 1))
@settings(max_examples=150, deadline=None)
def test_inside_one_binade_of_c_the_result_is_monotone_in_c(case, first, second):
    """Beyond one binade it need not be: a larger exponent of C cuts more off the other terms."""
    triple, a, b, c = case
    d_type = element_type(triple[0])
    mantissa_mask = (1 << d_type.mantissa_bits) - 1
    binade = int(c[0, 0]) & ((1 << (d_type.bits - 1)) - 1) & ~mantissa_mask
    small, large = sorted(x & mantissa_mask for x in (first, second))
    results = [value(triple, step(triple, a, b, np.array([[binade | m]], np.uint32))) for m in (small, large)]
    assert np.isnan(results).any() or results[0] <= results[1]


@given(steps())
@settings(max_examples=60, deadline=None)
def test_rows_and_columns_do_not_meet(case):
    """An element depends on its row of A and its column of B alone, wherever they stand in the tile."""
    triple, a, b, c = case
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(0, 1 << 8, (2, a.shape[1]), dtype=np.uint32), a])
    columns = np.concatenate([rng.integers(0, 1 << 8, (66, b.shape[1]), dtype=np.uint32), b])
    tile = np.zeros((3, 67), np.uint32)
    tile[2, 66] = c[0, 0]
    assert step(triple, rows, columns, tile)[2, 66] == step(triple, a, b, c)[0, 0]
