"""The barrier of a cluster: who waits for whom, across CTAs."""

from __future__ import annotations

import pytest

import h100sim
from h100sim.trace import Event
from tests.kernels import STORE_THREAD, entry, launch, zeros

#: Every thread leaves its number in its CTA's shared memory; the peer of rank r is rank r ^ 1.
SETUP = """
    .shared .align 4 .b8 s[256];
    .reg .b32 %r_value, %t, %o, %n, %rank, %w; .reg .pred %p;
    mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %w, %warpid;
    shl.b32 %o, %t, 2; mov.u32 %n, s; add.u32 %o, %n, %o;
"""
FROM_PEER = "xor.b32 %rank, %rank, 1; mapa.shared::cluster.u32 %o, %o, %rank; ld.shared::cluster.u32 %r_value, [%o];"
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n"


def test_a_cluster_reads_what_its_other_cta_wrote():
    body = SETUP + "mad.lo.u32 %n, %rank, 1000, %t; st.shared.u32 [%o], %n;" + SYNC + FROM_PEER + SYNC + STORE_THREAD
    out = zeros(4 * 64)
    run = launch(entry("u64 out", body), (out,), grid=4, block=64, cluster=(2, 1, 1))
    other = [[1000 + t for t in range(64)], list(range(64))]
    assert out.reshape(2, 2, 64).tolist() == [other, other]
    assert not run.hazards
    arrived, waited = run.trace.of(Event.CLUSTER_ARRIVED), run.trace.of(Event.CLUSTER_WAITED)
    assert len(arrived) == len(waited) == 16
    assert waited["b"].tolist().count(0) == waited["b"].tolist().count(1) == 8
    for cluster in ((0, 1), (2, 3)):
        of = [e[[k in cluster for k in e["cta"]]] for e in (arrived, waited)]
        for generation in (0, 1):
            last, first = (e[e["b"] == generation]["time"] for e in of)
            assert last.max() < first.min()


def test_arrive_alone_does_not_wait():
    body = SETUP + "mov.u32 %r_value, 1;" + STORE_THREAD + "barrier.cluster.arrive.relaxed.aligned;"
    out = zeros(64)
    launch(entry("u64 out", body), (out,), grid=2, block=32, cluster=(2, 1, 1))
    assert out.all()


@pytest.mark.parametrize("who", ["%w", "%rank"])
def test_those_that_ended_are_not_waited_for(who):
    body = SETUP + f"setp.eq.u32 %p, {who}, 1; @%p ret;" + SYNC + "mov.u32 %r_value, 1;" + STORE_THREAD
    out = zeros(128)
    launch(entry("u64 out", body), (out,), grid=2, block=64, cluster=(2, 1, 1))
    assert out.sum() == 64


def test_lanes_of_a_warp_arrive_apart_and_those_that_ended_do_not_count():
    body = (
        SETUP
        + """
    setp.lt.u32 %p, %t, 8; @%p bra FIRST; setp.ge.u32 %p, %t, 24; @%p ret;
    barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r_value, 2; bra DONE;
    FIRST: barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r_value, 1;
    DONE:
    """
    )
    out = zeros(64)
    launch(entry("u64 out", body + STORE_THREAD), (out,), grid=2, block=32, cluster=(2, 1, 1))
    assert out.reshape(2, 32).tolist() == [[1] * 8 + [2] * 16 + [0] * 8] * 2


def test_without_a_cluster_it_is_the_barrier_of_the_cta():
    body = (
        SETUP
        + "st.shared.u32 [%o], %t;"
        + SYNC
        + "xor.b32 %t, %t, 32; shl.b32 %o, %t, 2; add.u32 %o, %n, %o; ld.shared.u32 %r_value, [%o];"
    )
    out = zeros(64)
    run = launch(entry("u64 out", body + STORE_THREAD), (out,), block=64)
    assert out.tolist() == [t ^ 32 for t in range(64)]
    assert not run.hazards


def test_a_cta_that_never_arrives_is_a_deadlock():
    loop = "setp.eq.u32 %p, %rank, 0; @%p bra WAIT; setp.eq.u32 %p, %w, 0;"
    loop += "@%p bar.sync 1, 64; setp.eq.u32 %p, %rank, 0; WAIT: @!%p bra DONE;" + SYNC + "DONE: ret;"
    with pytest.raises(h100sim.DeadlockError, match=r"the other CTAs of the cluster at barrier\.cluster"):
        launch(entry("u64 out", SETUP + loop), (zeros(1),), grid=2, block=64, cluster=(2, 1, 1))


def test_arriving_twice_is_an_error():
    with pytest.raises(
        h100sim.IllegalInstruction, match=r"^barrier\.cluster\.arrive must be followed by a wait before the next arrive"
    ):
        launch(
            entry(
                "u64 out",
                SETUP + "setp.eq.u32 %p, %w, 0; @%p barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;",
            ),
            (zeros(1),),
            block=64,
        )


@pytest.mark.parametrize(("space", "of_peer"), [("shared", 0), ("shared::cta", 0), ("shared::cluster", 1), ("global", 0)])
def test_isspacep_tells_the_own_cta_from_the_cluster(space, of_peer):
    """Spec: PTX ISA 9.1, "isspacep": the window of shared::cta is that of the executing CTA, and .shared means it."""
    body = (
        SETUP
        + f"""
    .reg .b64 %own, %far; .reg .b32 %a, %b; cvt.u64.u32 %own, %o; cvta.shared.u64 %own, %own;
    xor.b32 %rank, %rank, 1; mapa.u64 %far, %own, %rank;
    isspacep.{space} %p, %own; selp.u32 %a, 1, 0, %p; isspacep.{space} %p, %far; selp.u32 %b, 10, 0, %p;
    add.u32 %r_value, %a, %b;
"""
    )
    out = zeros(128)
    launch(entry("u64 out", body + STORE_THREAD), (out,), grid=2, block=64, cluster=(2, 1, 1))
    assert set(out.tolist()) == {(space != "global") + 10 * of_peer}
