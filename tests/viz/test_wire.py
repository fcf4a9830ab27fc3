"""The block that carries a recording gives back what went in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from viz import wire

columns = st.sampled_from(["u1", "i2", "u2", "i4", "u4", "f4", "f8"]).flatmap(
    lambda t: arrays.arrays(np.dtype(t), st.integers(0, 20))
)
plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
trees = st.recursive(plain | columns, lambda t: st.lists(t) | st.dictionaries(st.text().filter(lambda k: k != "column"), t))


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(trees)
def test_decoding_gives_back_what_was_encoded(tree):
    assert same(tree, wire.decode(wire.encode(tree)))


def test_columns_start_at_multiples_of_eight():
    data = wire.encode({"a": np.zeros(3, np.uint8), "b": np.ones(2)})
    assert len(data) % 8 == 0 and (4 + int.from_bytes(data[:4], "little")) % 8 == 0


def test_a_type_that_browsers_lack_is_refused():
    with pytest.raises(TypeError, match=r"^column must be one-dimensional and one of .*, not int64 \(3,\)$"):
        wire.encode(np.zeros(3, np.int64))
