"""mbarriers set up, counted or used wrongly. Each program has a control that must be clean."""

from __future__ import annotations

import re

import programs as p
import pytest
from programs import arrive, arrive_tx, build, consumer, inits, load, producer, read, ring, role, run, wait

from h100sim.errors import DeadlockError, IllegalInstruction


def test_a_producer_that_starts_with_parity_0_and_a_consumer_wait_for_each_other() -> None:
    error = run(ring(producer(4, first_parity=0), consumer(4)), 256).error
    assert isinstance(error, DeadlockError)
    assert error.message.startswith("no warp can proceed at cycle ")
    lines = [" ".join(line.split()) for line in error.waits]
    assert lines[0].endswith("waits for mbarrier 0x7c10 phase 0: 0 of 1 arrivals")
    assert lines[1].endswith("waits for mbarrier 0x7c00 phase 0: 0 of 1 arrivals")
    assert (
        "cycle: warpgroup 0 -> mbarrier 0x7c10 -> warpgroup 1 -> mbarrier 0x7c00 -> warpgroup 0" in lines
        and lines[-1] == "all roles wait for parity 0 of fresh mbarriers: the role that fills a stage must start with parity 1"
    )
    assert run(ring(producer(4), consumer(4)), 256).is_clean


def test_an_empty_barrier_that_counts_threads_while_lanes_arrive() -> None:
    consume = consumer(4, release=lambda bar: p.by_lane_0(arrive(bar)))
    error = run(ring(producer(4), consume, counts=(1, 1, 128, 128)), 256).error
    assert isinstance(error, DeadlockError)
    assert any("counts 128 arrivals (initialised at line 25), but only 4 came" in line for line in error.waits)
    assert run(ring(producer(4), consume, counts=(1, 1, 4, 4)), 256).is_clean


@pytest.mark.parametrize("delay", [0, 2000])
def test_a_barrier_count_too_small_for_two_consumers(delay: int) -> None:
    def program(count: int) -> str:
        def consume(wait_cycles: int) -> list[str]:
            return consumer(
                4,
                release=lambda bar: p.by_first(arrive(bar)),
                use=lambda at: [*([p.work(wait_cycles)] if wait_cycles else []), *p.multiply(at)],
            )

        consumers = role(128, 255, consume(0)), role(256, 383, consume(delay))
        return build(role(0, 0, producer(4)), *consumers, start=inits(1, 1, count, count))

    outcome = run(program(1), 384)
    assert "over-arrival" in outcome.kinds
    assert delay == 0 or "race" in outcome.kinds
    assert run(program(2), 384).is_clean


def test_an_arrival_in_the_next_phase_that_nobody_waited_for() -> None:
    program = build(role(0, 0, arrive(0), arrive(0)), start=inits(1))
    assert run(program, 32).found == [
        ("over-arrival", "mbarrier 0x7c00 phase 0 must be waited for before anybody arrives in phase 1, not run past")
    ]
    assert run(build(role(0, 0, arrive(0), wait(0, 0), arrive(0)), start=inits(1)), 32).is_clean


def test_a_barrier_that_expects_more_bytes_than_copies_deliver() -> None:
    def program(size: int) -> str:
        copies = [arrive_tx(0, size), *load(0, 0), arrive_tx(1), *load(p.TILE, 1)]
        return build(role(0, 0, copies), role(128, 255, wait(0, 0), read(0), wait(1, 0)), start=inits(1, 1))

    error = run(program(2 * p.TILE), 256).error
    assert isinstance(error, DeadlockError)
    assert error.waits[0].endswith("waits for mbarrier 0x7c00 phase 0: 1 of 1 arrivals, 2,048 of 4,096 bytes")
    assert error.waits[1] == (
        "mbarrier 0x7c00 expects 4,096 bytes and has 2,048; nothing is in flight, the last copy to it was issued at line 39"
    )
    assert run(program(p.TILE), 256).is_clean


def test_a_box_that_delivers_more_bytes_than_expected() -> None:
    program = build(role(0, 0, arrive_tx(0, 512), load(0, 0)), role(128, 255, wait(0, 0)), start=inits(1))
    outcome = run(program, 256)
    assert (
        "tx-underflow",
        "mbarrier 0x7c00 must expect every byte that copies complete on it, not 1,536 fewer",
    ) in outcome.found
    assert isinstance(outcome.error, DeadlockError)
    assert "mbarrier 0x7c00 was given 1,536 bytes that nobody expects" in outcome.error.waits[1]


def test_bytes_expected_without_an_arrival() -> None:
    def program(arm: str) -> str:
        return build(role(0, 0, arm, load(0, 0)), role(128, 255, wait(0, 0), read(0)), start=inits(1))

    error = run(program(p.expect(0)), 256).error
    assert isinstance(error, DeadlockError)
    assert any("expect_tx is not an arrival" in line for line in error.waits)
    assert run(program(arrive_tx(0)), 256).is_clean


def test_a_whole_warp_arms_a_barrier_of_one_arrival() -> None:
    program = build(role(0, 31, arrive_tx(0)), role(128, 255, wait(0, 0)), start=inits(1))
    error = run(program, 256).error
    assert isinstance(error, IllegalInstruction)
    rule = "must bring mbarrier 0x7c00 no more arrivals than its phase still waits for (0), not 1"
    assert error.message == f"mbarrier.arrive.expect_tx.shared::cta.b64 {rule}"


def test_a_barrier_that_was_never_initialised() -> None:
    error = run(build(role(0, 0, arrive_tx(0))), 32).error
    assert isinstance(error, IllegalInstruction)
    assert "must name an initialised mbarrier" in error.message


def test_use_of_a_barrier_without_a_sync_after_its_init() -> None:
    use = [p.work(50), arrive(0), wait(0, 0)]  # The init comes first here, but nothing says that it must.
    [(kind, message)] = run(build(start=[*p.init_by_thread_0(256), *use]), 256).found
    assert kind == "race"
    assert re.fullmatch(
        r"mbarrier 0x7c00 must be initialised before warpgroup [01] uses it, not without an order between the two", message
    )
    assert run(build(start=[*inits(256), *use]), 256).is_clean


def test_fewer_barriers_than_copies_in_flight() -> None:
    def program(bars: int) -> str:
        def consume(first: int) -> list[str]:
            return [s for i in range(first, first + 4) for s in (wait(i % bars, i // bars & 1), read(i * p.TILE))]

        copies = [s for i in range(8) for s in (arrive_tx(i % bars), *load(i * p.TILE, i % bars))]
        copies.insert(4 * 6, p.work(4000))  # The first six have landed: the timing hides the mistake.
        consumers = role(128, 255, consume(0)), role(256, 383, consume(4))
        return build(role(0, 0, copies), *consumers, start=inits(*[1] * bars))

    assert run(program(6), 384).kinds == {"over-arrival"}
    assert run(program(8), 384).is_clean


def test_a_tile_over_a_live_barrier() -> None:
    def program(offset: int) -> str:
        return build(role(0, 0, arrive(0)), role(128, 255, wait(0, 0), p.write(offset)), start=inits(1))

    assert run(program(p.BARRIERS - 1024), 256).found == [
        ("barrier-misuse", "mbarrier 0x7c00 must be invalidated before its bytes are written, not while it is live")
    ]
    assert run(program(0), 256).is_clean


def test_parity_must_be_0_or_1() -> None:
    error = run(build(role(0, 0, wait(0, 2)), start=inits(1)), 32).error
    assert isinstance(error, IllegalInstruction)
    assert error.message == "mbarrier phase parity must be 0 or 1, not 2"
