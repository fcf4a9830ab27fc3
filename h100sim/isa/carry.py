"""Extended-precision arithmetic: add.cc addc sub.cc subc mad.cc madc, with the carry in the condition code.

The condition code is one predicate per lane: the carry of an addition, and of a subtraction, which adds the complement,
the *inverse* of the borrow. A chain of subtractions cannot tell; an addc after a sub.cc can.

Spec: PTX ISA 9.1, "Extended-Precision Integer Arithmetic Instructions". Measured: validate/silicon/lane_forms.json (what
the manual leaves open, a chain that mixes additions and subtractions).
"""

from __future__ import annotations

from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type


@lane_instruction("[add|sub].cc.[u32|s32|u64|s64]", "[addc|subc][.cc|].[u32|s32|u64|s64]")
def add_sub_carry(op: Opcode) -> Operation:
    """d = a + b + carry or a - (b + borrow), the borrow being the carry's inverse."""
    width = width_of_type(op.type)
    word, type_ = f"uint{width}", f"b{width}"
    carry_in = op.base in ("addc", "subc")
    ones, zeros = (1, 0) if op.base.startswith("add") else (0, 1)
    incoming = f"({word}({ones}) if c else {word}({zeros}))" if carry_in else f"{word}(0)"
    if op.base.startswith("add"):
        let = (f"s = {word}(a + b)", f"r = {word}(s + {incoming})")
        out = "s < a or r < s"
    else:
        let = (f"s = {word}(a - b)", f"r = {word}(s - {incoming})")
        out = "a >= b and s >= r"
    return _operation(op, type_, 2, let, out, carry_in)


@lane_instruction("mad.[lo|hi].cc.[u32|s32|u64|s64]", "madc.[lo|hi][.cc|].[u32|s32|u64|s64]")
def mad_carry(op: Opcode) -> Operation:
    """d = the low or high half of a * b, plus c, plus carry."""
    width = width_of_type(op.type)
    word = f"uint{width}"
    carry_in = op.base == "madc"
    incoming = f"({word}(1) if d else {word}(0))" if carry_in else f"{word}(0)"
    let = (f"h = {_half(op, width, word)}", f"s = {word}(h + c)", f"r = {word}(s + {incoming})")
    return _operation(op, f"b{width}", 3, let, "s < h or r < s", carry_in)


def _half(op: Opcode, width: int, word: str) -> str:
    if op.has("lo"):
        return f"{word}(a * b)"
    signed = op.type[0] == "s"
    if width == 64:
        return "uint64(high_s64(int64(a), int64(b)))" if signed else "high_u64(a, b)"
    if signed:
        return "uint32((int64(int32(a)) * int64(int32(b))) >> int64(32))"
    return "uint32((uint64(a) * uint64(b)) >> uint64(32))"


def _operation(op: Opcode, type_: str, count: int, let: tuple[str, ...], out: str, carry_in: bool) -> Operation:
    carry_out = op.has("cc")
    body = ("r", out) if carry_out else ("r",)
    pipe = "imad" if op.base.startswith("mad") else "alu"
    return Operation((type_,), (type_,) * count, body, pipe, let, carry_in=carry_in, carry_out=carry_out)
