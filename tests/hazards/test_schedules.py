"""Other orders: a correct program gives the same bits in all of them, a wrong one goes wrong in some."""

from __future__ import annotations

import numpy as np
import programs as p
import pytest
from programs import arrive, arrive_tx, build, inits, load, read, role, run, sync, wait

from h100sim import schedules
from h100sim.errors import DeadlockError, UsageError

SEEDS = range(9)


def write_back() -> str:
    """Every thread of the role writes what it read to its own 16 bytes of global memory."""
    return "st.global.v4.u32 [%mine_out], {%r1, %r2, %r3, %r4};"


def pipeline(steps: int, releases_all: bool = True) -> str:
    """One stage; four consumer warps; the first warp releases the stage, for all of them or for itself."""
    produce = [s for i in range(steps) for s in (wait(1, i & 1 ^ 1), arrive_tx(0), *load(0, 0))]
    consume = []
    for i in range(steps):
        release = [sync(1, 128)] if releases_all else []
        consume += [wait(0, i & 1), read(0), *release, *p.by_first(arrive(1))]
    return build(role(0, 0, produce), role(128, 255, consume, write_back()), start=inits(1, 1))


def test_a_correct_ring_gives_the_same_bits_in_every_order() -> None:
    outcomes = [run(pipeline(6), 256, schedule=seed) for seed in SEEDS]
    assert all(o.is_clean for o in outcomes)
    assert all(np.array_equal(o.target, outcomes[0].target) for o in outcomes)
    assert outcomes[0].target.any()
    assert len({o.cycles for o in outcomes}) == len(SEEDS), "every seed must be an order of its own"


def test_a_seed_is_the_same_order_every_time() -> None:
    first, again = (run(pipeline(6), 256, schedule=7) for _ in range(2))
    assert first.cycles == again.cycles


def test_a_waiter_that_can_be_lapped_hangs_in_some_order() -> None:
    """hazards.md C20: in the usual order nothing happens."""
    program = pipeline(6, releases_all=False)
    assert run(program, 256).error is None
    assert any(isinstance(run(program, 256, schedule=seed).error, DeadlockError) for seed in range(3, 40))


def test_a_try_wait_without_a_loop_returns_false_in_some_order() -> None:
    """hazards.md C29: what the consumer reads depends on the order."""
    once = "mbarrier.try_wait.parity.shared::cta.b64 %p2, " + p.at(0) + ", 0;"
    consume = role(128, 255, once, read(0), write_back(), wait(0, 0))
    program = build(role(0, 0, arrive_tx(0), load(0, 0)), consume, start=inits(1))
    outcomes = [run(program, 256, schedule=seed) for seed in range(12)]
    assert any(not np.array_equal(o.target, outcomes[0].target) for o in outcomes)


def test_a_missing_wait_changes_values_when_copies_are_late() -> None:
    """The usual order hides it: the consumer comes late."""
    consume = role(128, 255, p.work(3000), read(0), write_back(), wait(0, 0))
    program = build(role(0, 0, arrive_tx(0), load(0, 0)), consume, start=inits(1))
    usual, late = run(program, 256), run(program, 256, schedule=2)
    assert not np.array_equal(usual.target, late.target)


def test_a_seed_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="schedule must be from 0 to"):
        run(pipeline(1), 256, schedule=-1)


def test_schedules_in_words() -> None:
    assert schedules.describe(0) == "the usual order"
    assert schedules.describe(2) == "units finish as late as possible"
    assert schedules.describe(4) == "warps are held up, units finish at once"
    assert len({schedules.bits(seed) for seed in range(100)}) == 100
