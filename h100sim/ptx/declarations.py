"""Declarations: variables of state spaces with their initialisers, registers, and formal parameters.

Spec: PTX ISA 9.1, "State Spaces", "Variables", "Parameter State Space", "Kernel and Function Directives"; the
CUDA 13.0 ABI for the layout of parameters: each at the next multiple of its alignment.
Measured: tests/ptx/data/initialisers.json (the bytes that ptxas 13.0 writes for an initialiser). It puts the elements
of an initialiser one behind the other: ``x[2][2] = {{1}, {2, 3}}`` is 1, 2, 3, 0 and not, as in C, 1, 0, 2, 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from .constants import parse_constant, parse_integer, parse_integer_literal, parse_literal
from .cursor import Cursor, is_identifier
from .module import Parameter, Symbol, Variable
from .types import FLOATS, SIZES

#: State spaces in which a module can declare variables; a function body has ``.local`` and ``.param`` too.
MODULE_SPACES = (".global", ".const", ".shared")
BODY_SPACES = (*MODULE_SPACES, ".local", ".param")
REFUSED_SPACES = {
    ".tex": "textures",
    ".texref": "textures",
    ".samplerref": "textures",
    ".surfref": "surfaces",
    ".sreg": "declarations of special registers",
}
_MAX_BYTES = 1 << 40
_MAX_REGISTERS = 1 << 32

Resolve = Callable[[str, int], Symbol | None]


@dataclass(frozen=True, slots=True)
class RegisterDeclaration:
    """One name of a ``.reg``; ``count`` is None for a single register. ``at`` is its token."""

    name: str
    type: str
    width: int
    count: int | None
    at: int


@dataclass
class _Bytes:
    """The initialiser of a variable as it grows."""

    data: bytearray
    fixups: list[tuple[int, Symbol, int]]
    byte_fixups: list[tuple[int, Symbol, int]]


def parse_type(cursor: Cursor, noun: str) -> tuple[str, int]:
    """Parse ``.v2 .f32`` and return (type, number of components)."""
    width = 1
    if cursor.token in (".v2", ".v4", ".v8"):
        width = int(cursor.advance()[2:])
    type_ = cursor.token[1:]
    if cursor.token[:1] != "." or type_ not in SIZES:
        if cursor.token in REFUSED_SPACES:
            raise cursor.error(f"variable must be memory or a register: {REFUSED_SPACES[cursor.token]} are not supported")
        raise cursor.error(f"type of {noun} must be a PTX type such as .b32, not {cursor.shown()}")
    cursor.advance()
    return type_, width


def parse_align(cursor: Cursor) -> int:
    """Parse ``.align N`` if it stands here; return 0 if not."""
    if not cursor.accept(".align"):
        return 0
    at = cursor.at
    align = parse_integer_literal(cursor, ".align")
    if align <= 0 or align & (align - 1) or align > 1 << 20:
        raise cursor.tokens.error(f".align must be a power of two, not {align}", at)
    return align


def parse_registers(cursor: Cursor) -> list[RegisterDeclaration]:
    """Parse what stands behind ``.reg``: ``.b32 %r<100>, a, b;``."""
    type_, width = parse_type(cursor, "register")
    found = []
    while True:
        at = cursor.at
        name = cursor.name("register")
        count = None
        if cursor.accept("<"):
            number_at = cursor.at
            count = parse_integer_literal(cursor, "number of registers")
            if count >= _MAX_REGISTERS:
                raise cursor.tokens.error(f"number of registers must be below {_MAX_REGISTERS}, not {count}", number_at)
            cursor.expect(">", "range of registers")
        found.append(RegisterDeclaration(name, type_, width, count, at))
        if not cursor.accept(","):
            break
    cursor.expect(";", "declaration of registers")
    return found


def parse_variables(cursor: Cursor, linkage: str, resolve: Resolve) -> list[tuple[Variable, int]]:
    """Parse a declaration of variables from its state space to the semicolon; return each variable with the token of
    its name. ``resolve(name, token)`` gives the symbol that a name in an initialiser means, or None."""
    line = cursor.tokens.position(cursor.at)[0]
    space = cursor.advance()[1:]
    skip_attributes(cursor)
    align = parse_align(cursor)
    skip_attributes(cursor)
    type_, width = parse_type(cursor, f".{space} variable")
    if type_ == "pred":
        raise cursor.tokens.error(f"variable of type .pred must be in .reg, not in .{space}", cursor.at - 1)
    template = Variable("", space, type_, 0, align or SIZES[type_] * width, b"", (), linkage == "extern", line, (), linkage)
    found = [_parse_variable(cursor, template, width, resolve)]
    while cursor.accept(","):
        found.append(_parse_variable(cursor, template, width, resolve))
    cursor.expect(";", "declaration of variables")
    return found


def _parse_variable(cursor: Cursor, template: Variable, width: int, resolve: Resolve) -> tuple[Variable, int]:
    """Parse ``name[2][3] = {...}``."""
    at = cursor.at
    name = cursor.name("variable")
    element = SIZES[template.type] * width
    shape = _parse_shape(cursor)
    size = _count(cursor, shape, element, at) * element
    data = _Bytes(bytearray(), [], [])
    if cursor.accept("="):
        _refuse_initialiser(cursor, template)
        shape = _parse_initialiser(cursor, data, shape, template.type, width, resolve)
        size = _count(cursor, shape, element, at) * element
    elif shape and shape[0] == 0 and not template.extern:
        raise cursor.tokens.error(f"size of variable {name} must be given unless it is .extern, not left empty", at)
    fixups, byte_fixups = tuple(data.fixups), tuple(data.byte_fixups)
    initial = bytes(data.data)
    return replace(template, name=name, size=size, initial=initial, fixups=fixups, byte_fixups=byte_fixups), at


def skip_attributes(cursor: Cursor) -> None:
    """Step over ``.attribute(.managed)``: to the simulator all global memory is alike."""
    while cursor.accept(".attribute"):
        cursor.expect("(", ".attribute")
        while cursor.token in (".managed", ".unified"):
            if cursor.advance() == ".unified":
                cursor.expect("(", ".unified")
                parse_integer(cursor, ".unified")
                cursor.expect(",", ".unified")
                parse_integer(cursor, ".unified")
                cursor.expect(")", ".unified")
            cursor.accept(",")
        cursor.expect(")", ".attribute")


def _parse_shape(cursor: Cursor) -> list[int] | None:
    """Parse ``[2][3]``; None for a scalar, 0 for ``[]``, which only the first can be."""
    if cursor.token != "[":
        return None
    shape: list[int] = []
    while cursor.accept("["):
        if cursor.token == "]" and not shape:
            shape.append(0)
        else:
            at = cursor.at
            size = parse_integer_literal(cursor, "size of an array")
            if size == 0:
                raise cursor.tokens.error("size of an array must be positive, not 0", at)
            shape.append(size)
        cursor.expect("]", "size of an array")
    return shape


def _count(cursor: Cursor, shape: list[int] | None, element: int, at: int) -> int:
    count = 1
    for size in shape or ():
        count *= size
        if count * element > _MAX_BYTES:
            raise cursor.tokens.error(f"size of a variable must be at most {_MAX_BYTES} bytes, not more", at)
    return count


def _refuse_initialiser(cursor: Cursor, variable: Variable) -> None:
    space, type_ = variable.space, variable.type
    if variable.extern:
        raise cursor.error("initialiser must belong to a variable that is defined here, not to an .extern one")
    if space not in ("global", "const"):
        raise cursor.error(f"initialiser must belong to a .global or .const variable, not to a .{space} one")
    if type_ in ("f16", "f16x2", "bf16", "bf16x2"):
        raise cursor.error(f"initialiser must have a type other than half precision, not .{type_}")


def _parse_initialiser(
    cursor: Cursor, data: _Bytes, shape: list[int] | None, type_: str, width: int, resolve: Resolve
) -> list[int] | None:
    """Parse an initialiser into ``data`` and return the shape, in which ``[]`` now has its size."""
    levels = list(shape or ())
    if width > 1:
        levels.append(width)
    if not levels:
        _parse_element(cursor, data, type_, resolve)
        return shape
    if cursor.token != "{":
        raise cursor.error(f"initialiser of an array must start with {{, not {cursor.shown()}")
    count = _parse_level(cursor, data, levels, type_, width, resolve)
    if shape and shape[0] == 0:
        return [count, *shape[1:]]
    return shape


def _parse_level(cursor: Cursor, data: _Bytes, levels: list[int], type_: str, width: int, resolve: Resolve) -> int:
    """Parse one ``{ ... }`` and return how many elements it had."""
    start = cursor.at
    cursor.expect("{", "initialiser")
    count = 0
    while not cursor.accept("}"):
        if count:
            cursor.expect(",", "initialiser")
        if levels[0] and count >= levels[0]:
            raise cursor.error(f"initialiser must have at most {levels[0]} elements in this dimension, not more")
        if len(levels) > 1:
            _parse_level(cursor, data, levels[1:], type_, width, resolve)
        else:
            _parse_element(cursor, data, type_, resolve)
        count += 1
    if width > 1 and len(levels) == 1 and count != width:
        raise cursor.tokens.error(f"initialiser of a vector must have {width} elements, not {count}", start)
    return count


def _parse_element(cursor: Cursor, data: _Bytes, type_: str, resolve: Resolve) -> None:
    size, offset = SIZES[type_], len(data.data)
    if is_identifier(cursor.token) and cursor.token != "WARP_SZ":
        at = cursor.at
        symbol = parse_symbol_address(cursor, resolve)
        if size not in (4, 8) or type_ in FLOATS:
            raise cursor.tokens.error(f"initialiser of type .{type_} must be a number, not the address of {symbol.name}", at)
        data.fixups.append((offset, symbol, size))
        data.data.extend(bytes(size))
        return
    at = cursor.at
    literal = parse_literal(cursor.token) if cursor.texts[at + 1] in (",", "}", ";") and cursor.token else None
    if literal is None:
        constant = parse_constant(cursor)
    else:
        constant = literal
        cursor.at += 1
    if constant.kind == "int" and cursor.accept("("):
        symbol = parse_symbol_address(cursor, resolve)
        cursor.expect(")", "mask of an address")
        data.byte_fixups.append((offset, symbol, _shift_of_mask(cursor, constant.value, size, at)))
        data.data.extend(bytes(size))
        return
    is_float = constant.kind != "int"
    if is_float != (type_ in FLOATS) and not (is_float and type_[0] == "b"):
        wanted = "a float" if type_ in FLOATS else "an integer"
        raise cursor.tokens.error(f"initialiser of type .{type_} must be {wanted}, not {cursor.texts[at]}", at)
    data.data.extend(_encode(constant.value, constant.kind, size))


def _encode(value: int, kind: str, size: int) -> bytes:
    if kind == "f64" and size == 4:
        return struct.pack("<f", struct.unpack("<d", value.to_bytes(8, "little"))[0])
    return (value % (1 << (8 * size))).to_bytes(size, "little")


def _shift_of_mask(cursor: Cursor, mask: int, size: int, at: int) -> int:
    shift = (mask & -mask).bit_length() - 1 if mask else 0
    if size != 1 or shift % 8 or mask != 0xFF << shift or shift > 56:
        raise cursor.tokens.error(f"mask of an address must be 0xff at a byte, for an array of bytes, not {cursor.texts[at]}", at)
    return shift


def parse_symbol_address(cursor: Cursor, resolve: Resolve) -> Symbol:
    """Parse ``x``, ``x+4``, ``generic(x)`` or ``generic(x)+4``."""
    generic = cursor.token == "generic" and cursor.texts[cursor.at + 1] == "("
    if generic:
        cursor.at += 2
    at = cursor.at
    name = cursor.name("address in an initialiser")
    symbol = resolve(name, at)
    if symbol is None:
        raise cursor.tokens.error(
            f"address in an initialiser must be of global, constant or code memory declared before, not of {name}", at
        )
    if generic:
        cursor.expect(")", "generic")
    if cursor.accept("+"):
        symbol = replace(symbol, offset=parse_integer(cursor, "offset of an address"))
    return replace(symbol, generic=True) if generic else symbol


def parse_parameters(cursor: Cursor, noun: str) -> list[tuple[Parameter, int]]:
    """Parse ``( ... )``, from the opening parenthesis to the closing one; return each parameter with the token of its
    name.

    Offsets follow the ABI. A ``.reg`` parameter has size 0; the caller gives it a register.
    """
    cursor.expect("(", noun)
    found: list[tuple[Parameter, int]] = []
    offset = 0
    while not cursor.accept(")"):
        if found:
            cursor.expect(",", noun)
        parameter, at = _parse_parameter(cursor, noun)
        offset = -(-offset // parameter.align) * parameter.align
        found.append((replace(parameter, offset=offset), at))
        offset += parameter.size
    return found


def _parse_parameter(cursor: Cursor, noun: str) -> tuple[Parameter, int]:
    if cursor.accept(".reg"):
        type_, _ = parse_type(cursor, "parameter")
        at = cursor.at
        return Parameter(_parameter_name(cursor), type_, 0, 1, 0), at
    cursor.expect(".param", noun)
    align = parse_align(cursor)
    type_, width = parse_type(cursor, "parameter")
    if width > 1 or type_ == "pred":
        raise cursor.tokens.error(f"type of a .param must be a scalar or an array of bytes, not .{type_} as written", cursor.at - 1)
    pointer_space, pointer_align = _parse_pointer(cursor)
    align = align or parse_align(cursor)
    at = cursor.at
    name = _parameter_name(cursor)
    shape = _parse_shape(cursor)
    size = _count(cursor, shape, SIZES[type_], at) * SIZES[type_]
    return Parameter(name, type_, size, align or SIZES[type_], 0, pointer_space, pointer_align), at


def _parameter_name(cursor: Cursor) -> str:
    return "_" if cursor.accept("_") else cursor.name("parameter")


def _parse_pointer(cursor: Cursor) -> tuple[str, int]:
    """Parse ``.ptr .global .align 16``: the space and alignment of what a pointer parameter points to."""
    if not cursor.accept(".ptr"):
        return "", 0
    space = "generic"
    if cursor.token in (".global", ".const", ".shared", ".local"):
        space = cursor.advance()[1:]
    return space, parse_align(cursor) or 4
