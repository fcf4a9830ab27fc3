"""Bars from events: waits, copies, wgmmas, mbarriers, and rows for what overlaps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim import intervals
from h100sim.trace import CTA_INFO, EVENT, WARP_INFO, Copy, Event, KernelInfo, Trace, Wait


def trace_of(*events, cycles=1000, semaphores=()):
    """Return a trace of events given as dicts; what they leave out is -1 for identities and 0 else."""
    table = np.zeros(len(events), EVENT)
    table["op"] = table["warp"] = table["pc"] = -1
    for row, event in zip(table, events, strict=True):
        for name, value in event.items():
            row[name] = value
    kernel = KernelInfo("k", "", (), (), (), (1, 1, 1), (64, 1, 1), (1, 1, 1), "h100-sxm", 1755, semaphores=semaphores)
    warps = np.array([(0, 0, 0, 0), (0, 1, 0, 1)], WARP_INFO)
    ctas = np.array([(0, 0, 0, cycles, 0, 0)], CTA_INFO)
    return Trace(kernel, table, np.zeros((0, 32), np.int64), warps, ctas, cycles)


def blocked(time, warp=0, thing=7, pc=3, **more):
    return {"time": time, "kind": Event.BLOCKED, "warp": warp, "pc": pc, "a": Wait.MBARRIER, "b": thing, "c": 1, **more}


def resumed(time, warp=0, thing=7, pc=3, **more):
    return {"time": time, "kind": Event.RESUMED, "warp": warp, "pc": pc, "a": Wait.MBARRIER, "b": thing, **more}


def spans(trace):
    return [tuple(w[k].item() for k in ("warp", "object", "blocked", "resumed")) for w in intervals.waits(trace)]


def test_a_wait_lasts_from_blocked_to_resumed():
    wait = intervals.waits(trace_of(blocked(10), resumed(25)))[0]
    assert (wait["blocked"], wait["resumed"], wait["parity"], wait["pc"]) == (10, 25, 1, 3)
    assert (wait["first_event"], wait["last_event"]) == (0, 1)


def test_waits_of_two_warps_do_not_mix():
    trace = trace_of(blocked(10), blocked(11, warp=1), resumed(20, warp=1), resumed(30))
    assert spans(trace) == [(0, 7, 10, 30), (1, 7, 11, 20)]


def test_a_repeated_blocked_continues_the_wait_and_a_later_one_begins_another():
    trace = trace_of(blocked(10), blocked(15), resumed(20), blocked(40), resumed(50))
    assert spans(trace) == [(0, 7, 10, 20), (0, 7, 40, 50)]


def test_groups_of_lanes_of_one_warp_wait_separately():
    trace = trace_of(blocked(10, mask=1), blocked(12, mask=2), resumed(20, mask=2), resumed(30, mask=1))
    assert spans(trace) == [(0, 7, 10, 30), (0, 7, 12, 20)]


def test_a_wait_without_end_is_marked():
    assert spans(trace_of(blocked(10))) == [(0, 7, 10, -1)]
    assert spans(trace_of(blocked(10, thing=7), resumed(20, thing=8))) == [(0, 7, 10, -1)]


def test_no_events_give_no_bars():
    trace = trace_of()
    for bars in (intervals.waits, intervals.copies, intervals.wgmmas, intervals.mbarriers):
        assert len(bars(trace)) == 0


def test_a_copy_is_issued_started_and_completed():
    issued = {
        "kind": Event.TMA_ISSUED,
        "warp": 0,
        "pc": 4,
        "op": 9,
        "a": Copy.TENSOR_LOAD,
        "b": 4096,
        "c": 1024,
        "d": 2,
    }
    trace = trace_of(
        {"time": 5, **issued},
        {"time": 9, "kind": Event.TMA_STARTED, "op": 9},
        {"time": 90, "kind": Event.TMA_COMPLETED, "op": 9},
        {"time": 95, "kind": Event.TMA_COMPLETED, "op": 9},
    )
    copy = intervals.copies(trace)[0]
    assert [copy[k] for k in ("issued", "started", "read", "completed")] == [5, 9, -1, 95]
    assert [copy[k] for k in ("bytes", "shared", "mbarrier", "copy")] == [4096, 1024, 2, Copy.TENSOR_LOAD]


def test_four_warps_issue_one_wgmma():
    issued = [{"time": 5 + w, "kind": Event.WGMMA_ISSUED, "warp": w, "op": 3, "a": -1, "b": 1 << 62} for w in range(2)]
    trace = trace_of(*issued, {"time": 50, "kind": Event.WGMMA_COMPLETED, "warp": 0, "op": 3})
    bars = intervals.wgmmas(trace)
    assert len(bars) == 1
    assert [bars[0][k] for k in ("issued", "started", "completed", "warp", "b")] == [5, -1, 50, 0, 1 << 62]


def test_a_cta_that_never_ended_lasts_as_long_as_the_trace():
    ended = {"time": 700, "kind": Event.CTA_ENDED, "cta": 0}
    trace = trace_of(ended, cycles=1000)
    trace.ctas["end"] = 700
    assert intervals.cta_ends(trace) == [700]
    trace = trace_of({**ended, "kind": Event.CTA_STARTED}, cycles=1000)
    trace.ctas["end"] = 0
    assert intervals.cta_ends(trace) == [1000]


def test_rows_of_several_kinds_come_in_the_order_of_the_trace():
    kinds = [Event.RESUMED, Event.BLOCKED, Event.ISSUED, Event.RESUMED, Event.BLOCKED]
    trace = trace_of(*({"time": k, "kind": kind} for k, kind in enumerate(kinds)), cycles=9)
    assert trace.rows_of(Event.BLOCKED, Event.RESUMED).tolist() == [0, 1, 3, 4]
    assert trace.rows_of(Event.ISSUED).tolist() == [2]
    assert trace.rows_of(Event.EXITED).tolist() == []
    assert trace.of(Event.RESUMED)["time"].tolist() == [0, 3]


def test_mbarriers_have_the_names_of_the_program():
    semaphores = ({"name": "full", "offset": 1024, "count": 2}, {"name": "done", "offset": 1040, "count": 1})
    rank_1 = (1 << 24) | 1032
    trace = trace_of(
        *({"kind": Event.MBARRIER_INITIALISED, "a": i, "c": 1, "d": d} for i, d in enumerate((1024, rank_1, 1040, 2048))),
        semaphores=semaphores,
    )
    names = [intervals.mbarrier_name(trace.kernel, int(m["address"])) for m in intervals.mbarriers(trace)]
    assert names == ["full[0]", "full[1]", "done", "mbarrier 0x800"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_packed_intervals_do_not_overlap_and_use_no_more_rows_than_needed(bars):
    bars.sort()
    starts, ends = [s for s, _ in bars], [s + d for s, d in bars]
    rows = intervals.pack(starts, ends)
    for row in set(rows.tolist()):
        mine = [(s, e) for s, e, r in zip(starts, ends, rows, strict=True) if r == row]
        assert all(a[1] <= b[0] for a, b in pairwise(mine))
    depth = max((sum(s <= t < e for s, e in zip(starts, ends, strict=True)) for t in starts), default=0)
    assert len(set(rows.tolist())) == depth


def test_packing_needs_as_many_starts_as_ends():
    with pytest.raises(ValueError):
        intervals.pack([1, 2], [3])
