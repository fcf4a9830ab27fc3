"""Integers and conditions that the kernel computes: what Python's operators on them emit.

An :class:`Int` is a 32-bit signed integer in a register; ``+ - * // % << >> & | ^`` and comparisons emit one to three
instructions into new registers, and mean what they mean in Python (``//`` and ``%`` round down). Two Python integers
stay Python integers. A :class:`Var` is an Int that ``+=`` and its kin change in place, so it can carry a value from
one iteration of a :func:`h100sim.tk.range` loop to the next. A :class:`Pred` is a condition for
:func:`h100sim.tk.when`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from .builder import current, usage

#: An integer that the kernel computes, or one that Python knows.
Scalar: TypeAlias = "Int | int"


class Int:
    """A 32-bit signed integer of the kernel.

    ``nonnegative``: known never to be below 0 (then division is cheaper). ``divergent``: differs between the lanes of a
    warp (then what it guards cannot be collective).
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, register: str, nonnegative: bool = False, divergent: bool = False):
        self.register = register
        self.nonnegative = nonnegative
        self.divergent = divergent

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.register})"

    def __add__(self, other: Any) -> Int:
        # A variable changes later, so its sum with 0 is a copy; any other Int is its own sum with 0.
        if isinstance(other, int) and other == 0 and not isinstance(self, Var):
            return self
        return arithmetic("add.s32", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Int:
        return arithmetic("sub.s32", self, other, keeps_sign=False)

    def __rsub__(self, other: Any) -> Int:
        return arithmetic("sub.s32", other, self, keeps_sign=False)

    def __neg__(self) -> Int:
        return arithmetic("sub.s32", 0, self, keeps_sign=False)

    def __mul__(self, other: Any) -> Int:
        if isinstance(other, int) and other > 0 and other & (other - 1) == 0:
            return self << (other.bit_length() - 1)
        return arithmetic("mul.lo.s32", self, other)

    def __rmul__(self, other: Any) -> Int:
        return self * other

    def __lshift__(self, other: Any) -> Int:
        return self if isinstance(other, int) and other == 0 else arithmetic("shl.b32", self, other)

    def __rlshift__(self, other: Any) -> Int:
        return arithmetic("shl.b32", other, self, keeps_sign=False)

    def __rshift__(self, other: Any) -> Int:
        return arithmetic("shr.s32", self, other)

    def __and__(self, other: Any) -> Int:
        result = arithmetic("and.b32", self, other)
        result.nonnegative = self.nonnegative or is_nonnegative(other)
        return result

    def __or__(self, other: Any) -> Int:
        return arithmetic("or.b32", self, other)

    def __xor__(self, other: Any) -> Int:
        return arithmetic("xor.b32", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __floordiv__(self, other: Any) -> Int:
        return quotient(self, other)

    def __mod__(self, other: Any) -> Int:
        return remainder(self, other)

    def __rfloordiv__(self, other: Any) -> Int:
        return quotient(other, self)

    def __rmod__(self, other: Any) -> Int:
        return remainder(other, self)

    def __divmod__(self, other: Any) -> tuple[Int, Int]:
        return divide(self, other)

    def __lt__(self, other: Any) -> Pred:
        return _compare("lt", self, other)

    def __le__(self, other: Any) -> Pred:
        return _compare("le", self, other)

    def __gt__(self, other: Any) -> Pred:
        return _compare("gt", self, other)

    def __ge__(self, other: Any) -> Pred:
        return _compare("ge", self, other)

    def __eq__(self, other: object) -> Pred:  # type: ignore[override]
        return _compare("eq", self, other)

    def __ne__(self, other: object) -> Pred:  # type: ignore[override]
        return _compare("ne", self, other)

    def __bool__(self) -> bool:
        raise usage("condition of the kernel must be given to tk.when, not to Python's if, while, and, or, not")

    def __index__(self) -> int:
        raise usage("integer of the kernel must be used with tk.range and tk operations, not where Python needs its value")


class Var(Int):
    """An Int that changes in place: ``x += 1``, ``x.set(value)``."""

    def set(self, value: Scalar) -> None:
        """Give the variable a new value."""
        self.divergent |= is_divergent(value)
        current().emit(f"mov.b32 {self.register}, {text(value)}")

    def _update(self, result: Int) -> Var:
        self.set(result)
        return self

    def __iadd__(self, other: Any) -> Var:
        self.divergent |= is_divergent(other)
        current().emit(f"add.s32 {self.register}, {self.register}, {text(other)}")
        return self

    def __isub__(self, other: Any) -> Var:
        self.divergent |= is_divergent(other)
        current().emit(f"sub.s32 {self.register}, {self.register}, {text(other)}")
        return self

    def __ixor__(self, other: Any) -> Var:
        self.divergent |= is_divergent(other)
        current().emit(f"xor.b32 {self.register}, {self.register}, {text(other)}")
        return self

    def __imul__(self, other: Any) -> Var:
        return self._update(self * other)

    def __ifloordiv__(self, other: Any) -> Var:
        return self._update(self // other)

    def __imod__(self, other: Any) -> Var:
        return self._update(self % other)

    def __iand__(self, other: Any) -> Var:
        return self._update(self & other)

    def __ior__(self, other: Any) -> Var:
        return self._update(self | other)

    def __ilshift__(self, other: Any) -> Var:
        return self._update(self << other)

    def __irshift__(self, other: Any) -> Var:
        return self._update(self >> other)


class Pred:
    """A condition of the kernel, in a predicate register. Combine with ``&``, ``|`` and ``~``."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, register: str, divergent: bool = False):
        self.register = register
        self.divergent = divergent

    def __and__(self, other: Pred) -> Pred:
        return _logic("and.pred", self, other)

    def __or__(self, other: Pred) -> Pred:
        return _logic("or.pred", self, other)

    def __invert__(self) -> Pred:
        builder = current()
        register = builder.register("p")
        builder.emit(f"not.pred {register}, {self.register}")
        return Pred(register, self.divergent)

    def __bool__(self) -> bool:
        raise usage("condition of the kernel must be given to tk.when, not to Python's if, while, and, or, not")


class Ring:
    """Where a pipeline of ``stages`` slots stands: ``stage`` (0 to stages - 1) and the ``phase`` parity of its
    semaphores.

    A consumer waits for ``ring.phase``; a producer waits for ``ring.phase ^ 1``, which is true at once for a slot
    never used.
    """

    def __init__(self, stages: int):
        if stages < 1:
            raise usage(f"ring must have at least 1 stage, not {stages}")
        self.stages = stages
        self.stage, self.phase = (Var(current().register()) for _ in range(2))
        for part in (self.stage, self.phase):
            part.set(0)

    def advance(self) -> None:
        """Go on to the next slot; after the last one the phase flips."""
        builder = current()
        wrapped = builder.register("p")
        builder.emit(f"add.s32 {self.stage.register}, {self.stage.register}, 1")
        builder.emit(f"setp.eq.s32 {wrapped}, {self.stage.register}, {self.stages}")
        builder.emit(f"selp.b32 {self.stage.register}, 0, {self.stage.register}, {wrapped}")
        builder.emit(f"@{wrapped} xor.b32 {self.phase.register}, {self.phase.register}, 1")


def ring(stages: int) -> Ring:
    """Make the position in a pipeline of ``stages`` slots; it starts at slot 0, phase 0. PTX: ``mov``; ``add``,
    ``setp``, ``selp``, ``xor`` to advance.
    """
    return Ring(stages)


def is_nonnegative(value: Any) -> bool:
    """Is the value known to be 0 or more?"""
    return value.nonnegative if isinstance(value, Int) else isinstance(value, int) and value >= 0


def is_divergent(value: Any) -> bool:
    """Does the value differ between the lanes of a warp?"""
    return bool(getattr(value, "divergent", False))


def text(value: Any) -> str:
    """Return an integer as a PTX operand. Raises UsageError for anything else, and for what 32 bits cannot hold."""
    if isinstance(value, Int):
        return value.register
    if isinstance(value, bool) or not isinstance(value, int):
        raise usage(f"integer of the kernel must be an int or a tk integer, not {type(value).__name__}")
    if not -(1 << 31) <= value < 1 << 32:
        raise usage(f"integer of the kernel must fit 32 bits, not {value}")
    return str(value)


def all_of(*conditions: Pred | None) -> Pred | None:
    """Return a condition that holds where all of these do; None stands for one that always holds."""
    result = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else result & condition
    return result


def quotient(a: Scalar, b: Scalar) -> Int:
    """Return a // b, rounded down as in Python. The divisor must be positive."""
    if _is_power_of_two(a, b):
        return arithmetic("shr.s32", a, int(b).bit_length() - 1)
    if is_nonnegative(a):
        return arithmetic("div.u32", a, b)
    return divide(a, b)[0]


def remainder(a: Scalar, b: Scalar) -> Int:
    """Return a % b, from 0 to b - 1 as in Python. The divisor must be positive."""
    if _is_power_of_two(a, b):
        result = arithmetic("and.b32", a, int(b) - 1)
        result.nonnegative = True
        return result
    return arithmetic("rem.u32", a, b) if is_nonnegative(a) else divide(a, b)[1]


def divide(a: Scalar, b: Scalar) -> tuple[Int, Int]:
    """Return quotient and remainder as Python rounds them (down). The divisor must be positive."""
    if _is_power_of_two(a, b):
        return quotient(a, b), remainder(a, b)
    kind = "u32" if is_nonnegative(a) else "s32"
    q = arithmetic(f"div.{kind}", a, b)
    r = arithmetic("sub.s32", a, arithmetic("mul.lo.s32", q, b))
    if kind == "s32":
        below = r < 0
        current().emit(f"@{below.register} add.s32 {q.register}, {q.register}, -1")
        current().emit(f"@{below.register} add.s32 {r.register}, {r.register}, {text(b)}")
    r.nonnegative = True
    return q, r


def _is_power_of_two(a: Any, b: Any) -> bool:
    if isinstance(b, int) and b <= 0:
        raise usage(f"divisor must be positive, not {b}")
    return isinstance(a, Int) and isinstance(b, int) and b & (b - 1) == 0


def arithmetic(opcode: str, a: Any, b: Any, keeps_sign: bool = True) -> Int:
    operands = text(a), text(b)
    register = current().register()
    current().emit(f"{opcode} {register}, {operands[0]}, {operands[1]}")
    return Int(register, keeps_sign and is_nonnegative(a) and is_nonnegative(b), is_divergent(a) or is_divergent(b))


def _compare(relation: str, a: Int, b: Any) -> Pred:
    operand = text(b)
    register = current().register("p")
    current().emit(f"setp.{relation}.s32 {register}, {a.register}, {operand}")
    return Pred(register, a.divergent or is_divergent(b))


def _logic(opcode: str, a: Pred, b: Pred) -> Pred:
    if not isinstance(b, Pred):
        raise usage(f"condition must be combined with another condition of the kernel, not {type(b).__name__}")
    register = current().register("p")
    current().emit(f"{opcode} {register}, {a.register}, {b.register}")
    return Pred(register, a.divergent or b.divergent)
