"""The engine's queue: when it begins with a copy, seen in the trace, and what copies behind one another wait for."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest

import h100sim
from h100sim import critical_path, dependences, devices
from h100sim.trace import Event, Trace
from tests.kernels import entry, launch, zeros
from validate import probes
from validate.probes import tma_elected, tma_load_latency

T = devices.model().tma

#: Thread 0 hands the engine loads of 8 KB, waits for them, and hands it stores of the same bytes.
COPIES = """
    .shared .align 128 .b8 s[65536]; .shared .align 8 .b64 bar;
    .reg .b64 %to, %from, %state; .reg .b32 %t, %s, %b; .reg .pred %p, %done;
    mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p ret;
    mov.u32 %s, s; mov.u32 %b, bar; ld.param.u64 %to, [to]; ld.param.u64 %from, [from];
    mbarrier.init.shared::cta.b64 [%b], 1; fence.proxy.async.shared::cta;
"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;"
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s+{at}], [%from+{at}], 8192, [%b];"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%to+{at}], [%s+{at}], 8192;"


def copied(loads: int, stores: int, **options: object) -> Trace:
    lines = [f"mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], {loads * 8192};"]
    lines += [LOAD.format(at=k * 8192) for k in range(loads)]
    lines += [WAIT, *(STORE.format(at=k * 8192) for k in range(stores))]
    lines += ["cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"] * bool(stores)
    run = launch(entry("u64 to, u64 from", COPIES + "\n".join(lines)), (zeros(16384), zeros(16384)), **options)
    assert not run.hazards
    return run.trace


def begun(trace: Trace, way_out: int) -> np.ndarray:
    events = trace.of(Event.TMA_STARTED)
    return events[events["d"] == way_out]


def assert_one_behind_the_other(started: np.ndarray, issued: Sequence[int], cycles: int) -> None:
    """A copy begins once it has been handed over and the one in front has been taken; what it waited for is the rest."""
    assert started["b"] == pytest.approx(cycles, abs=1)
    assert started["c"][0] == 0
    for k in range(1, len(started)):
        free = started["time"][k - 1] + started["b"][k - 1]
        assert started["time"][k] == max(free, started["time"][k] - started["c"][k])
        assert (started["c"][k] > 0) == (started["time"][k] == free > issued[k])


def test_loads_begin_one_behind_the_other():
    trace = copied(4, 0)
    started, issued = begun(trace, 0), trace.of(Event.TMA_ISSUED)
    assert started["op"].tolist() == issued["op"].tolist() and len(started) == 4
    assert_one_behind_the_other(started, issued["time"], int(8192 / T.bytes_per_cycle))
    assert started["time"][0] == issued["time"][0] + T.bulk_issue_cycles
    assert started["c"][3] > started["c"][1] > 0, "the engine is slower than the thread that feeds it"


def test_stores_begin_one_behind_the_other_whatever_loads_do():
    trace = copied(3, 3)
    stores = begun(trace, 1)
    issued = trace.of(Event.TMA_ISSUED)["time"][3:]
    assert_one_behind_the_other(stores, issued, int(8192 / T.store_bytes_per_cycle))
    assert stores["time"][0] == issued[0] + T.store_issue_cycles


def test_a_prefetch_of_no_copy_in_the_trace_begins_unseen():
    ptx = entry("u64 from", ".reg .b64 %from; ld.param.u64 %from, [from]; cp.async.bulk.prefetch.L2.global [%from], 4096;")
    assert not len(launch(ptx, (zeros(1024),)).trace.of(Event.TMA_STARTED))


def test_a_copy_is_bound_by_the_one_in_front_of_it_in_the_queue():
    trace = copied(3, 0)
    graph = dependences.graph(trace)
    rows = {int(row): node for node, row in enumerate(graph.nodes)}
    first, second, third = (rows[int(row)] for row in np.flatnonzero(trace.events["kind"] == Event.TMA_STARTED))
    assert (graph.binding[second], graph.binding[third]) == (first, second)
    assert trace.events["kind"][graph.nodes[graph.binding[first]]] == Event.TMA_ISSUED
    assert dependences.slack(graph)[[first, second, third]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("schedule", [1, 2, 3])
def test_other_schedules_have_the_same_copies(schedule):
    started = copied(3, 2, schedule=schedule).of(Event.TMA_STARTED)
    assert started["d"].tolist() == [0, 0, 0, 1, 1]


def test_the_trace_without_the_event_still_gives_a_path():
    trace = copied(3, 1)
    older = h100sim.trace.Trace(
        trace.kernel, trace.events[trace.events["kind"] != Event.TMA_STARTED], trace.lanes, trace.warps, trace.ctas, trace.cycles
    )
    path = critical_path.critical_path(older)
    assert sum(share.cycles for share in path.shares) == older.cycles
    assert not [share for share in path.shares if "queue" in share.what]


@pytest.mark.parametrize(("boxes", "rows"), [(1, 64), (4, 64), (8, 8)])
def test_an_elected_thread_hands_copies_over_without_a_loop(boxes: int, rows: int) -> None:
    """As on silicon it is through with several in a fraction of the time, and small boxes come one behind the other at once."""
    there = probes.silicon_results("tma_elected")
    run, _ = probes._launcher("sim")
    took = {}
    for how, text in (("compared", tma_load_latency.kernel(boxes, rows)), ("elected", tma_elected.elected_kernel(boxes, rows))):
        source, out = np.zeros((boxes * rows, 32), np.uint32), np.zeros((tma_load_latency.REPEATS, 3), np.uint32)
        tensor = functools.partial(tma_load_latency.tensor_map, source, rows)
        run(text, "probe", (1, 1, 1), (32, 1, 1), [out, tensor, np.uint32(0)], shared_mem=boxes * rows * 128)
        took[how] = np.median(out[1:], axis=0)
        assert took[how][2] == pytest.approx(there[f"{boxes} x {rows * 128}, {how}"][2], rel=0.06)
    loop = there[f"{boxes} x {rows * 128}, compared"][1] - there[f"{boxes} x {rows * 128}, elected"][1]
    assert took["compared"][1] - took["elected"][1] == pytest.approx(loop, rel=0.2)
