"""A recording holds one CTA's events in the order of time, and what its SM's units did."""

import dataclasses

import numpy as np
import pytest

from h100sim.errors import UsageError
from h100sim.trace import Event
from viz.recording import Launch, record


def test_steps_are_the_events_of_the_cta_in_the_order_of_time(trace, recording):
    steps = recording.steps
    assert len(steps) == (trace.events["cta"] == 0).sum()
    assert (np.diff(steps["time"].astype(int)) >= 0).all()
    assert (trace.events["kind"][steps["event"]] == steps["kind"]).all()


def test_step_of_an_event_is_its_inverse(trace, recording):
    events = recording.steps["event"]
    assert (recording.step_of(events) == np.arange(len(events))).all()
    other = np.flatnonzero(trace.events["cta"] == 1)[0]
    assert recording.step_of(int(other)) == -1


def test_out_of_order_events_become_steps_in_order(made, trace):
    shuffled = dataclasses.replace(trace, events=trace.events.copy())
    late = int(np.flatnonzero(shuffled.events["cta"] == 0)[5])
    shuffled.events["time"][late] += 3000
    steps = record(Launch(made.FilledReplay(shuffled)), 0).steps
    assert (np.diff(steps["time"].astype(int)) >= 0).all()
    assert late in steps["event"][len(steps) // 4 :]


def test_an_event_of_a_unit_is_no_step_of_the_warp_it_worked_for(recording):
    units = np.isin(recording.steps["kind"], [Event.WGMMA_STARTED, Event.WGMMA_COMPLETED, Event.TMA_COMPLETED])
    assert units.any()
    assert (recording.steps["rank"][units] == -1).all()


def test_descriptors_become_shared_addresses(made, recording):
    issued = recording.steps[recording.steps["kind"] == Event.WGMMA_ISSUED]
    assert set(map(recording.tile_at, issued["a"])) == {f"a[{s}]" for s in range(made.STAGES)}
    assert set(map(recording.tile_at, issued["b"])) == {f"b[{s}]" for s in range(made.STAGES)}


def test_roles_mbarriers_and_tiles_have_the_names_of_the_program(recording):
    assert [w.role for w in recording.warps[::4]] == ["producer", "consumer 0", "consumer 1"]
    assert len({w.colour for w in recording.warps}) == 3
    assert [m.name for m in recording.mbarriers] == [f"{n}[{s}]" for n in ("full", "empty") for s in range(4)]
    assert [t.name for t in recording.tiles][-2:] == ["c[0]", "c[1]"]


def test_unknown_cta_is_refused(replay):
    with pytest.raises(UsageError, match=r"^CTA must be one of the 2 in the trace, not 7$"):
        record(Launch(replay), 7)


def test_empty_trace_is_refused(made, trace):
    empty = dataclasses.replace(trace, events=trace.events[:0])
    with pytest.raises(UsageError, match=r"^trace must hold at least one event, not 0"):
        Launch(made.FilledReplay(empty))
