"""What can be looked at."""

from types import SimpleNamespace

import pytest

from h100sim.errors import UsageError
from viz.replay import TraceReplay, as_replay, has_memory


def test_a_trace_is_a_replay_without_memory(trace):
    replay = as_replay(trace)
    assert replay.trace is trace and not has_memory(replay) and replay.hazards is None


def test_a_saved_trace_is_a_replay(trace, tmp_path):
    trace.save(tmp_path / "gemm.h1t")
    assert len(as_replay(tmp_path / "gemm.h1t").trace) == len(trace)


def test_a_run_brings_its_hazards(trace):
    replay = as_replay(SimpleNamespace(trace=trace, hazards=["one"]))
    assert isinstance(replay, TraceReplay) and list(replay.hazards) == ["one"]


def test_something_with_memory_is_taken_as_it_is(replay):
    assert as_replay(replay) is replay and has_memory(replay)


def test_anything_else_is_refused():
    with pytest.raises(UsageError, match=r"^view must be given a run, a debugger, a trace or the path of one, not int$"):
        as_replay(5)
