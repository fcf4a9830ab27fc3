"""Reads of registers that nothing writes: where the text has one (:mod:`h100sim.unwritten`), when it was first executed.

Spec: PTX ISA 9.1, "State Spaces: Register State Space": registers have no value before they are written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hazard import Access, Hazard, UnwrittenRead
from ..trace import Event
from .wording import Words

_ISSUED = int(Event.ISSUED)
_RULE = 'PTX ISA 9.1, "State Spaces: Register State Space"'


class FirstReads:
    """Remembers the first execution of each instruction that reads a register that nothing writes."""

    def __init__(self, reads: Sequence[UnwrittenRead]):
        self._reads = reads
        #: A guard is read although no lane executes the instruction.
        self._needs_lanes = {read.pc: False for read in reads if read.is_guard}
        self._needs_lanes |= {read.pc: True for read in reads if read.pc not in self._needs_lanes}
        self._firsts: dict[int, tuple[np.void, int]] = {}

    def feed(self, events: np.ndarray, first_row: int) -> None:
        """Take the next events (EVENT), which are the rows of the trace from ``first_row`` on."""
        for pc in [pc for pc in self._needs_lanes if pc not in self._firsts]:
            is_it = (events["pc"] == pc) & (events["kind"] == _ISSUED)
            rows = np.flatnonzero(is_it & (events["mask"] != 0) if self._needs_lanes[pc] else is_it)
            if len(rows):
                self._firsts[pc] = events[rows[0]].copy(), first_row + int(rows[0])

    def hazards(self, words: Words) -> list[Hazard]:
        """Return a finding for each read that was executed."""
        return [_hazard(words, read, *self._firsts[read.pc]) for read in self._reads if read.pc in self._firsts]


def _hazard(words: Words, read: UnwrittenRead, e: np.void, row: int) -> Hazard:
    warp = int(e["warp"])
    access = Access(
        what=f"{'guard' if read.is_guard else 'read of register'} {read.register}", role=words.role(warp),
        where=words.kernel.place(read.pc), op=words.opcode(read.pc), space="registers", first_byte=-1, last_byte=-1,
        cycle=int(e["time"]), warp=warp, cta=int(e["cta"]), event=row, pc=read.pc,
    )  # fmt: skip
    return Hazard(
        kind="unwritten-register", message=read.message, first=None, second=access,
        missing=f"a write of {read.register} on a way from the entry to this instruction", rule=_RULE,
        fix=f"write {read.register} first (it is 0 here, and anything on a GPU)",
    )  # fmt: skip
