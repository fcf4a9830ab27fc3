"""Device models: numbers can be changed by name, and what a change does to a kernel is shown."""

from __future__ import annotations

import pytest

from h100sim import devices
from h100sim.cli.output import difference_text
from h100sim.cli.target import execute, program_job
from h100sim.errors import UsageError


def test_numbers_are_changed_by_name() -> None:
    model = devices.changed(devices.model("h200-sxm"), {"tma.latency_cycles": 800, "memory.l2_bytes_per_cycle": 100, "sms": 2})
    assert (model.tma.latency_cycles, model.memory.l2_bytes_per_cycle, model.sms) == (800, 100.0, 2)
    assert isinstance(model.memory.l2_bytes_per_cycle, float)
    assert devices.model("h200-sxm").tma.latency_cycles != 800


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tma.latency", 1, r"^number of the device must be one of tma\.issue_cycles, .*, not tma\.latency$"),
        ("engine.speed", 1, r"^number of the device must be one of sms, .*, not engine\.speed$"),
        ("tma.latency_cycles", -1, r"^tma\.latency_cycles must be a number from 0 up, not -1$"),
        ("tma.latency_cycles", "fast", r"^tma\.latency_cycles must be a number from 0 up, not fast$"),
        ("tma.latency_cycles", 1.5, r"^tma\.latency_cycles must be a whole number, not 1\.5$"),
    ],
)
def test_wrong_changes_are_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        devices.changed(devices.model(), {name: value})


def test_every_number_can_be_changed() -> None:
    model = devices.model()
    assert len(devices.numbers(model)) > 60
    for name in devices.numbers(model):
        devices.changed(model, {name: 7})


def test_a_slower_copy_engine_lets_consumers_wait_for_full_slots() -> None:
    plain, slow = (
        execute(program_job("gemm", {}, 0, devices.changed(devices.model(), changes)), values="none", checks="off")
        for changes in ({}, {"tma.latency_cycles": 900})
    )
    text = difference_text(plain, slow, {"tma.latency_cycles": 900})
    assert text.startswith(f"What if tma.latency_cycles=900: {slow.run.cycles:,} cycles instead of {plain.run.cycles:,} (+")
    assert "consumer 0: full: TMA latency +" in text
