"""Two timelines of one kernel laid over each other: which event came how much earlier or later, and where that arose.

Events are matched by CTA, warp, name, side and occurrence. A wait that was tried several times counts from its first
beginning to its last end, so that the number of tries does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from h100sim.errors import UsageError

from .timeline import NAMES, Event, Timeline


@dataclass(frozen=True)
class Pair:
    """One event in both timelines: cycles since the CTA's start, and since the warp's event before it."""

    cta: int
    warp: int
    name: str
    side: str
    here: int
    there: int
    step_here: int
    step_there: int


def settled(events: list[Event]) -> list[Event]:
    """Return a warp's events with the tries of a wait joined: the first beginning and the last end."""
    joined: list[Event] = []
    for event in events:
        repeats = len(joined) >= 2 and event.side == "begin" and joined[-1].instruction == event.instruction
        if repeats and joined[-1].side == "end" and joined[-2].instruction == event.instruction:
            joined.pop()
        elif event.side == "end" and joined and joined[-1].side == "end" and _same(joined[-1], event):
            joined[-1] = event
        else:
            joined.append(event)
    return joined


def _same(first: Event, second: Event) -> bool:
    return first.instruction == second.instruction and first.cycle == second.cycle


def pairs(here: Timeline, there: Timeline) -> Iterator[Pair]:
    """Yield the events that both timelines have, warp by warp in the order of ``there``.

    Raises UsageError if they have no event in common.
    """
    if not set(here.sites.values()) & set(there.sites.values()):
        raise UsageError(f"timelines must have events in common, not only different ones ({here.source}, {there.source})")
    for cta, warp in sorted({(e.cta, e.warp) for e in there.events}):
        ours, theirs = (settled(t.of_warp(cta, warp)) for t in (here, there))
        places: dict[tuple[str, str], list[Event]] = {}
        for event in ours:
            places.setdefault((here.sites[event.instruction], event.side), []).append(event)
        before: tuple[int, int] | None = None
        for event in theirs:
            name = there.sites[event.instruction]
            found = places.get((name, event.side))
            if not found:
                continue
            mine = found.pop(0)
            last = before or (mine.cycle, event.cycle)
            yield Pair(
                cta, warp, name, event.side, mine.cycle, event.cycle,
                mine.cycle - last[0], event.cycle - last[1],
            )  # fmt: skip
            before = mine.cycle, event.cycle


def kinds(of: Timeline) -> set[str]:
    """Return which kinds of record a timeline has, of those that ``validate timeline`` makes."""
    return {of.sites[event.instruction].rsplit(" ", 1)[0] for event in of.events} & NAMES


def uneven_records(here: Timeline, there: Timeline) -> str:
    """Return a sentence on kinds of record that only one of two timelines has, "" if there are none: each record costs instructions,
    so such timelines differ by what was recorded, too."""
    ours, theirs = kinds(here), kinds(there)
    one, other = ", ".join(sorted(ours - theirs)), ", ".join(sorted(theirs - ours))
    if not one and not other:
        return ""
    lists = "; ".join(f"only {t.source} has {names}" for t, names in ((here, one), (there, other)) if names)
    events = " ".join(f"--event '{name}'" for name in sorted(ours & theirs))
    return f"Records cost time, and these timelines have different ones ({lists}): make them anew with {events}."


def by_name(found: list[Pair]) -> list[tuple[str, int, float, float]]:
    """Return (event and side, times, mean step here, mean step there), the largest total difference first."""
    groups: dict[str, list[Pair]] = {}
    for pair in found:
        groups.setdefault(f"{pair.name} {pair.side}", []).append(pair)
    rows = [
        (name, len(of), float(np.mean([p.step_here for p in of])), float(np.mean([p.step_there for p in of])))
        for name, of in groups.items()
    ]
    return sorted(rows, key=lambda row: -abs(row[1] * (row[2] - row[3])))


def as_text(found: list[Pair], warps: tuple[int, ...] = (), cta: int = 0) -> str:
    """Return the events of some warps of a CTA in columns: here, there, and the steps that led to them."""
    lines = [f"{'warp':>4} {'here':>7} {'there':>7} {'+here':>6} {'+there':>6}  event"]
    for p in found:
        if p.cta == cta and (not warps or p.warp in warps):
            lines.append(f"{p.warp:>4} {p.here:>7,} {p.there:>7,} {p.step_here:>6,} {p.step_there:>6,}  {p.name} {p.side}")
    return "\n".join(lines)
