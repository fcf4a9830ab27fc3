"""Generic and async accesses without the fence or the order between them. Each program has a control that must be
clean."""

from __future__ import annotations

import programs as p
import pytest
from programs import (
    arrive_tx,
    build,
    bulk_commit,
    bulk_wait,
    by_thread,
    fence_async,
    inits,
    load,
    role,
    run,
    sync,
    wait,
    write,
)


def test_writes_then_a_bulk_store_without_a_proxy_fence() -> None:
    def program(fence: list[str]) -> str:
        return build(start=[write(0), *fence, sync(), *by_thread(0, p.store(0), bulk_commit(), bulk_wait())])

    outcome = run(program([]), 128)
    assert outcome.found == [
        (
            "proxy-race",
            "shared memory 0x400 to 0xbff must be fenced for the async proxy before it is read by a copy, "
            "not only ordered by a barrier",
        )
    ]
    assert "fence.proxy.async.shared::cta" in outcome.hazards[0].fix
    # A fence by the issuing thread before the barrier covers its own writes only.
    (hazard,) = run(program(["setp.eq.u32 %p3, %tid, 0;", f"@%p3 {fence_async()}"]), 128).hazards
    assert hazard.kind == "proxy-race" and hazard.second.first_byte == 0x400
    assert run(program([fence_async()]), 128).is_clean


@pytest.mark.parametrize("fences, syncs", [(False, False), (False, True), (True, False), (True, True)])
def test_writes_then_wgmma_need_a_fence_and_a_barrier(fences: bool, syncs: bool) -> None:
    steps = [write(0), write(p.TILE), *([fence_async()] if fences else []), *([sync(1, 128)] if syncs else [])]
    outcome = run(build(role(0, 127, steps, p.wgmma_fence(), p.wgmma(0, p.TILE), p.commit(), p.wait_group())), 128)
    assert outcome.kinds == (set() if fences and syncs else {"proxy-race"} if syncs else {"race"})


def test_reads_then_a_refill_without_a_proxy_fence_is_a_strict_warning() -> None:
    def program(fence: list[str]) -> str:
        produce = [wait(1, 1), arrive_tx(0), *load(0, 0), wait(1, 0), arrive_tx(0), *load(0, 0)]
        release = [*fence, sync(1, 128), *p.by_first(p.arrive(1))]
        consume = [wait(0, 0), p.read(0), *release, wait(0, 1), p.read(0), *release]
        start = [*p.init_by_thread_0(1, 1), "fence.mbarrier_init.release.cluster;", sync()]
        return build(role(0, 0, produce), role(128, 255, consume), start=start)

    assert run(program([]), 256).is_clean
    assert run(program([]), 256, checks="strict").kinds == {"strict-proxy-war"}
    assert [w.kind for w in run(program([]), 256).warnings] == ["strict-proxy-war"]
    assert run(program([fence_async()]), 256).warnings == []
    assert run(program([fence_async()]), 256, checks="strict").is_clean


def test_an_init_without_its_fence_is_a_strict_warning() -> None:
    program = build(role(0, 0, arrive_tx(0), load(0, 0), wait(0, 0)), start=inits(1))
    assert run(program, 32).is_clean
    assert run(program, 32, checks="strict").found == [
        (
            "strict-proxy-war",
            "mbarrier 0x7c00 must be fenced with fence.mbarrier_init before a copy completes on it, not only ordered",
        )
    ]


def test_two_copies_into_one_tile_in_program_order() -> None:
    def program(waits: bool) -> str:
        first, second = [arrive_tx(0), *load(0, 0)], [arrive_tx(1), *load(0, 1)]
        steps = [*first, wait(0, 0), *second] if waits else [*first, *second, wait(0, 0)]
        return build(role(0, 0, steps, wait(1, 0)), start=inits(1, 1))

    assert run(program(False), 32).kinds == {"race"}
    assert run(program(True), 32).is_clean


def test_a_store_buffer_written_before_its_source_was_read() -> None:
    def program(waits_first: bool) -> str:
        steps: list[str] = []
        for i in range(4):
            buffer = (i & 1) * p.TILE
            wait_read = by_thread(0, bulk_wait(1))
            fill = [write(buffer), fence_async()]
            issue = by_thread(0, f"add.u64 %target, %target, {p.TILE};", p.store(buffer), bulk_commit())
            steps += [*wait_read, sync(), *fill, sync(), *issue] if waits_first else [*fill, *wait_read, sync(), *issue]
        return build(start=[*steps, *by_thread(0, bulk_wait())])

    outcome = run(program(False), 128)
    assert outcome.kinds == {"race"}
    assert "must be written after the copy that reads them has read its source" in outcome.hazards[0].message
    assert run(program(True), 128).is_clean


@pytest.mark.parametrize("thread", [0, 5, 32])
def test_commit_and_wait_belong_to_the_thread_that_issued(thread: int) -> None:
    store = by_thread(0, p.store(0))
    waited = by_thread(thread, bulk_commit(), bulk_wait())
    outcome = run(build(start=[write(0), fence_async(), sync(), *store, *waited, sync(), write(0)]), 128)
    assert outcome.kinds == (set() if thread == 0 else {"race", "lifetime"})


def test_a_cta_that_ends_with_a_store_outstanding() -> None:
    def program(last: list[str]) -> str:
        return build(start=[write(0), fence_async(), sync(), *by_thread(0, p.store(0), bulk_commit(), *last)])

    assert run(program([]), 128).found == [
        (
            "lifetime",
            "bulk stores must have read shared memory before the thread that issued them ends, not while they are pending",
        )
    ]
    assert run(program([bulk_wait()]), 128).is_clean


def test_two_stores_to_the_same_global_bytes() -> None:
    def program(*between: str) -> str:
        copies = [p.store(0), bulk_commit(), *between, p.store(0), bulk_commit(), bulk_wait(0, read=False)]
        return build(start=[write(0), fence_async(), sync(), *by_thread(0, *copies)])

    (hazard,) = run(program(bulk_wait(0)), 128).hazards
    assert hazard.kind == "race" and hazard.second.space == "global"
    assert run(program(bulk_wait(0, read=False)), 128).is_clean


def test_threads_read_what_other_warps_wrote() -> None:
    def program(*between: str) -> str:
        return build(role(0, 127, write(0), *between, "xor.b32 %mine, %mine, 512;", p.read(0)))

    assert run(program(), 128).kinds == {"race"}
    assert run(program(sync(1, 128)), 128).is_clean
