"""The engine: control flow of warps, order of events, limits."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.trace import Event
from tests.kernels import STORE_THREAD, entry, launch, zeros


def test_every_thread_of_a_grid_stores_its_number():
    out = zeros(3 * 64)
    launch(entry("u64 out", ".reg .b32 %r_value; mov.u32 %r_value, %tid.x;" + STORE_THREAD), (out,), grid=3, block=64)
    assert out.tolist() == list(range(64)) * 3


def test_the_next_cta_of_an_sm_begins_some_time_after_the_last_one():
    model = h100sim.devices.changed(h100sim.devices.model(), {"sms": 1})
    out = zeros(4 * 1024)
    ptx = entry("u64 out", ".reg .b32 %r_value; mov.u32 %r_value, %tid.x;" + STORE_THREAD)
    run = launch(ptx, (out,), grid=4, block=1024, device=h100sim.Device(model))
    issued, ended = run.trace.of(Event.ISSUED), run.trace.of(Event.CTA_ENDED)
    first = [int(issued["time"][issued["cta"] == cta].min()) for cta in range(4)]
    at_once = sum(time < 100 for time in first)
    assert at_once < 4
    assert min(first[at_once:]) >= int(ended["time"].min()) + model.cta_cycles


def test_lanes_that_part_meet_again_behind_the_branch():
    body = """
    .reg .b32 %r_value, %t, %m; .reg .pred %p;
    mov.u32 %t, %tid.x; and.b32 %t, %t, 1; setp.eq.u32 %p, %t, 0;
    @%p bra EVEN;
    mov.u32 %r_value, 100; bra JOIN;
    EVEN: mov.u32 %r_value, 200;
    JOIN: activemask.b32 %m; setp.eq.u32 %p, %m, 0xffffffff; @!%p add.u32 %r_value, %r_value, 7;
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD), (out,))
    assert out.tolist() == [200, 100] * 16


def test_a_loop_with_a_different_count_per_lane():
    body = """
    .reg .b32 %r_value, %t; .reg .pred %p;
    mov.u32 %t, %tid.x; mov.u32 %r_value, 0;
    LOOP: add.u32 %r_value, %r_value, %t; sub.u32 %t, %t, 1; setp.gt.s32 %p, %t, 0; @%p bra LOOP;
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD), (out,))
    assert out.tolist() == [0, *(n * (n + 1) // 2 for n in range(1, 32))]


def test_nested_branches_and_early_exit():
    body = """
    .reg .b32 %r_value, %t; .reg .pred %p, %q;
    mov.u32 %t, %tid.x; setp.ge.u32 %p, %t, 24; @%p ret;
    mov.u32 %r_value, 1; setp.lt.u32 %p, %t, 16; @!%p bra END;
    mov.u32 %r_value, 2; setp.lt.u32 %q, %t, 8; @!%q bra INNER;
    mov.u32 %r_value, 3;
    INNER: add.u32 %r_value, %r_value, 10;
    END:
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD), (out,))
    assert out.tolist() == [13] * 8 + [12] * 8 + [1] * 8 + [0] * 8


def test_a_lane_that_spins_does_not_starve_the_lane_it_waits_for():
    body = """
    .reg .b64 %a; .reg .b32 %t, %v; .reg .pred %p;
    ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 0;
    @%p bra SPIN;
    setp.ne.u32 %p, %t, 31; @%p bra DONE;
    st.volatile.global.u32 [%a], 1; bra DONE;
    SPIN: ld.volatile.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra SPIN;
    st.global.u32 [%a+4], %v;
    DONE: ret;
    """
    out = zeros(2)
    launch(entry("u64 out", body), (out,), max_cycles=1_000_000)
    assert out.tolist() == [1, 1]


def test_an_endless_loop_ends_at_the_cycle_limit():
    with pytest.raises(h100sim.CycleLimit, match="kernel must end within 1,000 cycles"):
        launch(entry("u64 out", "L: bra L;"), (zeros(1),), max_cycles=1_000)


def test_two_runs_give_the_same_trace_to_the_byte():
    ptx = entry("u64 out", ".reg .b32 %r_value; mov.u32 %r_value, %tid.x;" + STORE_THREAD)
    first, second = (launch(ptx, (zeros(256),), grid=4, block=64).trace for _ in range(2))
    assert first.events.tobytes() == second.events.tobytes()


def test_ctas_beyond_the_device_run_in_waves():
    out = zeros(64)
    run = launch(
        entry("u64 out", ".reg .b32 %r_value; mov.u32 %r_value, 9;" + STORE_THREAD),
        (out,), grid=64, block=1, shared_mem=200_000, device=h100sim.Device(h100sim.devices.model("h100-sxm", sms=4)),
    )  # fmt: skip
    assert set(out.tolist()) == {9}
    assert set(run.ctas["sm"].tolist()) == {0, 1, 2, 3}
    assert run.ctas["start"].max() > run.ctas["end"].min() - 1


def test_divergent_lanes_wait_for_each_other_at_a_warp_barrier():
    body = """
    .shared .align 4 .b8 s[128];
    .reg .b32 %r_value, %t, %o, %n; .reg .pred %p;
    mov.u32 %t, %laneid; shl.b32 %o, %t, 2; mov.u32 %n, s; add.u32 %o, %n, %o;
    setp.lt.u32 %p, %t, 16; @%p bra LOW;
    st.shared.u32 [%o], 5; bar.warp.sync 0xffffffff; bra JOIN;
    LOW: st.shared.u32 [%o], 6; bar.warp.sync 0xffffffff;
    JOIN: xor.b32 %t, %t, 31; shl.b32 %o, %t, 2; add.u32 %o, %n, %o; ld.shared.u32 %r_value, [%o];
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD), (out,))
    assert out.tolist() == [5] * 16 + [6] * 16


def test_the_trace_names_ctas_and_warps():
    run = launch(entry("u64 out", ".reg .b32 %r_value; mov.u32 %r_value, 1;" + STORE_THREAD), (zeros(128),), grid=2, block=64)
    assert len(run.trace.of(Event.CTA_STARTED)) == len(run.trace.of(Event.CTA_ENDED)) == 2
    assert run.trace.warps["rank"].tolist() == [0, 1, 0, 1]
    assert (np.diff(run.trace.of(Event.ISSUED)["time"]) >= 0).all()


def test_a_carry_survives_an_instruction_with_an_unwanted_result():
    body = """
    .reg .b32 %r_value, %t; .reg .pred %p;
    mov.u32 %t, 0xffffffff; add.cc.u32 %t, %t, 1;
    elect.sync _|%p, 0xffffffff;
    addc.u32 %r_value, 0, 0;
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD), (out,))
    assert out.tolist() == [1] * 32
