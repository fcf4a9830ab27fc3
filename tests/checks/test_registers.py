"""Registers of wgmma: shapes, copies and scale-d, as stories."""

from __future__ import annotations

from story import Story, registers

from h100sim.checks.registers import uses_of
from h100sim.trace import Event

WARPS = range(4)
A, B = 0x1000, 0x2000


def filled() -> Story:
    s = Story()
    s.write(WARPS, A, size=16)
    s.write(WARPS, B, size=8)
    s.fence(WARPS)
    s.barrier(WARPS)
    s.wgmma_fence(WARPS)
    return s


def finished(s: Story) -> list[str]:
    s.wgmma_commit(WARPS)
    s.wgmma_wait(WARPS)
    return [h.message for h in s.hazards()]


def test_different_shapes_on_one_accumulator_need_a_fence() -> None:
    def story(fence: bool) -> Story:
        s = filled()
        s.wgmma(WARPS, A, B, "d0 d1 d2 d3")
        if fence:
            s.wgmma_fence(WARPS)
        s.wgmma(WARPS, A, B, "d0 d1 d2 d3 d4 d5 d6 d7", n=16)
        return s

    assert finished(story(True)) == []
    assert finished(story(False))[0] == (
        "accumulator d0 must be ordered by wgmma.fence between wgmmas of different shapes, not chained"
    )


def test_a_copy_between_accumulators_carries_their_state() -> None:
    source, target = registers("d0").elements[0], registers("e0").elements[0]

    def story(then_reads: bool) -> Story:
        s = filled()
        s.wgmma(WARPS, A, B, "d0 d1 d2 d3")
        s.issue(WARPS, "mov.f32", (target, source))
        if then_reads:
            s.issue(WARPS, "add.f32", (registers("x").elements[0], target, target))
        s.wgmma(WARPS, A, B, "e0 d1 d2 d3")
        return s

    assert finished(story(False)) == []
    assert "accumulator e0 must be left alone until wgmma.wait_group, not accessed while the wgmma is pending" in finished(
        story(True)
    )


def test_scale_d_in_a_predicate_is_known_from_the_event() -> None:
    s = filled()
    s.wgmma(WARPS, A, B, "d0 d1 d2 d3")
    s.events = [(*e[:-1], 1) if e[1] == Event.WGMMA_ISSUED else e for e in s.events]
    assert finished(s) == ["accumulator d0 must be written before a wgmma adds to it, not left undefined"]


def test_uses_name_each_register_once() -> None:
    s = filled()
    s.wgmma(WARPS, A, B, "d0 d1 d2 d3", fragment="a0 a1 a2 a3")
    uses = uses_of(tuple(s.instructions))
    assert uses.names == ("d0", "d1", "d2", "d3", "a0", "a1", "a2", "a3")
    assert uses.touching.tolist() == [i.opcode.startswith("wgmma.mma_async") for i in s.instructions]
