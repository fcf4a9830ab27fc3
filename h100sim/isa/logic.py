"""Logic and shifts: and or xor not cnot lop3 shl shr shf.

Spec: PTX ISA 9.1, "Logic and Shift Instructions". Measured: tests/data/ptx_scalar.npz.
"""

from __future__ import annotations

from ..errors import PtxError
from ..ptx.module import Imm
from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type

_SIGNS = {"and": "&", "or": "|", "xor": "^"}


@lane_instruction("[and|or|xor].[pred|b16|b32|b64]")
def logic(op: Opcode) -> Operation:
    """d = a & b, a | b or a ^ b."""
    style = "mask" if op.type == "pred" else "vector"
    return Operation((op.type,), (op.type,) * 2, (f"a {_SIGNS[op.base]} b",), "alu", style=style)


@lane_instruction("not.[pred|b16|b32|b64]")
def invert(op: Opcode) -> Operation:
    """d = ~a."""
    return Operation((op.type,), (op.type,), ("~a",), "alu", style="mask" if op.type == "pred" else "vector")


@lane_instruction("cnot.[b16|b32|b64]")
def cnot(op: Opcode) -> Operation:
    """d = a == 0 ? 1 : 0."""
    return Operation((op.type,), (op.type,), ("1 if a == 0 else 0",), "alu")


@lane_instruction("shl.[b16|b32|b64]", "shr.[b16|b32|b64|u16|u32|u64|s16|s32|s64]")
def shift(op: Opcode) -> Operation:
    """d = a << b or a >> b; an amount of the width or more shifts everything out (shr.s: leaves the sign)."""
    width = width_of_type(op.type)
    if op.type[0] == "s":
        word = "int64" if width == 64 else "int32"
        body = f"a >> {word}(min(b, uint32({width - 1})))"
    else:
        word = "uint64" if width == 64 else "uint32"
        sign = "<<" if op.base == "shl" else ">>"
        body = f"(a {sign} {word}(b & uint32({63 if width == 64 else 31}))) if b < uint32({width}) else {word}(0)"
    return Operation((op.type,), (op.type, "u32"), (body,), "alu")


@lane_instruction("shf.[l|r].[wrap|clamp].b32")
def funnel_shift(op: Opcode) -> Operation:
    """Shift the 64 bits {b, a}; left gives the high word, right the low word."""
    amount = "uint64(c & uint32(31))" if op.has("wrap") else "uint64(min(c, uint32(32)))"
    let = (f"n = {amount}", "w = uint64(b) << uint64(32) | uint64(a)")
    body = "(w << n) >> uint64(32)" if op.has("l") else "w >> n"
    return Operation(("b32",), ("b32", "b32", "u32"), (f"({body}) & uint64(0xFFFFFFFF)",), "alu", let)


@lane_instruction("lop3.b32", "lop3.[or|and].b32")
def lop3(op: Opcode) -> Operation:
    """d = any function of three bits: bit 4a + 2b + c of the immediate. With .or or .and: p = (d != 0) op q."""
    table = _look_up_table(op)
    body = _sum_of_products(table)
    if op.parts == ("b32",):
        return Operation(("b32",), ("b32",) * 3 + ("#",), (body,), "alu", constants=(table,))
    let = (f"r = uint32({body})",)
    outs, ins = ("b32", "pred"), ("b32", "b32", "b32", "#", "pred")
    return Operation(outs, ins, ("r", f"(r != uint32(0)) {op.parts[0]} d"), "alu", let, constants=(table,))


def _look_up_table(op: Opcode) -> int:
    operand = op.sources[3] if len(op.sources) > 3 else None
    if not isinstance(operand, Imm) or operand.kind != "int":
        raise PtxError(f"look-up table of {op.text} must be an integer constant, not {operand}")
    return operand.value & 0xFF  # Measured: ptxas 13.0 takes any integer and keeps its low byte


def _sum_of_products(table: int) -> str:
    """Return an expression over a, b, c for a truth table."""
    if table in (0, 255):
        return "uint32(0)" if table == 0 else "uint32(0xFFFFFFFF)"
    terms = []
    for k in range(8):
        if table >> k & 1:
            factors = [name if k >> bit & 1 else f"~{name}" for name, bit in (("a", 2), ("b", 1), ("c", 0))]
            terms.append(f"({' & '.join(factors)})")
    return " | ".join(terms)
