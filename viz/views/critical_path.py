"""What the launch follows from: its critical path as links in the order of time, where they lie in the timeline, and slack."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from dash import html

from h100sim.critical_path import CriticalPath
from h100sim.trace import Event

from ..recording import Recording

#: Links that the table lists at most, the longest ones.
LISTED_LINKS = 1000


class Place(IntEnum):
    """In which row of the timeline a step of the path lies: that of a warp (by rank), a copy or wgmma (by operation), an mbarrier."""

    WARP = 0
    COPY = 1
    WGMMA = 2
    MBARRIER = 3


_COPY_KINDS = (Event.TMA_STARTED, Event.TMA_READ, Event.TMA_COMPLETED)
_WGMMA_KINDS = (Event.WGMMA_STARTED, Event.WGMMA_COMPLETED)
_MBARRIER_KINDS = (Event.MBARRIER_FLIPPED, Event.MBARRIER_COMPLETED_TX)


def data(recording: Recording) -> dict[str, Any]:
    """Return the shares (what, cycles), the links as columns (``step``: where the link ends, -1 in another CTA), the steps of the
    path that this CTA and the units of its SM took, and the slack of each operation in cycles."""
    path = recording.path
    if path is None:
        return {"cycles": 0, "shares": [], "links": {}, "marks": {}, "slack": {}}
    return {
        "cycles": path.cycles,
        "shares": [[share.what, share.cycles] for share in path.shares],
        "links": _links(recording, path),
        "marks": _marks(recording, path),
        "slack": _slack(recording, path),
        "total": len(path.links),
    }


def _links(recording: Recording, path: CriticalPath) -> dict[str, Any]:
    cycles = np.array([link.cycles for link in path.links], np.int64)
    chosen = np.sort(np.argsort(-cycles, kind="stable")[:LISTED_LINKS])
    ends = np.full(len(path.links), -1, np.int64)
    ends[path.steps["link"]] = path.steps["event"]
    links = [path.links[k] for k in chosen.tolist()]
    return {
        "number": chosen.astype(np.uint32),
        "start": np.array([link.start for link in links], np.uint32),
        "end": np.array([link.end for link in links], np.uint32),
        "cta": np.array([link.cta for link in links], np.int32),
        "event": ends[chosen].astype(np.int32),
        "step": np.asarray(recording.step_of(ends[chosen]), np.int32),
        "unit": [link.unit for link in links],
        "what": [f"{link.count:,} × {link.what}" if link.what == "wgmma" and link.count > 1 else link.what for link in links],
        "reason": [link.reason for link in links],
        "place": [link.first if link.first == link.last else f"{link.first} to {link.last}" for link in links],
    }


def _marks(recording: Recording, path: CriticalPath) -> dict[str, Any]:
    """Return which stretch of which row the path runs through; stretches of one row and link are joined."""
    rows: list[list[int]] = []
    ranks = {warp.number: warp.rank for warp in recording.warps}
    copies, wgmmas = (set(table["op"].tolist()) for table in (recording.copies, recording.wgmmas))
    identities = {mbarrier.identity for mbarrier in recording.mbarriers}
    for start, end, source, event, link in path.steps.tolist():
        place, key = _place(recording, source, event)
        known = {Place.WARP: ranks, Place.COPY: copies, Place.WGMMA: wgmmas, Place.MBARRIER: identities}[place]
        if key not in known:
            continue
        key = ranks[key] if place == Place.WARP else key
        if rows and rows[-1][2:] == [int(place), key, link] and rows[-1][1] == start:
            rows[-1][1] = end
        else:
            rows.append([start, end, int(place), key, link])
    table = np.array(rows, np.int64).reshape(-1, 5)
    types = (np.uint32, np.uint32, np.uint8, np.int32, np.uint32)
    names = ("start", "end", "place", "key", "link")
    return {name: table[:, k].astype(types[k]) for k, name in enumerate(names)}


def _place(recording: Recording, source: int, event: int) -> tuple[Place, int]:
    """Return the row of a step that leads from one event to another, -1 where neither is in a row."""
    if event < 0:
        return Place.WARP, -1
    e = recording.events[event]
    kind = int(e["kind"])
    if kind in _COPY_KINDS:
        return Place.COPY, int(e["op"])
    if kind in _WGMMA_KINDS:
        return Place.WGMMA, int(e["op"])
    if kind in _MBARRIER_KINDS:
        return Place.MBARRIER, int(e["a"])
    if kind == Event.BARRIER_RELEASED and source >= 0:
        return Place.WARP, int(recording.events[source]["warp"])
    return Place.WARP, int(e["warp"])


def _slack(recording: Recording, path: CriticalPath) -> dict[str, Any]:
    ops = [op for op in np.concatenate((recording.copies["op"], recording.wgmmas["op"])).tolist() if op in path.slack_of]
    return {"op": np.array(ops, np.int32), "cycles": np.array([path.slack_of[op] for op in ops], np.int32)}


def button() -> html.Button:
    """Return the switch, for the title of the timeline."""
    attributes: dict[str, Any] = {"aria-pressed": "false"}
    return html.Button("critical path", id="p-switch", title="What the launch follows from (c)", **attributes)


def layout() -> html.Div:
    return html.Div(
        [
            html.Div(
                [html.H3("What the launch follows from", id="p-title"), html.Span(id="p-note", className="hint")], className="title"
            ),
            html.Div(id="p-elsewhere", hidden=True),
            html.Div(html.Table(html.Tbody(id="p-shares")), className="scroll"),
            html.Div(html.Table(html.Tbody(id="p-links")), className="scroll"),
        ],
        id="p-path",
        hidden=True,
    )
