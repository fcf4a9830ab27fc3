"""Stories of mbarriers, named barriers and cluster barriers: the edges they give, and how they are misused."""

from __future__ import annotations

import pytest
from story import Story

A = 0x1000
WARPS = range(4)


def kinds(story: Story, mode: str = "on") -> list[str]:
    return [h.kind for h in story.hazards(mode)]


def test_an_arrival_publishes_and_a_wait_learns() -> None:
    def story(parity: int) -> Story:
        s = Story()
        s.init(0, 0, 1)
        s.barrier(WARPS)
        s.write([1], A)
        s.arrive(1, 0)
        s.wait(2, 0, parity)
        s.read([2], A)
        return s

    assert kinds(story(0)) == []
    assert kinds(story(1)) == ["race"]  # Parity 1 of a fresh mbarrier is not yet complete after one phase: False.


def test_what_follows_an_arrival_is_not_published() -> None:
    s = Story()
    s.init(0, 0, 1)
    s.barrier(WARPS)
    s.arrive(1, 0)
    s.write([1], A)
    s.wait(2, 0, 0)
    s.read([2], A)
    assert kinds(s) == ["race"]


def test_a_relaxed_arrive_publishes_nothing() -> None:
    s = Story()
    s.init(0, 0, 1)
    s.barrier(WARPS)
    s.write([1], A)
    s.arrive(1, 0, opcode="mbarrier.arrive.relaxed.cta")
    s.wait(2, 0, 0)
    s.read([2], A)
    assert kinds(s) == ["race"]


def test_all_arrivals_of_a_phase_are_learnt() -> None:
    s = Story()
    s.init(0, 0, 3)
    s.barrier(WARPS)
    for warp in (0, 1, 2):
        s.write([warp], A + 128 * warp)
        s.arrive(warp, 0)
    s.wait(3, 0, 0)
    s.read([3], A, size=12)
    assert kinds(s) == []


def test_an_early_release_is_found_in_a_run_where_the_producer_was_quick() -> None:
    """Count 1 with two consumers: the second arrival lands in the next phase, whenever it comes."""
    s = Story(warps=3)
    s.init(0, 0, 1)
    s.barrier(range(3))
    s.arrive(1, 0)
    s.wait(0, 0, 0)
    s.arrive(2, 0)
    assert s.found() == [
        ("over-arrival", "mbarrier 0x400 phase 0 must be waited for before anybody arrives in phase 1, not run past")
    ]


def test_names_of_the_dsl_appear() -> None:
    s = Story(warps=1, semaphores=({"name": "full", "offset": 0x400, "count": 4},))
    s.init(0, 2, 1, at=0x410)
    s.arrive(0, 2)
    s.arrive(0, 2)
    assert s.found()[0][1].startswith("full[2] phase 0 must be waited for")


def test_an_invalidated_mbarrier_is_plain_memory_again() -> None:
    from h100sim.trace import Event

    s = Story(warps=1)
    s.init(0, 0, 1)
    s.by(Event.MBARRIER_INVALIDATED, 0, "mbarrier.inval", a=0)
    s.write(0, 0x400)
    assert kinds(s) == []


def test_a_named_barrier_orders_those_that_arrive_before_those_that_sync() -> None:
    s = Story()
    s.write([0, 1], A)
    s.barrier([0, 1], 1, sync=False, count=128)
    s.barrier([2, 3], 1, count=128)
    s.read([2], A, size=8)
    s.write([3], A + 4096)
    s.read([0], A + 4096)
    assert kinds(s) == ["race"]


@pytest.mark.parametrize("release, expected", [(True, []), (False, ["race"])])
def test_a_cluster_barrier_orders_accesses_to_distributed_shared_memory(release: bool, expected: list[str]) -> None:
    s = Story(warps=1, ctas=2, cluster=2)
    s.write(0, 1 << 24 | A)
    s.cluster_barrier([0, 1], release=release)
    s.read(1, 1 << 24 | A)
    s.cluster_barrier([0, 1], generation=1)
    assert kinds(s) == expected


@pytest.mark.parametrize("fenced, expected", [(True, []), (False, ["race"])])
def test_a_remote_arrive_needs_the_init_to_be_known(fenced: bool, expected: list[str]) -> None:
    from h100sim.trace import Fence

    s = Story(warps=1, ctas=2, cluster=2)
    s.init(0, 0, 1)
    if fenced:
        s.fence(0, Fence.MBARRIER_INIT)
    s.cluster_barrier([0, 1], release=False)
    s.arrive(1, 0)
    s.wait(0, 0, 0)
    assert kinds(s) == expected


def test_a_cta_must_know_that_its_peers_have_finished_with_it() -> None:
    def story(waits: bool) -> Story:
        s = Story(warps=1, ctas=2, cluster=2)
        s.init(0, 0, 1)
        s.cluster_barrier([0, 1])
        s.arrive(1, 0)
        if waits:
            s.wait(0, 0, 0)
        s.exit([0, 1])
        return s

    assert story(True).found() == []
    assert story(False).found() == [
        (
            "lifetime",
            "CTA 0 must not end before other CTAs have finished with its shared memory, not even in another schedule",
        )
    ]


def test_an_access_to_a_cta_that_has_ended() -> None:
    s = Story(warps=1, ctas=2, cluster=2)
    s.write(0, A)
    s.cluster_barrier([0, 1])
    s.exit(0)
    s.read(1, A)
    assert kinds(s) == ["lifetime"]


def test_a_multicast_is_over_for_a_cta_when_its_own_mbarrier_says_so() -> None:
    def story(waits: tuple[int, ...]) -> Story:
        s = Story(warps=1, ctas=2, cluster=2)
        for cta in range(2):
            s.init(cta, cta, 1)
        s.cluster_barrier([0, 1])
        for cta in range(2):
            s.arrive(cta, cta, tx=128)
        op = s.load(0, A, 128, 0, multicast=True)
        for cta in range(2):
            s.land(op, cta=cta, bar=cta)
        for cta in waits:
            s.wait(cta, cta, 0)
        for cta in range(2):
            s.read(cta, cta << 24 | A, key=cta)
        for cta in range(2):
            s.wait(cta, cta, 0)
        s.cluster_barrier([0, 1], generation=1)
        return s

    assert kinds(story((0, 1))) == []
    (hazard,) = story((0,)).hazards()
    assert (hazard.kind, hazard.second.cta) == ("race", 1)


def test_the_gemm_ring_is_clean_and_every_missing_step_is_found() -> None:
    steps = ("empty.wait", "arm", "full.wait", "wgmma.wait", "empty.arrive")

    def story(without: str) -> Story:
        s = Story(warps=8, roles=(("producer", 0, 3), ("consumer", 4, 7)))
        consumer = range(4, 8)
        for bar in range(4):
            s.init(0, bar, 1)
        s.barrier(range(8))
        for k in range(6):
            stage, turn = k % 2, k // 2 & 1
            a = 0x1000 + 0x1000 * stage
            if without != "empty.wait":
                s.wait(0, 2 + stage, turn ^ 1)
            if without != "arm":
                s.arrive(0, stage, tx=2048 + 256)
            ops = [s.load(0, a, 2048, stage), s.load(0, a + 2048, 256, stage, key="b")]
            for op in ops:
                s.land(op)
            if without != "full.wait":
                s.wait(consumer, stage, turn)
            s.wgmma_fence(consumer)
            s.wgmma(consumer, a, a + 2048)
            s.wgmma_commit(consumer)
            if without != "wgmma.wait":
                s.wgmma_wait(consumer)
            if without != "empty.arrive":
                s.arrive(4, 2 + stage)
        s.wgmma_wait(consumer)
        return s

    assert story("").found() == []
    for step in steps:
        found = story(step).found()
        assert found, f"a ring without {step} must be found"
