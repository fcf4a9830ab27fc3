"""The special function unit against silicon, and its bounds.

Measured: tests/data/scalar_ops.npz (NVIDIA H200, driver 580.159, CUDA 13.0, 2026-11-29): 32,768 inputs of each
function, all exponents, NaN, infinities and subnormals among them. Packed conversions had the input as their second
source and 0 as first.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim.numerics.scalar import scalar
from validate.compare import sha256
from validate.probes import special_function_bits

#: Measured: validate/silicon/special_function_bits.json, digests of another 65,536 inputs.
DIGESTS = Path(special_function_bits.__file__).parents[1] / "silicon" / "special_function_bits.json"
DATA = Path(__file__).parents[1] / "data" / "scalar_ops.npz"
OPCODES = [name for name in np.load(DATA).files if name not in ("x", "source")]


@pytest.mark.parametrize("opcode", OPCODES)
def test_matches_silicon(opcode):
    with np.load(DATA) as data:
        x, expected = data["x"], data[opcode]
    packed = "x2.f32" in opcode
    result = scalar(opcode, np.uint32(0), x) if packed else scalar(opcode, x)
    assert np.array_equal(result & result.dtype.type(0xFFFF if expected.itemsize == 2 else 0xFFFFFFFF), expected)


@pytest.mark.parametrize("opcode", special_function_bits.OPCODES)
def test_matches_silicon_on_inputs_that_no_table_was_derived_from(opcode):
    """sqrt and tanh tables, and the path of sine and cosine, come from scalar_ops.npz; these inputs are others."""
    words = special_function_bits.inputs()
    with np.load(DATA) as data:
        assert not np.isin(words, data["x"]).any()
    assert sha256(scalar(opcode, words)) == json.loads(DIGESTS.read_text())["results"][opcode]


#: Spec: PTX ISA 9.1, "Floating Point Instructions": maximum relative error, or absolute error for sin and cos in
#: [-pi, pi].
RELATIVE = {
    "rcp.approx.f32": (lambda x: 1 / x, 2**-23),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2**-22.9),
    "sqrt.approx.f32": (np.sqrt, 2**-23),
    "ex2.approx.f32": (np.exp2, 2**-22),
    "tanh.approx.f32": (np.tanh, 2**-10.987),
}


@pytest.mark.parametrize("opcode", RELATIVE)
@given(st.lists(st.floats(2.0**-20, 2.0**6, width=32), min_size=32, max_size=32))
@settings(max_examples=30, deadline=None)
def test_relative_error_is_within_the_bound(opcode, values):
    function, bound = RELATIVE[opcode]
    x = np.array(values, np.float32)
    exact = function(x.astype(np.float64))
    assert np.all(np.abs(scalar(opcode, x) - exact) <= np.maximum(bound * np.abs(exact), 2.0**-126))


@pytest.mark.parametrize(("opcode", "function"), [("sin.approx.f32", np.sin), ("cos.approx.f32", np.cos)])
@given(st.lists(st.floats(-np.float32(np.pi), np.float32(np.pi), width=32), min_size=32, max_size=32))
@settings(max_examples=30, deadline=None)
def test_absolute_error_of_sine_and_cosine(opcode, function, values):
    x = np.array(values, np.float32)
    assert np.all(np.abs(scalar(opcode, x) - function(x.astype(np.float64))) <= 2**-20.5)


def test_corner_cases_of_the_manual():
    zero, inf, one = (np.float32([value]) for value in (0.0, np.inf, 1.0))
    assert scalar("ex2.approx.f32", -inf) == 0 and scalar("ex2.approx.f32", inf) == np.inf
    assert scalar("lg2.approx.f32", zero) == -np.inf and np.isnan(scalar("lg2.approx.f32", -one))
    assert scalar("lg2.approx.f32", one) == 0 and scalar("sqrt.approx.f32", one) == 1 and scalar("rsqrt.approx.f32", one) == 1
    assert np.signbit(scalar("sqrt.approx.f32", -zero)) and scalar("rcp.approx.f32", -zero) == -np.inf
    assert scalar("tanh.approx.f32", -inf) == -1
