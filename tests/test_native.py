"""Compiled code: one form of a function per type, and lane operations compiled in another process."""

import numpy as np
from numba import types

from h100sim import compile_ahead
from h100sim.isa import lane
from h100sim.native import inner, jit


@inner
def twice(x):
    return 2 * x


@jit
def sum_of_calls(x):
    return twice(1) + twice(2) + twice(np.int32(x)) + twice(x)


def test_constants_and_int32_share_one_form():
    assert sum_of_calls(2**31 + 5) == 2 + 4 + 2 * (5 - 2**31) + 2 * (2**31 + 5)
    for type_ in (types.literal(1), types.literal(2), types.int32, types.int64):
        twice.get_call_template((type_,), {})
    assert [signature.args for signature in twice.nopython_signatures] == [(types.int64,)]


def test_other_process_finds_a_lane_operation_by_its_file():
    function = lane.function_of(lane.natural_form("add.s32"))
    found = compile_ahead._named(compile_ahead._name(function))
    assert found.__code__.co_code == function.__code__.co_code
    assert found.__code__.co_filename == function.__code__.co_filename
