"""Names of a function: nested scopes, register ranges, labels, and unique names for what scopes declare again.

A register of a range (``.reg .b32 %r<4000000000>``) comes into being when it is first used, so a range costs nothing.

Spec: PTX ISA 9.1, "Identifiers", "Parameterized Variable Names", "Instruction Statements" ("Labels").
Measured: tests/ptx/data/ptxas_verdicts.json. An inner scope may declare registers and labels of outer ones again; a
label is visible in its own scope and the inner ones; labels and variables of one scope share one set of names;
parameters belong to the outermost scope; all digits at the end of a name are its number, so ``.reg .b32 %r1<5>``
declares nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .module import Operand, Reg, Register, Symbol, Vector

MAX_DEPTH = 128
_COMPONENTS = ("x", "y", "z", "w")
_COLOURS = ("r", "g", "b", "a")
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class Table:
    """A name that ``.branchtargets``, ``.calltargets`` or ``.callprototype`` declares; ``name`` is unique in the
    function."""

    name: str


Entry = Reg | Vector | Symbol | Table


@dataclass(frozen=True, slots=True)
class Range:
    """``.reg .v2 .f32 %v<count>``; ``width`` is the number of components."""

    type: str
    width: int
    count: int


@dataclass(slots=True)
class Scope:
    """One ``{ }``. ``names`` holds what it declares, ``inherited`` what lookups found in the scopes around it."""

    names: dict[str, Entry] = field(default_factory=dict)
    inherited: dict[str, Entry] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    #: Prefix -> the smallest number behind it that a single name has taken: a range of that prefix must end before.
    taken: dict[str, int] = field(default_factory=dict)
    #: Branches whose labels this scope has not seen so far: (label, token, where the label goes).
    pending: list[tuple[str, int, tuple]] = field(default_factory=list)


class FunctionNames:
    """The scopes of one function, the innermost last, and its registers in the order in which they came into being."""

    def __init__(self, outside: Collection[str]):
        self.outside = outside
        self.registers: list[Register] = []
        self.scopes = [Scope()]
        self._used: dict[str, int] = {}

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def unique(self, name: str) -> str:
        """Return ``name``, or ``name`` with a suffix if the function or the module has it already."""
        result = name
        while result in self._used or (result in self.outside):
            number = self._used.get(name, 1) + 1
            self._used[name] = number
            result = f"{name}${number}"
        self._used.setdefault(result, 1)
        return result

    def find(self, name: str) -> Entry | None:
        """Return what a name (also ``v.x``) means in the innermost scope."""
        scope = self.scopes[-1]
        found = scope.names.get(name) or scope.inherited.get(name)
        if found is None:
            found = self._search(name)
            if found is not None and name not in scope.names:
                scope.inherited[name] = found
        return found

    def _search(self, name: str) -> Entry | None:
        base = name.partition(".")[0]
        prefix, number = split_number(base)
        for scope in reversed(self.scopes):
            if base in scope.names:
                return scope.names.get(name)
            found = scope.ranges.get(prefix)
            if found is not None and 0 <= number < found.count:
                member = f"{prefix}{number}"
                if member not in scope.names:
                    self._add_register(scope, member, found.type, found.width)
                return scope.names.get(member + name[len(base) :])
        return None

    def has(self, name: str) -> bool:
        """Does the innermost scope itself declare a name?"""
        scope = self.scopes[-1]
        if name in scope.names or name in scope.labels:
            return True
        prefix, number = split_number(name)
        return prefix in scope.ranges and 0 <= number < scope.ranges[prefix].count

    def overlaps(self, prefix: str, count: int) -> bool:
        """Would a range have a name that the innermost scope declares?"""
        scope = self.scopes[-1]
        return prefix in scope.ranges or scope.taken.get(prefix, count) < count

    def declare(self, name: str, entry: Symbol | Table) -> None:
        """Declare a variable or table in the innermost scope."""
        self.scope.names[name] = entry
        self._take(name)

    def declare_register(self, name: str, type_: str, width: int) -> Entry:
        """Declare a register, or the components of a vector register, in the innermost scope."""
        self._take(name)
        return self._add_register(self.scope, name, type_, width)

    def declare_range(self, prefix: str, type_: str, width: int, count: int) -> None:
        """Declare the registers ``prefix0`` to ``prefix(count - 1)`` in the innermost scope."""
        scope = self.scope
        scope.ranges[prefix] = Range(type_, width, count)
        scope.inherited.clear()

    def declare_label(self, name: str) -> str:
        """Declare a label in the innermost scope and return its unique name."""
        unique = self.scope.labels[name] = self.unique(name)
        self._take(name)
        return unique

    def _take(self, name: str) -> None:
        prefix, number = split_number(name)
        if number >= 0:
            self.scope.taken[prefix] = min(number, self.scope.taken.get(prefix, number))

    def _add_register(self, scope: Scope, name: str, type_: str, width: int) -> Entry:
        if width == 1:
            register = Register(len(self.registers), self.unique(name), type_)
            self.registers.append(register)
            scope.names[name] = entry = Reg(register)
            return entry
        parts: list[Operand] = []
        for component, colour in zip(_COMPONENTS[:width], _COLOURS, strict=False):
            register = Register(len(self.registers), self.unique(f"{name}${component}"), type_)
            self.registers.append(register)
            parts.append(Reg(register))
            scope.names[f"{name}.{component}"] = scope.names[f"{name}.{colour}"] = Reg(register)
        scope.names[name] = vector = Vector(tuple(parts))
        return vector


def split_number(name: str) -> tuple[str, int]:
    """Split a name into what stands before its last digits and their number: ``%r10`` is ``%r`` and 10, ``x`` is ``x``
    and -1. Leading zeros do not count: ``%r010`` is the register ``%r10``."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :].lstrip("0")
    if len(digits) > _LONGEST_NUMBER or len(stem) == len(name):
        return name, -1
    return stem, int(digits or "0")
