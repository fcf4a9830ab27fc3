"""Timelines of other tools: IKET's JSON (CuTe DSL) and the Chrome traces of Triton's Proton, as timelines to lay over ours.

Both name ranges by hand, so events are matched by these names. Proton writes its cycles as nanoseconds of a 1 GHz clock.
Spec: none; both formats as their tools write them in 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from h100sim.errors import UsageError

from .timeline import UNREADABLE, Event, Timeline, reason_of

#: (CTA, warp, name, begin, end) of a range; a mark ends where it begins.
Range = tuple[int, int, str, int, int]


def load(path: Path) -> Timeline:
    """Return the timeline in a file: one of ours, an IKET JSON or a Chrome trace. Raises UsageError for anything else."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        reason = error if isinstance(error, ValueError) else reason_of(error)
        raise UsageError(f"timeline must be a readable JSON file, not {path} ({reason})") from None
    if isinstance(data, dict) and "sites" in data:
        return Timeline.load(path)
    try:
        if isinstance(data, dict) and "stringTable" in data:
            return from_ranges(f"IKET, {path.name}", list(_iket(data)))
        events = data["traceEvents"] if isinstance(data, dict) else data
        return from_ranges(f"Chrome trace, {path.name}", list(_chrome(events)))
    except UNREADABLE as error:
        raise UsageError(f"timeline must be one of ours, an IKET JSON or a Chrome trace, not {path} ({reason_of(error)})") from None


def from_ranges(source: str, ranges: list[Range]) -> Timeline:
    """Return the timeline of ranges; the cycles of a CTA count from its first range. Raises UsageError for none."""
    if not ranges:
        raise UsageError(f"timeline must have ranges of warps, not none ({source})")
    names = sorted({name for _, _, name, _, _ in ranges})
    origin: dict[int, int] = {}
    for cta, _, _, begin, _ in ranges:
        origin[cta] = min(begin, origin.get(cta, begin))
    events = []
    for cta, warp, name, begin, end in sorted(ranges, key=lambda r: (r[0], r[1], r[3], -r[4])):
        at = names.index(name)
        events.append(Event(cta, warp, at, "begin", begin - origin[cta]))
        if end > begin:
            events.append(Event(cta, warp, at, "end", end - origin[cta]))
    events.sort(key=lambda e: (e.cta, e.warp, e.cycle))
    return Timeline(source, "kernel", dict(enumerate(names)), tuple(events))


def _iket(data: dict[str, Any]) -> Iterator[Range]:
    """Yield the ranges and marks of the first launch."""
    names, places = data["stringTable"], data["locationTable"]
    launch = data["launches"][0]
    for found in launch.get("ranges", ()):
        for index in found["warpLocIdxs"]:
            place = places[index]
            name = str(names[found["rangeNameIdx"]])
            yield int(place["ctaId"]), int(place["warpId"]), name, int(found["startTs"]), int(found["endTs"])
    for found in launch.get("markers", ()):
        for index in found["warpLocIdxs"]:
            place = places[index]
            at = int(found["ts"])
            yield int(place["ctaId"]), int(place["warpId"]), str(names[found["nameIdx"]]), at, at


def _chrome(events: list[dict[str, Any]]) -> Iterator[Range]:
    """Yield the complete events ("X"); CTA and warp are the numbers in the names of process and thread."""
    for event in events:
        if event.get("ph") != "X":
            continue
        cta = re.search(r"CTA\s*(\d+)", str(event["pid"]), re.I)
        warp = re.search(r"warp\s*(\d+)", str(event["tid"]), re.I)
        if cta and warp:
            begin = round(float(event["ts"]) * 1000)
            yield int(cta[1]), int(warp[1]), str(event["name"]), begin, begin + round(float(event["dur"]) * 1000)
