"""Element types agree with ml_dtypes and NumPy."""

import ml_dtypes
import numpy as np
import pytest

from h100sim.dtypes import ELEMENT_TYPES, element_type, to_bits
from h100sim.errors import PtxError

FLOATS = [t for t in ELEMENT_TYPES if t.is_float and not t.ignored_bits]


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_widths_agree_with_the_natural_type(element):
    info = ml_dtypes.finfo(element.natural)
    assert (info.nmant, info.bits) == (element.mantissa_bits, element.bits)
    assert 1 + element.exponent_bits + element.mantissa_bits == element.bits
    top_field = (1 << element.exponent_bits) - (2 if element.has_inf else 1)
    top_mantissa = (1 << element.mantissa_bits) - (1 if element.has_inf else 2)
    top = np.array([top_field << element.mantissa_bits | top_mantissa], element.storage).view(element.natural)[0]
    assert top == info.max
    smallest = np.array([1], element.storage).view(element.natural)[0]
    assert float(smallest) == 2.0 ** (1 - element.bias - element.mantissa_bits)


def test_indices_are_positions():
    assert [t.index for t in ELEMENT_TYPES] == list(range(len(ELEMENT_TYPES)))
    assert all(t.storage.itemsize * 8 == max(t.bits, 8) for t in ELEMENT_TYPES)


def test_an_unknown_type_names_the_known_ones():
    with pytest.raises(PtxError, match=r"^element type must be one of f16, bf16, .*, not e3m4$"):
        element_type("e3m4")


def test_bits_pass_and_other_types_do_not():
    values = np.array([1.0, -0.0], np.float16)
    np.testing.assert_array_equal(to_bits(element_type("f16"), values), [0x3C00, 0x8000])
    assert to_bits(element_type("f16"), values.view(np.uint16)) is not None
    with pytest.raises(TypeError, match=r"^array of s8 must hold uint8 bits or int8 values, not int64$"):
        to_bits(element_type("s8"), np.array([1, 2]))
