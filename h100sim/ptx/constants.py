"""Literals and constant expressions.

Integers are 64 bits wide, signed unless they are written with U or do not fit. Both kinds wrap.

Spec: PTX ISA 9.1, "Constants" ("Integer Constant Expressions", "Summary of Constant Expression Evaluation Rules").
Measured: tests/ptx/data/constant_expressions.json (ptxas 13.0 folds each expression into an initialiser). It decides
where the manual is silent: shift counts are taken modulo 64, ``%`` is unsigned, ``?:`` keeps the type of its choice.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import NamedTuple

from .cursor import Cursor
from .module import Imm

_BITS = 1 << 64
_MAX_DEPTH = 64
_FLOAT = re.compile(r"(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?")
_RULE = 'PTX ISA 9.1, "Constants"'

_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip

#: Tokens that can follow the first literal of a longer expression.
OPERATORS = frozenset(_PRECEDENCE) | {"?"}


class _Value(NamedTuple):
    """``kind`` is "s64" or "u64" with an int, "f64" with a float, or "f32" with the bits of a literal such as
    0f3F800000."""

    value: int | float
    kind: str


def parse_constant(cursor: Cursor) -> Imm:
    """Parse a constant expression: an integer, or the bits of a float with its kind. Raises PtxError."""
    value, kind = _conditional(cursor, 0)
    if kind == "f64":
        return Imm(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")
    assert isinstance(value, int), "integers and f32 bits are int"
    return Imm(value, "f32") if kind == "f32" else Imm(value)


def parse_integer(cursor: Cursor, noun: str) -> int:
    """Parse a constant expression that must be an integer; ``noun`` says what it is in an error."""
    at = cursor.at
    constant = parse_constant(cursor)
    if constant.kind != "int":
        raise cursor.tokens.error(f"{noun} must be an integer, not {cursor.texts[at]}", at)
    return constant.value


def parse_integer_literal(cursor: Cursor, noun: str) -> int:
    """Parse one integer literal, where an expression is not allowed (sizes, numbers of registers, ``.loc``)."""
    literal = parse_literal(cursor.token) if cursor.token else None
    if literal is None or literal.kind != "int":
        raise cursor.error(f"{noun} must be an integer, not {cursor.shown()}")
    cursor.at += 1
    return literal.value


@lru_cache(maxsize=4096)
def parse_literal(text: str) -> Imm | None:
    """Return the constant that one token is by itself, or None if the token is no literal."""
    value = _literal(text)
    if value is None:
        return None
    if value.kind == "f64":
        return Imm(struct.unpack("<Q", struct.pack("<d", value.value))[0], "f64")
    assert isinstance(value.value, int), "integers and f32 bits are int"
    return Imm(value.value, "f32") if value.kind == "f32" else Imm(value.value)


def _literal(text: str) -> _Value | None:
    prefix = text[:2].lower()
    if prefix == "0f":
        return _Value(int(text[2:], 16), "f32")
    if prefix == "0d":
        return _Value(struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0], "f64")
    if not (text[0].isdigit() or text[0] == "."):
        return None
    digits = text.rstrip("U")
    if prefix == "0x":
        return _integer(digits[2:], 16, digits != text)
    if prefix == "0b":
        return _integer(digits[2:], 2, digits != text)
    if not digits.isdigit():
        return _Value(float(text), "f64") if _FLOAT.fullmatch(text) else None
    return _integer(digits, 8 if digits[0] == "0" else 10, digits != text)


def _integer(digits: str, base: int, unsigned: bool) -> _Value | None:
    digits = digits.lstrip("0") or "0"
    if len(digits) > 64:
        return None
    try:
        value = int(digits, base)
    except ValueError:
        return None
    if value >= _BITS:
        return None
    return _Value(value, "u64" if unsigned or value >= 1 << 63 else "s64")


def _conditional(cursor: Cursor, depth: int) -> _Value:
    condition = _binary(cursor, 1, depth)
    if cursor.token != "?":
        return condition
    at = cursor.at
    cursor.advance()
    first = _conditional(cursor, _deeper(cursor, depth))
    cursor.expect(":", "conditional expression")
    second = _conditional(cursor, _deeper(cursor, depth))
    _require_integers(cursor, at, condition)
    return first if condition.value else second


def _binary(cursor: Cursor, lowest: int, depth: int) -> _Value:
    left = _unary(cursor, depth)
    while (precedence := _PRECEDENCE.get(cursor.token, 0)) >= lowest:
        at, operator = cursor.at, cursor.token
        cursor.advance()
        right = _binary(cursor, precedence + 1, _deeper(cursor, depth))
        left = _apply(cursor, at, operator, left, right)
    return left


def _unary(cursor: Cursor, depth: int) -> _Value:
    at, token = cursor.at, cursor.token
    if token in ("+", "-", "~", "!"):
        cursor.advance()
        return _apply_unary(cursor, at, token, _unary(cursor, _deeper(cursor, depth)))
    if token == "(":
        cursor.advance()
        if cursor.token in (".s64", ".u64"):
            kind = cursor.token[1:]
            cursor.advance()
            cursor.expect(")", "cast")
            operand = _unary(cursor, _deeper(cursor, depth))
            _require_integers(cursor, at, operand)
            return _wrap(int(operand.value), kind)
        inner = _conditional(cursor, _deeper(cursor, depth))
        cursor.expect(")", "constant expression")
        return inner
    if token == "WARP_SZ":
        cursor.advance()
        return _Value(32, "s64")
    value = _literal(token) if token else None
    if value is None:
        if token[:1].isdigit():
            raise cursor.error(f"integer must be a PTX literal of at most 64 bits, not {token[:80]}", _RULE)
        raise cursor.error(f"constant must be a number, not {cursor.shown()}", _RULE)
    cursor.advance()
    return value


def _apply_unary(cursor: Cursor, at: int, operator: str, operand: _Value) -> _Value:
    value, kind = operand
    if kind == "f32":
        raise cursor.tokens.error(
            f"operand of {operator} must be an integer or a decimal float, not a literal such as 0f", at, _RULE
        )
    if operator == "+":
        return operand
    if operator == "-":
        return _Value(-value, kind) if kind == "f64" else _wrap(-int(value), kind)
    _require_integers(cursor, at, operand)
    if operator == "~":
        return _wrap(~int(value), "u64")
    return _Value(int(not value), "s64")


def _apply(cursor: Cursor, at: int, operator: str, left: _Value, right: _Value) -> _Value:
    if left.kind == "f64" and right.kind == "f64" and operator in ("+", "-", "*", "/"):
        return _Value(_float_operation(cursor, at, operator, left.value, right.value), "f64")
    _require_integers(cursor, at, left, right)
    a, b = int(left.value), int(right.value)
    kind = "u64" if "u64" in (left.kind, right.kind) else "s64"
    if operator in ("<<", ">>"):
        count = b % 64
        return _wrap(a << count if operator == "<<" else a >> count, left.kind)
    if operator in ("&&", "||"):
        return _Value(int(bool(a and b) if operator == "&&" else bool(a or b)), "s64")
    a, b = int(_wrap(a, kind).value), int(_wrap(b, kind).value)
    if operator in ("/", "%"):
        if b == 0:
            raise cursor.tokens.error(f"right side of {operator} must be other than 0, not 0", at, _RULE)
        if operator == "%":
            return _wrap(a % _BITS % (b % _BITS), kind)
        quotient = abs(a) // abs(b)
        return _wrap(quotient if (a < 0) == (b < 0) else -quotient, kind)
    comparison = _compare(operator, a, b)
    if comparison is not None:
        return _Value(int(comparison), "s64")
    return _wrap(_integer_operation(operator, a, b), kind)


def _compare(operator: str, a: int, b: int) -> bool | None:
    match operator:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
    return None


def _integer_operation(operator: str, a: int, b: int) -> int:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
    raise AssertionError(f"{operator} is not an integer operator")


def _float_operation(cursor: Cursor, at: int, operator: str, a: float, b: float) -> float:
    if operator == "/" and b == 0:
        raise cursor.tokens.error("right side of / must be other than 0.0, not 0.0", at, _RULE)
    return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else 0.0}[operator]


def _wrap(value: int, kind: str) -> _Value:
    value %= _BITS
    return _Value(value - _BITS if kind == "s64" and value >= 1 << 63 else value, kind)


def _require_integers(cursor: Cursor, at: int, *operands: _Value) -> None:
    if any(operand.kind in ("f32", "f64") for operand in operands):
        raise cursor.tokens.error(
            f"operands of {cursor.texts[at]} must be integers or both decimal floats, not a mixture", at, _RULE
        )


def _deeper(cursor: Cursor, depth: int) -> int:
    if depth >= _MAX_DEPTH:
        raise cursor.error(f"constant expression must nest at most {_MAX_DEPTH} deep, not deeper")
    return depth + 1
