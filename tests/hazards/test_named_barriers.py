"""Named barriers and warp collectives. Each program has a control that must be clean."""

from __future__ import annotations

import programs as p
from programs import bar_arrive, build, read, role, run, sync, work

from h100sim.errors import DeadlockError


def test_a_count_larger_than_the_threads_that_come() -> None:
    error = run(build(role(0, 127, sync(2, 256))), 256).error
    assert isinstance(error, DeadlockError)
    assert error.waits[0].endswith("waits for barrier 2: 128 of 256 threads")
    assert error.waits[1] == "barrier 2 lacks warpgroup 1, which never came to it: warpgroup 1 has exited"
    assert run(build(role(0, 127, sync(2, 128))), 256).is_clean
    assert run(build(role(0, 127, sync(2, 256)), role(128, 255, bar_arrive(2, 256))), 256).is_clean


def test_two_counts_in_one_generation() -> None:
    outcome = run(build(role(0, 127, sync(2, 256)), role(128, 255, sync(2, 128))), 256)
    assert ("barrier-misuse", "barrier 2 must have one thread count in a generation, not 256 and 128") in outcome.found
    counts = next(h for h in outcome.hazards if "one thread count" in h.message)
    assert counts.first is not None
    assert [access.what for access in (counts.first, counts.second)] == [
        "arrival that counts 256 threads",
        "arrival that counts 128 threads",
    ]


def test_an_arrive_that_runs_ahead() -> None:
    def program(side: list[str], other: list[str]) -> str:
        return build(role(0, 255, side * 4), role(256, 383, other * 4))

    fast = run(program([bar_arrive(1, 384)], [work(1000), sync(1, 384)]), 384)
    message = "barrier 1 must be released before the same warp arrives again, not counted twice in generation 0"
    assert ("barrier-misuse", message) in fast.found
    assert isinstance(fast.error, DeadlockError)
    lucky = run(program([work(4000), bar_arrive(1, 384)], [sync(1, 384)]), 384)
    assert lucky.error is None
    assert lucky.found[0] == (
        "barrier-misuse",
        "barrier 1 generation 0 must be known to be over before a warp arrives again, not run past",
    )
    assert run(program([bar_arrive(1, 384), sync(2, 384)], [sync(1, 384), bar_arrive(2, 384)]), 384).is_clean


def test_a_barrier_of_the_whole_cta_inside_a_role() -> None:
    def program(first: str) -> str:
        waits = [p.wait(0, 0)]
        return build(role(0, 127, p.write(0), first, read(0), p.arrive(0)), role(128, 383, waits), start=p.inits(128))

    error = run(program(sync()), 384).error
    assert isinstance(error, DeadlockError)
    assert any(line.startswith("barrier 0 lacks warpgroup 1 and warpgroup 2") for line in error.waits)
    assert run(program(sync(1, 128)), 384).is_clean


def test_lanes_of_a_warp_at_two_sites_of_an_aligned_barrier() -> None:
    program = build(
        start=[
            "setp.lt.u32 %p1, %tid, 16;",
            "@%p1 bra A;",
            "bar.sync 14, 32;",
            "bra B;",
            "A:",
            "bar.sync 14, 32;",
            "B:",
        ]
    )
    assert (
        "divergent-collective",
        "bar.sync must be executed by all lanes of the warp together, not by 0xffff0000 of 0xffffffff",
    ) in run(program, 32).found
    assert run(build(start=["bar.sync 14, 32;"]), 32).is_clean


def test_ping_pong_without_the_first_arrive() -> None:
    def program(first: list[str]) -> str:
        one = [sync(1, 256), work(10), bar_arrive(2, 256)] * 2
        two = [*first, sync(2, 256), work(10), bar_arrive(1, 256), sync(2, 256)]
        return build(role(0, 127, one), role(128, 255, two))

    error = run(program([]), 256).error
    assert isinstance(error, DeadlockError)
    assert "cycle: warpgroup 0 -> barrier 1 -> warpgroup 1 -> barrier 2 -> warpgroup 0" in error.waits
    assert run(program([bar_arrive(1, 256)]), 256).is_clean


def test_one_barrier_from_two_sites_is_clean() -> None:
    assert run(build(role(0, 255, bar_arrive(4, 288)), role(256, 287, sync(4, 288))), 288).is_clean


def test_a_wgmma_that_one_warp_leaves_out() -> None:
    error = run(build(role(0, 95, p.wgmma_fence(), p.wgmma(0, p.TILE), p.commit(), p.wait_group())), 128).error
    assert isinstance(error, DeadlockError)
    assert "wgmma must be issued by all four warps of the warpgroup, but warp 3 has exited" in error.waits


def test_a_lane_that_waits_for_another_cta_before_a_barrier_is_clean() -> None:
    """The other lanes may reach the barrier long before the one that polls: the order of lanes is the scheduler's."""
    poll = [
        "setp.ne.u32 %p3, %tid, 0;",
        "@%p3 bra REST;",
        "mov.u32 %r9, %ctaid.x;",
        "setp.eq.u32 %p4, %r9, 0;",
        "@%p4 bra SET;",
        "SPIN: ld.acquire.gpu.global.u32 %r10, [%target];",
        "setp.eq.u32 %p5, %r10, 0;",
        "@%p5 bra SPIN;",
        "bra REST;",
        "SET: nanosleep.u32 900000;",
        "mov.u32 %r11, 1;",
        "st.release.gpu.global.u32 [%target], %r11;",
        "REST:",
        sync(),
    ]
    assert run(build(start=poll), 64, grid=2).is_clean


def test_a_barrier_that_half_of_a_warp_never_reaches() -> None:
    some = ["setp.lt.u32 %p1, %tid, 16;", "@%p1 barrier.cta.sync.aligned 14, 32;"]
    error = run(build(start=some), 32).error
    assert isinstance(error, DeadlockError)
    assert error.waits[1] == (
        "warp 0 has come to barrier 14 with some of its lanes only: a warp counts when all its lanes that have not ended are there"
    )


def test_an_election_that_names_lanes_which_are_elsewhere() -> None:
    """elect.sync in a branch that half of the warp does not take."""

    def program(mask: int) -> str:
        return build(start=["setp.lt.u32 %p1, %tid, 16;", "@!%p1 bra X;", f"elect.sync _|%p2, {mask};", "X:"])

    error = run(program(0xFFFFFFFF), 32).error
    assert isinstance(error, DeadlockError)
    assert error.waits[1] == (
        "elect.sync names lanes 16 to 31 of the warp, which are not at it: it must be executed by all lanes of its mask"
    )
    assert run(program(0xFFFF), 32).is_clean


def test_a_wait_of_the_cluster_without_an_arrive() -> None:
    arrive, wait = "barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"

    def program(*peer: str) -> str:
        return build(role(0, 31, arrive, wait, rank=0), role(0, 31, *peer, rank=1))

    stuck = run(build(start=[*p.inits(1), "mov.u32 %r500, %cluster_ctarank;", "setp.ne.u32 %p9, %r500, 0;", "@!%p9 bra SKIP;",
                             p.wait(0, 0), "SKIP:", arrive, wait]), 32, grid=2, cluster=2).error  # fmt: skip
    assert isinstance(stuck, DeadlockError)
    expected = "barrier.cluster.arrive must be executed by every live thread of the cluster, not left out by warp 0 of CTA 1"
    assert expected in stuck.waits
    assert ("cluster", "warp 0 of CTA 1") in stuck.graph.edges
    assert run(program(arrive, wait), 32, grid=2, cluster=2).is_clean
