"""Where instructions stand: in code of an elected lane, in loops."""

from __future__ import annotations

from h100sim.linker import link
from h100sim.ptx import parse
from h100sim.ptx.places import Places

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
"""


def places(body: str) -> tuple[set[str], set[str]]:
    """Return the numbers that moves to %r7 carry where a chosen lane runs them, and where they stand in a loop."""
    module = parse(HEAD + body + "    ret;\n}\n")
    linked = link(module, module.functions["k"])
    code = linked.function.instructions
    marks = {k: str(i.operands[1].value) for k, i in enumerate(code) if i.base == "mov" and i.operands[0].register.name == "%r7"}
    found = Places(code, linked.joins)
    return {marks[k] for k in found.elected if k in marks}, {marks[k] for k in found.repeated if k in marks}


def test_code_behind_a_branch_on_elect_is_of_one_lane_until_lanes_meet() -> None:
    body = """    mov.u32 %r7, 1;
    elect.sync _|%p0, 0xffffffff;
    @!%p0 bra DONE;
    mov.u32 %r7, 2;
DONE:
    mov.u32 %r7, 3;
"""
    assert places(body)[0] == {"2"}


def test_a_lane_that_a_comparison_chose_is_not_elected() -> None:
    body = """    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra DONE;
    mov.u32 %r7, 2;
DONE:
    mov.u32 %r7, 3;
"""
    assert places(body)[0] == set()


def test_compilers_hand_on_who_was_chosen() -> None:
    """As CUTLASS has it: a guarded move in an asm block, a comparison outside."""
    body = """    mov.u32 %r1, 0;
    elect.sync %r0|%p0, 0xffffffff;
    @%p0 mov.u32 %r1, 1;
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra DONE;
    mov.u32 %r7, 2;
DONE:
    @%p0 mov.u32 %r7, 3;
    mov.u32 %r7, 4;
"""
    assert places(body)[0] == {"2", "3"}


def test_what_follows_the_leave_of_all_others_is_of_one_lane() -> None:
    body = """    mov.u32 %r7, 1;
    elect.sync _|%p0, 0xffffffff;
    @!%p0 ret;
    mov.u32 %r7, 2;
"""
    assert places(body)[0] == {"2"}


def test_loops_are_what_a_branch_back_encloses() -> None:
    body = """    mov.u32 %r0, 0;
    mov.u32 %r7, 1;
OUTER:
    mov.u32 %r7, 2;
INNER:
    mov.u32 %r7, 3;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p0, %r0, 4;
    @%p0 bra INNER;
    mov.u32 %r7, 4;
    setp.lt.u32 %p0, %r0, 9;
    @%p0 bra OUTER;
    mov.u32 %r7, 5;
    bra AHEAD;
AHEAD:
    mov.u32 %r7, 6;
"""
    assert places(body)[1] == {"2", "3", "4"}
