"""Launches that can never end although their warps keep trying."""

from __future__ import annotations

import pytest

import h100sim
from tests.kernels import entry, launch, zeros


def test_a_warp_that_issues_wgmmas_for_ever_without_its_warpgroup():
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, %d2, %d3}, %x, %x, 1, 1, 1, 0, 0;"
    body = f"""
    .reg .b32 %w, %n; .reg .f32 %d<4>; .reg .b64 %x; .reg .pred %p;
    mov.u32 %w, %warpid; mov.u64 %x, 64; setp.eq.u32 %p, %w, 0; @%p bra OTHER; mov.u32 %n, 0;
    L: wgmma.fence.sync.aligned; {wgmma} add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 40; @%p bra L; bra END;
    OTHER: bar.sync 1, 128;
    END:
    """
    with pytest.raises(h100sim.DeadlockError, match="no warp can proceed"):
        launch(entry("u64 out", body), (zeros(1),), block=128, shared_mem=4096)


_WAIT = "mbarrier.{}.parity.shared.b64 %p, [%s], 0;"
_ENDLESS = {
    "branch to itself": "L: bra L;",
    "load of what nobody writes": "L: ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L;",
    "sleep": "L: nanosleep.u32 100; bra L;",
    "some lanes only": "mov.u32 %t, %tid.x; setp.gt.u32 %p, %t, 7; @%p bra END; L: bra L; END:",
    "test_wait": f"mbarrier.init.shared.b64 [%s], 1; L: {_WAIT.format('test_wait')} @!%p bra L;",
    "try_wait of one warp, a loop of the other": f"""
        mov.u32 %t, %tid.x; setp.ge.u32 %q, %t, 32; mbarrier.init.shared.b64 [%s], 1; bar.sync 0; @%q bra OTHER;
        L: {_WAIT.format("try_wait")} @!%p bra L;
        OTHER: bra OTHER;""",
    "lock that nobody gives back": "L: atom.global.cas.b32 %v, [%a], 1, 2; setp.ne.u32 %p, %v, 1; @%p bra L;",
    "loop in a loop": "L: mov.u32 %t, 0; M: add.u32 %t, %t, 1; setp.lt.u32 %p, %t, 100; @%p bra M; bra L;",
    "period of 1,000 rounds": "mov.u32 %t, 0; L: add.u32 %t, %t, 1; rem.u32 %t, %t, 1000; bra L;",
    "store of the same value": "L: st.global.u32 [%a], 5; bra L;",
}
_REGISTERS = """
    .shared .b64 m; .reg .b64 %a; .reg .b32 %s, %t, %v; .reg .pred %p, %q;
    ld.param.u64 %a, [out]; mov.u32 %s, m;
"""


@pytest.mark.parametrize("body", _ENDLESS.values(), ids=_ENDLESS)
def test_a_loop_that_can_never_end_is_a_deadlock(body):
    with pytest.raises(h100sim.DeadlockError, match="no warp can proceed") as caught:
        launch(entry("u64 out", _REGISTERS + body), (zeros(1),), block=64)
    assert any("line " in line for line in caught.value.waits)


def test_a_loop_that_tests_a_barrier_names_it():
    with pytest.raises(h100sim.DeadlockError) as caught:
        launch(entry("u64 out", _REGISTERS + _ENDLESS["test_wait"]), (zeros(1),), block=32)
    assert "waits for mbarrier 0x400 phase 0: 0 of 1 arrivals" in str(caught.value)


def test_a_loop_that_another_warp_ends_is_not():
    body = """
    mov.u32 %t, %tid.x; setp.ge.u32 %q, %t, 32; @%q bra OTHER;
    L: ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L; bra END;
    OTHER: mov.u32 %t, 0;
    M: add.u32 %t, %t, 1; setp.lt.u32 %p, %t, 100000; @%p bra M;
    st.volatile.global.u32 [%a], 7;
    END:
    """
    out = zeros(1)
    launch(entry("u64 out", _REGISTERS + body), (out,), block=64, checks="off")
    assert out[0] == 7


def test_a_counter_that_never_stops_ends_at_the_limit_of_cycles():
    body = "L: add.u32 %t, %t, 1; bra L;"
    with pytest.raises(h100sim.CycleLimit, match=r"within 50,000 cycles \(max_cycles\), but warp 0 at line \d+, warp 1 at line"):
        launch(entry("u64 out", _REGISTERS + body), (zeros(1),), block=64, max_cycles=50_000)
    with pytest.raises(h100sim.CycleLimit, match=r"but warp 0 at line \d+ in CTA 0 had not ended"):
        launch(entry("u64 out", _REGISTERS + body), (zeros(1),), grid=3, block=32, max_cycles=50_000)


_TRY = "mbarrier.try_wait.parity.shared.b64 %p, [%s], 0;"


@pytest.mark.parametrize(
    ("tries", "body"),
    [
        (50, f"W: add.u32 %v, %v, 1; setp.ge.u32 %q, %v, 50; @%q bra E; {_TRY} @!%p bra W; E:"),
        (3, f"add.u32 %v, %v, 1; {_TRY} {_TRY} add.u32 %v, %v, 1; {_TRY} {_TRY} add.u32 %v, %v, 1;"),
        (9, "W: add.u32 %v, %v, 1; mbarrier.try_wait.parity.shared.b64 %p, [%s], 0, 1000; setp.lt.u32 %q, %v, 9; @%q bra W;"),
    ],
    ids=["loop", "straight line", "suspend-time hint"],
)
def test_a_bounded_number_of_tries_is_no_deadlock(tries, body):
    out = zeros(1)
    start = "mbarrier.init.shared.b64 [%s], 1; mov.u32 %v, 0;"
    run = launch(entry("u64 out", _REGISTERS + start + body + "st.global.u32 [%a], %v;"), (out,), block=1)
    assert out[0] == tries and run.cycles < (tries + 1) * 9_000


def test_a_time_limit_of_a_millisecond_is_no_deadlock():
    body = """
    .reg .b64 %t0, %t1; mbarrier.init.shared.b64 [%s], 1; mov.u64 %t0, %globaltimer;
    W: mbarrier.try_wait.parity.shared.b64 %p, [%s], 0; mov.u64 %t1, %globaltimer; sub.u64 %t1, %t1, %t0;
    setp.lt.u64 %q, %t1, 1000000; @%q bra W; st.global.u32 [%a], 7;
"""
    out = zeros(1)
    launch(entry("u64 out", _REGISTERS + body), (out,), block=1)
    assert out[0] == 7


def test_tries_that_are_counted_for_ever_are_an_error_that_says_so():
    body = f"mbarrier.init.shared.b64 [%s], 1; mov.u32 %v, 0; W: add.u32 %v, %v, 1; {_TRY} @!%p bra W;"
    with pytest.raises(
        h100sim.DeadlockError, match=r"no warp has got on by cycle [\d,]+, although the waits have given up 1,024 times"
    ):
        launch(entry("u64 out", _REGISTERS + body), (zeros(1),), block=32)


@pytest.mark.parametrize("rounds", [100, 20_000])
def test_a_warpgroup_waits_for_its_slowest_warp_however_long(rounds):
    """Its other warps have issued more wgmmas than there is room for, and given up trying."""
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, %d2, %d3}, %x, %x, 1, 1, 1, 0, 0;"
    body = f"""
    .reg .b32 %w, %n; .reg .f32 %d<4>; .reg .b64 %x; .reg .pred %p;
    mov.u32 %w, %tid.x; mov.u64 %x, 64; setp.lt.u32 %p, %w, 96; @%p bra ALL; mov.u32 %n, 0;
    L: add.u32 %n, %n, 1; setp.lt.u32 %p, %n, {rounds}; @%p bra L;
    ALL: wgmma.fence.sync.aligned; {wgmma * 20} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    """
    run = launch(entry("u64 out", body), (zeros(1),), block=128, shared_mem=4096, checks="off")
    assert rounds < run.cycles < 60 * rounds + 2_000
