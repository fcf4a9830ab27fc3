"""Waits that nobody answers: they pass only because their mbarrier is fresh.

A producer starts with the parity of the phase before the first, so its first waits pass at once. If the arrival that they
are for has been forgotten, a short run ends well and a longer one hangs. That is told apart from an arrival which this run
had no need of by the text: every instruction of the kernel that arrives has been executed, and none on this mbarrier.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..hazard import Access, Hazard
from ..ptx.module import Instruction
from ..trace import Event
from .wording import MBARRIER_RULE, Words

_ARRIVALS = (int(Event.MBARRIER_ARRIVED), int(Event.MBARRIER_DROPPED))
_KINDS = (*_ARRIVALS, int(Event.MBARRIER_WAITED), int(Event.CTA_ENDED))


def arriving(instructions: tuple[Instruction, ...]) -> list[int]:
    """Return the indices of the instructions that arrive on mbarriers."""
    return [pc for pc, instruction in enumerate(instructions) if _arrives(instruction)]


class Arrivals:
    """Which mbarriers were waited for while fresh, and which were ever arrived on. Memory: a few words per mbarrier."""

    def __init__(self, arrivals: Iterable[int]):
        """``arrivals``: the instructions of the kernel that arrive, see :func:`arriving`."""
        self._unseen = set(arrivals)
        self._arrived: set[int] = set()
        self._first_waits: dict[int, np.void] = {}
        self._rows: dict[int, int] = {}
        self._ended = 0

    def feed(self, events: np.ndarray, first_row: int) -> None:
        """Take the next events (EVENT), which are the rows of the trace from ``first_row`` on."""
        kinds = events["kind"]
        at = np.flatnonzero(np.isin(kinds, _KINDS))
        arrivals = events[at[np.isin(kinds[at], _ARRIVALS)]]
        self._arrived.update(np.unique(arrivals["a"]).tolist())
        self._unseen -= set(np.unique(arrivals["pc"]).tolist())
        self._ended += int((kinds[at] == int(Event.CTA_ENDED)).sum())
        waits = at[kinds[at] == int(Event.MBARRIER_WAITED)]
        waits = waits[(events["c"][waits] == 1) & (events["d"][waits] == -1)]
        identities, firsts = np.unique(events["a"][waits], return_index=True)
        for identity, row in zip(identities.tolist(), waits[firsts].tolist(), strict=True):
            if identity not in self._first_waits:
                self._first_waits[identity] = events[row].copy()
                self._rows[identity] = first_row + row

    def hazards(self, words: Words) -> list[Hazard]:
        """Return a finding for each such wait, if the launch has ended."""
        if self._unseen or self._ended < int(np.prod(words.kernel.grid)):
            return []
        return [self._hazard(words, identity) for identity in sorted(self._first_waits.keys() - self._arrived)]

    def _hazard(self, words: Words, identity: int) -> Hazard:
        e, name = self._first_waits[identity], words.mbarrier(identity)
        warp, pc = int(e["warp"]), int(e["pc"])
        wait = Access(
            what="wait", role=words.role(warp), where=words.kernel.place(pc), op=words.opcode(pc), space="mbarrier",
            first_byte=-1, last_byte=-1, cycle=int(e["time"]), warp=warp, cta=int(e["cta"]), event=self._rows[identity], pc=pc,
        )  # fmt: skip
        return Hazard(
            kind="barrier-misuse",
            message=f"{name} is waited for but nobody ever arrives on it: the wait passes only while {name} is fresh",
            first=None,
            second=wait,
            missing="an arrival by those whose work the wait is for",
            rule=MBARRIER_RULE,
            fix=f"let them execute mbarrier.arrive on {name} when they are done",
        )


def _arrives(instruction: Instruction) -> bool:
    """Is it mbarrier.arrive, mbarrier.arrive_drop or cp.async.mbarrier.arrive?"""
    return "mbarrier" in instruction.opcode and bool({"arrive", "arrive_drop"} & set(instruction.modifiers))
