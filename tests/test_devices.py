"""Device models: numbers can be changed by name, and what a change does to a kernel is shown."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from h100sim import Device, devices
from h100sim.cli.output import difference_text
from h100sim.cli.target import execute, program_job
from h100sim.errors import CycleLimit, LaunchError, UsageError

#: Settings of the GEMM program for one CTA and two steps.
SMALL = {"m": 128, "n": 128, "k": 128}


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
        ("tma.latency_cycles", -1, r"^tma\.latency_cycles must be a number from 0 to 1,099,511,627,776, not -1$"),
        ("tma.latency_cycles", "fast", r"^tma\.latency_cycles must be a number from 0 to 1,099,511,627,776, not fast$"),
        ("tma.latency_cycles", 1.5, r"^tma\.latency_cycles must be a whole number, not 1\.5$"),
        ("tma.latency_cycles", 2**63 - 1, r"^tma\.latency_cycles must be a number from 0 to .*, not 9223372036854775807$"),
        ("tma.box_cycles", 1e300, r"^tma\.box_cycles must be a number from 0 to 1,099,511,627,776, not 1e\+300$"),
        ("tma.box_cycles", float("nan"), r"^tma\.box_cycles must be a number from 0 to 1,099,511,627,776, not nan$"),
        ("tma.bytes_per_cycle", 0, r"^tma\.bytes_per_cycle must be a number from 0\.001 to 1,048,576, not 0$"),
        ("issue.alu_cycles", 10**12, r"^issue\.alu_cycles must be a number from 0 to 256, not 1000000000000$"),
        ("memory.seed", 10**20, r"^memory\.seed must be a number from 0 to 9,223,372,036,854,775,807, not 100000000000000000000$"),
        ("limits.shared_unit_bytes", 0, r"^limits\.shared_unit_bytes must be a number from 1 to 65,536, not 0$"),
        ("limits.warps_per_sm", 0, r"^limits\.warps_per_sm must be a number from 1 to 1,024, not 0$"),
        ("clock_mhz", 0, r"^clock_mhz must be a number from 1 to 100,000, not 0$"),
        ("issue.schedulers", 3, r"^number of the device must be one of issue\.alu_latency, .*, not issue\.schedulers$"),
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


def test_models_are_within_their_ranges_and_others_are_refused() -> None:
    for model in devices.MODELS.values():
        assert devices.model(model) is model
    slow = replace(devices.model(), memory=replace(devices.model().memory, hbm_bytes_per_cycle=0.0))
    with pytest.raises(UsageError, match=r"^memory\.hbm_bytes_per_cycle must be a number from 0\.001 to 1,048,576, not 0\.0$"):
        Device(slow)


@pytest.mark.parametrize("end", [0, 1], ids=["least", "most"])
def test_a_kernel_runs_or_is_refused_at_both_ends_of_every_range(end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing wraps, divides by zero or stands still: the run ends, or comes to the limit on cycles."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    model = devices.model()
    refused = []
    for name in devices.numbers(model):
        value = devices.range_of(name)[end]
        value = value if value == 0.001 else int(value)
        try:
            outcome = execute(program_job("gemm", SMALL, 0, devices.changed(model, {name: value})), values="none", checks="off")
        except LaunchError:
            refused.append(name)
            continue
        assert outcome.error is None or isinstance(outcome.error, CycleLimit), (name, value, outcome.error)
        assert outcome.run.cycles > 0 or outcome.error, (name, value)
    assert not unraisable
    assert all(name.startswith("limits.") for name in refused) and bool(refused) == (end == 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("limits.warps_per_sm", 4, "warps of a CTA must be at most the 4 of an SM, not 12"),
        ("limits.shared_bytes_per_sm", 4096, "bytes of shared memory of a CTA must be at most the 4,096 of an SM, not "),
    ],
)
def test_a_cta_that_does_not_fit_an_sm_is_refused(name: str, value: int, message: str) -> None:
    with pytest.raises(LaunchError) as found:
        execute(program_job("gemm", SMALL, 0, devices.changed(devices.model(), {name: value})), values="none", checks="off")
    assert found.value.message.startswith(message)


def test_a_slower_copy_engine_lets_consumers_wait_for_full_slots() -> None:
    plain, slow = (
        execute(program_job("gemm", {}, 0, devices.changed(devices.model(), changes)), values="none", checks="off")
        for changes in ({}, {"tma.latency_cycles": 900})
    )
    text = difference_text(plain, slow, {"tma.latency_cycles": 900})
    assert text.startswith(f"What if tma.latency_cycles=900: {slow.run.cycles:,} cycles instead of {plain.run.cycles:,} (+")
    assert "consumer 0: full: TMA latency +" in text
