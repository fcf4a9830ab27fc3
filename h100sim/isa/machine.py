"""Machine instructions: everything that touches memory, other lanes, units or time.

A family file registers one *lowering* per mnemonic: a function from a decoded instruction to a :class:`MachineOp`, which names
the handler (a plain function with the instruction signature of :mod:`h100sim.native`, compiled on first use), the register rows
that it reads and writes, and up to six integers. The handler finds the rows at ``ops`` (outputs first; see :func:`get` and
:func:`put`), the integers in its instruction record, and says with a status of :mod:`h100sim.state` how the warp goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .. import state as S
from ..errors import PtxError, Where
from ..native import i32, inner, u32, u64
from ..ptx.module import Function, Imm, Instruction, Module, Operand, Reg, Symbol, Vector

if TYPE_CHECKING:
    from ..linker import Linked
    from ..ptx.places import Places

#: Flags in the low bits of an operand's row offset (rows are 64-byte aligned).
WIDE, PREDICATE, NEGATED = 1, 2, 4
#: A 128-bit register is two blocks of 64-bit lanes: add this to its operand to name the high halves.
HIGH_HALF = 256


@dataclass(frozen=True)
class MachineOp:
    """How to run one machine instruction. ``latency`` is until the outputs can be read, ``issue`` how long the pipe is taken;
    a handler may set both per execution. ``scored`` False keeps the rows out of the scoreboard (asynchronous registers).
    ``uses`` are other functions that they call through addresses. ``unscored`` are rows that the scoreboard does not see; they
    and the numbers ``words`` follow the others at ``ops``.
    ``completion`` is called by the queue with (number of the operation, time, 0, ctx) when a unit has finished it."""

    handler: Callable
    outs: tuple[Operand, ...] = ()
    ins: tuple[tuple[Operand, str], ...] = ()
    integers: tuple[int, ...] = ()
    pipe: str = "memory"
    latency: int = 4
    issue: int = 1
    scored: bool = True
    completion: Callable | None = None
    uses: tuple[Callable, ...] = ()
    unscored: tuple[Operand, ...] = ()
    words: tuple[int, ...] = ()


class Environment(Protocol):
    """What a lowering may ask about the kernel that it is part of."""

    module: Module
    function: Function
    filename: str
    linked: Linked
    pc: int
    places: Places

    def space_of(self, symbol: Symbol) -> str:
        """Return the state space of a symbol."""
        ...


Lowering = Callable[[Instruction, Environment], MachineOp]
LOWERINGS: dict[str, Lowering] = {}


def machine_instruction(*mnemonics: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for base mnemonics ("ld") or for mnemonics with leading modifiers ("cp.async.bulk")."""

    def register(lowering: Lowering) -> Lowering:
        for mnemonic in mnemonics:
            LOWERINGS[mnemonic] = lowering
        return lowering

    return register


def lowering_of(instruction: Instruction) -> Lowering | None:
    """Return the lowering with the longest mnemonic that starts the opcode, or None."""
    parts = instruction.opcode.split(".")
    for n in range(len(parts), 0, -1):
        if found := LOWERINGS.get(".".join(parts[:n])):
            return found
    return None


def refuse(instruction: Instruction, message: str, environment: Environment, rule: str = "") -> PtxError:
    """Return the error for an instruction that is not legal or not supported."""
    return PtxError(message, Where(environment.filename, instruction.line, instruction.column), rule)


def flatten(operand: Operand) -> tuple[Operand, ...]:
    """Return the elements of a vector operand, or the operand alone."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def immediate(instruction: Instruction, operand: Operand, what: str, environment: Environment) -> int:
    """Return the value of an operand that must be an integer immediate."""
    if isinstance(operand, Imm) and operand.kind == "int":
        return operand.value
    raise refuse(instruction, f"{instruction.base} {what} must be an immediate, not a register", environment)


def width_of(operand: Operand, default: int = 64) -> int:
    """Return the width in bits of a register operand."""
    if isinstance(operand, Reg):
        return int("".join(ch for ch in operand.register.type if ch.isdigit()) or 1)
    return default


@inner
def get(regs, op, lane):
    """Read one lane of an operand as an int64 (unsigned 32-bit values stay positive; predicates are 0 or 1)."""
    row = regs + (op & ~63)
    if op & WIDE:
        return np.int64(u64(row, 32)[lane])
    if op & PREDICATE:
        bit = (np.int64(u32(row, 1)[0]) >> lane) & 1
        return bit ^ 1 if op & NEGATED else bit
    return np.int64(u32(row, 32)[lane])


@inner
def put(regs, op, lane, value):
    """Write one lane of an operand."""
    row = regs + (op & ~63)
    if op & WIDE:
        u64(row, 32)[lane] = np.uint64(value)
    elif op & PREDICATE:
        bits = u32(row, 1)
        bit = np.uint32(1) << np.uint32(lane)
        if value != 0:
            bits[0] = bits[0] | bit
        else:
            bits[0] = bits[0] & ~bit
    else:
        u32(row, 32)[lane] = np.uint32(value & 0xFFFFFFFF)


@inner
def operand(ops, k):
    """Return the k-th operand of an instruction, for :func:`get` and :func:`put`."""
    return np.int64(i32(ops, k + 1)[k])


@inner
def first_lane(mask):
    """Return the lowest lane of a mask."""
    for lane in range(32):
        if (mask >> lane) & 1:
            return lane
    return 0


@inner
def popcount(mask):
    """Return the number of lanes in a mask."""
    n = 0
    for lane in range(32):
        n += (mask >> lane) & 1
    return n


@inner
def current(ctx):
    """Return the record of the instruction being executed."""
    return S.instructions(ctx)[S.context(ctx).pc]
