"""CTAs of a cluster that reach into each other. Each program has a control that must be clean."""

from __future__ import annotations

import programs as p
import pytest
from programs import arrive, arrive_tx, build, init_by_thread_0, read, role, run, sync, wait

from h100sim.errors import DeadlockError, LaunchError, OutOfRange

INIT_FENCE = "fence.mbarrier_init.release.cluster;"
MEET = ["barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"]
MEET_RELAXED = ["barrier.cluster.arrive.relaxed.aligned;", "barrier.cluster.wait.acquire.aligned;"]


def remote(bar: int, rank: int) -> list[str]:
    """Put the address of an mbarrier of another CTA into %r9."""
    return [f"add.u32 %r9, %smem, {p.BARRIERS + 8 * bar};", f"mapa.shared::cluster.u32 %r9, %r9, {rank};"]


def remote_arrive(bar: int, rank: int) -> list[str]:
    return [*remote(bar, rank), "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];"]


def multicast(offset: int, bar: int, mask: int, size: int = p.TILE) -> list[str]:
    return [
        f"add.u32 %r6, %smem, {offset};",
        f"add.u32 %r7, %smem, {p.BARRIERS + 8 * bar};",
        f"mov.b16 %h1, {mask};",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[%r6], [%source], {size}, [%r7], %h1;",
    ]


def with_halves(text: str) -> str:
    return text.replace("    .reg .f32", "    .reg .b16 %h<4>;\n    .reg .f32", 1)


@pytest.mark.parametrize("start, expected", [([], {"race"}), ([INIT_FENCE, *MEET], set()), ([INIT_FENCE, *MEET_RELAXED], set())])
def test_a_remote_arrive_before_the_init_is_known(start: list[str], expected: set[str]) -> None:
    """C13. The peer is late, so nothing happens in this run."""
    peer = role(0, 0, p.work(2000), remote_arrive(0, 0), rank=1)
    program = build(role(0, 0, wait(0, 0), rank=0), peer, start=[*init_by_thread_0(1), *start], end=MEET)
    outcome = run(program, 32, grid=2, cluster=2)
    assert outcome.error is None and outcome.kinds == expected


def test_a_relaxed_meeting_without_the_init_fence() -> None:
    """C13: barrier.cluster.arrive.relaxed publishes nothing by itself."""
    peer = role(0, 0, p.work(2000), remote_arrive(0, 0), rank=1)
    program = build(role(0, 0, wait(0, 0), rank=0), peer, start=[*init_by_thread_0(1), *MEET_RELAXED], end=MEET)
    assert run(program, 32, grid=2, cluster=2).kinds == {"race"}


def multicast_program(second: int | None) -> str:
    """Rank 0 sends A to both CTAs; each CTA loads its own B. ``second``: bytes that rank 1 expects (None: it never arms)."""
    sender = [arrive_tx(0, 2 * p.TILE), *multicast(0, 0, 3), *p.load(p.TILE, 0), wait(0, 0), read(0)]
    receiver = [*([arrive_tx(0, second)] if second is not None else []), *p.load(p.TILE, 0), wait(0, 0), read(0)]
    start = [*init_by_thread_0(1), INIT_FENCE, *MEET]
    return with_halves(build(role(0, 0, sender, rank=0), role(0, 0, receiver, rank=1), start=start, end=MEET))


def test_receivers_of_a_multicast_must_arm_their_own_barrier() -> None:
    """C91."""
    assert run(multicast_program(2 * p.TILE), 32, grid=2, cluster=2).is_clean
    never = run(multicast_program(None), 32, grid=2, cluster=2)
    assert isinstance(never.error, DeadlockError)
    assert any("rank 1 phase 0: 0 of 1 arrivals" in line for line in never.error.waits)
    half = run(multicast_program(p.TILE), 32, grid=2, cluster=2)
    assert "tx-underflow" in half.kinds


def test_a_multicast_to_a_cta_that_does_not_exist() -> None:
    """C94."""
    steps = [arrive_tx(0, p.TILE), *multicast(0, 0, 5), wait(0, 0), read(0)]
    program = with_halves(build(role(0, 0, steps, rank=0), start=[*init_by_thread_0(1), INIT_FENCE, *MEET], end=MEET))
    outcome = run(program, 32, grid=2, cluster=2)
    assert isinstance(outcome.error, OutOfRange)
    assert "multicast mask must name CTAs of the cluster (2 of them), not 0x5" in outcome.error.message


@pytest.mark.parametrize("last, expected", [(MEET, set()), ([], {"lifetime"})])
def test_a_cta_that_ends_while_its_peer_still_arrives_on_it(last: list[str], expected: set[str]) -> None:
    """C95: rank 0 has nothing to wait for any more."""
    owner = role(0, 0, p.work(3000 if not last else 0), rank=0)
    peer = role(0, 0, remote_arrive(0, 0), rank=1)
    program = build(owner, peer, start=[*init_by_thread_0(1), INIT_FENCE, *MEET], end=last)
    outcome = run(program, 32, grid=2, cluster=2)
    assert outcome.kinds == expected


def test_shared_memory_of_a_peer_read_before_it_is_written() -> None:
    def program(*between: str) -> str:
        far = ["add.u32 %r9, %mine, 0;", "mapa.shared::cluster.u32 %r9, %r9, 0;", "ld.shared::cluster.u32 %r1, [%r9];"]
        peer = role(0, 31, p.work(2000), far, rank=1)
        return build(start=["mov.u32 %r500, %cluster_ctarank;", "setp.eq.u32 %p9, %r500, 0;", f"@%p9 {p.write(0)}", *between,
                            "@%p9 bra SKIP;", *peer.steps, "SKIP:"], end=MEET)  # fmt: skip

    assert run(program(), 32, grid=2, cluster=2).kinds == {"race"}
    assert run(program(*MEET), 32, grid=2, cluster=2).is_clean


def test_a_cluster_meeting_skipped_because_the_cluster_is_one_cta() -> None:
    """C97: the other branch needs a barrier of the CTA."""
    assert run(build(start=[*init_by_thread_0(64), arrive(0), wait(0, 0)]), 64).kinds == {"race"}
    assert run(build(start=[*init_by_thread_0(64), sync(), arrive(0), wait(0, 0)]), 64).is_clean


def test_cluster_shapes_that_cannot_be_launched() -> None:
    """C98."""
    with pytest.raises(LaunchError, match="must be a multiple of the cluster"):
        run(build(), 32, grid=5, cluster=2)
    with pytest.raises(LaunchError, match="cluster must have at most"):
        run(build(), 32, grid=32, cluster=32)
    assert run(build(), 32, grid=6, cluster=2).is_clean


def test_a_cluster_wait_without_an_arrive_meets_nobody() -> None:
    arrive_, wait_ = MEET
    for end in ([wait_], [wait_, arrive_], [*MEET, wait_]):
        outcome = run(build(start=MEET, end=end), 32, grid=2, cluster=2)
        (message,) = {message for _, message in outcome.found}
        assert outcome.kinds == {"barrier-misuse"}
        assert message.startswith("barrier.cluster.wait must follow an arrive of its own thread, not another wait for generation ")
    for end in (MEET, [*MEET, *MEET], [arrive_]):
        assert run(build(start=MEET, end=end), 32, grid=2, cluster=2).is_clean


def test_lanes_that_wait_for_the_cluster_apart_wait_once_each() -> None:
    wait_ = "barrier.cluster.wait.acquire;"
    split = ["setp.lt.u32 %p9, %tid, 16;", "@%p9 bra SKIP;", wait_, "bra DONE;", "SKIP:", wait_, "DONE:"]
    apart = ["barrier.cluster.arrive.release;", *split]
    assert run(build(start=apart), 32, grid=2, cluster=2).is_clean
