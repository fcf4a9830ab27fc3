"""Registers of wgmma in flight: what may touch the accumulator and the A fragment before wait_group, and after which
fence.

Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence", "wgmma.mma_async": registers of a
pending wgmma must not be read or written, wgmma.fence must stand before the first wgmma and between any other access
to its registers and the wgmma, except between wgmmas of the same shape on the same accumulator. The machine gives
such programs the values of program order, as ptxas does (both inject waits, see :mod:`h100sim.serialised`), so only this check
finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..native import data_address, entry, inner, record
from ..ptx.module import Imm, Instruction, Reg
from ..ptx.roles import is_multiply, is_written, multiplied, registers_of
from ..trace import EVENT, Event

# What was found; the numbers continue those of tables.py.
PENDING_ACCUMULATOR, PENDING_FRAGMENT, MISSING_FENCE, OTHER_SHAPE, UNINITIALISED_ACCUMULATOR = range(32, 37)

# Columns of what is kept for a register of a warp.
_PENDING_D, _PENDING_A, _EPOCH, _TOUCHED_PC, _TOUCHED_EVENT, _WRITTEN, _SHAPE, _SHAPE_EPOCH, _WGMMA_PC, _WGMMA_EVENT = range(10)
_COLUMNS = 10

# Columns of what is kept for a warp.
_DONE, _FENCES, _END = range(3)
_RING = 16

# Roles of the registers of a copy, beside 1 (read) and 2 (written).
_COPIED_FROM, _COPIED_TO = 3, 4

#: Columns of a finding: code, register, then (warp, pc, cta, event, time) of both sides, count, event last counted.
FOUND_COLUMNS = 14
FOUND_MAX = 256

_ISSUED, _WGMMA_ISSUED, _FENCED = int(Event.ISSUED), int(Event.WGMMA_ISSUED), int(Event.WGMMA_FENCED)
_COMMITTED, _WAITED = int(Event.WGMMA_COMMITTED), int(Event.WGMMA_WAITED)
KINDS = (_ISSUED, _WGMMA_ISSUED, _FENCED, _COMMITTED, _WAITED)


@dataclass(frozen=True)
class Uses:
    """Which of the registers that some wgmma uses each instruction touches.

    ``starts`` (instructions + 1) delimits, for each instruction, ``registers`` (numbers) and ``roles`` (1 read, 2
    written, 3 and 4 the sides of a copy; for a wgmma 1 fragment A, 2 accumulator). ``is_wgmma`` marks
    wgmma.mma_async, ``shapes`` numbers their opcodes, ``reads_d`` tells those whose scale-d is an immediate other
    than 0. ``names`` are the registers' names.
    """

    starts: np.ndarray
    registers: np.ndarray
    roles: np.ndarray
    is_wgmma: np.ndarray
    shapes: np.ndarray
    reads_d: np.ndarray
    names: tuple[str, ...]

    @property
    def touching(self) -> np.ndarray:
        """Return, for each instruction, whether it touches any of the registers."""
        return np.diff(self.starts) > 0


def uses_of(instructions: tuple[Instruction, ...]) -> Uses:
    """Return which registers of wgmmas the instructions of a function touch."""
    multiplies = [is_multiply(i) for i in instructions]
    numbers: dict[int, int] = {}
    names: list[str] = []
    for instruction, multiply in zip(instructions, multiplies, strict=True):
        if multiply:
            for register, _ in _wgmma_uses(instruction):
                if register.register.index not in numbers:
                    numbers[register.register.index] = len(numbers)
                    names.append(register.register.name)
    starts, registers, roles = [0], [], []
    shapes: dict[str, int] = {}
    for instruction, multiply in zip(instructions, multiplies, strict=True):
        found = _wgmma_uses(instruction) if multiply else _copy(instruction, numbers) or _uses(instruction)
        for register, role in found:
            if register.register.index in numbers:
                registers.append(numbers[register.register.index])
                roles.append(role)
        starts.append(len(registers))
    return Uses(
        starts=np.array(starts, np.int64),
        registers=np.array(registers, np.int64),
        roles=np.array(roles, np.int64),
        is_wgmma=np.array(multiplies, bool),
        shapes=np.array([shapes.setdefault(i.opcode, len(shapes) + 1) for i in instructions], np.int64),
        reads_d=np.array([m and _reads_accumulator(i) for i, m in zip(instructions, multiplies, strict=True)], bool),
        names=tuple(names),
    )


def _wgmma_uses(instruction: Instruction) -> list[tuple[Reg, int]]:
    accumulator, fragment = multiplied(instruction)
    return [*((r, 2) for r in accumulator), *((r, 1) for r in fragment)]


def _uses(instruction: Instruction) -> list[tuple[Reg, int]]:
    found: dict[tuple[int, int], tuple[Reg, int]] = {}
    for position, operand in enumerate(instruction.operands):
        written = is_written(instruction, position)
        for register in registers_of(operand):
            found[register.register.index, written] = (register, 2 if written else 1)
    return list(found.values())


def _copy(instruction: Instruction, numbers: dict[int, int]) -> list[tuple[Reg, int]]:
    """Return source and destination of a mov between two registers of wgmmas.

    Compilers make such copies for loops and inline assembly, and ptxas removes them again, so a copy carries the
    state of the register over and is no access.
    """
    if instruction.base != "mov" or len(instruction.operands) != 2:
        return []
    target, source = instruction.operands
    if not isinstance(target, Reg) or not isinstance(source, Reg):
        return []
    if target.register.index not in numbers or source.register.index not in numbers:
        return []
    return [(source, _COPIED_FROM), (target, _COPIED_TO)]


def _reads_accumulator(instruction: Instruction) -> bool:
    position = 3 + ("sp" in instruction.modifiers) * 2
    scale = instruction.operands[position] if len(instruction.operands) > position else None
    return isinstance(scale, Imm) and scale.value != 0


class RegisterState:
    """What is known of the wgmma registers of the warps that run now, and what was found (``found``, FOUND_COLUMNS)."""

    def __init__(self, uses: Uses):
        self.uses = uses
        self.slots: dict[int, int] = {}
        self.free: list[int] = []
        n = len(uses.names)
        self.registers = np.zeros((0, n, _COLUMNS), np.int32)
        self.warps = np.zeros((0, 3), np.int64)
        self.ends = np.zeros((0, _RING), np.int64)
        self.found = np.zeros((FOUND_MAX, FOUND_COLUMNS), np.int64)
        self.count = np.zeros(1, np.int64)

    def feed(self, events: np.ndarray, touching: np.ndarray, first: int) -> None:
        """Check the events (EVENT) of a chunk at the rows ``touching``: those of :data:`KINDS`, ISSUED only where it touches.
        ``first``: the chunk's first row in the trace."""
        warps = np.unique(events["warp"][touching])
        slot_of = np.zeros(int(warps[-1]) + 1, np.int64)
        for warp in warps:
            slot_of[warp] = self._slot(int(warp))
        u = self.uses
        follow(
            data_address(events), touching, first, slot_of, self.registers, self.warps, self.ends,
            u.starts, u.registers, u.roles,
            u.is_wgmma, u.shapes, u.reads_d, self.found, self.count,
        )  # fmt: skip

    def forget(self, warps: Iterable[int]) -> None:
        """The warps have ended."""
        for warp in warps:
            if (slot := self.slots.pop(warp, None)) is not None:
                self.free.append(slot)

    def _slot(self, warp: int) -> int:
        if warp in self.slots:
            return self.slots[warp]
        if not self.free:
            before, more = len(self.registers), max(len(self.registers), 16)
            self.registers = np.concatenate([self.registers, np.zeros((more, *self.registers.shape[1:]), np.int32)])
            self.warps = np.concatenate([self.warps, np.zeros((more, 3), np.int64)])
            self.ends = np.concatenate([self.ends, np.zeros((more, _RING), np.int64)])
            self.free = list(range(before, before + more))
        slot = self.slots[warp] = self.free.pop()
        self.registers[slot], self.warps[slot], self.ends[slot] = 0, 0, 0
        self.registers[slot, :, _EPOCH] = -1
        return slot


#: The event at an address.
_event = record(EVENT)
_EVENT_BYTES = EVENT.itemsize


@inner
def _find(found, count, code, register, first, pc_first, second, row):
    """Add a finding of the event ``second`` at a row of the trace about what the register's record says (``first``)."""
    for k in range(count[0]):
        f = found[k]
        if f[0] == code and f[3] == pc_first and f[8] == second.pc:
            if f[13] != row:
                f[12] += 1
                f[13] = row
            return
    if count[0] >= found.shape[0]:
        return
    f = found[count[0]]
    count[0] += 1
    f[0], f[1] = code, register
    f[2], f[3], f[4], f[5], f[6] = second.warp, pc_first, second.cta, first, -1
    f[7], f[8], f[9], f[10], f[11] = second.warp, second.pc, second.cta, row, second.time
    f[12], f[13] = 1, row


@entry(
    "int64", "int32[:]", "int64", "int64[:]", "int32[:, :, :]", "int64[:, :]", "int64[:, :]", "int64[:]", "int64[:]", "int64[:]", "bool[:]",
    "int64[:]", "bool[:]", "int64[:, :]", "int64[:]",
)  # fmt: skip
def follow(events, rows, first, slot_of, registers, warps, ends, starts, numbers, roles, is_wgmma, shapes, reads_d, found, count):
    for i in range(rows.shape[0]):
        e, row = _event(events + rows[i] * _EVENT_BYTES), first + rows[i]
        kind, slot, pc = e.kind, slot_of[e.warp], e.pc
        w, table = warps[slot], registers[slot]
        if kind == _ISSUED:
            if not is_wgmma[pc]:
                for k in range(starts[pc], starts[pc + 1]):
                    if roles[k] == _COPIED_TO:
                        for column in range(_COLUMNS):
                            table[numbers[k], column] = table[numbers[k - 1], column]
                    elif roles[k] != _COPIED_FROM:
                        _touch(table, w, numbers[k], roles[k], e, row, found, count)
        elif kind == _WGMMA_ISSUED:
            reads = reads_d[pc] or e.d == 1
            for k in range(starts[pc], starts[pc + 1]):
                _multiply(table, w, numbers[k], roles[k], e, row, shapes[pc], reads, found, count)
            for k in range(starts[pc], starts[pc + 1]):
                r = table[numbers[k]]
                r[_PENDING_D if roles[k] == 2 else _PENDING_A] = e.c + 1
                r[_WGMMA_PC], r[_WGMMA_EVENT] = pc, row
                if roles[k] == 2:
                    r[_WRITTEN], r[_SHAPE], r[_SHAPE_EPOCH] = 1, shapes[pc], w[_FENCES]
        elif kind == _FENCED:
            w[_FENCES] += 1
        elif kind == _COMMITTED:
            if e.c >= 0:
                w[_END] = e.c + 1
            ends[slot, e.a % _RING] = w[_END]
        elif kind == _WAITED and e.a >= 0:
            w[_DONE] = max(w[_DONE], ends[slot, e.a % _RING])
    return 0


@inner
def _touch(table, w, register, role, e, row, found, count):
    """An ordinary instruction reads or writes a register."""
    r = table[register]
    if r[_PENDING_D] > w[_DONE]:
        _find(found, count, PENDING_ACCUMULATOR, register, r[_WGMMA_EVENT], r[_WGMMA_PC], e, row)
    elif role == 2 and r[_PENDING_A] > w[_DONE]:
        _find(found, count, PENDING_FRAGMENT, register, r[_WGMMA_EVENT], r[_WGMMA_PC], e, row)
    r[_EPOCH], r[_TOUCHED_PC], r[_TOUCHED_EVENT] = w[_FENCES], e.pc, row
    if role == 2:
        r[_WRITTEN] = 1


@inner
def _multiply(table, w, register, role, e, row, shape, reads, found, count):
    """A wgmma uses a register as accumulator (role 2) or fragment (role 1)."""
    r = table[register]
    if r[_EPOCH] == w[_FENCES]:
        _find(found, count, MISSING_FENCE, register, r[_TOUCHED_EVENT], r[_TOUCHED_PC], e, row)
    elif w[_FENCES] == 0:
        _find(found, count, MISSING_FENCE, register, -1, -1, e, row)
    if role == 2:
        if r[_SHAPE] > 0 and r[_SHAPE] != shape and r[_SHAPE_EPOCH] == w[_FENCES]:
            _find(found, count, OTHER_SHAPE, register, r[_WGMMA_EVENT], r[_WGMMA_PC], e, row)
        if reads and r[_WRITTEN] == 0:
            _find(found, count, UNINITIALISED_ACCUMULATOR, register, -1, -1, e, row)
    elif r[_PENDING_D] > w[_DONE]:
        _find(found, count, PENDING_ACCUMULATOR, register, r[_WGMMA_EVENT], r[_WGMMA_PC], e, row)
