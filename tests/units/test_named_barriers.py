"""Named barriers: who waits for whom."""

from __future__ import annotations

import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros


def test_all_warps_meet_before_any_goes_on():
    body = """
    .shared .align 4 .b8 s[512];
    .reg .b32 %r_value, %t, %o, %n;
    mov.u32 %t, %tid.x; shl.b32 %o, %t, 2; mov.u32 %n, s; add.u32 %o, %n, %o; st.shared.u32 [%o], %t;
    bar.sync 0;
    xor.b32 %t, %t, 127; shl.b32 %o, %t, 2; add.u32 %o, %n, %o; ld.shared.u32 %r_value, [%o];
    """
    out = zeros(128)
    run = launch(entry("u64 out", body + STORE_THREAD), (out,), block=128)
    assert out.tolist() == list(range(127, -1, -1))
    assert not run.hazards


def test_arrive_does_not_wait_and_counts_for_those_that_sync():
    body = """
    .reg .b32 %r_value, %w; .reg .pred %p;
    mov.u32 %w, %warpid; setp.eq.u32 %p, %w, 0; @%p bra FIRST;
    bar.sync 1, 64; bra DONE;
    FIRST: bar.arrive 1, 64;
    DONE: mov.u32 %r_value, 1;
    """
    out = zeros(64)
    launch(entry("u64 out", body + STORE_THREAD), (out,), block=64)
    assert out.all()


def test_a_warp_that_ended_is_not_waited_for():
    body = """
    .reg .b32 %r_value, %w; .reg .pred %p;
    mov.u32 %w, %warpid; setp.eq.u32 %p, %w, 1; @%p ret;
    bar.sync 0; mov.u32 %r_value, 1;
    """
    out = zeros(96)
    launch(entry("u64 out", body + STORE_THREAD), (out,), block=96)
    assert out.tolist() == [1] * 32 + [0] * 32 + [1] * 32


def test_reduction_barriers_count_predicates():
    body = """
    .reg .b32 %r_value, %t; .reg .pred %p;
    mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 40; bar.red.popc.u32 %r_value, 0, %p;
    """
    out = zeros(64)
    launch(entry("u64 out", body + STORE_THREAD), (out,), block=64)
    assert set(out.tolist()) == {40}


def test_a_barrier_that_lacks_a_warp_is_a_deadlock():
    body = ".reg .b32 %w; .reg .pred %p; mov.u32 %w, %warpid; setp.eq.u32 %p, %w, 0; @%p bar.sync 2, 96;"
    with pytest.raises(h100sim.DeadlockError, match=r"32 of 96 threads"):
        launch(entry("u64 out", body), (zeros(1),), block=96)
