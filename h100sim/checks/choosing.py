"""Which events of a trace the checks look at: one pass over each chunk, in compiled code, since most events are instructions
that issue, which matter to few checks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..native import data_address, entry, i32, record, u8
from ..trace import EVENT, Event
from .launch import PC_ALIGNED
from .reading import ISSUES, Reading

#: The event at an address.
event = record(EVENT)

# What a kind of event or an instruction matters to.
_HANDLED, _REGISTERS, _ALIGNED = 1, 2, 4
_KINDS = 256
_ISSUED, _EVENT_BYTES, _ALL_LANES = int(Event.ISSUED), EVENT.itemsize, 0xFFFFFFFF


class Choice:
    """Chooses from chunks of events those that handlers want (of the kinds ``handled``, and ISSUED of instructions that have no event
    of their own) and those that touch registers of wgmmas (of the kinds ``of_registers``, ISSUED where the instruction does)."""

    def __init__(self, text: Reading, handled: Iterable[int], of_registers: Iterable[int]):
        self._kinds = np.zeros(_KINDS, np.uint8)
        self._kinds[list(handled)] |= _HANDLED
        if text.uses.names:
            self._kinds[list(of_registers)] |= _REGISTERS
        flags = np.array([*text.flags, 0])
        touching = np.append(text.uses.touching, False)
        self._instructions = (
            _HANDLED * (flags & ISSUES != 0) | _ALIGNED * (flags & PC_ALIGNED != 0) | _REGISTERS * touching
        ).astype(np.uint8)  # fmt: skip

    def of(self, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of events (EVENT) for handlers and those for the registers."""
        rows = np.empty((2, len(events)), np.int32)
        at = [data_address(array) for array in (events, self._kinds, self._instructions, rows[0], rows[1])]
        counts = choose(len(events), *at)
        return rows[0, : counts >> 32], rows[1, : counts & 0xFFFFFFFF]


@entry(*["int64"] * 6)
def choose(count, events, kinds, instructions, handled, touching):
    """Fill in rows of ``count`` events; return how many are to be handled, times 2^32, plus how many touch registers."""
    of_kind, of_instruction = u8(kinds, _KINDS), u8(instructions, count)
    handled, touching = i32(handled, count), i32(touching, count)
    n, m = np.int64(0), np.int64(0)
    for row in range(count):
        e = event(events + row * _EVENT_BYTES)
        matters = np.int64(of_kind[e.kind])
        if e.kind == _ISSUED:
            here = np.int64(of_instruction[e.pc])
            # A full mask cannot be a part of the warp.
            if here & _ALIGNED and e.mask != _ALL_LANES:
                here |= _HANDLED
            matters = here & _HANDLED | here & matters & _REGISTERS
            if e.mask == 0:
                matters &= ~_REGISTERS
        if matters & _HANDLED:
            handled[n] = row
            n += 1
        if matters & _REGISTERS:
            touching[m] = row
            m += 1
    return n << 32 | m
