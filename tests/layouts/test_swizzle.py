import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim.errors import UsageError
from h100sim.layouts.swizzle import SPANS, panel_addresses, swizzle, swizzled

spans = st.sampled_from(sorted(SPANS.values()))


@given(spans, st.integers(0, (1 << 18) - 1))
def test_a_swizzle_undoes_itself_and_stays_in_its_row(span, address):
    moved = swizzle(address, span)
    assert swizzle(moved, span) == address
    assert moved // span == address // span and moved % 16 == address % 16
    assert swizzled(address, span) == moved


@pytest.mark.parametrize("span", SPANS.values())
def test_a_swizzle_is_a_bijection_on_its_atom(span):
    atom = np.arange(8 * span)
    assert np.array_equal(np.sort(swizzle(atom, span)), atom)


@pytest.mark.parametrize(("span", "distinct"), [("128B", 8), ("64B", 4), ("32B", 2), ("none", 1)])
def test_a_column_of_chunks_spreads_over_the_banks(span, distinct):
    lines = np.arange(8) * 128
    assert len(np.unique(swizzle(lines, span) % 128 // 16)) == distinct


@given(spans, st.sampled_from([1, 2, 4]), st.integers(1, 8), st.integers(1, 4), st.integers(0, 3))
def test_a_tile_of_panels_is_dense(span, element_bytes, eights, panels, atom):
    columns = panels * max(span, 16) // element_bytes
    base = 1024 * atom
    addresses = panel_addresses(8 * eights, columns, element_bytes, span, base)
    expected = base + element_bytes * np.arange(addresses.size)
    assert np.array_equal(np.sort(addresses, axis=None), expected)


def test_an_unknown_swizzle_is_refused():
    with pytest.raises(UsageError, match=r"^swizzle must be none, 32B, 64B or 128B, not 96B$"):
        swizzle(0, "96B")
