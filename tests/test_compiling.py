"""Numba with fewer passes and less machine code: the same results, kept on disk, and nothing that is not needed."""

import itertools
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba import types
from numba.core.runtime import _nrt_python, rtsys

from h100sim import compiling, native
from h100sim.native import entry, inner, jit

NUMBERS = (np.uint8(200), np.int32(-7), np.uint32(2**32 - 3), np.int64(-(2**40)), np.uint64(2**63 + 5), np.float32(1.5), True)


def mixed(a, b):
    total = a + b
    if a < b:
        total = total * 2
    return (total, a - b, a * b, a == b, -a, a + 1, b - 3, a / 4)


def whole(a, b):
    return (a & b, a | 5, a ^ b, ~b, a << 3, b >> 2, a // 7, b % 9)


@pytest.mark.parametrize("function", [mixed, whole])
def test_numbers_mix_as_they_do_in_numba(function):
    ours, numbas = compiling.entered(function), numba.njit(function)
    ours._cache = numbas._cache
    for a, b in itertools.product(NUMBERS, NUMBERS):
        if function is mixed or (not isinstance(a, np.floating) and not isinstance(b, np.floating)):
            assert repr(ours(a, b)) == repr(numbas(a, b))
    assert [s.return_type for s in ours.nopython_signatures] == [s.return_type for s in numbas.nopython_signatures]


@inner
def tripled(x):
    return 3 * x


@jit
def entered_twice(x):
    return tripled(x) + 1


@jit
def around(x):
    return entered_twice(x) + tripled(x)


@entry("int64")
def entry_of_both(x):
    return around(x) + tripled(x)


def library_of(function, *arguments):
    """Return the code of a function that compiled code calls with arguments of these types."""
    function.get_call_template(arguments, {})
    return function.overloads[arguments].library


def test_only_what_is_entered_has_machine_code():
    assert entry_of_both(5) == 46
    assert list(around.overloads) == list(entered_twice.overloads) == []
    for called in (tripled, entered_twice.linked_form(), entry_of_both):
        library = library_of(called, types.int64)
        assert isinstance(library, compiling.LinkedLibrary)
        assert library.get_pointer_to_function("anything") == 0
    with pytest.raises(TypeError, match="tripled must be called by compiled code, not by Python"):
        tripled(5)
    assert around(5) == 31


def test_functions_are_found_on_disk():
    around.compile((types.int64,))
    for called in (tripled, entered_twice.linked_form()):
        library_of(called, types.int64)
    for function in (around, entered_twice.linked_form(), tripled):
        with native._CacheDir(function.py_func):
            make = compiling.entered if function is around else compiling.linked
            again = make(function.py_func)
        again.compile((types.int64,))
        assert sum(again.stats.cache_hits.values()) == 1
        assert again.overloads[types.int64,].signature == function.overloads[types.int64,].signature
        if function is around:
            assert again(5) == 31


@inner
def padded(values):
    wide = np.zeros(len(values) + 2, np.int64)
    wide[1:-1] = values
    return wide


@jit
def sum_of_padded(values):
    total = 0
    for _ in range(10):
        total += padded(values)[1:].sum()
    return total


@inner
def row_of(values, k):
    return values[k]


@jit
def sum_of_rows(values):
    return row_of(values, 0)[0] + row_of(values, 1)[1]


@jit
def makes_and_borrows(values):
    made = np.zeros((2, 2), np.int64)
    return row_of(made, 0)[0] + values[0, 0]


@pytest.fixture
def allocations():
    _nrt_python.memsys_enable_stats()
    yield rtsys.get_allocation_stats
    _nrt_python.memsys_disable_stats()


def test_references_are_counted_where_arrays_are_made(allocations):
    values = np.arange(6)
    assert sum_of_padded(values) == 150
    before = allocations()
    assert sum_of_padded(values) == 150
    after = allocations()
    assert after.alloc - before.alloc == after.free - before.free >= 10
    assert library_of(padded, types.Array(types.int64, 1, "C")).counts


def test_references_are_not_counted_where_none_is_made():
    values = np.arange(4).reshape(2, 2)
    assert sum_of_rows(values) == 3
    assert not library_of(row_of, types.Array(types.int64, 2, "C"), types.int64).counts
    with pytest.raises(numba.core.errors.CompilerError, match="must not call one that may return its argument"):
        makes_and_borrows(values)


@entry("int64", "int64", "int64")
def ranges(a, b, c):
    total, last = 0, -1
    for k in range(a):
        total += k
    for k in range(a, b):
        if k % 3 == 0:
            continue
        total += 10 * k
        if total > 5000:
            break
        last = k
    for k in range(b, a, -c):
        for j in range(k):
            total ^= j << 3
        last += k
    return total * 100 + last


@entry("int64", "int64")
def versions(a, b):
    """A total that begins as an integer and goes on as a fraction; a variable of one branch; one that a loop carries to the next."""
    total, before = 0, a
    for k in range(b):
        now = before + k
        total += now * 0.5
        before = now if k & 1 else before
    if a > b:
        difference = a - b
    else:
        difference = b
    return int(total * 4) + difference


@entry("int64", "int64")
def extremes(a, b):
    x, y = a / 2, float(b)
    largest = max(x, float("nan"), y)
    return max(a, np.int32(b), 7) * 1000 + min(a, b, 3, -b) + int(max(x, b) * 2) + int(min(y, a)) + int(max(largest, 0.0) * 8)


@pytest.mark.parametrize("function", [ranges, versions, extremes])
def test_what_is_compiled_gives_what_python_gives(function):
    count = len(function.parameters)
    for arguments in itertools.product((-9, -1, 0, 1, 2, 8, 40), (-3, 0, 1, 5, 33), (1, 2, 7)):
        assert function(*arguments[:count]) == function.py_func(*arguments[:count])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float64])
def test_totals_have_the_type_of_what_is_added(dtype):
    @jit
    def total(values):
        result, count = 0, 0
        for k in range(len(values)):
            result += values[k]
            count += 1
        return result, count

    assert total(np.array([3, 9, 2], dtype)) == (14, 3)


FUNCTIONS = """
from h100sim.native import entry, inner, jit

@inner
def tripled(x):
    return 3 * x

@jit
def around(x):
    return tripled(x) + 1

@entry("int64")
def entered(x):
    return around(x) + tripled(x)
"""
WITHOUT = """
import sys
sys.modules["h100sim.compiling"] = None
from h100sim import native
assert native._compiling().__name__ == "h100sim.plain_compiling"
from functions import around, entered
assert (entered(5), around(5)) == (31, 16)
"""


def test_versions_of_numba_without_what_is_needed_compile_all_the_same(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    environment = {
        **os.environ,
        "H100SIM_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    for _ in range(2):  # the second time from the disk
        subprocess.run([sys.executable, "-c", WITHOUT], env=environment, check=True, timeout=300)
