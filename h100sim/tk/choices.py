"""What integers and numbers of the kernel have in common: variables, choices, the smaller and the larger of two."""

from __future__ import annotations

from typing import Any

from .builder import current
from .floats import Float, FloatVar, compute, is_number, number
from .scalars import Int, Pred, Var, arithmetic, is_divergent, is_nonnegative, text


def var(value: Any = 0) -> Any:
    """Make a variable that a loop of the kernel can change: a :class:`~h100sim.tk.Var` of an integer, a
    :class:`~h100sim.tk.FloatVar` of a number with a fraction (``tk.var(0.0)``). PTX: ``mov``.
    """
    variable = FloatVar(current().register("f")) if _are_floats(value) else Var(current().register())
    variable.set(value)
    return variable


def select(condition: Pred, yes: Any, no: Any) -> Any:
    """Return ``yes`` where the condition holds, else ``no``: an Int of integers, else a Float. PTX: ``selp``."""
    divergent = condition.divergent or is_divergent(yes) or is_divergent(no)
    if _are_floats(yes, no):
        register = current().register("f")
        current().emit(f"selp.f32 {register}, {number(yes)}, {number(no)}, {condition.register}")
        return Float(register, divergent)
    register = current().register()
    current().emit(f"selp.b32 {register}, {text(yes)}, {text(no)}, {condition.register}")
    return Int(register, is_nonnegative(yes) and is_nonnegative(no), divergent)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller of two integers or numbers. PTX: ``min``."""
    return min(a, b) if _are_known(a, b) else _of_two("min", a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the larger of two integers or numbers. PTX: ``max``."""
    return max(a, b) if _are_known(a, b) else _of_two("max", a, b)


def _of_two(opcode: str, a: Any, b: Any) -> Int | Float:
    return compute(f"{opcode}.f32", a, b) if _are_floats(a, b) else arithmetic(f"{opcode}.s32", a, b)


def _are_known(*values: Any) -> bool:
    return all(isinstance(x, (int, float)) for x in values)


def _are_floats(*values: Any) -> bool:
    """Is one of the values a number with a fraction?"""
    return any(is_number(x) and not isinstance(x, int) for x in values)
