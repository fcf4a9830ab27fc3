"""Floating-point numbers that the kernel computes: f32 in one register of each thread.

A :class:`Float` comes from a ``float`` argument of the kernel, from :func:`h100sim.tk.read`, from an Int by
:func:`to_float`, or from another one: ``+ - * /``, comparisons and the functions here emit one
instruction each. Wherever an operation takes a Python number it takes a Float, too. Arithmetic says ``.rn``, as in
:mod:`h100sim.tk.maps`; ``/`` is the approximation ``div.approx.ftz``.
Spec: PTX ISA 9.1, "Floating Point Instructions".
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from .builder import current, usage
from .scalars import Int, Pred, is_divergent, text

#: A number that the kernel computes, or one that Python knows.
Number: TypeAlias = "Float | float"


class Float:
    """An f32 of the kernel. ``divergent``: differs between the lanes of a warp."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, register: str, divergent: bool = False):
        self.register = register
        self.divergent = divergent

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.register})"

    def __add__(self, other: Any) -> Float:
        return compute("add.rn.f32", self, other)

    def __sub__(self, other: Any) -> Float:
        return compute("sub.rn.f32", self, other)

    def __rsub__(self, other: Any) -> Float:
        return compute("sub.rn.f32", other, self)

    def __mul__(self, other: Any) -> Float:
        return compute("mul.rn.f32", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Float:
        return compute("div.approx.ftz.f32", self, other)

    def __rtruediv__(self, other: Any) -> Float:
        return compute("div.approx.ftz.f32", other, self)

    def __neg__(self) -> Float:
        return compute("neg.f32", self)

    def __abs__(self) -> Float:
        return compute("abs.f32", self)

    def __lt__(self, other: Any) -> Pred:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Pred:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Pred:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Pred:
        return self._compare("ge", other)

    def __eq__(self, other: object) -> Pred:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Pred:  # type: ignore[override]
        return self._compare("neu", other)

    def _compare(self, relation: str, other: Any) -> Pred:
        operand = number(other)
        register = current().register("p")
        current().emit(f"setp.{relation}.f32 {register}, {self.register}, {operand}")
        return Pred(register, self.divergent or is_divergent(other))

    def __bool__(self) -> bool:
        raise usage("condition of the kernel must be given to tk.when, not to Python's if, while, and, or, not")

    def __float__(self) -> float:
        raise usage("number of the kernel must be used with tk operations, not where Python needs its value")


class FloatVar(Float):
    """A Float that changes in place: ``x += y``, ``x.set(value)``; it carries a value through a loop."""

    def set(self, value: Number) -> None:
        """Give the variable a new value. PTX: ``mov.f32``."""
        self.divergent |= is_divergent(value)
        current().emit(f"mov.f32 {self.register}, {number(value)}")

    def _update(self, value: Float) -> FloatVar:
        self.set(value)
        return self

    def __iadd__(self, other: Any) -> FloatVar:
        return self._update(self + other)

    def __isub__(self, other: Any) -> FloatVar:
        return self._update(self - other)

    def __imul__(self, other: Any) -> FloatVar:
        return self._update(self * other)

    def __itruediv__(self, other: Any) -> FloatVar:
        return self._update(self / other)


def immediate(value: float) -> str:
    """Return a Python number as a PTX f32 immediate, rounded to nearest. Raises UsageError for anything else."""
    if isinstance(value, Int):
        raise usage("scalar operand must be a number, not a tk integer: convert it with tk.to_float")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise usage(f"scalar operand must be a Python number or a tk.Float, not {type(value).__name__}")
    return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08x}"


def is_number(value: object) -> bool:
    """Is the value a number of Python or of the kernel?"""
    return isinstance(value, (int, float, Float)) and not isinstance(value, bool)


def number(value: Any) -> str:
    """Return a number as a PTX f32 operand. Raises UsageError for anything else."""
    return value.register if isinstance(value, Float) else immediate(value)


def compute(opcode: str, *operands: Any) -> Float:
    """Emit an f32 instruction into a new register."""
    texts = [number(x) for x in operands]
    register = current().register("f")
    current().emit(f"{opcode} {register}, {', '.join(texts)}")
    return Float(register, any(is_divergent(x) for x in operands))


def to_float(x: Int) -> Float:
    """Return the f32 nearest to an integer. PTX: ``cvt.rn.f32.s32``."""
    register = current().register("f")
    current().emit(f"cvt.rn.f32.s32 {register}, {text(x)}")
    return Float(register, is_divergent(x))


def to_int(x: Float) -> Int:
    """Return the integer part of a number (rounded towards zero). PTX: ``cvt.rzi.s32.f32``."""
    register = current().register()
    current().emit(f"cvt.rzi.s32.f32 {register}, {number(x)}")
    return Int(register, divergent=x.divergent)


def exp2(x: Number) -> Float:
    """Return 2 to the power x. PTX: ``ex2.approx.ftz.f32``."""
    return compute("ex2.approx.ftz.f32", x)


def log2(x: Number) -> Float:
    """Return the binary logarithm of x. PTX: ``lg2.approx.ftz.f32``."""
    return compute("lg2.approx.ftz.f32", x)


def rsqrt(x: Number) -> Float:
    """Return 1 over the square root of x. PTX: ``rsqrt.approx.ftz.f32``."""
    return compute("rsqrt.approx.ftz.f32", x)


def rcp(x: Number) -> Float:
    """Return 1 over x. PTX: ``rcp.approx.ftz.f32``."""
    return compute("rcp.approx.ftz.f32", x)
