"""The barriers at a step: phase, pending arrivals and tx-count of every mbarrier, who waits, and the ledger of one of
them.

State after an event is taken from the event itself (it carries the count afterwards); a flip reloads pending from
expected. Spec: PTX ISA 9.1, "Phase Completion of the mbarrier Object".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import html

from h100sim.trace import Event, Wait

from ..recording import Mbarrier, Recording

_KINDS = tuple(int(k) for k in Event if k.name.startswith("MBARRIER_"))


def data(recording: Recording) -> dict[str, Any]:
    """Return mbarriers and named barriers, each with its history as columns, and the waits for each.

    Histories hold the state from a step on: ``step``, ``phase``, ``pending``, ``expected``, ``tx``; ``step`` of the
    ledger lists every event of the barrier and ``ledger_phase`` the phase it belongs to.
    """
    return {
        "mbarriers": [
            {
                "name": m.name,
                "address": m.address,
                "identity": m.identity,
                **_history(recording, m),
                "waits": _waits(recording, Wait.MBARRIER, m.identity),
            }
            for m in recording.mbarriers
        ],
        "named": _named(recording),
    }


def _history(recording: Recording, mbarrier: Mbarrier) -> dict[str, np.ndarray]:
    steps = recording.steps
    mine = np.flatnonzero(np.isin(steps["kind"], _KINDS) & (steps["a"] == mbarrier.identity))
    phase, pending, expected, tx = 0, mbarrier.expected, mbarrier.expected, 0
    states, ledger_phase = [], []
    for step in steps[mine]:
        kind = Event(int(step["kind"]))
        # A test that succeeded belongs to the phase whose completion it saw.
        has_seen = kind is Event.MBARRIER_WAITED and step["c"] == 1
        ledger_phase.append(int(step["d"]) if has_seen else phase)
        if kind is Event.MBARRIER_INITIALISED:
            pending = expected = int(step["c"])
        elif kind in (Event.MBARRIER_ARRIVED, Event.MBARRIER_RAISED):
            pending = int(step["c"])
        elif kind is Event.MBARRIER_DROPPED:
            expected = int(step["c"])
        elif kind in (Event.MBARRIER_EXPECTED, Event.MBARRIER_COMPLETED_TX):
            tx = int(step["c"])
        elif kind is Event.MBARRIER_FLIPPED:
            phase, pending, tx = int(step["b"]) + 1, expected, 0
        states.append((phase, pending, expected, tx))
    columns = np.array(states, np.int32).reshape(-1, 4).T
    return {
        "step": mine.astype(np.int32),
        **{name: np.ascontiguousarray(c) for name, c in zip(("phase", "pending", "expected", "tx"), columns, strict=True)},
        "ledger_phase": np.array(ledger_phase, np.int32),
    }


def _waits(recording: Recording, kind: Wait, thing: int) -> dict[str, np.ndarray]:
    """Return from which step to which (-1: for ever) which warp (rank) waits for a barrier."""
    waits = recording.waits[(recording.waits["wait"] == kind) & (recording.waits["object"] == thing)]
    ranks = {w.number: w.rank for w in recording.warps}
    end = np.where(waits["last_event"] >= 0, recording.step_of(np.maximum(waits["last_event"], 0)), -1)
    return {
        "rank": np.array([ranks.get(int(w), -2) for w in waits["warp"]], np.int32),
        "from": np.asarray(recording.step_of(waits["first_event"]), np.int32).reshape(-1),
        "to": end.astype(np.int32),
        "parity": waits["parity"].astype(np.int32),
    }


def _named(recording: Recording) -> list[dict[str, Any]]:
    steps = recording.steps
    arrived = steps["kind"] == Event.BARRIER_ARRIVED
    moves = arrived | (steps["kind"] == Event.BARRIER_RELEASED)
    barriers = []
    for number in np.unique(steps["a"][arrived]).astype(int):
        mine = np.flatnonzero(moves & (steps["a"] == number))
        barriers.append(
            {
                "id": int(number),
                "step": mine.astype(np.int32),
                "arrived": np.where(arrived[mine], steps["b"][mine], 0).astype(np.int32),
                "expected": np.where(arrived[mine], steps["c"][mine], 0).astype(np.int32),
                "generation": np.cumsum(~arrived[mine]).astype(np.int32),
                "waits": _waits(recording, Wait.BARRIER, int(number)),
            }
        )
    return barriers


def layout() -> html.Section:
    return html.Section(
        [
            html.Div(
                [html.H2("Barriers"), html.Span("after this step; click a row for its ledger", className="hint")],
                className="title",
            ),
            html.Div(id="b-table", className="scroll"),
            html.Div([html.H2("Ledger"), html.Span(id="b-ledger-name", className="hint")], className="title"),
            html.Div(id="b-ledger", className="scroll"),
        ],
        id="b-barriers",
    )
