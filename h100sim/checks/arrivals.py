"""Waits that nobody answers and arrivals that nobody waits for, where the run ended well all the same.

A producer starts with the parity of the phase before the first, so its first waits pass at once. If the arrival that they
are for has been forgotten, a short run ends well and a longer one hangs; if the wait has been forgotten, a longer one
overwrites what is still being read. That is told apart from what this run had no need of by the text: every instruction of
the other kind has been executed, and none on any mbarrier that this one was executed on.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..hazard import Access, Hazard
from ..ptx.module import Instruction
from ..trace import Event
from .wording import MBARRIER_RULE, Words

_ARRIVALS = (int(Event.MBARRIER_ARRIVED), int(Event.MBARRIER_DROPPED))
_WAITS = (int(Event.MBARRIER_WAITED),)


def arriving(instructions: tuple[Instruction, ...]) -> list[int]:
    """Return the indices of the instructions that arrive on mbarriers."""
    return _mbarrier_instructions(instructions, {"arrive", "arrive_drop"})


def waiting(instructions: tuple[Instruction, ...]) -> list[int]:
    """Return the indices of the instructions that test mbarriers."""
    return _mbarrier_instructions(instructions, {"test_wait", "try_wait"})


def _mbarrier_instructions(instructions: tuple[Instruction, ...], modifiers: set[str]) -> list[int]:
    return [pc for pc, i in enumerate(instructions) if "mbarrier" in i.opcode and modifiers & set(i.modifiers)]


class _Side:
    """The arrivals or the waits: which instructions have not been executed, and by instruction the first event and the mbarriers."""

    def __init__(self, instructions: Iterable[int]):
        self.unseen = set(instructions)
        self.mbarriers: dict[int, set[int]] = {}
        self.firsts: dict[int, tuple[np.void, int]] = {}

    def feed(self, events: np.ndarray, rows: np.ndarray) -> None:
        """Take events of this side with their rows in the trace."""
        pairs, firsts = np.unique(np.stack([events["pc"], events["a"]], axis=1), axis=0, return_index=True)
        for (pc, identity), first in zip(pairs.tolist(), firsts.tolist(), strict=True):
            self.unseen.discard(pc)
            self.mbarriers.setdefault(pc, set()).add(identity)
            if pc not in self.firsts:
                self.firsts[pc] = events[first].copy(), int(rows[first])

    def touched(self) -> set[int]:
        """Return all mbarriers of this side."""
        return set().union(*self.mbarriers.values())


class Arrivals:
    """Who arrives on which mbarriers and who waits for which. Memory: a few words per mbarrier and instruction."""

    def __init__(self, arrivals: Iterable[int], waits: Iterable[int]):
        """``arrivals``, ``waits``: the instructions of the kernel, see :func:`arriving` and :func:`waiting`."""
        self._arrivals, self._waits = _Side(arrivals), _Side(waits)
        self._not_fresh: set[int] = set()
        self._ended = 0

    def feed(self, events: np.ndarray, rows: np.ndarray) -> None:
        """Take the next events (EVENT), which are these rows of the trace."""
        kinds = events["kind"]
        for side, wanted in ((self._arrivals, _ARRIVALS), (self._waits, _WAITS)):
            at = np.flatnonzero(np.isin(kinds, wanted))
            side.feed(events[at], rows[at])
        waits = events[kinds == _WAITS[0]]
        self._not_fresh.update(waits["pc"][waits["d"] >= 0].tolist())
        self._ended += int((kinds == Event.CTA_ENDED).sum())

    def hazards(self, words: Words) -> list[Hazard]:
        """Return the findings, if the launch has ended."""
        found: list[Hazard] = []
        if self._ended < int(np.prod(words.kernel.grid)):
            return found
        if not self._arrivals.unseen:
            arrived = self._arrivals.touched()
            for pc, mbarriers in sorted(self._waits.mbarriers.items()):
                if pc not in self._not_fresh and not mbarriers & arrived:
                    found.append(_unanswered(words, *self._waits.firsts[pc]))
        # A CTA of a cluster may be told what it need not know any more; a kernel without waits only counts.
        if not self._waits.unseen and self._waits.mbarriers and int(np.prod(words.kernel.cluster)) == 1:
            awaited = self._waits.touched()
            for pc, mbarriers in sorted(self._arrivals.mbarriers.items()):
                if not mbarriers & awaited:
                    found.append(_unawaited(words, *self._arrivals.firsts[pc]))
        return found


def _unanswered(words: Words, e: np.void, row: int) -> Hazard:
    name = words.mbarrier(int(e["a"]))
    return _hazard(
        words, e, row, "wait",
        f"{name} is waited for but nobody ever arrives on it: the wait passes only while {name} is fresh",
        "an arrival by those whose work the wait is for",
        f"let them execute mbarrier.arrive on {name} when they are done",
    )  # fmt: skip


def _unawaited(words: Words, e: np.void, row: int) -> Hazard:
    name = words.mbarrier(int(e["a"]))
    return _hazard(
        words, e, row, "arrival",
        f"{name} is arrived on but nobody ever waits for it: what the arrival is for happens without it",
        "a wait by those that the arrival is for",
        f"let them wait for {name} before they go on",
    )  # fmt: skip


def _hazard(words: Words, e: np.void, row: int, what: str, message: str, missing: str, fix: str) -> Hazard:
    warp, pc = int(e["warp"]), int(e["pc"])
    access = Access(
        what=what, role=words.role(warp), where=words.kernel.place(pc), op=words.opcode(pc), space="mbarrier",
        first_byte=-1, last_byte=-1, cycle=int(e["time"]), warp=warp, cta=int(e["cta"]), event=row, pc=pc,
    )  # fmt: skip
    return Hazard(kind="barrier-misuse", message=message, first=None, second=access, missing=missing, rule=MBARRIER_RULE, fix=fix)
