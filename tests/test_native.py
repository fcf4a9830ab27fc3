"""Compiled code: one form of a function per type, and lane operations compiled in another process."""

import numpy as np
from numba import types

from h100sim import compile_ahead
from h100sim.isa import lane
from h100sim.native import array_at, i32, inner, jit, record, table, u8


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


PARENT = np.dtype([("count", "i8"), ("first", "i8"), ("items", "i8")])
ITEM = np.dtype([("kind", "i4"), ("weight", "f8")], align=True)
parent, first, items = record(PARENT), record(ITEM, PARENT, "first"), table(PARENT, "items", ITEM)


@jit
def change_views(address, words):
    array_at(address, (2, 3), np.uint16)[1, 2] = 7
    u8(address, 12)[0] = 255
    i32(words, 3)[-1] = -5
    return array_at(address, (2, 3), np.uint16).sum() + i32(words, 3).shape[0]


def test_views_are_the_memory_at_an_address():
    memory, words = np.zeros((2, 3), np.uint16), np.zeros(3, np.int32)
    assert change_views(memory.ctypes.data, words.ctypes.data) == 255 + 7 + 3
    assert memory.tolist() == [[255, 0, 0], [0, 0, 7]] and words.tolist() == [0, 0, -5]


@jit
def weigh(address):
    total = first(address).weight
    for k in range(parent(address).count):
        items(address)[k].kind += 1
        total += items(address)[k].weight
    return total


def test_records_and_tables_are_found_through_their_parent():
    rows = np.array([(1, 0.5), (2, 0.25), (3, 8.0)], ITEM)
    head = np.array([(2, rows[2:].ctypes.data, rows.ctypes.data)], PARENT)
    assert weigh(head.ctypes.data) == 8.75
    assert rows["kind"].tolist() == [2, 3, 3]
