"""The report of a made-up trace whose sums are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from h100sim import report
from h100sim.trace import CTA_INFO, EVENT, WARP_INFO, Access, Cause, Copy, Event, KernelInfo, Space, Trace, Wait

WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"


def story(*events: tuple, cycles: int = 1000) -> Trace:
    """Return the trace of one CTA of two warpgroups; an event is (time, kind, warp, fields)."""
    table = np.zeros(len(events), EVENT)
    table["op"] = -1
    for row, (time, kind, warp, fields) in zip(table, events, strict=True):
        row["time"], row["kind"], row["warp"] = time, kind, warp
        for name, value in fields.items():
            row[name] = value
    warps = np.zeros(8, WARP_INFO)
    warps["rank"] = np.arange(8)
    ctas = np.zeros(1, CTA_INFO)
    ctas["end"] = cycles
    kernel = KernelInfo(
        name="story", ptx="", lines=(1, 2), opcodes=("mbarrier.try_wait", WGMMA), sources=(None, None), grid=(1, 1, 1),
        block=(256, 1, 1), cluster=(1, 1, 1), device="h100-sxm", clock_mhz=1000,
        roles=(("producer", 0, 3), ("consumer", 4, 7)), semaphores=({"name": "full", "offset": 1024, "count": 2},),
    )  # fmt: skip
    return Trace(kernel, table, np.zeros((0, 32), np.int64), warps, ctas, cycles)


def test_waits_are_named_and_summed_by_role() -> None:
    trace = story(
        (0, Event.MBARRIER_INITIALISED, 0, {"a": 7, "c": 1, "d": 1024}),
        (0, Event.MBARRIER_INITIALISED, 0, {"a": 8, "c": 1, "d": 1032}),
        (10, Event.EXITED, 1, {}),
        (100, Event.BLOCKED, 4, {"a": Wait.MBARRIER, "b": 7}),
        (150, Event.RESUMED, 4, {"a": Wait.MBARRIER, "b": 7}),
        (200, Event.BLOCKED, 4, {"a": Wait.MBARRIER, "b": 8}),
        (275, Event.RESUMED, 4, {"a": Wait.MBARRIER, "b": 8}),
        (300, Event.BLOCKED, 4, {"a": Wait.BARRIER, "b": 3}),
        (301, Event.RESUMED, 4, {"a": Wait.BARRIER, "b": 3}),
        (400, Event.ISSUED, 4, {"a": 9, "b": Cause.MEMORY}),
        (900, Event.EXITED, 0, {}),
    )
    producer, consumer = report.summarise(trace).roles
    assert (producer.name, producer.cycles, producer.waits) == ("producer", 1000, ())
    assert consumer.waits == (report.Waited("full", 125, 2), report.Waited("named barrier 3", 1, 1))
    assert consumer.stalls == (report.Waited("memory", 9, 1),)


def test_a_role_of_a_run_that_was_stopped_lives_to_its_last_cycle() -> None:
    trace = story((400, Event.ISSUED, 4, {"a": 9, "b": Cause.MEMORY}))
    trace.ctas["end"] = 0
    assert [role.cycles for role in report.summarise(trace).roles] == [1000, 1000]


def test_tensor_core_time_counts_overlaps_once() -> None:
    rows = []
    for op, (start, end) in enumerate(((100, 200), (150, 250), (400, 450))):
        rows.append((start - 5, Event.WGMMA_ISSUED, 4, {"op": op, "pc": 1}))
        rows.append((start, Event.WGMMA_STARTED, 4, {"op": op, "pc": 1}))
        rows.append((end, Event.WGMMA_COMPLETED, 4, {"op": op, "pc": 1}))
    tensor = report.summarise(story(*rows)).tensor_cores
    assert (tensor.operations, tensor.flop) == (3, 3 * 2 * 64 * 128 * 16)
    assert tensor.in_flight == pytest.approx(0.2)
    assert tensor.of_peak == pytest.approx(3 * 64 / 1000)


def test_bulk_copies_are_counted_by_direction() -> None:
    trace = story(
        (1, Event.TMA_ISSUED, 0, {"op": 0, "a": Copy.TENSOR_LOAD, "b": 4096}),
        (2, Event.TMA_ISSUED, 0, {"op": 1, "a": Copy.BULK_LOAD, "b": 64}),
        (3, Event.TMA_ISSUED, 4, {"op": 2, "a": Copy.TENSOR_REDUCE, "b": 512}),
    )
    summary = report.summarise(trace)
    assert (summary.loads, summary.stores) == (report.Traffic(2, 4160), report.Traffic(1, 512))


def test_the_text_states_units_and_the_dict_is_json() -> None:
    summary = report.summarise(story((100, Event.BLOCKED, 4, {"a": Wait.WGMMA}), (600, Event.RESUMED, 4, {"a": Wait.WGMMA})))
    text = report.as_text(summary)
    assert text.splitlines()[0] == "story on h100-sxm: 1,000 cycles (1.00 us at 1,000 MHz), grid 1x1x1, block 256x1x1"
    assert "    wgmma results        500 cycles  50.0%  once" in text.splitlines()
    assert json.loads(json.dumps(report.as_dict(summary)))["cycles"] == 1000


def test_an_empty_trace_has_a_report() -> None:
    summary = report.summarise(story())
    assert summary.events == 0 and "nothing" in report.as_text(summary)


def test_wavefronts_are_counted_for_each_instruction() -> None:
    def read(pc: int, row: int, width: int, access: int = Access.READ) -> tuple:
        return (0, Event.MEMORY, 0, {"pc": pc, "a": row, "b": width, "c": Space.SHARED, "d": access})

    trace = story(read(0, 0, 4), read(0, 1, 4), read(1, 2, 16), read(0, 1, 16, Access.WRITE | Access.ASYNC))
    lane = np.arange(32)
    trace.lanes = np.stack([4 * lane, 128 * lane, 16 * lane])
    column, wide = report.summarise(trace).shared_memory
    assert (column.pc, column.place, column.opcode) == (0, "line 1", "mbarrier.try_wait")
    assert (column.accesses, column.wavefronts, column.without_conflicts, column.worst) == (2, 33, 2, 32)
    assert (wide.accesses, wide.wavefronts, wide.without_conflicts, wide.worst) == (1, 4, 4, 4)
    lines = report.as_text(report.summarise(trace)).splitlines()
    assert "  shared memory: 3 accesses of warps, 37 wavefronts, 31 of them bank conflicts" in lines
    assert "    line 1 mbarrier.try_wait: 16.5 wavefronts instead of 1, 2 times" in lines
    assert not any("line 2" in line for line in lines)
