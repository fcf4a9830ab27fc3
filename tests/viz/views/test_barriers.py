"""Barrier histories against a ledger kept by hand from the events."""

import dataclasses
from collections import defaultdict

import numpy as np

from h100sim.trace import Event
from viz.views import barriers


def test_state_after_every_step_is_what_the_rules_of_mbarriers_give(recording):
    tables = {m["identity"]: m for m in barriers.data(recording)["mbarriers"]}
    state: dict[int, dict] = defaultdict(dict)
    seen = defaultdict(int)
    for step, e in enumerate(recording.steps):
        kind, identity = Event(e["kind"]), int(e["a"])
        s = state[identity]
        if not kind.name.startswith("MBARRIER_"):
            continue
        if kind is Event.MBARRIER_INITIALISED:
            s.update(phase=0, pending=e["c"], expected=e["c"], tx=0)
        elif kind is Event.MBARRIER_ARRIVED:
            s["pending"] -= e["b"]
        elif kind is Event.MBARRIER_EXPECTED:
            s["tx"] += e["b"]
        elif kind is Event.MBARRIER_COMPLETED_TX:
            s["tx"] -= e["b"]
        elif kind is Event.MBARRIER_FLIPPED:
            s.update(phase=s["phase"] + 1, pending=s["expected"])
        table, at = tables[identity], seen[identity]
        assert table["step"][at] == step
        assert {k: table[k][at] for k in ("phase", "pending", "expected", "tx")} == s
        seen[identity] += 1
    assert sum(seen.values()) > 100


def test_waits_begin_and_end_at_the_steps_of_blocking_and_resuming(recording):
    full = barriers.data(recording)["mbarriers"][0]
    waits = full["waits"]
    assert sorted(waits["rank"]) == list(range(4, 12))
    assert (recording.steps["kind"][waits["from"]] == Event.BLOCKED).all()
    assert (recording.steps["kind"][waits["to"]] == Event.RESUMED).all()


def test_the_ledger_puts_a_wait_into_the_phase_it_saw(recording):
    full = barriers.data(recording)["mbarriers"][0]
    kinds = recording.steps["kind"][full["step"]]
    waited = kinds == Event.MBARRIER_WAITED
    assert sorted(np.bincount(full["ledger_phase"][waited])) == [8, 8]


def test_named_barriers_count_threads_and_generations(recording):
    named = barriers.data(recording)["named"]
    assert [b["id"] for b in named] == [0, 1, 2]
    assert named[0]["expected"].max() == 384 and named[0]["generation"][-1] == 1
    assert named[0]["arrived"][-2] == 384 and named[0]["arrived"][-1] == 0


def test_the_ledger_keeps_a_test_that_failed_in_the_phase_of_its_time(recording):
    steps = recording.steps.copy()
    (full,) = [m for m in recording.mbarriers if m.name == "full[0]"]
    waited = np.flatnonzero((steps["kind"] == Event.MBARRIER_WAITED) & (steps["a"] == full.identity))
    steps["c"][waited[-1]], steps["d"][waited[-1]] = 0, -1
    (found,) = [m for m in barriers.data(dataclasses.replace(recording, steps=steps))["mbarriers"] if m["name"] == "full[0]"]
    at = list(found["step"]).index(waited[-1])
    assert found["ledger_phase"][at] == found["phase"][at] > 0
