"""What an assembler makes of instructions: what vanishes, what is folded, and how the counts compare with real machine code."""

from __future__ import annotations

import pytest

import h100sim
from validate import capture, sass

#: How far the predicted number of machine instructions may be from that of ptxas, as a part of it.
LARGEST_DEVIATION = 0.13


def counts(*body: str) -> list[float]:
    """Return how many machine instructions each instruction of a kernel's body becomes."""
    text = "\n".join(
        (
            ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 n)\n{",
            ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<4>; .reg .f32 %f<4>;",
            "ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n];",
            *body,
            "ret;\n}",
        )
    )
    outline = h100sim.RawModule(code=text).get_function("k").program.outline
    assert outline is not None
    return [step.count for step in outline.steps[2:-1]]


def test_what_nobody_reads_costs_nothing() -> None:
    assert counts("add.s32 %r1, %r0, 1;", "add.s32 %r2, %r1, 2;", "st.global.u32 [%d0], %r0;") == [0, 0, 1]


def test_a_move_costs_nothing() -> None:
    assert counts("mov.b32 %r1, %r0;", "add.s32 %r2, %r1, %r0;", "st.global.u32 [%d0], %r2;") == [0, 1, 1]


def test_two_accumulators_are_cleared_at_once() -> None:
    assert counts("mov.f32 %f0, 0f00000000;", "mov.f32 %f1, 0f00000000;", "st.global.v2.f32 [%d0], {%f0, %f1};") == [0.5, 0.5, 1]


def test_the_same_computation_is_done_once() -> None:
    body = ("mad.lo.s32 %r1, %r0, 8, 3;", "mad.lo.s32 %r2, %r0, 8, 3;", "st.global.v2.u32 [%d0], {%r1, %r2};")
    assert counts(*body) == [1, 0, 1]
    changed = (body[0], "add.s32 %r0, %r0, %r1;", *body[1:])
    assert counts(*changed) == [1, 1, 1, 1]


def test_an_offset_is_part_of_the_address() -> None:
    assert counts("add.s64 %d1, %d0, 16;", "st.global.u32 [%d1], %r0;") == [0, 1]


def test_sums_of_descriptors_are_one_instruction_others_of_64_bits_two() -> None:
    """Descriptors are in uniform registers, which are added as a whole."""
    wgmma = (
        "wgmma.fence.sync.aligned;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d3, 1, 1, 1, 0, 0;",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "st.global.f32 [%d0], %f0;",
    )
    sums = ("mul.wide.u32 %d1, %r0, 3;", "add.s64 %d2, %d1, 2;", "add.s64 %d3, %d2, 128;")
    assert counts(*sums, *wgmma)[1:3] == [1, 1]
    assert counts(*sums, *wgmma, "st.global.b64 [%d0], %d3;")[1:3] == [2, 2]


def test_a_shift_is_part_of_a_sum_and_logic_of_three_inputs_is_one_instruction() -> None:
    assert counts("shl.b32 %r1, %r0, 3;", "add.s32 %r2, %r1, %r0;", "st.global.u32 [%d0], %r2;") == [0, 1, 1]
    assert counts("and.b32 %r1, %r0, 7;", "xor.b32 %r2, %r1, %r0;", "st.global.u32 [%d0], %r2;") == [0, 1, 1]


def test_what_a_loop_does_not_change_stands_in_front_of_it() -> None:
    found = counts(
        "mov.u32 %r1, %r0;",
        "LOOP: mul.lo.s32 %r2, %r0, %r0;",
        "st.global.u32 [%d0], %r2;",
        "add.s32 %r1, %r1, -1;",
        "setp.ne.s32 %p0, %r1, 0;",
        "@%p0 bra LOOP;",
    )
    assert found == [0, 0, 1, 1, 1, 1]


def test_a_divisor_is_inverted_once() -> None:
    start = "cvt.rn.f32.u32 %f0, %r0;"
    twice = ("div.approx.ftz.f32 %f1, 0f3f800000, %f0;", "div.approx.ftz.f32 %f2, 0f40000000, %f0;")
    assert counts(start, *twice, "st.global.v2.f32 [%d0], {%f1, %f2};") == [1, 2, 1, 1]
    changed = (twice[0], "add.f32 %f0, %f0, %f1;", twice[1])
    assert counts(start, *changed, "st.global.v2.f32 [%d0], {%f1, %f2};") == [1, 2, 1, 2, 1]


def test_an_exponential_of_what_is_never_negative_is_not_scaled() -> None:
    start, end = "cvt.rn.f32.u32 %f0, %r0;", "st.global.f32 [%d0], %f2;"
    assert counts(start, "neg.f32 %f1, %f0;", "ex2.approx.f32 %f2, %f1;", end) == [1, 1, 5, 1]
    assert counts(start, "abs.f32 %f1, %f0;", "ex2.approx.f32 %f2, %f1;", end) == [1, 1, 1, 1]
    assert counts(start, "ex2.approx.f32 %f1, %f0;", "ex2.approx.f32 %f2, %f1;", end) == [1, 5, 1, 1]


def test_a_guarded_instruction_stays() -> None:
    assert counts("setp.eq.u32 %p0, %r0, 0;", "mov.b32 %r1, 5;", "@%p0 add.s32 %r1, %r1, 1;", "st.global.u32 [%d0], %r1;") == [
        1, 0, 1, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("case", ["gemm", "gemm_f32", "gemm_bn256", "attention", "attention_d128", "copy"])
def test_as_many_instructions_as_ptxas_makes(case: str) -> None:
    committed = sass.committed()["cases"][case]
    kernel = capture.build(committed["program"], committed["config"], seed=0)[0]
    assert abs(sass.predicted(kernel.ptx, kernel.name) / committed["instructions"] - 1) < LARGEST_DEVIATION
