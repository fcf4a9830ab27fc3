"""Compiled code: one form of a function per type, and lane operations compiled in another process."""

import ctypes
import importlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from numba import types

from h100sim import code_cache, compile_ahead, engine, machine_code
from h100sim.checks import shadow
from h100sim.isa import lane
from h100sim.native import address_of, array_at, entry, i32, inner, jit, record, table, u8


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


TAKER = "import sys\nfor line in sys.stdin:\n    open(sys.argv[1], 'a').write(line)\n    print(flush=True)"


@pytest.mark.parametrize("lives", [True, False])
def test_two_processes_take_functions_from_both_ends_of_a_row(monkeypatch, tmp_path, lives):
    popen, here, there = subprocess.Popen, [], tmp_path / "taken"
    there.touch()

    def compile_slowly(function):
        here.append(compile_ahead._name(function))
        for _ in range(3000):
            if not lives or there.read_text():
                break
            time.sleep(0.01)

    command = [sys.executable, "-c", TAKER if lives else "", str(there)]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: popen(command, **options))
    monkeypatch.setattr(compile_ahead, "is_cached", lambda _: False)
    monkeypatch.setattr(compile_ahead, "compile_one", compile_slowly)
    monkeypatch.setattr(compile_ahead, "_WORTHWHILE", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    operations = [lane.function_of(lane.natural_form(name)) for name in ("add.s32", "sub.s32", "and.b32", "or.b32", "xor.b32")]
    compile_ahead.want(shadow.touch_lanes)
    compile_ahead.compile_ahead([engine.run, *operations])
    row = list(map(compile_ahead._name, sorted([engine.run, *operations, shadow.touch_lanes], key=compile_ahead._place)))
    assert row[0] == "h100sim.engine:run" and row[-1] == "h100sim.checks.shadow:touch_lanes"
    taken = there.read_text().split()
    assert here[0] == row[0]
    if lives:
        assert taken and here + taken[::-1] == row
    else:  # what it was given is compiled when it is needed
        assert not taken and here in (row, row[:-1])


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


@entry("int64", "int32[:, :]", "bool[:]", "int64[:]")
def add_rows(scale, rows, wanted, sums):
    for k in range(rows.shape[0]):
        if wanted[k]:
            sums[k] = scale * rows[k].sum()
    return rows.shape[1]


@jit
def add_rows_of_ones(sums):
    return add_rows(3, np.ones((2, 4), np.int32), np.ones(2, np.bool_), sums)


def test_entries_take_arrays_from_python_and_from_compiled_code():
    rows, sums = np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros(2, np.int64)
    assert add_rows(10, rows, np.array([True, True]), sums) == 3
    assert sums.tolist() == [30, 120]
    assert add_rows_of_ones(sums) == 4
    assert sums.tolist() == [12, 12]


@pytest.mark.parametrize("rows", [np.zeros((2, 3), np.int64), np.zeros((2, 6), np.int32)[:, ::2], np.zeros(6, np.int32)])
def test_entries_refuse_arrays_of_another_type_or_layout(rows):
    with pytest.raises(TypeError, match="array must be a contiguous int32 of 2 dimensions"):
        add_rows(1, rows, np.ones(2, bool), np.zeros(2, np.int64))


def divide(regs, mask, ops, ctx):
    quotients = np.zeros(2, np.int64)
    for k in range(2):
        quotients[k] = regs // (mask + k)
    return quotients.sum()


def test_machine_code_is_loaded_from_its_file(tmp_path):
    """The code of ``divide`` calls Numba's library, for an array."""
    address_of(divide)
    path = code_cache.object_file(divide)
    assert b"NRT_" in path.read_bytes()
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
    assert call(machine_code.load(path))(22, 7, 0, 0) == 3 + 2
    assert call(machine_code.load(path))(22, -1, 0, 0) == -22  # what is divided by 0 is 0: nothing raises
    assert machine_code.load(tmp_path / "none") is None
    (tmp_path / "half").write_bytes(path.read_bytes()[:-100])
    assert machine_code.load(tmp_path / "half") is None


EDITED = """
def kept(regs, mask, ops, ctx):
    return regs + 1
"""


def test_code_of_an_edited_file_is_not_kept(tmp_path, monkeypatch):
    """Two files; one is edited between import and compilation, so what is compiled may not be what it says now."""
    kept = []
    for name, is_edited in (("first", False), ("second", True)):
        (tmp_path / f"{name}.py").write_text(EDITED)
        monkeypatch.syspath_prepend(tmp_path)
        function = importlib.import_module(name).kept
        path = code_cache.object_file(function)
        if is_edited:
            (tmp_path / f"{name}.py").write_text(EDITED.replace("+ 1", "+ 2"))
        address_of(function)
        kept.append(path.exists())
        path.unlink(missing_ok=True)
    assert kept == [True, False]


START = """
import sys
import numpy as np
import h100sim
x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
kernel = h100sim.RawModule(path="docs/square.ptx").get_function("square")
run = kernel(2, 32, (x, y, np.int32(64)))
assert np.array_equal(y, x * x) and not run.hazards
print("numba" in sys.modules)
"""


def test_a_later_start_imports_no_compiler(tmp_path):
    found = []
    for _ in range(2):
        environment = {**os.environ, "H100SIM_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip())
    assert found == ["True", "False"]
