"""Wavefronts of each instruction that accesses shared memory, counted from the addresses in a trace.

Left out: copies (TMA, cp.async, st.async), which do not go through a warp's port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .layouts.banks import LOAD, MATRIX, SCRATCH_WORDS, STORE, count
from .native import jit
from .trace import Access, Event, Space, Trace


@dataclass(frozen=True)
class SharedInstruction:
    """An instruction, how often warps executed it, and the wavefronts that all of them took together.

    ``without_conflicts`` is what they would have taken if no two words had met in a bank; ``worst`` is the most
    wavefronts of one execution.
    """

    pc: int
    place: str
    opcode: str
    accesses: int
    wavefronts: int
    without_conflicts: int
    worst: int


def shared_instructions(trace: Trace) -> tuple[SharedInstruction, ...]:
    """Return every instruction that accessed shared memory, in the order of the text."""
    memory = trace.of(Event.MEMORY)
    memory = memory[(memory["c"] == Space.SHARED) & (memory["d"] & int(Access.ASYNC) == 0)]
    pcs, of = np.unique(memory["pc"], return_inverse=True)
    opcodes = [trace.kernel.opcodes[pc] for pc in pcs.tolist()]
    lanes = np.array([_lanes(opcode) for opcode in opcodes], np.int64)
    kinds = np.where(memory["d"] & int(Access.READ), LOAD, STORE)
    kinds = np.where(lanes[of] > 0, MATRIX, kinds)
    totals = np.zeros((len(pcs), 4), np.int64)
    _add(memory["a"], memory["b"], kinds, np.where(lanes > 0, lanes, 32)[of], of, trace.lanes, totals)
    return tuple(
        SharedInstruction(pc, trace.kernel.place(pc), opcode, *row)
        for pc, opcode, row in zip(pcs.tolist(), opcodes, totals.tolist(), strict=True)
    )


def _lanes(opcode: str) -> int:
    """Return how many lanes give a row of ldmatrix or stmatrix, 0 for other instructions."""
    match = re.match(r"(ld|st)matrix\b", opcode)
    if not match:
        return 0
    return 8 * next((n for n in (4, 2) if f".x{n}" in opcode), 1)


@jit
def _add(rows, widths, kinds, lanes, of, addresses, totals):
    """Add up [accesses, wavefronts, without conflicts, worst] of each instruction in ``totals``."""
    scratch = np.empty(SCRATCH_WORDS, np.int32)
    for i in range(rows.size):
        found, ideal = count(addresses[rows[i]], lanes[i], widths[i], kinds[i], scratch)
        total = totals[of[i]]
        total[0] += 1
        total[1] += found
        total[2] += ideal
        total[3] = max(total[3], found)
