"""Integer arithmetic: add sub mul mad mul24 mad24 sad div rem abs neg min max dp4a dp2a, and the packed 16-bit forms.

Spec: PTX ISA 9.1, "Integer Arithmetic Instructions". Division by zero is left open by the manual.
Measured: tests/data/ptx_scalar.npz (division by zero and INT_MIN / -1 included).
"""

from __future__ import annotations

from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type

_TWICE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _untyped(type_: str) -> str:
    """Return the type without sign: wrapping arithmetic is the same, and compiles to the same code."""
    return f"b{width_of_type(type_)}"


def _same(op: Opcode, count: int, body: str, pipe: str = "alu", type_: str = "") -> Operation:
    """Return an operation whose operands all have one type."""
    type_ = type_ or op.type
    return Operation((type_,), (type_,) * count, (body,), pipe)


@lane_instruction("[add|sub].[u16|s16|u32|s32|u64|s64]")
def add_sub(op: Opcode) -> Operation:
    """d = a + b or a - b, modulo 2^width."""
    return _same(op, 2, "a + b" if op.base == "add" else "a - b", type_=_untyped(op.type))


@lane_instruction("[add|sub].sat.s32")
def add_sub_sat(op: Opcode) -> Operation:
    """d = a + b or a - b, clamped to the range of s32."""
    return _same(op, 2, f"clamp_s32(int64(a) {'+' if op.base == 'add' else '-'} int64(b))")


@lane_instruction("add.[u16x2|s16x2]")
def add_x2(op: Opcode) -> Operation:
    """Add both halves, each modulo 2^16."""
    return _same(op, 2, "pack16(a + b, high16(a) + high16(b))", type_="b32")


@lane_instruction("mul.[lo|hi|wide].[u16|s16|u32|s32]", "mul.[lo|hi].[u64|s64]")
def mul(op: Opcode) -> Operation:
    """The low half, the high half or all of the product."""
    if op.has("wide"):
        return Operation((_TWICE[op.type],), (op.type,) * 2, (_product(op),), "imad")
    if op.has("lo"):
        return _same(op, 2, "a * b", "imad", _untyped(op.type))
    return _same(op, 2, _high(op), "imad")


@lane_instruction(
    "mad.[lo|hi|wide].[u16|s16|u32|s32]",
    "mad.[lo|hi].[u64|s64]",
    "mad.hi.sat.s32",
)
def mad(op: Opcode) -> Operation:
    """The low half, the high half or all of the product, plus c."""
    if op.has("wide"):
        twice = _TWICE[op.type]
        cast = "int64" if twice[0] == "s" else "uint64"
        return Operation((twice,), (op.type, op.type, twice), (f"{_product(op)} + {cast}(c)",), "imad")
    if op.has("lo"):
        return _same(op, 3, "a * b + c", "imad", _untyped(op.type))
    if op.has("sat"):
        return _same(op, 3, f"clamp_s32({_high(op)} + int64(c))", "imad")
    cast = "int64" if op.type[0] == "s" else "uint64"
    return _same(op, 3, f"{cast}({_high(op)}) + {cast}(c)", "imad")


def _product(op: Opcode) -> str:
    cast = "int64" if op.type[0] == "s" else "uint64"
    return f"{cast}(a) * {cast}(b)"


def _high(op: Opcode) -> str:
    width = width_of_type(op.type)
    if width == 64:
        return f"high_{op.type}(a, b)"
    return f"(({_product(op)}) >> {'int64' if op.type[0] == 's' else 'uint64'}({width}))"


@lane_instruction("mul24.[lo|hi].[u32|s32]", "mad24.[lo|hi].[u32|s32]", "mad24.hi.sat.s32")
def mul24(op: Opcode) -> Operation:
    """Bits 31..0 or 47..16 of the product of the low 24 bits, plus c for mad24."""
    if op.type == "s32":
        product, shift = "(int64(int32(a << 8)) >> 8) * (int64(int32(b << 8)) >> 8)", "int64(16)"
    else:
        product, shift = "uint64(a & uint32(0xFFFFFF)) * uint64(b & uint32(0xFFFFFF))", "uint64(16)"
    half = f"({product} >> {shift})" if op.has("hi") else f"({product})"
    cast = "int64" if op.type == "s32" else "uint64"
    half = f"{cast}({'int32' if op.type == 's32' else 'uint32'}({half}))"
    if op.base == "mul24":
        return _same(op, 2, half, "imad")
    total = f"{half} + {cast}(c)"
    return _same(op, 3, f"clamp_s32({total})" if op.has("sat") else total, "imad")


@lane_instruction("sad.[u16|s16|u32|s32|u64|s64]")
def sad(op: Opcode) -> Operation:
    """d = c + |a - b|."""
    # Unsigned: a signed difference that overflows would be undefined to the compiler.
    a, b, c = (f"uint64({name})" for name in "abc")
    return _same(op, 3, f"{c} + ({b} - {a} if a < b else {a} - {b})")


@lane_instruction("[div|rem].[u16|s16|u32|s32|u64|s64]")
def div_rem(op: Opcode) -> Operation:
    """Quotient rounded toward zero, and its remainder with the sign of a."""
    name = f"{'quotient' if op.base == 'div' else 'remainder'}_{op.type}"
    return Operation((op.type,), (op.type,) * 2, (f"{name}(a, b)",), "imad", style="serial")


@lane_instruction("[abs|neg].[s16|s32|s64]")
def abs_neg(op: Opcode) -> Operation:
    """d = |a| or -a, modulo 2^width."""
    zero = "int64(0)"
    body = f"{zero} - int64(a)" if op.base == "neg" else f"({zero} - int64(a)) if a < 0 else int64(a)"
    return _same(op, 1, body)


@lane_instruction("[min|max].[u16|s16|u32|s32|u64|s64]", "[min|max].relu.s32")
def min_max(op: Opcode) -> Operation:
    """The smaller or larger operand; .relu: not less than 0."""
    body = f"a if a {'<' if op.base == 'min' else '>'} b else b"
    return _same(op, 2, f"max(int32({body}), int32(0))" if op.has("relu") else body)


@lane_instruction("[min|max].[u16x2|s16x2]", "[min|max].relu.s16x2")
def min_max_x2(op: Opcode) -> Operation:
    """The smaller or larger of each half."""
    low, high = ("low_s16", "high_s16") if op.type == "s16x2" else ("low16", "high16")
    halves = [f"{op.base}({half}(a), {half}(b))" for half in (low, high)]
    if op.has("relu"):
        halves = [f"max({half}, int32(0))" for half in halves]
    return Operation(("b32",), ("b32", "b32"), (f"pack16({halves[0]}, {halves[1]})",), "alu")


@lane_instruction("dp4a.[u32|s32].[u32|s32]")
def dp4a(op: Opcode) -> Operation:
    """d = c + the dot product of four bytes."""
    return _dot(op, "dot4")


@lane_instruction("dp2a.[lo|hi].[u32|s32].[u32|s32]")
def dp2a(op: Opcode) -> Operation:
    """d = c + the dot product of two 16-bit halves of a and two bytes of b, its low or its high ones."""
    return _dot(op, f"dot2_{op.parts[0]}")


def _dot(op: Opcode, function: str) -> Operation:
    a_type, b_type = op.parts[-2:]
    result = "s32" if "s32" in (a_type, b_type) else "u32"
    signs = f"{a_type == 's32'}, {b_type == 's32'}"
    body = f"int64({function}(uint32(a), uint32(b), {signs})) + int64(c)"
    return Operation((result,), (a_type, b_type, result), (body,), "imad")


@lane_instruction("vabsdiff4.u32.[u32.u32|s32.s32][.sat|.add|]")
def vabsdiff4(op: Opcode) -> Operation:
    """The absolute differences of four bytes, which always fit a byte; .add: their sum and c."""
    is_signed = op.parts[1] == "s32"
    let = []
    for k in range(4):
        for name, source in (("x", "a"), ("y", "b")):
            byte = f"int64(uint32({source}) >> uint32({8 * k}) & uint32(255))"
            let.append(f"{name}{k} = ({byte} ^ int64(128)) - int64(128)" if is_signed else f"{name}{k} = {byte}")
    differences = [f"abs(x{k} - y{k})" for k in range(4)]
    terms = ["int64(uint32(c))", *differences] if op.has("add") else [f"({d} << int64({8 * k}))" for k, d in enumerate(differences)]
    return Operation(("u32",), ("b32", "b32", "b32"), (f"uint32({' + '.join(terms)})",), "alu", tuple(let))
