"""The timeline: a lane per warpgroup (a row per warp), the SM's TMA engine and tensor core, mbarrier phases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dash import html

from h100sim import intervals
from h100sim.trace import Copy, Event, Wait

from ..palette import STYLES, Category
from ..recording import Recording
from . import critical_path

_STORES = (Copy.TENSOR_STORE, Copy.TENSOR_REDUCE, Copy.BULK_STORE, Copy.BULK_REDUCE)
_WAIT_CATEGORY = {
    Wait.MBARRIER: Category.MBARRIER_WAIT,
    Wait.BARRIER: Category.BARRIER_WAIT,
    Wait.WGMMA: Category.WGMMA_WAIT,
    Wait.BULK: Category.BULK_WAIT,
}


@dataclass
class _Bars:
    """Bars being collected, in columns; a row of the timeline holds bars that do not overlap, sorted by start."""

    texts: dict[str, int] = field(default_factory=dict)
    bars: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)

    def add(self, row: int, start: int, end: int, category: Category, text: str, step: int, op: int = -1) -> None:
        if end > start:
            self.bars.append((row, start, end, category, self.texts.setdefault(text, len(self.texts)), step, op))

    def columns(self, rows: int) -> dict[str, Any]:
        table = np.array(sorted(self.bars), np.int64).reshape(-1, 7)
        return {
            "first": np.searchsorted(table[:, 0], np.arange(rows + 1)).astype(np.uint32),
            "start": table[:, 1].astype(np.uint32),
            "end": table[:, 2].astype(np.uint32),
            "category": table[:, 3].astype(np.uint8),
            "text": table[:, 4].astype(np.uint32),
            "step": table[:, 5].astype(np.int32),
            "op": table[:, 6].astype(np.int32),
            "texts": list(self.texts),
        }


def data(recording: Recording) -> dict[str, Any]:
    """Return lanes (label, kind, rows with label and colour) and bars as columns; times in SM cycles.

    ``bars.first[r]`` to ``bars.first[r + 1]`` are the bars of row r; ``step`` is where a click leads.
    """
    bars = _Bars()
    lanes: list[dict[str, Any]] = []
    first_of = {}
    for lane in (_warpgroups, _tma_engine, _tensor_core, _mbarriers):
        first_of[lane] = sum(len(done["rows"]) for done in lanes)
        lanes.extend(lane(recording, bars, first_of[lane]))
    units = {"copies": (_copy_rows, _tma_engine), "wgmmas": (_wgmma_rows, _tensor_core)}
    return {
        "start": recording.start,
        "end": max(recording.end, recording.start + 1),
        "lanes": lanes,
        "bars": bars.columns(sum(len(lane["rows"]) for lane in lanes)),
        **{
            name: {"op": table["op"].astype(np.int32), "row": (first_of[lane] + rows).astype(np.int32)}
            for name, (of, lane) in units.items()
            for table, rows in (of(recording),)
        },
        "styles": [{"fill": s.fill, "ink": s.ink, "legend": s.legend, "words": s.words} for s in STYLES.values()],
    }


def _warpgroups(recording: Recording, bars: _Bars, first: int) -> list[dict[str, Any]]:
    lanes: list[dict[str, Any]] = []
    for position, warp in enumerate(recording.warps):
        if not lanes or warp.rank // 4 != lanes[-1]["group"]:
            lanes.append({"kind": "warpgroup", "label": warp.role, "group": warp.rank // 4, "rows": []})
        lanes[-1]["rows"].append({"label": f"w{warp.rank}", "colour": warp.colour, "rank": warp.rank})
        if warp.role not in lanes[-1]["label"]:
            lanes[-1]["label"] += f", {warp.role}"
        _warp_bars(recording, bars, first + position, warp.number)
    return lanes


def _warp_bars(recording: Recording, bars: _Bars, row: int, warp: int) -> None:
    own = np.flatnonzero(recording.steps["warp"] == warp)
    if not len(own):
        return
    times = recording.steps["time"][own]
    now, last = int(times[0]), int(times[-1])

    def run(end: int) -> None:
        step = int(own[min(int(np.searchsorted(times, now)), len(own) - 1)])
        bars.add(row, now, end, Category.RUNNING, "", step)

    waits = np.sort(recording.waits[recording.waits["warp"] == warp], order="blocked")
    for wait, step in zip(waits, recording.step_of(waits["first_event"]), strict=True):
        # Groups of diverged lanes may wait at the same time: the row shows the first, then what is left of the second.
        start = max(int(wait["blocked"]), now)
        end = int(wait["resumed"]) if wait["resumed"] >= 0 else recording.end
        run(start)
        category = _WAIT_CATEGORY.get(Wait(int(wait["wait"])), Category.OTHER_WAIT)
        never = "" if wait["resumed"] >= 0 else ", never woken"
        bars.add(row, start, end, category, _awaited(recording, wait) + never, int(step))
        now = max(now, end)
    run(last + 1)


def _awaited(recording: Recording, wait: np.void) -> str:
    kind = Wait(int(wait["wait"]))
    if kind is Wait.MBARRIER:
        return next((m.name for m in recording.mbarriers if m.identity == wait["object"]), "mbarrier of another CTA")
    if kind is Wait.BARRIER:
        return f"barrier {int(wait['object'])}"
    return {Wait.WGMMA: "wgmma", Wait.BULK: "bulk group"}.get(kind, kind.name.lower().replace("_", " "))


def _tma_engine(recording: Recording, bars: _Bars, first: int) -> list[dict[str, Any]]:
    copies, rows = _copy_rows(recording)
    ends = np.where(copies["completed"] >= 0, copies["completed"], recording.end)
    for copy, end, row, step in zip(copies, ends, rows, recording.step_of(copies["issued_event"]), strict=True):
        own = copy["cta"] == recording.cta
        store = copy["copy"] in _STORES
        name = recording.tile_at(int(copy["shared"]) & intervals.SHARED_OFFSET_MASK) if own else f"CTA {copy['cta']}"
        verb = Copy(int(copy["copy"])).name.lower().replace("_", " ").removeprefix("tensor ")
        text = f"{verb} {name} {int(copy['bytes']):,} B".replace("  ", " ")
        started = _started(copy, int(end))
        flight = Category.OTHER_CTA if not own else Category.TMA_STORE if store else Category.TMA_LOAD
        never = "" if copy["completed"] >= 0 else ", never completed"
        operation = int(step), int(copy["op"])
        bars.add(first + row, int(copy["issued"]), started, Category.TMA_QUEUED if own else flight, text, *operation)
        bars.add(first + row, started, int(end), flight, text + never, *operation)
    return _unit_lane("tma", f"TMA engine, SM {recording.sm}", rows)


def _copy_rows(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Return the copies in the order of issue and a row for each; copies in flight at one time lie side by side."""
    return _packed(recording.copies, recording.end)


def _wgmma_rows(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Return the wgmma in the order of issue and a row for each, as those of copies."""
    return _packed(recording.wgmmas, recording.end)


def _packed(operations: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray]:
    operations = operations[np.argsort(operations["issued"], kind="stable")]
    ends = np.where(operations["completed"] >= 0, operations["completed"], end)
    return operations, intervals.pack(operations["issued"].tolist(), ends.tolist())


def _tensor_core(recording: Recording, bars: _Bars, first: int) -> list[dict[str, Any]]:
    wgmmas, rows = _wgmma_rows(recording)
    ends = np.where(wgmmas["completed"] >= 0, wgmmas["completed"], recording.end)
    roles = {w.number: w.role for w in recording.warps}
    for op, end, row, step in zip(wgmmas, ends, rows, recording.step_of(wgmmas["issued_event"]), strict=True):
        own = op["cta"] == recording.cta
        text = _wgmma_text(recording, op, roles) if own else f"CTA {op['cta']}"
        started = _started(op, int(end))
        queued, runs = (Category.WGMMA_QUEUED, Category.WGMMA_RUNNING) if own else (Category.OTHER_CTA,) * 2
        operation = int(step), int(op["op"])
        bars.add(first + row, int(op["issued"]), started, queued, text, *operation)
        bars.add(first + row, started, int(end), runs, text, *operation)
    return _unit_lane("tensor", f"tensor core, SM {recording.sm}", rows)


def _wgmma_text(recording: Recording, op: np.void, roles: dict[int, str]) -> str:
    tiles = [recording.tile_at((int(op[side]) & 0x3FFF) << 4) if op[side] != -1 else "registers" for side in "ab"]
    operands = " · ".join(t for t in tiles if t)
    return ", ".join(part for part in (operands, roles.get(int(op["warp"]), "")) if part) or "wgmma"


def _started(operation: np.void, end: int) -> int:
    """Return when a unit began an operation, at the latest at its ``end`` (a schedule may let units be eager); one that ended without
    a record of its beginning counts from its issue."""
    if operation["started"] >= 0:
        return min(int(operation["started"]), end)
    return int(operation["issued"]) if operation["completed"] >= 0 else end


def _unit_lane(kind: str, label: str, rows: np.ndarray) -> list[dict[str, Any]]:
    count = int(rows.max()) + 1 if len(rows) else 1
    return [{"kind": kind, "label": label, "rows": [{"label": "", "colour": None, "rank": -1}] * count}]


def _mbarriers(recording: Recording, bars: _Bars, first: int) -> list[dict[str, Any]]:
    steps = recording.steps
    flips = steps["kind"] == Event.MBARRIER_FLIPPED
    for row, mbarrier in enumerate(recording.mbarriers):
        mine = np.flatnonzero(flips & (steps["a"] == mbarrier.identity))
        initialised = np.flatnonzero((steps["kind"] == Event.MBARRIER_INITIALISED) & (steps["a"] == mbarrier.identity))
        now = int(steps["time"][initialised[0]]) if len(initialised) else recording.start
        for step in mine:
            phase = int(steps["b"][step])
            bars.add(first + row, now, int(steps["time"][step]), _phase(phase), f"phase {phase}", int(step))
            now = int(steps["time"][step])
        phase = int(steps["b"][mine[-1]]) + 1 if len(mine) else 0
        last = int(mine[-1]) if len(mine) else int(initialised[0]) if len(initialised) else 0
        bars.add(first + row, now, recording.end, _phase(phase), f"phase {phase}", last)
    rows = [{"label": m.name, "colour": None, "rank": -1, "identity": m.identity} for m in recording.mbarriers]
    return [{"kind": "mbarrier", "label": "mbarriers", "rows": rows}] if rows else []


def _phase(phase: int) -> Category:
    return Category.PHASE_ODD if phase & 1 else Category.PHASE_EVEN


def layout() -> html.Section:
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Timeline"),
                    critical_path.button(),
                    html.Span(id="t-legend"),
                    html.Span("drag, wheel", className="hint", title="Keys: W S A D zoom and move, 0 fits (? lists all)"),
                ],
                className="title",
            ),
            html.Div(
                [
                    html.Div(
                        [
                            html.Div(id="t-labels"),
                            html.Div(
                                [
                                    html.Canvas(id="t-axis"),
                                    html.Canvas(id="t-bars"),
                                    html.Canvas(id="t-arrows"),
                                    html.Div(id="t-playhead"),
                                    html.Div(id="t-selection"),
                                ],
                                id="t-plot",
                            ),
                        ],
                        id="t-body",
                    ),
                    critical_path.layout(),
                ],
                id="t-frame",
            ),
            html.Div(id="t-tip", hidden=True),
        ],
        id="t-timeline",
    )
