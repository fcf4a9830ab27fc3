"""Lanes that part and meet: who waits for whom, and for how long."""

from __future__ import annotations

import numpy as np

from tests.kernels import STORE_THREAD, entry, launch, zeros

HEAD = ".reg .b32 %r_value, %lane, %m, %i, %old; .reg .pred %p, %q; mov.u32 %lane, %laneid; mov.u32 %i, 0; mov.u32 %r_value, 0;"


def run(body: str, *, outside: str = "", grid: int = 1, block: int = 32) -> list[int]:
    out = zeros(grid * block)
    found = launch(entry("u64 out", HEAD + body + STORE_THREAD, outside=outside), (out,), grid=grid, block=block)
    assert found.hazards == []
    return out.tolist()


def test_lanes_that_leave_a_long_loop_early_wait_for_the_others():
    """A barrier of the whole warp follows, which no part of it may execute alone."""
    body = """
    mul.lo.u32 %m, %lane, 40;
    LOOP: setp.ge.u32 %p, %i, %m; @%p bra DONE; add.u32 %i, %i, 1; add.u32 %r_value, %r_value, %i; bra LOOP;
    DONE: bar.sync 0; activemask.b32 %m; popc.b32 %m, %m; mad.lo.u32 %r_value, %r_value, 100, %m;
    """
    n = np.arange(64) % 32 * 40
    assert run(body, block=64) == (n * (n + 1) // 2 * 100 + 32).tolist()


def test_a_lane_that_polls_a_flag_does_not_tear_its_warp_apart():
    """Warp 1 sets the flag after more rounds than any patience; the other lanes of warp 0 wait at the barrier's door."""
    body = """
    mov.u32 %m, %tid.x; setp.ge.u32 %q, %m, 32; @%q bra SETTER; setp.ne.u32 %p, %m, 0; @%p bra MEET;
    POLL: ld.acquire.gpu.global.u32 %old, [flag]; setp.eq.u32 %p, %old, 0; @%p bra POLL; bra MEET;
    SETTER: add.u32 %i, %i, 1; ld.volatile.global.u32 %old, [other]; setp.lt.u32 %p, %i, 3000; @%p bra SETTER;
    setp.ne.u32 %p, %m, 32; @%p bra MEET; st.release.gpu.global.u32 [flag], 1;
    MEET: bar.sync 0; activemask.b32 %m; popc.b32 %r_value, %m;
    """
    assert set(run(body, outside=".global .u32 flag; .global .u32 other;", block=64)) == {32}


def test_a_lock_whose_holder_waits_for_lanes_that_want_it():
    body = """
    TAKE: atom.acquire.gpu.global.cas.b32 %old, [lock], 0, 1; setp.ne.u32 %p, %old, 0; @%p bra TAKE;
    ld.relaxed.gpu.global.u32 %r_value, [count]; add.u32 %r_value, %r_value, 1; st.relaxed.gpu.global.u32 [count], %r_value;
    atom.release.gpu.global.exch.b32 %old, [lock], 0;
    """
    assert sorted(run(body, outside=".global .u32 lock; .global .u32 count;", grid=2, block=64)) == list(range(1, 129))


def test_a_lock_with_a_growing_pause():
    """The loop's registers change in every round; the state of the launch comes back only when the pause has stopped to grow."""
    body = """
    mov.u32 %i, 8;
    TAKE: atom.acquire.gpu.global.cas.b32 %old, [lock], 0, 1; setp.eq.u32 %p, %old, 0; @%p bra TAKEN;
    nanosleep.u32 %i; setp.lt.u32 %q, %i, 128; @%q shl.b32 %i, %i, 1; bra TAKE;
    TAKEN: ld.relaxed.gpu.global.u32 %r_value, [count]; add.u32 %r_value, %r_value, 1; st.relaxed.gpu.global.u32 [count], %r_value;
    atom.release.gpu.global.exch.b32 %old, [lock], 0;
    """
    assert sorted(run(body, outside=".global .u32 lock; .global .u32 count;", block=64)) == list(range(1, 65))


def test_a_lock_of_code_that_keeps_its_variables_in_memory():
    """What a compiler makes without optimisation: every round of the loop calls a function and writes the stack."""
    outside = """
    .global .u32 lock; .global .u32 count;
    .func (.param .b32 r) try() {
        .local .b32 own; .reg .b32 %old; atom.acquire.gpu.global.cas.b32 %old, [lock], 0, 1; st.local.b32 [own], %old;
        ld.local.b32 %old, [own]; st.param.b32 [r], %old; ret; }
    """
    body = """
    .local .align 4 .b8 mine[8]; .param .b32 got;
    TAKE: call (got), try; ld.param.b32 %old, [got]; st.local.b32 [mine+4], %old; setp.ne.u32 %p, %old, 0; @%p bra TAKE;
    ld.relaxed.gpu.global.u32 %r_value, [count]; add.u32 %r_value, %r_value, 1; st.relaxed.gpu.global.u32 [count], %r_value;
    atom.release.gpu.global.exch.b32 %old, [lock], 0;
    """
    assert sorted(run(body, outside=outside)) == list(range(1, 33))


def test_two_spinning_groups_of_a_warp_let_the_third_go_on():
    """Even and odd lanes want the lock at different places; its holder waits where all meet."""
    body = """
    and.b32 %m, %lane, 1; setp.eq.u32 %q, %m, 1; @%q bra ODD;
    EVEN: atom.acquire.gpu.global.cas.b32 %old, [lock], 0, 1; setp.ne.u32 %p, %old, 0; @%p bra EVEN; bra MEET;
    ODD: atom.acquire.gpu.global.cas.b32 %old, [lock], 0, 1; setp.ne.u32 %p, %old, 0; @%p bra ODD;
    MEET: ld.relaxed.gpu.global.u32 %r_value, [count]; add.u32 %r_value, %r_value, 1; st.relaxed.gpu.global.u32 [count], %r_value;
    atom.release.gpu.global.exch.b32 %old, [lock], 0;
    """
    assert sorted(run(body, outside=".global .u32 lock; .global .u32 count;")) == list(range(1, 33))


def test_lanes_that_trap_or_exit_do_not_hold_up_the_others():
    body = "setp.eq.u32 %p, %lane, 3; @%p bra OUT; add.u32 %r_value, %lane, 1; bra GO; OUT: exit; GO: activemask.b32 %r_value;"
    assert run(body) == [0xFFFFFFF7 if k != 3 else 0 for k in range(32)]
