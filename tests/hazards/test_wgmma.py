"""wgmma: operands in shared memory, registers in flight, fences. Each program has a control that must be clean."""

from __future__ import annotations

import programs as p
import pytest
from programs import (
    build,
    commit,
    consumer,
    fence_async,
    producer,
    ring,
    role,
    run,
    sync,
    wait_group,
    wgmma,
    wgmma_fence,
    write,
)

FILLED = [write(0), write(p.TILE), fence_async(), sync()]
A = ["a0", "a1", "a2", "a3"]
B = ["b0", "b1", "b2", "b3"]


def zero(*registers: str) -> list[str]:
    return [f"mov.b32 %{r}, 0;" for r in registers]


def group(*steps: str | list[str]) -> str:
    """Return a program of one warpgroup that fills two tiles first."""
    return build(role(0, 127, FILLED, *steps))


def test_a_stage_released_before_its_wgmma_has_finished() -> None:
    def program(waits: bool) -> str:
        use = lambda at: [wgmma_fence(), *wgmma(at, at), commit(), *([wait_group(0)] if waits else [])]  # noqa: E731
        return ring(producer(4), [*consumer(4, release=lambda bar: p.by_first(p.arrive(bar)), use=use), wait_group(0)])

    outcome = run(program(False), 256)
    assert outcome.found[0] == (
        "race",
        "shared memory 0x400 to 0xbff must be written by a copy after the wgmma that reads them has completed, "
        "not without an order",
    )
    assert outcome.hazards[0].fix == "put wgmma.wait_group before the arrive or barrier that releases these bytes"
    assert run(program(True), 256).is_clean


def test_wait_group_orders_the_own_warpgroup_only() -> None:
    def program(*last: str) -> str:
        step = [
            write(0),
            write(2 * p.TILE),
            fence_async(),
            sync(),
            wgmma_fence(),
            *wgmma(0, 2 * p.TILE),
            commit(),
            wait_group(),
        ]
        return build(start=[*step, *last, *step])

    assert run(program(), 256).kinds == {"race"}
    assert run(program(sync()), 256).is_clean


@pytest.mark.parametrize("pending", [0, 1])
def test_a_fragment_overwritten_while_wgmma_reads_it(pending: int) -> None:
    first, second = p.wgmma_of_registers("a", p.TILE), p.wgmma_of_registers("b", p.TILE)
    loop = [zero(*A, *B), wgmma_fence(), first, commit(), second, commit(), wait_group(pending), zero(*B), wait_group()]
    outcome = run(group(*loop), 128)
    assert outcome.kinds == ({"register-race"} if pending else set())
    if pending:
        assert outcome.hazards[0].message == (
            "fragment register %b0 must keep its value until wgmma.wait_group, not be written while a wgmma reads it"
        )


def test_an_accumulator_touched_before_its_wait() -> None:
    scale = "add.f32 %d0, %d0, %d0;"
    outcome = run(group(wgmma_fence(), wgmma(0, p.TILE), scale, commit(), wait_group()), 128)
    assert outcome.found == [
        (
            "register-race",
            "accumulator %d0 must be left alone until wgmma.wait_group, not accessed while the wgmma is pending",
        )
    ]
    assert run(group(wgmma_fence(), wgmma(0, p.TILE), commit(), wait_group(), scale), 128).is_clean


def test_registers_handed_over_without_wgmma_fence() -> None:
    clear = [f"mov.f32 %d{k}, 0f00000000;" for k in range(4)]
    outcome = run(group(clear, wgmma(0, p.TILE, scale_d=1), commit(), wait_group()), 128)
    assert outcome.found[0] == (
        "register-race",
        "register %d0 must be ordered by wgmma.fence before wgmma uses it, not handed over without one",
    )
    assert run(group(clear, wgmma_fence(), wgmma(0, p.TILE, scale_d=1), commit(), wait_group()), 128).is_clean


def test_an_accumulator_that_was_never_written() -> None:
    def program(scale_d: int) -> str:
        steps = [*wgmma(0, p.TILE, scale_d=scale_d), *wgmma(0, p.TILE, scale_d=1)]
        return group(wgmma_fence(), steps, commit(), wait_group())

    assert run(program(1), 128).found == [
        ("uninitialised", "accumulator %d0 must be written before a wgmma adds to it, not left undefined")
    ]
    assert run(program(0), 128).is_clean


def test_rows_of_a_tile_that_were_never_written() -> None:
    def program(threads: int) -> str:
        some = [f"setp.lt.u32 %p3, %in_role, {threads};", f"@%p3 {write(0)}"]
        fill = [*some, write(p.TILE), fence_async(), sync()]
        return build(role(0, 127, fill, wgmma_fence(), wgmma(0, p.TILE), commit(), wait_group()))

    assert run(program(80), 128).found == [
        (
            "uninitialised",
            "shared memory 0x900 to 0xbff must be written before it is read by wgmma, not left as the CTA found it",
        )
    ]
    assert run(program(128), 128).is_clean


def test_a_second_read_does_not_hide_behind_the_first() -> None:
    def program(*before_write: str) -> str:
        once = [wgmma_fence(), *wgmma(0, p.TILE), commit()]
        return group(once, wait_group(), once, *before_write, sync(1, 128), write(0), wait_group())

    assert run(program(), 128).kinds == {"race"}
    assert run(program(wait_group()), 128).is_clean


def test_a_chain_on_one_accumulator_is_clean() -> None:
    assert run(group(wgmma_fence(), [wgmma(0, p.TILE) for _ in range(8)], commit(), wait_group()), 128).is_clean


def test_an_operand_at_the_end_of_shared_memory_is_clean() -> None:
    end = p.SMEM_BYTES - p.TILE
    fill = [write(0), write(end), fence_async(), sync()]
    assert run(build(role(0, 127, fill, wgmma_fence(), wgmma(end, 0), commit(), wait_group())), 128).is_clean
