"""mbarriers as stories: phases, counts, bytes, waits, and what the machine says when they cannot complete."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.trace import Event
from tests.kernels import entry, launch, zeros

SETUP = """
    .shared .align 8 .b64 bar[2]; .shared .align 128 .b8 tile[1024];
    .reg .b32 %t, %b, %s, %v; .reg .b64 %a, %state; .reg .pred %p, %q, %lead;
    mov.u32 %t, %tid.x; mov.u32 %b, bar; mov.u32 %s, tile; setp.eq.u32 %lead, %t, 0; ld.param.u64 %a, [out];
    @%lead mbarrier.init.shared::cta.b64 [%b], COUNT;
    bar.sync 0;
"""
WAIT = "W{n}: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], {parity}; @!%p bra W{n};\n"


def story(body: str, count: int = 1) -> str:
    return entry("u64 out", SETUP.replace("COUNT", str(count)) + body)


def test_a_phase_ends_with_the_last_arrival():
    run = launch(story("mbarrier.arrive.shared::cta.b64 %state, [%b];" + WAIT.format(n=0, parity=0), 64), (zeros(1),), block=64)
    flips = run.trace.of(Event.MBARRIER_FLIPPED)
    assert flips["b"].tolist() == [0]
    assert run.trace.of(Event.MBARRIER_ARRIVED)["c"].tolist() == list(range(63, -1, -1))
    assert not run.hazards


def test_a_fresh_barrier_lets_parity_one_pass():
    launch(story(WAIT.format(n=0, parity=1)), (zeros(1),), block=32)


def test_bytes_hold_the_phase_open():
    body = """
    @%lead mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 48;
    @%lead mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [%b], 16;
    @%lead mbarrier.test_wait.parity.shared::cta.b64 %q, [%b], 0;
    @%lead selp.u32 %v, 1, 0, %q; @%lead st.global.u32 [%a], %v;
    @%lead mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [%b], 32;
    @%lead mbarrier.test_wait.parity.shared::cta.b64 %q, [%b], 0;
    @%lead selp.u32 %v, 1, 0, %q; @%lead st.global.u32 [%a+4], %v;
    """
    out = zeros(2)
    launch(story(body), (out,))
    assert out.tolist() == [0, 1]


def test_a_bulk_copy_completes_its_bytes():
    body = (
        """
    .reg .b64 %src; ld.param.u64 %src, [src];
    @%lead mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 128;
    @%lead cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%src], 128, [%b];
    """
        + WAIT.format(n=0, parity=0)
        + """
    shl.b32 %v, %t, 2; add.u32 %s, %s, %v; ld.shared.u32 %v, [%s];
    .reg .b64 %o; mul.wide.u32 %o, %t, 4; add.s64 %a, %a, %o; st.global.u32 [%a], %v;
    """
    )
    out, src = zeros(32), np.arange(32, dtype=np.uint32) * 3
    run = launch(entry("u64 out, u64 src", SETUP.replace("COUNT", "1") + body), (out, src))
    assert (out == src).all()
    assert not run.hazards


def test_a_missing_arrival_is_a_deadlock_that_says_what_is_missing():
    with pytest.raises(h100sim.DeadlockError) as caught:
        launch(story("@%lead mbarrier.arrive.shared::cta.b64 _, [%b];" + WAIT.format(n=0, parity=0), 2), (zeros(1),))
    text = str(caught.value)
    assert text.startswith("no warp can proceed at cycle")
    assert "1 of 2 arrivals" in text


def test_missing_bytes_are_a_deadlock_that_counts_them():
    with pytest.raises(h100sim.DeadlockError, match="0 of 256 bytes"):
        launch(story("@%lead mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;" + WAIT.format(n=0, parity=0)), (zeros(1),))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            "mbarrier.init.shared::cta.b64 [%b+4], 1;",
            h100sim.MisalignedAddress,
            "mbarrier address must be a multiple of 8, not 0x404",
        ),
        ("mbarrier.arrive.shared::cta.b64 _, [%b+8];", h100sim.IllegalInstruction, "must name an initialised mbarrier"),
        (
            "mov.u32 %v, 0; mbarrier.init.shared::cta.b64 [%b+8], %v;",
            h100sim.IllegalInstruction,
            "mbarrier count must be from 1 to 1,048,575, not 0",
        ),
        (
            "mbarrier.arrive.shared::cta.b64 _, [%b], 2;",
            h100sim.IllegalInstruction,
            r"must bring mbarrier 0x400 no more arrivals than its phase still waits for \(1\), not 2",
        ),
        (WAIT.format(n=0, parity=2), h100sim.IllegalInstruction, "mbarrier phase parity must be 0 or 1, not 2"),
        ("ld.shared.u32 %v, [%b+100000];", h100sim.OutOfRange, "shared address must lie in the"),
        ("trap;", h100sim.Trap, "kernel executed trap"),
    ],
)
def test_misuse_is_an_error(body, error, message):
    with pytest.raises(error, match=message):
        launch(story(body), (zeros(1),), block=1)


def test_a_parity_of_all_ones_is_the_odd_one():
    """As Triton makes a parity of a truth value."""
    out = zeros(2)
    launch(story(completed(-1, 0) + "mbarrier.arrive.shared::cta.b64 %state, [%b];" + completed(-1, 1), 1), (out,), block=1)
    assert out.tolist() == [1, 0]


def completed(parity: int, at: int) -> str:
    """Write whether a phase is complete to out[at]."""
    return f"""mbarrier.test_wait.parity.shared::cta.b64 %q, [%b], {parity};
    selp.u32 %v, 1, 0, %q; @%lead st.global.u32 [%a+{4 * at}], %v;\n"""


def test_a_dropped_arrival_is_not_expected_again():
    """Of two participants one leaves: the first phase takes its last arrival, later ones do without it."""
    body = "mbarrier.arrive_drop.shared::cta.b64 %state, [%b];" + completed(0, 0)
    body += "mbarrier.arrive.shared::cta.b64 %state, [%b];" + completed(0, 1)
    body += "mbarrier.arrive.shared::cta.b64 %state, [%b];" + completed(1, 2)
    out = zeros(3)
    run = launch(story(body, 2), (out,), block=1)
    assert out.tolist() == [0, 1, 1]
    dropped = run.trace.of(Event.MBARRIER_DROPPED)
    assert dropped["b"].tolist() == [1] and dropped["c"].tolist() == [1]


def test_a_drop_may_expect_bytes():
    body = "mbarrier.arrive_drop.expect_tx.shared::cta.b64 %state, [%b], 32;" + completed(0, 0)
    body += "mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [%b], 32;" + completed(0, 1)
    out = zeros(2)
    launch(story(body, 1), (out,), block=1)
    assert out.tolist() == [0, 1]


def test_arrivals_that_do_not_complete_return_the_count_before():
    body = """
    mbarrier.arrive.noComplete.shared::cta.b64 %state, [%b], 3;
    mbarrier.pending_count.b64 %v, %state; st.global.u32 [%a], %v;
    mbarrier.arrive_drop.noComplete.shared::cta.b64 %state, [%b], 1;
    mbarrier.pending_count.b64 %v, %state; st.global.u32 [%a+4], %v;
    mbarrier.arrive.shared::cta.b64 %state, [%b];
    mbarrier.test_wait.shared::cta.b64 %q, [%b], %state; selp.u32 %v, 1, 0, %q; st.global.u32 [%a+8], %v;
    """
    out = zeros(3)
    launch(story(body, 5), (out,), block=1)
    assert out.tolist() == [5, 2, 1]


def test_a_cta_arrives_and_expects_bytes_at_another():
    """Rank 1 arrives at rank 0's mbarrier with bytes, and completes them there: none but rank 0 sees its phase end."""
    body = """
    .reg .b32 %rank, %far, %zero; mov.u32 %rank, %cluster_ctarank; mov.u32 %zero, 0;
    fence.mbarrier_init.release.cluster; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    setp.eq.u32 %p, %rank, 0; @%p bra MINE;
    mapa.shared::cluster.u32 %far, %b, %zero;
    mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%far], 16;
    mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%far], 16;
MINE:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mul.wide.u32 %state, %rank, 4; add.u64 %a, %a, %state;
"""
    out = zeros(2)
    run = launch(story(body + completed(0, 0)), (out,), grid=2, block=1, cluster=(2, 1, 1))
    assert out.tolist() == [1, 0] and not run.hazards
