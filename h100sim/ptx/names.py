"""Names of a function: nested scopes, register ranges, labels, and unique names for what scopes declare again.

A register of a range (``.reg .b32 %r<4000000000>``) comes into being when it is first used, so a range costs nothing.

Spec: PTX ISA 9.1, "Identifiers", "Parameterized Variable Names", "Instruction Statements" ("Labels").
Measured with ptxas 13.0: an inner scope may declare registers and labels of outer ones again; a label is visible in
its own scope and the inner ones; labels and variables of one scope share one set of names; parameters belong to the
outermost scope.
Assumed: two ranges of one scope with a register in common are refused. ptxas takes them, and no compiler writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
    #: Prefix -> the smallest number behind it that a declaration has taken: a range of that prefix must end before.
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
        for scope in reversed(self.scopes):
            if base in scope.names:
                return scope.names.get(name)
            for prefix, number in splits(base):
                found = scope.ranges.get(prefix)
                if found is not None and number < found.count:
                    self._add_register(scope, base, found.type, found.width)
                    return scope.names.get(name)
        return None

    def has(self, name: str) -> bool:
        """Does the innermost scope itself declare a name?"""
        scope = self.scopes[-1]
        if name in scope.names or name in scope.labels:
            return True
        return any(number < scope.ranges[prefix].count for prefix, number in splits(name) if prefix in scope.ranges)

    def overlaps(self, prefix: str, count: int) -> bool:
        """Would a range have a name that the innermost scope declares?"""
        scope = self.scopes[-1]
        if prefix in scope.ranges or scope.taken.get(prefix, count) < count:
            return True
        return any(
            number * 10 < scope.ranges[outer].count
            for outer, number in splits(prefix)
            if number and outer in scope.ranges
        )

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
        for outer, number in splits(prefix):
            if number:
                scope.taken[outer] = min(number * 10, scope.taken.get(outer, number * 10))

    def declare_label(self, name: str) -> str:
        """Declare a label in the innermost scope and return its unique name."""
        unique = self.scope.labels[name] = self.unique(name)
        self._take(name)
        return unique

    def _take(self, name: str) -> None:
        taken = self.scope.taken
        for prefix, number in splits(name):
            taken[prefix] = min(number, taken.get(prefix, number))

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


def splits(name: str) -> Iterator[tuple[str, int]]:
    """Yield every (prefix, number) that makes a name: ``%r10`` is ``%r1`` and 0, ``%r`` and 10. Numbers have no
    leading zeros."""
    for length in range(1, min(len(name) - 1, _LONGEST_NUMBER) + 1):
        digit = name[-length]
        if not ("0" <= digit <= "9"):
            return
        if digit != "0" or length == 1:
            yield name[:-length], int(name[-length:])
