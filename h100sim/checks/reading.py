"""What the checks must know of a kernel's instructions beyond their events: read once for all launches of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..native import data_address
from ..ptx.module import Imm, Instruction, Special
from . import registers
from .arrivals import arriving, waiting
from .launch import (
    PC_ALIGNED,
    PC_COLLECTIVE,
    PC_COUNT,
    PC_CP_ARRIVE,
    PC_CP_COMMIT,
    PC_CP_COPY,
    PC_CP_WAIT,
    PC_CP_WAIT_ALL,
    PC_MULTICAST,
    PC_RELAXED,
    PC_SCOPE,
    PC_SYNC,
    PC_UNTESTED,
)  # fmt: skip
from .waits import untested_waits

COPIES = PC_CP_COPY | PC_CP_COMMIT | PC_CP_WAIT | PC_CP_WAIT_ALL

#: Instructions whose issue matters although they have no event of their own.
ISSUES = COPIES | PC_CP_ARRIVE | PC_SYNC

#: Operands of wgmma whose bytes are remembered, and kernels that are.
FOOTPRINTS_MAX, KERNELS_MAX = 1 << 14, 16


class Footprint(NamedTuple):
    """Bytes of shared memory: ``spans`` int64 (n, 2), first byte and bytes, at ``address``; ``size``: all bytes."""

    spans: np.ndarray
    address: int
    n: int
    size: int

    @classmethod
    def of(cls, spans: np.ndarray) -> Footprint:
        return cls(spans, data_address(spans), len(spans), int(spans[:, 1].sum()))


@dataclass(frozen=True)
class Reading:
    """``flags`` (PC_), ``counts`` of waits and member masks (``members``) by instruction; ``uses`` of the registers of wgmmas;
    ``arrivals`` and ``waits`` are the instructions that arrive on mbarriers and that test them; ``footprints``: what a wgmma's
    operand covers, by instruction, operand and descriptor; ``uses_reserved``: the kernel asks where the system's shared memory is."""

    instructions: tuple[Instruction, ...]
    flags: list[int]
    counts: list[int]
    members: list[int]
    uses: registers.Uses
    arrivals: frozenset[int]
    waits: frozenset[int]
    uses_reserved: bool
    footprints: dict[tuple[int, int, int], Footprint] = field(default_factory=dict)


_readings: dict[int, Reading] = {}


def reading_of(instructions: tuple[Instruction, ...]) -> Reading:
    """Return the reading of a function's instructions; those of the last kernels are kept."""
    found = _readings.pop(id(instructions), None)
    if found is None or found.instructions is not instructions:
        found = _read(instructions)
    _readings[id(instructions)] = found
    while len(_readings) > KERNELS_MAX:
        del _readings[next(iter(_readings))]
    return found


def _read(instructions: tuple[Instruction, ...]) -> Reading:
    flags = [pc_flags(i) for i in instructions]
    for pc in untested_waits(instructions):
        flags[pc] |= PC_UNTESTED
    uses = registers.uses_of(instructions)
    return Reading(
        instructions,
        flags,
        [_wait_count(i) for i in instructions],
        [_members(i) for i in instructions],
        uses,
        frozenset(arriving(instructions)),
        frozenset(waiting(instructions)),
        any(isinstance(o, Special) and o.name.startswith("reserved_smem") for i in instructions for o in i.operands),
    )


def pc_flags(instruction: Instruction) -> int:
    """Return what the stream must know of an instruction beyond its events (PC_ flags)."""
    opcode = instruction.opcode
    parts = opcode.replace("::", ".").split(".")
    flags = 0
    if "relaxed" in parts:
        flags |= PC_RELAXED
    if "multicast" in parts:
        flags |= PC_MULTICAST
    if "aligned" in parts or (instruction.base == "bar" and "warp" not in parts):
        flags |= PC_ALIGNED
    if instruction.base in ("bar", "barrier") and "warp" not in parts and _has_count(instruction):
        flags |= PC_COUNT
    if opcode.startswith("cp.async") and not opcode.startswith(("cp.async.bulk", "cp.async.mbarrier")):
        if "commit_group" in parts:
            flags |= PC_CP_COMMIT
        elif "wait_group" in parts:
            flags |= PC_CP_WAIT
        elif "wait_all" in parts:
            flags |= PC_CP_WAIT_ALL
        else:
            flags |= PC_CP_COPY
    if opcode.startswith("cp.async.mbarrier.arrive"):
        flags |= PC_CP_ARRIVE
    if ("sync" in parts and instruction.base not in ("bar", "barrier", "wgmma")) or opcode.startswith("bar.warp.sync"):
        flags |= PC_SYNC
    if instruction.base in ("ldmatrix", "stmatrix"):
        flags |= PC_COLLECTIVE
    return flags | _scope(parts) << PC_SCOPE


def _scope(parts: list[str]) -> int:
    """Return the scope of an instruction: 0 CTA, 1 cluster, 2 GPU or wider, which is what most have without a word."""
    return 0 if "cta" in parts and "shared" not in parts else 1 if "cluster" in parts and "shared" not in parts else 2


def _members(instruction: Instruction) -> int:
    """Return the member mask of a .sync instruction: every lane if it has none, or one that only a run knows."""
    if instruction.base in ("bar", "shfl", "vote", "match", "redux", "elect") and instruction.operands:
        mask = instruction.operands[-1]
        return mask.value & 0xFFFFFFFF if isinstance(mask, Imm) else 0xFFFFFFFF
    return 0xFFFFFFFF


def _has_count(instruction: Instruction) -> bool:
    operands = len(instruction.operands)
    return operands > 3 if "red" in instruction.modifiers else operands > 1


def _wait_count(instruction: Instruction) -> int:
    if "wait_group" in instruction.modifiers and instruction.operands and isinstance(instruction.operands[0], Imm):
        return instruction.operands[0].value
    return 0
