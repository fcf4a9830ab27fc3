"""What a view needs of a run: its trace, and, if something can re-execute it, the shared memory after any event.

The protocol is duck-typed. The debugger of a machine satisfies it; so does :class:`TraceReplay` for a trace that comes
from a file and has no memory. Optional attributes: ``hazards`` (the findings of the checks) and ``error`` (the
exception that stopped the run) and ``note`` (what there is to say of the launch: a line for the header, more below it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from h100sim.errors import UsageError
from h100sim.trace import Trace


class Replay(Protocol):
    """A run that can be looked at, step by step."""

    trace: Trace

    def shared_at(self, event_index: int, cta: int) -> np.ndarray:
        """Return a CTA's shared memory after an event (row of ``trace.events``): uint8, index = window offset."""


@dataclass(frozen=True)
class TraceReplay:
    """A trace without memory: every view works but the values of shared tiles. ``hazards`` None: nobody has checked."""

    trace: Trace
    hazards: tuple[Any, ...] | None = None
    error: Exception | None = None
    note: str = ""
    shared_at: None = field(default=None, init=False)


def as_replay(source: Any) -> Any:
    """Return a replay for a replay, a Run (``trace``, ``hazards``), a Trace or the path of a saved trace.

    Raises UsageError for anything else.
    """
    if isinstance(source, str | Path):
        source = Trace.load(source)
    if isinstance(source, Trace):
        return TraceReplay(source, source.hazards)
    if callable(getattr(source, "shared_at", None)):
        return source
    if isinstance(getattr(source, "trace", None), Trace):
        hazards, error = (getattr(source, name, None) for name in ("hazards", "error"))
        return TraceReplay(source.trace, hazards, error, getattr(source, "note", ""))
    raise UsageError(f"view must be given a run, a debugger, a trace or the path of one, not {type(source).__name__}")


def has_memory(replay: Any) -> bool:
    """Can the replay say what shared memory held?"""
    return callable(getattr(replay, "shared_at", None))
