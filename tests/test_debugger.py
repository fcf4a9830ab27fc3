"""What the debugger shows: registers as numbers of their types, and itself in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import h100sim

SQUARE = Path(__file__).parent.parent / "docs" / "square.ptx"


def stopped_at(line: int) -> h100sim.debugger.Debugger:
    kernel = h100sim.RawModule(path=SQUARE).get_function("square")
    x = np.arange(64, dtype=np.float32) / 2
    stopped = kernel.debug((1,), (64,), (x, np.zeros_like(x), np.int32(64)))
    assert stopped.run_to(line=line)
    return stopped


def test_registers_are_numbers_of_the_type_they_are_declared_with() -> None:
    shown = stopped_at(line=29).registers(0)
    assert shown["%value"].dtype == np.float32
    assert shown["%value"].tolist() == [lane / 2 for lane in range(32)]
    assert shown["%squared"].tolist() == [(lane / 2) ** 2 for lane in range(32)]
    assert (shown["%i"].dtype, shown["%x"].dtype, shown["%past"].dtype) == (np.uint32, np.uint64, np.bool_)
    assert shown["%i"].tolist() == list(range(32))


def test_signed_and_short_registers_are_sign_extended_from_their_own_width() -> None:
    text = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel()
{
.reg .s32 %word; .reg .s16 %short; .reg .s64 %long; .reg .f64 %double;
mov.s32 %word, -5; mov.s16 %short, -6; mov.s64 %long, -7; mov.f64 %double, -8.5;
ret;
}
"""
    stopped = h100sim.RawModule(code=text).get_function("kernel").debug((1,), (32,), ())
    assert stopped.run_to(line=8)
    shown = stopped.registers(0)
    assert [(shown[name].dtype.str[1:], shown[name].tolist()) for name in ("%word", "%short", "%long", "%double")] == [
        ("i4", [-5] * 32), ("i2", [-6] * 32), ("i8", [-7] * 32), ("f8", [-8.5] * 32),
    ]  # fmt: skip


def test_it_shows_itself_in_a_line() -> None:
    stopped = stopped_at(line=27)
    assert repr(stopped) == f"<Debugger of square: stopped at cycle {stopped.cycle:,}, after {stopped.position:,} steps>"
    while stopped.step(100):
        pass
    assert repr(stopped).startswith("<Debugger of square: ended at cycle ")


def test_a_run_and_its_trace_show_themselves_in_a_line() -> None:
    kernel = h100sim.RawModule(path=SQUARE).get_function("square")
    x = np.zeros(64, np.float32)
    run = kernel((1,), (64,), (x, x, np.int32(64)))
    assert repr(run) == f"<Run of square on h100-sxm: {run.cycles:,} cycles, 1 CTA, no hazards>"
    assert repr(run.trace) == f"<Trace of square: {len(run.trace):,} events in {run.cycles:,} cycles>"
    raced = kernel((2,), (64,), (x, x, np.int32(64)))
    assert repr(raced).count("\n") == 0
