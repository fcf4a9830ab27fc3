"""Bit fields and bit counts: bfe bfi bfind brev clz popc fns prmt szext bmsk.

Spec: PTX ISA 9.1, "Integer Arithmetic Instructions", "Data Movement and Conversion Instructions: prmt".
Measured: tests/data/ptx_scalar.npz.
"""

from __future__ import annotations

from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type

_PERMUTE_MODES = ("b32", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


@lane_instruction("popc.[b32|b64]")
def popc(op: Opcode) -> Operation:
    """Count set bits."""
    return Operation(("u32",), (op.type,), (f"count_bits{width_of_type(op.type)}(a)",), "mufu")


@lane_instruction("clz.[b32|b64]")
def clz(op: Opcode) -> Operation:
    """Count leading zeros."""
    width = width_of_type(op.type)
    return Operation(("u32",), (op.type,), (f"int32({width - 1}) - top_bit{width}(a)",), "mufu")


@lane_instruction("brev.[b32|b64]")
def brev(op: Opcode) -> Operation:
    """Reverse the order of bits."""
    return Operation((op.type,), (op.type,), (f"bit_reverse{width_of_type(op.type)}(a)",), "mufu")


@lane_instruction("bfind[.shiftamt|].[u32|s32|u64|s64]")
def bfind(op: Opcode) -> Operation:
    """Position of the highest bit that differs from the sign, or how far left to shift it; all ones if none."""
    width = width_of_type(op.type)
    word = f"uint{width}"
    value = f"{word}(~a if a < 0 else a)" if op.type[0] == "s" else "a"
    let = (f"k = top_bit{width}({value})",)
    body = f"(int32({width - 1}) - k) if k >= 0 else int32(-1)" if op.has("shiftamt") else "k"
    return Operation(("u32",), (op.type,), (body,), "mufu", let)


def _field(name: str, op: Opcode) -> str:
    """Return a position or length. Measured: 32-bit forms look at its low 8 bits, the 64-bit sequences at all of it."""
    return f"int64({name} & uint32(255))" if width_of_type(op.type) == 32 else f"int64({name})"


@lane_instruction("bfe.[u32|s32|u64|s64]")
def bfe(op: Opcode) -> Operation:
    """Extract c bits from position b on, zero- or sign-extended."""
    cast, name = ("int64", "extract_s") if op.type[0] == "s" else ("uint64", "extract_u")
    body = f"{name}({cast}(a), {_field('b', op)}, {_field('c', op)})"
    return Operation((op.type,), (op.type, "u32", "u32"), (body,), "alu")


@lane_instruction("bfi.[b32|b64]")
def bfi(op: Opcode) -> Operation:
    """Insert the low d bits of a into b at position c."""
    body = f"insert{width_of_type(op.type)}(a, b, {_field('c', op)}, {_field('d', op)})"
    return Operation((op.type,), (op.type, op.type, "u32", "u32"), (body,), "alu")


@lane_instruction("fns.b32")
def fns(op: Opcode) -> Operation:
    """Position of the n-th set bit."""
    return Operation(("b32",), ("b32", "b32", "s32"), ("find_nth_set(a, b, c)",), "alu", style="serial")


@lane_instruction("prmt.b32[.f4e|.b4e|.rc8|.ecl|.ecr|.rc16|]")
def prmt(op: Opcode) -> Operation:
    """Choose four bytes of {b, a}."""
    return Operation(("b32",), ("b32",) * 3, (f"permute(a, b, c, {_PERMUTE_MODES.index(op.type)})",), "alu")


@lane_instruction("szext.[clamp|wrap].[u32|s32]")
def szext(op: Opcode) -> Operation:
    """Zero- or sign-extend the low b bits of a."""
    amount = "int64(b & uint32(31))" if op.has("wrap") else "int64(min(b, uint32(32)))"
    cast, name = ("int64", "extract_s") if op.type[0] == "s" else ("uint64", "extract_u")
    return Operation((op.type,), (op.type, "u32"), (f"{name}({cast}(a), 0, {amount})",), "alu")


@lane_instruction("bmsk.[clamp|wrap].b32")
def bmsk(op: Opcode) -> Operation:
    """A mask of b bits from position a on."""
    if op.has("wrap"):
        body = "((uint64(1) << uint64(b & uint32(31))) - uint64(1)) << uint64(a & uint32(31))"
    else:
        body = "((uint64(1) << uint64(min(b, uint32(32)))) - uint64(1)) << uint64(min(a, uint32(32)))"
    return Operation(("b32",), ("u32", "u32"), (f"({body}) & uint64(0xFFFFFFFF)",), "alu")
