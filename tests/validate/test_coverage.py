"""The table of instructions is current, and the simulator takes what ptxas takes for sm_90a and what real kernels have."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import h100sim
from h100sim.isa import lane
from h100sim.isa.machine import MachineOp
from h100sim.native import address_of
from h100sim.program import lower_by_line
from h100sim.ptx import parse
from h100sim.ptx.types import split_opcode
from validate.coverage import assembler, table
from validate.coverage.forms import instruction_of, kernel_of_instructions, lane_form, lane_operation, patterns

ROOT = Path(__file__).parents[2]

#: Forms that ptxas takes and the simulator refuses, by their beginning; docs/coverage.md says why.
REFUSED_HERE = re.compile(
    r"createpolicy\.cvt|multimem|istypep|tex\.|tld4|txq|su(ld|st|red|q)|v(add|sub|avrg|absdiff|min|max|set|shl|shr|mad)"
    r"|alloca|stack(save|restore)|mma\.sync\.aligned\.m8n8k4\.\w+\.\w+\.(f16|f32)\b"
    r"|mov\.\w+ \w, %pm"
)
#: Opcodes of real kernels that are refused.
REFUSED_IN_THE_WILD: set[str] = set()


def test_the_page_is_current():
    page = (ROOT / "docs" / "coverage.md").read_text()
    assert page == table.markdown(), "write it again: python -m validate coverage --out docs/coverage.md"


def test_every_form_is_taken_or_refused_as_ptxas_does():
    here, there = table.machine_answers(), assembler.refusals()
    taken_here_alone = [form for form, answer in here.items() if form in there and not answer.refusal]
    refused_here_alone = [form for form, answer in here.items() if form not in there and answer.refusal]
    assert len(here) > 6000 and len(there) > 240
    assert taken_here_alone == []
    assert [form for form in refused_here_alone if not REFUSED_HERE.match(form)] == []
    assert len(refused_here_alone) < 70


def test_every_handler_compiles():
    """The first and the last form of every pattern: what runs them, and what their units call when they are done."""
    handlers = set()
    for pattern in patterns():
        for form in (pattern.forms[0], pattern.forms[-1]):
            text, line = kernel_of_instructions([instruction_of(form)])
            try:
                module = parse(text)
                op = lower_by_line(module, module.functions["kernel"])[line]
            except (h100sim.PtxError, KeyError):
                continue
            if isinstance(op, MachineOp):
                handlers |= {handler for handler in (op.handler, op.completion, *op.uses) if handler is not None}
    assert len(handlers) > 70 and all(address_of(handler) for handler in handlers)


def test_ptxas_has_every_lane_instruction():
    refused = assembler.refusals()
    assert [o for opcodes in lane.forms().values() for o in opcodes if lane_form(o) in refused] == []


def test_refusals_name_the_instruction():
    """Every refusal has a message about the instruction; none is an error of another kind."""
    for form, answer in table.machine_answers().items():
        if answer.refusal:
            base = form.split(".")[0].split(" ")[0]
            assert base in answer.refusal or form.startswith("mov"), (form, answer.refusal)


def test_opcodes_of_real_kernels_are_supported():
    """804 opcodes of 527 kernels: modifiers may stand in any order."""
    known = {_parts(form.split(" ")[0]): form for pattern in patterns() for form in pattern.forms}
    refused = set()
    opcodes = [line.split()[1] for line in (ROOT / "tests/data/opcodes_in_the_wild.txt").read_text().splitlines() if line[0] != "#"]
    for opcode in opcodes:
        if opcode.split(".")[0] in lane.forms():
            lane_operation(opcode)
            continue
        form = known[_parts(opcode)]
        (answer,) = table.answers_of([opcode + form[len(form.split(" ")[0]) :]]).values()
        if answer.refusal:
            refused.add(opcode)
    assert len(opcodes) == 804 and refused == REFUSED_IN_THE_WILD


def _parts(opcode: str) -> tuple:
    base, modifiers, types = split_opcode(opcode)
    return base, tuple(sorted(modifiers)), types


def test_captures_that_the_page_names_exist():
    page = (ROOT / "docs" / "coverage.md").read_text()
    named = set(re.findall(r"(?:validate/silicon|tests/data)/[\w]+\.(?:json|npz)", page))
    assert len(named) > 15 and [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("form", "instruction"),
    [
        ("st.async.x.v2.b64 [r], v, [r]", "st.async.x.v2.b64 [r1], {d1, d2}, [r2]"),
        ("atom.global.add.f16x2 t, [d], t", "atom.global.add.f16x2 r1, [d1], r2"),
        ("wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 1"),
        ("mov.u32 r, %tid.x", "mov.u32 r1, %tid.x"),
        ("ldmatrix.sync.aligned.m8n8.x2.b16 <r2>, [d]", "ldmatrix.sync.aligned.m8n8.x2.b16 {r1, r2}, [d1]"),
    ],
)
def test_letters_become_registers(form, instruction):
    assert instruction_of(form) == instruction


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on the path")
def test_kept_refusals_are_those_of_the_assembler():
    refused = assembler.refusals()
    some = [*list(refused)[::25], *assembler.every_form()[::900]]
    assert {form: assembler.verdict(form) for form in some} == {form: refused.get(form, "") for form in some}
