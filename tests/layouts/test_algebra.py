"""Every operation of the layout algebra by its post-condition, and against tensor-layouts as an independent oracle."""

import pytest
import tensor_layouts as oracle
from hypothesis import assume, given
from hypothesis import strategies as st

from h100sim.errors import UsageError
from h100sim.layouts.algebra import (
    Layout,
    coalesce,
    complement,
    composition,
    flatten,
    left_inverse,
    logical_divide,
    logical_product,
    make_layout,
    right_inverse,
)
from h100sim.strategies import layouts


def theirs(layout: Layout) -> oracle.Layout:
    return oracle.Layout(layout.shape, layout.stride)


@given(layouts())
def test_offsets_are_those_of_the_oracle(a):
    assert a.offsets() == [theirs(a)(i) for i in range(a.size)]
    assert max(a.offsets()) + 1 == a.cosize


@given(layouts())
def test_coalescing_keeps_the_function(a):
    b = coalesce(a)
    assert b.offsets() == a.offsets()
    assert len(flatten(b.shape)) <= len(flatten(a.shape))


@given(layouts(), layouts())
def test_a_composition_maps_i_to_a_of_b_of_i(a, b):
    assume(b.cosize <= a.size)
    try:
        c = composition(a, b)
    except UsageError:
        assume(False)
    assert c.offsets() == [a(b(i)) for i in range(b.size)]
    assert len(c.modes) == len(b.modes) or isinstance(b.shape, int)


@given(layouts(injective=True), st.integers(1, 200))
def test_a_complement_fills_the_rest(a, size):
    rest = complement(a, size)
    both = make_layout(a, rest).offsets()
    assert len(set(both)) == len(both)
    assert set(range(size)) <= set(both) or a.cosize > size or not is_compact(a)
    assert rest.offsets() == sorted(rest.offsets())
    found = oracle.complement(theirs(a), size)
    assert rest.offsets() == [found(i) for i in range(oracle.size(found))]


def is_compact(a: Layout) -> bool:
    return a.size == a.cosize


@given(layouts(injective=True))
def test_inverses(a):
    right = right_inverse(a)
    assert [a(right(i)) for i in range(right.size)] == list(range(right.size))
    left = left_inverse(a)
    assert [left(a(i)) for i in range(a.size)] == list(range(a.size))


@given(layouts(injective=True), st.sampled_from([Layout(2), Layout(4), Layout(2, 2), Layout((2, 2), (1, 4))]))
def test_a_division_is_the_layout_tile_by_tile(a, tiler):
    a = make_layout(a, Layout(8, a.cosize))
    divided = logical_divide(a, tiler)
    assert sorted(divided.offsets()) == sorted(a.offsets())
    assert divided[0].offsets() == [a(tiler(i)) for i in range(tiler.size)]


@given(layouts(injective=True), layouts(injective=True))
def test_a_product_repeats_without_overlap(a, tiler):
    assume(a.size * tiler.size <= 4096)
    try:
        product = logical_product(a, tiler)
    except UsageError:
        assume(False)
    assert product[0] == a
    assert len(set(product.offsets())) == a.size * tiler.size


def test_the_examples_of_the_manual():
    assert str(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)))) == "((2,2),3):((24,2),8)"
    assert str(complement(Layout(4, 2), 24)) == "(2,3):(1,8)"
    assert str(coalesce(Layout((2, (1, 6)), (1, (6, 2))))) == "12:1"
    assert str(logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2))) == "((2,2),(2,3)):((4,1),(2,8))"


def test_errors_name_the_value():
    with pytest.raises(UsageError, match=r"^layout stride must nest as its shape \(4,8\), not 1$"):
        Layout((4, 8), 1)
    with pytest.raises(UsageError, match=r"^composition stride 4 must divide the shape of \(6,2\):\(8,2\) or be divided"):
        composition(Layout((6, 2), (8, 2)), Layout(3, 4))
    with pytest.raises(UsageError, match=r"^complement layout must hit no offset twice and nest its strides, not \(2,2\)"):
        complement(Layout((2, 2), (1, 1)), 8)
    with pytest.raises(UsageError, match=r"^coordinate must have 2 entries for shape \(4,8\), not 3$"):
        Layout((4, 8))(1, 2, 3)


@given(layouts())
def test_a_layout_reads_what_it_writes(a):
    assert Layout.parse(str(a)) == a


@pytest.mark.parametrize("text", ["", "(4,8", "4:x", "1:2:3", "__import__('os')"])
def test_what_is_no_layout_is_refused(text):
    with pytest.raises(UsageError, match=r"^layout must be shape:stride such as \(4,8\):\(1,4\), not "):
        Layout.parse(text)
