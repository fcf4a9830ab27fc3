"""Roles of a pipeline that do not agree. Each program has a control that must be clean."""

from __future__ import annotations

import programs as p
from programs import arrive, arrive_tx, build, consumer, inits, load, producer, read, ring, role, run, sync, wait

from h100sim.errors import DeadlockError


def test_a_loop_that_restarts_stage_and_parity_for_every_tile() -> None:
    def program(steps: int, restarts: bool) -> str:
        produce, consume, total = [], [], 0
        for _ in range(2):
            for k in range(steps):
                stage, phase = (k if restarts else total) % 2, (k if restarts else total) // 2 & 1
                produce += [wait(2 + stage, phase ^ 1), arrive_tx(stage), *load(stage * p.TILE, stage)]
                consume += [wait(stage, phase), read(stage * p.TILE), sync(1, 128), *p.by_first(arrive(2 + stage))]
                total += 1
        return ring(produce, consume)

    assert not run(program(3, True), 256).is_clean
    assert run(program(3, False), 256).is_clean
    assert run(program(4, True), 256).is_clean


def test_a_producer_that_skips_a_tile_alone() -> None:
    def program(skips: bool) -> str:
        produce, consume, filled = [], [], 0
        for used, blocks in enumerate((2, 0, 2)):
            if blocks or not skips:
                produce += [wait(1, filled & 1 ^ 1), arrive_tx(0), *load(0, 0)]
                filled += 1
            consume += [wait(0, used & 1), read(0), sync(1, 128), *p.by_first(arrive(1))]
        return build(role(0, 0, produce), role(128, 255, consume), start=inits(1, 1))

    error = run(program(True), 256).error
    assert isinstance(error, DeadlockError)
    assert error.waits[1] == "only warpgroup 0 arrives on mbarrier 0x7c00: warpgroup 0 has exited"
    assert run(program(False), 256).is_clean


def test_a_release_behind_a_barrier_that_needs_the_producer() -> None:
    def program(releases_early: bool) -> str:
        release = [sync(4, 128), *p.by_first(arrive(0))]
        last = [*release, sync(3, 256)] if releases_early else [sync(3, 256), *release]
        produce = [wait(0, 1), p.write(0), sync(3, 256), wait(0, 0), p.write(0), sync(3, 256)]
        return build(role(0, 127, produce), role(128, 255, sync(3, 256), read(0), last), start=inits(1))

    error = run(program(False), 256).error
    assert isinstance(error, DeadlockError)
    assert "cycle: warpgroup 0 -> mbarrier 0x7c00 -> warpgroup 1 -> barrier 3 -> warpgroup 0" in error.waits
    assert run(program(True), 256).is_clean


def test_a_guard_that_no_thread_of_the_role_passes() -> None:
    guarded = ["setp.eq.u32 %p3, %tid, 0;", "@%p3 " + arrive_tx(0)]
    error = run(build(role(128, 255, guarded), role(0, 127, wait(0, 0)), start=inits(1)), 256).error
    assert isinstance(error, DeadlockError)
    assert "nobody has ever arrived on mbarrier 0x7c00 (initialised at line 23)" in error.waits


def test_a_consumer_that_waits_for_one_operand_only() -> None:
    def program(both: bool) -> str:
        copies = [arrive_tx(0), *load(0, 0), arrive_tx(1), *load(p.TILE, 1)]
        use = [p.wgmma_fence(), *p.wgmma(0, p.TILE), p.commit(), p.wait_group(0)]
        waits = [wait(0, 0), wait(1, 0), *use] if both else [wait(0, 0), *use, wait(1, 0)]
        # The consumer comes so late that both copies have long landed: the values are right by luck.
        return build(role(0, 0, copies), role(128, 255, p.work(4000), waits), start=inits(1, 1))

    outcome = run(program(False), 256)
    assert outcome.found == [
        (
            "race",
            "shared memory 0xc00 to 0xcff must be read by wgmma after the copy that writes them has completed, "
            "not without an order",
        )
    ]
    (hazard,) = outcome.hazards
    assert hazard.missing == "a wait of warpgroup 1 on mbarrier 0x7c08 that sees the phase in which this copy completes"
    assert run(program(True), 256).is_clean


def test_one_test_of_a_barrier_is_not_a_wait() -> None:
    def program(first: str) -> str:
        consume = role(128, 255, first, p.work(3000), read(0), wait(0, 0))
        return build(role(0, 0, arrive_tx(0), load(0, 0)), consume, start=inits(1))

    assert run(program(p.test(0, 0)), 256).kinds == {"race"}
    assert run(program(wait(0, 0)), 256).is_clean


def test_one_thread_waits_and_all_read() -> None:
    def program(syncs: bool) -> str:
        first = ["setp.eq.u32 %p3, %in_role, 0;", "@!%p3 bra REST;", wait(0, 0), "REST:"]
        consume = [p.work(5000), *first, *([sync(1, 128)] if syncs else []), read(0)]
        return build(role(0, 0, arrive_tx(0), load(0, 0)), role(128, 255, consume), start=inits(1))

    assert run(program(False), 256).kinds == {"race"}
    assert run(program(True), 256).is_clean


def test_several_copies_on_one_barrier_are_clean() -> None:
    copies = [arrive_tx(0, 2 * p.TILE), *load(0, 0), *load(p.TILE, 0)]
    assert run(build(role(0, 0, copies), role(128, 255, wait(0, 0), read(0), read(p.TILE)), start=inits(1)), 256).is_clean


def test_a_role_that_ends_early_neither_hides_nor_makes_a_deadlock() -> None:
    def program(consume: list[str]) -> str:
        return build(role(0, 0, producer(4)), role(128, 255, consume), role(256, 383), start=inits(1, 1, 1, 1))

    assert run(program(consumer(4)), 384).is_clean
    assert isinstance(run(program(consumer(4, release=lambda bar: [])), 384).error, DeadlockError)


def test_a_copy_that_nobody_waits_for() -> None:
    outcome = run(build(role(0, 0, arrive_tx(0), load(0, 0)), start=inits(1)), 32)
    assert outcome.found == [("lifetime", "bulk load must be waited for before the CTA that it writes to ends, not left in flight")]
