"""Wavefronts of each instruction that accesses shared memory, counted from the addresses in a trace.

For st.async and red.async it is the packets in which they cross the network of the cluster. Left out: copies (TMA,
cp.async).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .layouts.banks import LOAD, MATRIX, SCRATCH_WORDS, STORE, count, packets
from .native import entry, inner
from .trace import Access, Copy, Event, Space, Trace


@dataclass(frozen=True)
class SharedInstruction:
    """An instruction, how often warps executed it, and the wavefronts (``unit``: or packets) that all of them took together.

    ``without_conflicts`` is what they would have taken if no two words had met in a bank, or if the bytes of a store to
    another CTA had filled its packets; ``worst`` is the most of one execution.
    """

    pc: int
    place: str
    opcode: str
    unit: str
    accesses: int
    wavefronts: int
    without_conflicts: int
    worst: int


def shared_instructions(trace: Trace) -> tuple[SharedInstruction, ...]:
    """Return every instruction that accessed shared memory, in the order of the text."""
    found = [*_through_the_port(trace), *_through_the_network(trace)]
    return tuple(sorted(found, key=lambda x: x.pc))


def _through_the_port(trace: Trace) -> list[SharedInstruction]:
    memory = trace.of(Event.MEMORY)
    memory = memory[(memory["c"] == Space.SHARED) & (memory["d"] & int(Access.ASYNC) == 0)]
    if not len(memory):
        return []
    pcs, of = np.unique(memory["pc"], return_inverse=True)
    lanes = np.array([_lanes(trace.kernel.opcodes[pc]) for pc in pcs.tolist()], np.int64)
    kinds = np.where(memory["d"] & int(Access.READ), LOAD, STORE)
    kinds = np.where(lanes[of] > 0, MATRIX, kinds)
    totals = np.zeros((len(pcs), 4), np.int64)
    # Accesses of more than 16 bytes (a tensor map that tensormap.replace changes) are of one lane: a wavefront.
    widths = np.where(memory["b"] > 16, 4, memory["b"])
    _add_wavefronts(np.ascontiguousarray(memory["a"]), widths, kinds, np.where(lanes > 0, lanes, 32)[of], of, trace.lanes, totals)
    return _instructions(trace, pcs, "wavefronts", totals)


def _through_the_network(trace: Trace) -> list[SharedInstruction]:
    stores = trace.of(Event.TMA_ISSUED)
    stores = stores[np.isin(stores["a"], (Copy.ASYNC_STORE, Copy.ASYNC_REDUCE))]
    if not len(stores):
        return []
    # The lanes of an instruction have an event each, one after the other.
    starts = np.ones(len(stores), bool)
    starts[1:] = np.any([stores[name][1:] != stores[name][:-1] for name in ("warp", "pc", "time")], axis=0)
    execution = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    addresses = np.full((len(first), 32), -1, np.int64)
    addresses[execution, np.arange(len(stores)) - first[execution]] = stores["c"]
    pcs, of = np.unique(stores["pc"][first], return_inverse=True)
    totals = np.zeros((len(pcs), 4), np.int64)
    _add_packets(addresses, stores["b"][first], of, totals)
    return _instructions(trace, pcs, "packets", totals)


def _instructions(trace: Trace, pcs: np.ndarray, unit: str, totals: np.ndarray) -> list[SharedInstruction]:
    kernel = trace.kernel
    return [
        SharedInstruction(pc, kernel.place(pc), kernel.opcodes[pc], unit, *row)
        for pc, row in zip(pcs.tolist(), totals.tolist(), strict=True)
    ]


def _lanes(opcode: str) -> int:
    """Return how many lanes give a row of ldmatrix or stmatrix, 0 for other instructions."""
    match = re.match(r"(ld|st)matrix\b", opcode)
    if not match:
        return 0
    return 8 * next((n for n in (4, 2) if f".x{n}" in opcode), 1)


@entry("int64[:]", "int64[:]", "int64[:]", "int64[:]", "int64[:]", "int64[:, :]", "int64[:, :]")
def _add_wavefronts(rows, widths, kinds, lanes, of, addresses, totals):
    """Add up [accesses, wavefronts, without conflicts, worst] of each instruction in ``totals``."""
    scratch = np.empty(SCRATCH_WORDS, np.int32)
    for i in range(rows.size):
        found, ideal = count(addresses[rows[i]], lanes[i], widths[i], kinds[i], scratch)
        _add(totals[of[i]], found, ideal)
    return 0


@entry("int64[:, :]", "int64[:]", "int64[:]", "int64[:, :]")
def _add_packets(addresses, widths, of, totals):
    """Add up [accesses, packets, packets if they were full, worst] of each instruction in ``totals``."""
    scratch = np.empty(SCRATCH_WORDS, np.int32)
    for i in range(widths.size):
        lanes = 0
        for lane in range(32):
            lanes += addresses[i, lane] >= 0
        # Two packets are the least that an instruction takes.
        _add(totals[of[i]], packets(addresses[i], widths[i], scratch), max(2, (lanes * widths[i] + 31) // 32))
    return 0


@inner
def _add(total, found, ideal):
    total[0] += 1
    total[1] += found
    total[2] += ideal
    total[3] = max(total[3], found)
