"""Directives that stand among instructions: ``.loc``, ``.pragma``, ``.callprototype``.

Spec: PTX ISA 9.1, "Debugging Directives", "Miscellaneous Directives", "Control Flow Directives".
"""

from __future__ import annotations

from .constants import parse_integer_literal
from .cursor import Cursor
from .declarations import parse_parameters
from .module import Prototype


def parse_location(cursor: Cursor) -> tuple[int, int]:
    """Parse what stands behind ``.loc`` and return (file, line). Of inlined code it is the place in the inlined
    function."""
    file, line = (parse_integer_literal(cursor, ".loc") for _ in range(2))
    parse_integer_literal(cursor, ".loc")
    if cursor.token == "," and cursor.texts[cursor.at + 1] == "function_name":
        cursor.at += 2
        cursor.name("function_name of .loc")
        if cursor.accept("+"):
            parse_integer_literal(cursor, ".loc")
        cursor.expect(",", ".loc")
        cursor.expect("inlined_at", ".loc")
        for _ in range(3):
            parse_integer_literal(cursor, ".loc")
    return file, line


def skip_pragma(cursor: Cursor) -> None:
    """Step over ``.pragma "...";``. No pragma changes what a kernel computes."""
    cursor.expect(".pragma", "statement")
    while True:
        if cursor.token[:1] != '"':
            raise cursor.error(f".pragma must be a string, not {cursor.shown()}")
        cursor.at += 1
        if not cursor.accept(","):
            break
    cursor.expect(";", ".pragma")


def parse_prototype(cursor: Cursor) -> Prototype:
    """Parse what stands behind ``.callprototype``: ``(results) _ (parameters)``."""
    returns = [p for p, _ in parse_parameters(cursor, "results of .callprototype")] if cursor.token == "(" else []
    if not cursor.accept("_"):
        cursor.name(".callprototype")
    parameters = [p for p, _ in parse_parameters(cursor, "parameters of .callprototype")] if cursor.token == "(" else []
    while cursor.token in (".noreturn", ".abi_preserve", ".abi_preserve_control"):
        if cursor.advance() != ".noreturn":
            parse_integer_literal(cursor, "number of registers")
    return Prototype(tuple(returns), tuple(parameters))
