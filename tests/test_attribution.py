"""Every cycle of a warp has one cause, and the causes add up to its life."""

from __future__ import annotations

import pytest

from h100sim import report
from h100sim.trace import Cause, Event, Wait
from tests.kernels import entry, launch
from tests.test_report import story
from tk_programs import gemm


def test_waits_stalls_and_costs_share_the_gaps() -> None:
    trace = story(
        (10, Event.ISSUED, 4, {"a": 4, "b": Cause.FETCH, "c": 1, "pc": 1}),
        (12, Event.BLOCKED, 4, {"a": Wait.BARRIER, "b": 3}),
        (40, Event.RESUMED, 4, {"a": Wait.BARRIER, "b": 3}),
        (50, Event.ISSUED, 4, {"a": 5, "b": Cause.PIPE, "c": 1, "pc": 0}),
        (60, Event.EXITED, 4, {}),
        (900, Event.EXITED, 0, {}),
        *((1, Event.EXITED, warp, {}) for warp in (1, 2, 3, 5, 6, 7)),
    )  # fmt: skip
    consumer = report.summarise(trace).roles[1]
    assert {item.what: item.cycles for item in consumer.spent} == {
        "its code": 4, "its first instruction": 6, "named barrier 3": 28, "issuing": 2, "a busy pipe": 5,
        "wgmma instructions": 6, "mbarrier instructions": 9,
    }  # fmt: skip
    assert sum(item.cycles for item in consumer.spent) == consumer.cycles == 60


def test_a_body_without_a_return_ends_all_the_same() -> None:
    run = launch(entry("", ".reg .b32 %r; mov.u32 %r, 1;"), ())
    (role,) = report.summarise(run.trace).roles
    assert sum(item.cycles for item in role.spent) == role.cycles > 0


@pytest.mark.parametrize("config", [{}, {"m": 128, "n": 128, "k": 64, "stages": 1}])
def test_the_causes_of_a_program_add_up_to_its_life(config: dict[str, int]) -> None:
    whole = {**gemm.CONFIG, **config}
    kernel = gemm.build(**whole)
    kernel.run(*gemm.inputs(0, **whole), trace="full", checks="off")
    for role in report.summarise(kernel.last_run.trace).roles:
        assert role.spent and sum(item.cycles for item in role.spent) == pytest.approx(role.cycles)
        assert all(0 < item.cycles <= role.cycles for item in role.spent)
