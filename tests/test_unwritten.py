"""Registers that nothing writes before they are read: found on every way at once, and never where a write is possible."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import h100sim
import tk_programs
from h100sim.hazard import UnwrittenRead
from h100sim.linker import link
from h100sim.program import lower_program
from h100sim.ptx import parse
from h100sim.ptx.module import Function, Module
from h100sim.unwritten import unwritten_reads

ROOT = Path(__file__).parent.parent
HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<99>;\n"
START = "ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x;\n"


def text(body: str, before: str = "") -> str:
    return f"{HEADER}{before}.visible .entry kernel(.param .u64 out)\n{{\n{REGISTERS}{START}{body}\nret;\n}}\n"


def reads_of(module: Module, entry: Function) -> tuple[UnwrittenRead, ...]:
    linked = link(module, entry)
    return unwritten_reads(linked, lower_program(module, linked))


def found_in(ptx: str) -> list[UnwrittenRead]:
    module = parse(ptx)
    entries = [function for function in module.functions.values() if function.is_entry]
    return [read for entry in entries for read in reads_of(module, entry)]


def names(body: str, before: str = "") -> list[str]:
    return [read.register for read in found_in(text(body, before))]


def test_what_is_found_says_where() -> None:
    read = found_in(text("add.u32 %r2, %r1, %r3;"))[0]
    assert (read.pc, read.register, read.line, read.is_guard) == (2, "%r3", 8, False)
    guard = found_in(text("@!%p1 mov.u32 %r2, 1;"))[0]
    assert guard.message == "register %p1 must be written before it guards an instruction, not left as its last owner left it"
    assert guard.is_guard


@pytest.mark.parametrize(
    "body",
    [
        "st.global.u32 [%d1], %r2;",
        "st.global.u32 [%d2], %r1;",
        "st.global.v2.u32 [%d1], {%r1, %r2};",
        "mov.b64 %d2, {%r1, %r2};",
        "@%p1 bra BACK; BACK:",
        "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%d1], %r2;",
        "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;",
        "ld.shared.u32 %r3, [%r2+4];",
        # The write comes too late, and no loop leads back.
        "add.u32 %r3, %r2, 1; mov.u32 %r2, 5;",
        # Both sides are behind a read, one side after the other.
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra L; mov.u32 %r3, 1; bra M; L: mov.u32 %r3, 2; M: add.u32 %r4, %r3, %r2;",
        "L: add.u32 %r3, %r2, 1; setp.lt.u32 %p1, %r3, 5; @%p1 bra L;",
    ],
)
def test_a_read_that_nothing_precedes_is_found(body: str) -> None:
    assert len(names(body)) == 1 and names(body)[0] in ("%r2", "%d2", "%p1")


@pytest.mark.parametrize(
    "body",
    [
        "mov.u32 %r2, 1; st.global.u32 [%d1], %r2;",
        # A guarded write, one of two sides, and a write that only a later round of a loop sees are writes.
        "setp.eq.u32 %p1, %r1, 0; @%p1 mov.u32 %r2, 1; st.global.u32 [%d1], %r2;",
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra M; mov.u32 %r2, 1; M: add.u32 %r4, %r1, %r2;",
        "L: add.u32 %r3, %r1, %r2; mov.u32 %r2, %r3; setp.lt.u32 %p1, %r3, 5; @%p1 bra L;",
        "ld.global.v2.u32 {%r2, _}, [%d1]; add.u32 %r3, %r2, 1;",
        "elect.sync %r2|%p1, -1; @%p1 st.global.u32 [%d1], %r2;",
        "atom.global.add.u32 %r2, [%d1], 1; add.u32 %r3, %r2, 1;",
        "T: .branchtargets A, B; and.b32 %r2, %r1, 1; brx.idx %r2, T; A: mov.u32 %r3, 1; B: add.u32 %r4, %r3, 1;",
        # Nobody comes there.
        "bra END; add.u32 %r3, %r2, 1; END:",
        # How nvcc without optimisation copies an object without members.
        "st.global.u8 [%d1], %h1;",
    ],
)
def test_a_read_that_some_write_may_precede_is_not_found(body: str) -> None:
    assert names(body) == []


def test_a_byte_of_a_register_that_is_written_elsewhere_is_a_value() -> None:
    assert names("st.global.u8 [%d1], %h1; mov.b16 %h1, 1;") == ["%h1"]


FUNCTION = ".func (.reg .b32 %result) f(.reg .b32 %a) {{ .reg .b32 %t<3>; {} add.u32 %result, %a, %t1; ret; }}\n"


def test_registers_of_functions_and_their_results() -> None:
    call = "call (%r2), f, (%r1); st.global.u32 [%d1], %r2;"
    assert names(call, FUNCTION.format("mov.u32 %t1, 1;")) == []
    assert names(call, FUNCTION.format("")) == ["f::%t1"]
    assert names("call (%r2), f, (%r3);", FUNCTION.format("mov.u32 %t1, 1;")) == ["%r3"]


@pytest.mark.parametrize("path", sorted((ROOT / "tests/kernels").glob("*.ptx")), ids=lambda path: path.stem)
def test_what_compilers_make_is_silent(path: Path) -> None:
    assert found_in(path.read_text()) == []


@pytest.mark.parametrize("name", [entry.name for entry in tk_programs.catalog()])
def test_programs_are_silent(name: str) -> None:
    program = importlib.import_module(f"tk_programs.{name}")
    assert found_in(program.build(**program.CONFIG).ptx) == []


def test_a_run_warns_of_those_it_comes_to() -> None:
    body = (
        "@%p1 add.u32 %r1, %r1, 1; setp.gt.u32 %p2, %r1, 99; @%p2 bra FAR; add.u32 %r4, %r1, %r2; ret; FAR: add.u32 %r4, %r1, %r3;"
    )
    kernel = h100sim.RawModule(code=text(body)).get_function("kernel")
    launch = (1,), (32,), (np.zeros(32, np.int32),)
    run = kernel(*launch)
    assert run.hazards == []
    assert [warning.kind for warning in run.warnings] == ["unwritten-register"] * 2
    assert [warning.second.what for warning in run.warnings] == ["guard %p1", "read of register %r2"]
    assert run.warnings[1].second.op == "add.u32" and run.warnings[1].second.where == "line 8"
    strict = kernel(*launch, checks="strict")
    assert [hazard.kind for hazard in strict.hazards] == ["unwritten-register"] * 2 and strict.warnings == []
    assert kernel(*launch, checks="off").warnings == []
