"""Lanes of one warp that do not act together. Each program has a control that must be clean."""

from __future__ import annotations

import programs as p
import pytest
from programs import (
    arrive,
    arrive_tx,
    build,
    bulk_commit,
    bulk_wait,
    by_thread,
    fence_async,
    inits,
    load,
    read,
    role,
    run,
    wait,
    write,
)

WARP_SYNC = "bar.warp.sync 0xffffffff;"
#: The 16 bytes of the lane 16 lanes further.
OTHERS = "xor.b32 %mine, %mine, 256;"
FIRST = "setp.eq.u32 %p3, %in_role, 0;"


def only_first(*steps: str) -> list[str]:
    """Steps of the first lane alone, behind a branch."""
    return [FIRST, "@!%p3 bra REST;", *steps, "REST:"]


@pytest.mark.parametrize("first, second", [(write, read), (read, write), (write, write)])
def test_lanes_exchange_through_shared_memory(first, second) -> None:
    def program(*between: str) -> str:
        return build(start=[write(0), WARP_SYNC, first(0), *between, OTHERS, second(0)])

    outcome = run(program(), 32)
    assert outcome.kinds == {"race"}
    assert outcome.hazards[0].missing.startswith("bar.warp.sync between the two")
    assert outcome.hazards[0].first.op.startswith("ld" if first is read else "st")
    assert run(program(WARP_SYNC), 32).is_clean


def test_lanes_may_use_their_own_bytes() -> None:
    assert run(build(start=[write(0), read(0), write(0), read(0)]), 32).is_clean


def test_bytes_of_neighbours_are_told_apart() -> None:
    halves = ["shl.b32 %r9, %tid, 1;", "add.u32 %r9, %r9, %smem;", "st.shared.b16 [%r9], %h1;", "ld.shared.b16 %h1, [%r9];"]
    program = build(start=["mov.b16 %h1, 1;", *halves]).replace("    .reg .f32", "    .reg .b16 %h<4>;\n    .reg .f32", 1)
    assert run(program, 32).is_clean


def test_a_shuffle_in_between_is_a_meeting_of_the_lanes() -> None:
    assert run(build(start=[write(0), "shfl.sync.bfly.b32 %r20, %tid, 1, 31, -1;", OTHERS, read(0)]), 32).is_clean


def test_one_lane_waits_for_a_copy_and_all_read() -> None:
    """C30 within a warp."""

    def program(*after: str) -> str:
        copies = role(32, 32, arrive_tx(0), load(0, 0))
        return build(role(0, 31, p.work(3000), only_first(wait(0, 0)), *after, read(0)), copies, start=inits(1))

    assert run(program(), 64).kinds == {"race"}
    assert run(program(WARP_SYNC), 64).is_clean


def test_one_lane_stores_what_all_have_written() -> None:
    def program(*between: str) -> str:
        return build(start=[write(0), fence_async(), *between, *by_thread(0, p.store(0, 512), bulk_commit(), bulk_wait())])

    assert run(program(), 32).kinds == {"race"}
    assert run(program(WARP_SYNC), 32).is_clean


def test_one_lane_releases_what_all_have_written() -> None:
    def program(*between: str) -> str:
        reader = role(32, 63, wait(0, 0), read(0))
        return build(role(0, 31, write(0), *between, *p.by_first(arrive(0))), reader, start=inits(1))

    assert run(program(), 64).kinds == {"race"}
    assert run(program(WARP_SYNC), 64).is_clean


def test_one_lane_releases_what_all_have_read_is_a_strict_finding() -> None:
    """Contested, as the lanes have executed the load as one; many kernels leave the synchronisation out."""

    def program(*between: str) -> str:
        release = [read(0), *between, *p.by_first(arrive(1))]
        start = [*p.init_by_thread_0(1, 1), "fence.mbarrier_init.release.cluster;", p.sync()]
        produce = role(32, 32, arrive_tx(0), load(0, 0), wait(1, 0), arrive_tx(0), load(0, 0))
        return build(role(0, 31, wait(0, 0), release, wait(0, 1), read(0)), produce, start=start)

    assert run(program(fence_async()), 64).is_clean
    assert run(program(fence_async()), 64, checks="strict").kinds == {"race"}
    assert run(program(fence_async(), WARP_SYNC), 64, checks="strict").is_clean


def test_what_one_lane_does_alone_needs_no_meeting() -> None:
    own = [f"st.shared.u32 [%smem+{4 * k}], %tid;" for k in range(4)]
    produce = only_first(*own, fence_async(), *p.store(0, 16), bulk_commit(), bulk_wait(), arrive(0))
    reader = role(32, 63, wait(0, 0), "ld.shared.u32 %r1, [%smem];")
    assert run(build(role(0, 31, produce), reader, start=inits(1)), 64).is_clean


def test_a_mask_of_some_lanes_brings_those_together() -> None:
    def program(mask: int) -> str:
        steps = [
            "setp.lt.u32 %p5, %tid, 16;",
            "@!%p5 bra END;",
            write(0),
            f"bar.warp.sync {mask};",
            "xor.b32 %mine, %mine, 128;",
            read(0),
        ]
        return build(start=[*steps, "END:"])

    assert run(program(0xFFFF), 32).is_clean


@pytest.mark.parametrize(("value", "kinds"), [("7", set()), ("%tid", {"race"})])
def test_warps_that_store_the_same_value(value, kinds) -> None:
    """Every warp stores the sum of a block: a race only in the strict reading, unless the values differ."""
    program = build(start=[f"st.shared.u32 [%smem], {value};", f"st.global.u32 [%target], {value};"])
    assert run(program, 64).kinds == kinds
    assert run(program, 64, checks="strict").kinds == {"race"}


def test_who_reads_what_several_warps_have_stored_must_wait_for_all_of_them() -> None:
    def program(*between: str) -> str:
        return build(start=["st.shared.u32 [%smem], 7;", *between, "ld.shared.u32 %r1, [%smem];"])

    assert run(program("bar.warp.sync 0xffffffff;"), 64).kinds == {"race"}
    assert run(program("bar.sync 0;"), 64).is_clean


def test_the_cluster_barrier_is_a_meeting_of_lanes() -> None:
    """Of what they did before they arrived, not of what they did between arrive and wait."""
    arrive_at, wait_at = "barrier.cluster.arrive;", "barrier.cluster.wait;"
    assert run(build(start=[write(0), arrive_at, wait_at, OTHERS, read(0)]), 32, grid=2, cluster=2).is_clean
    assert run(build(start=[arrive_at, write(0), wait_at, OTHERS, read(0)]), 32, grid=2, cluster=2).kinds == {"race"}
    relaxed = "barrier.cluster.arrive.relaxed;"
    assert run(build(start=[write(0), relaxed, wait_at, OTHERS, read(0)]), 32, grid=2, cluster=2).kinds == {"race"}
