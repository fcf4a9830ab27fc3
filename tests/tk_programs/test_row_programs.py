"""Programs that work on rows: softmax, layernorm and rotary, in shapes that do and do not fill their tiles."""

from __future__ import annotations

import pytest

import tk_programs
from h100sim.errors import UsageError
from tests.tk_programs.meets import assert_meets_reference
from tests.tk_programs.omissions import noticed, without

CONFIGS = [
    ("softmax", {"rows": 1, "cols": 64, "chunk": 64}),
    ("softmax", {"rows": 130, "cols": 768, "chunk": 256}),
    ("layernorm", {"rows": 16, "d": 64, "warps": 1}),
    ("layernorm", {"rows": 50, "d": 192, "warps": 3, "eps": 0.1}),
    ("rotary", {"batch": 1, "heads": 1, "n": 64, "d": 128}),
    ("rotary", {"batch": 1, "heads": 5, "n": 70, "d": 64}),
]


@pytest.mark.parametrize("name, config", CONFIGS, ids=str)
def test_rows_are_right(name, config, on):
    assert_meets_reference(getattr(tk_programs, name), config, on)


@pytest.mark.parametrize(
    "name, config, call, occurrence, outcomes",
    [
        ("softmax", {}, "tk.wait(arrived", 0, {"race", "uninitialised"}),
        ("softmax", {}, "tk.sync()", 0, {"race", "KernelError"}),
        ("softmax", {}, "tk.warpgroup.sync(1)", 0, {"race"}),
        ("softmax", {}, "tk.tma.store_async_wait", 0, {"lifetime"}),
        ("layernorm", {}, "tk.wait(arrived", 0, {"race", "uninitialised"}),
        ("layernorm", {}, "tk.tma.expect_bytes", 0, {"DeadlockError"}),
        ("layernorm", {}, "tk.tma.store_async_wait", 0, {"lifetime"}),
        ("rotary", {"heads": 5}, "tk.wait(arrived", 0, {"race", "uninitialised", "over-arrival"}),
        ("rotary", {"heads": 5}, "tk.tma.store_async_read_wait", 0, {"race"}),
        ("rotary", {"heads": 5}, "tk.warpgroup.sync(1)", 0, {"race"}),
        ("rotary", {"heads": 5}, "tk.warpgroup.sync(1)", 1, {"race"}),
    ],
)
def test_an_omission_is_noticed(name, config, call, occurrence, outcomes):
    program = getattr(tk_programs, name)
    kernel = without(program, program.build(**config), call, occurrence)
    assert outcomes & noticed(kernel, *program.inputs(1, **config))


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("softmax", {"cols": 100}, "cols must be a multiple of 128, not 100"),
        ("softmax", {"chunk": 32}, "chunk must be 64, 128 or 256, not 32"),
        ("softmax", {"rows": 0}, "rows must be at least 1, not 0"),
        ("layernorm", {"d": 96}, "d must be a multiple of 64, not 96"),
        ("layernorm", {"warps": 9}, "warps must be from 1 to 8, not 9"),
        ("layernorm", {"rows": 0}, "rows must be at least 1, not 0"),
        ("layernorm", {"eps": 0}, "eps must be between 0 and 1, not 0"),
        ("rotary", {"d": 32}, "d must be 64 or 128, not 32"),
        ("rotary", {"heads": 0}, "heads must be at least 1, not 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(name, config, message):
    with pytest.raises(UsageError) as error:
        getattr(tk_programs, name).build(**config)
    assert error.value.message == message
