"""One CTA of a run, ready to be looked at: its events as steps in the order of time, and the bars and names they give.

A :class:`Launch` pairs the events of the whole run once; :func:`record` cuts out what one CTA did, together with what
the TMA engine and the tensor core of its SM did for other CTAs. Views turn a recording into columns with their ``data``
functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from h100sim import intervals
from h100sim.critical_path import CriticalPath, critical_path
from h100sim.errors import UsageError
from h100sim.trace import EVENT, Event, KernelInfo, Trace

from . import palette
from .replay import has_memory
from .tiles import Tile, tiles_of

#: One event of the CTA. ``event`` is its row in ``Trace.events``; ``rank`` the warp's rank in this CTA, -1 for units
#: and -2 for a warp of another CTA (which ``warp`` then tells). Fields ``a`` to ``d`` as in ``Event``, but matrix
#: descriptors of wgmma are replaced by the shared address in them (-1: registers), since a browser's numbers hold only
#: 53 bits.
STEP = np.dtype(
    [
        ("event", "u4"),
        ("time", "u4"),
        ("kind", "u1"),
        ("rank", "i2"),
        ("warp", "i4"),
        ("pc", "i4"),
        ("mask", "u4"),
        ("op", "i4"),
        ("a", "f8"),
        ("b", "f8"),
        ("c", "f8"),
        ("d", "f8"),
    ]
)

_UNIT_KINDS = (
    Event.TMA_STARTED,
    Event.TMA_READ,
    Event.TMA_COMPLETED,
    Event.WGMMA_STARTED,
    Event.WGMMA_COMPLETED,
    Event.MBARRIER_COMPLETED_TX,
)
_MBARRIER_KINDS = tuple(int(k) for k in Event if k.name.startswith("MBARRIER_"))


@dataclass(frozen=True)
class Warp:
    """A warp of the recorded CTA: its number in the launch, its rank in the CTA, its role and that role's colour."""

    number: int
    rank: int
    role: str
    colour: str


@dataclass(frozen=True)
class Mbarrier:
    """An mbarrier of the recorded CTA, by the name the DSL gave it or its address (offset in the shared window)."""

    identity: int
    name: str
    address: int
    expected: int


@dataclass(frozen=True)
class Recording:
    """What a CTA did. ``copies`` and ``wgmmas`` are those of its SM, other CTAs' included; ``events`` and ``path`` are the launch's;
    all else is its own."""

    kernel: KernelInfo
    cta: int
    sm: int
    start: int
    end: int
    cycles: int
    steps: np.ndarray
    warps: tuple[Warp, ...]
    mbarriers: tuple[Mbarrier, ...]
    tiles: tuple[Tile, ...]
    waits: np.ndarray
    copies: np.ndarray
    wgmmas: np.ndarray
    lanes: np.ndarray
    texts: tuple[str, ...]
    hazards: tuple[Any, ...] | None = None
    error: str = ""
    note: str = ""
    has_memory: bool = False
    events: np.ndarray = field(default_factory=lambda: np.zeros(0, EVENT))
    path: CriticalPath | None = None

    def step_of(self, event: np.ndarray | int) -> Any:
        """Return the step of an event (row of the trace), -1 where the event is not of this CTA."""
        events = self.steps["event"]
        order = self._by_event
        at = np.minimum(np.searchsorted(events[order], event), len(events) - 1)
        return np.where(events[order][at] == event, order[at], -1) if len(events) else np.full(np.shape(event), -1)

    @cached_property
    def _by_event(self) -> np.ndarray:
        return np.argsort(self.steps["event"], kind="stable")

    def tile_at(self, address: int) -> str:
        """Return the name of the shared tile that holds an address, "" if none does."""
        return next((t.name for t in self.tiles if t.offset <= address < t.offset + t.size_bytes), "")


class Launch:
    """A replay with its bars paired once. Raises UsageError if the trace is empty."""

    def __init__(self, replay: Any):
        if not len(replay.trace):
            raise UsageError("trace must hold at least one event, not 0 (was the run made without a trace?)")
        if replay.trace.cycles >= 1 << 32:
            raise UsageError(f"trace must span fewer than 2**32 cycles to be shown, not {replay.trace.cycles:,}")
        self.replay = replay

    @property
    def trace(self) -> Trace:
        return self.replay.trace

    @cached_property
    def waits(self) -> np.ndarray:
        return intervals.waits(self.trace)

    @cached_property
    def copies(self) -> np.ndarray:
        return intervals.copies(self.trace)

    @cached_property
    def wgmmas(self) -> np.ndarray:
        return intervals.wgmmas(self.trace)

    @cached_property
    def path(self) -> CriticalPath:
        return critical_path(self.trace)

    @cached_property
    def mbarriers(self) -> np.ndarray:
        return intervals.mbarriers(self.trace)


def record(launch: Launch, cta: int) -> Recording:
    """Return the recording of a CTA. Raises UsageError for a CTA that the trace does not hold."""
    trace = launch.trace
    info = trace.ctas[trace.ctas["cta"] == cta]
    if not len(info):
        raise UsageError(f"CTA must be one of the {len(trace.ctas):,} in the trace, not {cta}")
    sm = int(info["sm"][0])
    neighbours = trace.ctas["cta"][trace.ctas["sm"] == sm]
    mine = launch.mbarriers[launch.mbarriers["cta"] == cta]
    error, hazards = (getattr(launch.replay, name, None) for name in ("error", "hazards"))
    return Recording(
        kernel=trace.kernel,
        cta=cta,
        sm=sm,
        start=int(info["start"][0]),
        end=int(intervals.cta_ends(trace)[trace.ctas["cta"] == cta][0]),
        cycles=int(trace.cycles),
        steps=_steps(trace, cta, mine["identity"]),
        warps=_warps(trace, cta),
        mbarriers=tuple(
            Mbarrier(int(m["identity"]), intervals.mbarrier_name(trace.kernel, int(m["address"])), int(m["address"]),
                     int(m["expected"]))
            for m in mine
        ),
        tiles=tiles_of(trace.kernel, launch.copies[launch.copies["cta"] == cta]),
        waits=launch.waits[launch.waits["cta"] == cta],
        copies=launch.copies[np.isin(launch.copies["cta"], neighbours)],
        wgmmas=launch.wgmmas[np.isin(launch.wgmmas["cta"], neighbours)],
        lanes=trace.lanes,
        texts=trace.texts,
        hazards=None if hazards is None else tuple(hazards),
        error=str(error) if error else "",
        note=getattr(launch.replay, "note", ""),
        has_memory=has_memory(launch.replay),
        events=trace.events,
        path=launch.path,
    )  # fmt: skip


def _steps(trace: Trace, cta: int, mbarriers: np.ndarray) -> np.ndarray:
    e = trace.events
    chosen = e["cta"] == cta
    chosen |= np.isin(e["kind"], _MBARRIER_KINDS) & np.isin(e["a"], mbarriers)
    rows = np.flatnonzero(chosen)
    # Warps run ahead of units between events; people read time from left to right.
    rows = rows[np.argsort(e["time"][rows], kind="stable")]
    e = e[rows]
    steps = np.zeros(len(rows), STEP)
    steps["event"] = rows
    for name in ("time", "kind", "pc", "mask", "op", "a", "b", "c", "d"):
        steps[name] = e[name]
    wgmma = e["kind"] == Event.WGMMA_ISSUED
    for name in ("a", "b"):
        steps[name][wgmma] = np.where(e[name][wgmma] == -1, -1, (e[name][wgmma] & 0x3FFF) << 4)
    # Units act for a warp, whose number and instruction their events carry; the steps are the unit's own.
    warp = np.where(np.isin(e["kind"], _UNIT_KINDS), -1, e["warp"])
    steps["warp"] = warp
    own = trace.warps["cta"][np.maximum(warp, 0)] == cta
    steps["rank"] = np.where(warp < 0, -1, np.where(own, trace.warps["rank"][np.maximum(warp, 0)], -2))
    return steps


def _warps(trace: Trace, cta: int) -> tuple[Warp, ...]:
    numbers = np.flatnonzero(trace.warps["cta"] == cta)
    ranks = [int(r) for r in trace.warps["rank"][numbers]]
    roles = [trace.kernel.role(rank) for rank in ranks]
    colours = palette.role_colours(roles)
    return tuple(
        Warp(int(n), rank, role, colours[role])
        for n, rank, role in sorted(zip(numbers, ranks, roles, strict=True), key=lambda w: w[1])
    )
