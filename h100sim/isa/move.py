"""mov, selp and slct: copies, packing and unpacking of registers, and selection.

Special registers and addresses of variables are rows like any other operand here.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: mov", "Comparison and Selection Instructions: selp,
slct".
"""

from __future__ import annotations

from ..errors import PtxError
from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type


@lane_instruction("mov.[pred|b16|b32|b64|b128|u16|u32|u64|s16|s32|s64|f32|f64]")
def mov(op: Opcode) -> Operation:
    """d = a; a vector on one side packs or unpacks, its first element in the lowest bits."""
    if op.type == "pred":
        return Operation(("pred",), ("pred",), ("a",), "alu", style="mask")
    width = width_of_type(op.type)
    if op.destinations > 1:
        return _unpack(op, width)
    if len(op.sources) > 1:
        return _pack(op, width)
    if width == 128:
        return Operation(("b128",), ("b128",), ("a_low", "a_high"), "alu")
    return Operation((f"b{width}",), (op.type,), (_raw(op.type, "a"),), "alu")


@lane_instruction("mov.[v2|v4].[b16|b32|u16|u32|s16|s32|f32]", "mov.v2.[b64|u64|s64|f64]")
def move_vector(op: Opcode) -> Operation:
    """Element by element."""
    count = 2 if ".v2." in op.text else 4
    if op.sources and (op.destinations != count or len(op.sources) != count):
        raise PtxError(f"vectors of {op.text} must have {count} elements, not {op.destinations} and {len(op.sources)}")
    bits = f"b{width_of_type(op.type)}"
    moved = tuple(_raw(op.type, name) for name in "abcd"[:count])
    return Operation((bits,) * count, (op.type,) * count, moved, "alu", variable=True)


def _raw(type_: str, name: str) -> str:
    """Return the bits of a value, NaN payload included."""
    return f"{type_}_bits({name})" if type_ in ("f32", "f64") else name


def _part(width: int, count: int, op: Opcode) -> int:
    part = width // count
    if op.type[0] != "b" or part * count != width or part < 8 or count not in (2, 4):
        raise PtxError(f"vector of {op.text} must have 2 or 4 elements that fill it, not {count}")
    return part


def _pack(op: Opcode, width: int) -> Operation:
    count = len(op.sources)
    part = _part(width, count, op)
    if width == 128:
        if part == 64:
            return Operation(("b128",), ("b64", "b64"), ("a", "b"), "alu", variable=True)
        low, high = "uint64(a) | uint64(b) << uint64(32)", "uint64(c) | uint64(d) << uint64(32)"
        return Operation(("b128",), ("b32",) * 4, (low, high), "alu", variable=True)
    word = 64 if width == 64 else 32
    terms = [f"uint{word}({name}) << uint{word}({k * part})" for k, name in enumerate("abcd"[:count])]
    return Operation((f"b{width}",), (f"b{part}",) * count, (" | ".join(terms),), "alu", variable=True)


def _unpack(op: Opcode, width: int) -> Operation:
    count = op.destinations
    part = _part(width, count, op)
    outs = (f"b{part}",) * count
    if width == 128:
        halves = ("a_low", "a_high")
        if part == 64:
            return Operation(outs, ("b128",), halves, "alu", variable=True)
        parts = tuple(f"{half} >> uint64({shift})" for half in halves for shift in (0, 32))
        return Operation(outs, ("b128",), parts, "alu", variable=True)
    word = 64 if width == 64 else 32
    parts = tuple(f"a >> uint{word}({k * part})" for k in range(count))
    return Operation(outs, (f"b{width}",), parts, "alu", variable=True)


@lane_instruction("selp.[b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64]")
def selp(op: Opcode) -> Operation:
    """d = c ? a : b."""
    body = f"choose(c, {_raw(op.type, 'a')}, {_raw(op.type, 'b')})"
    return Operation((f"b{width_of_type(op.type)}",), (op.type, op.type, "pred"), (body,), "alu")


@lane_instruction(
    "slct.[b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64].s32",
    "slct[.ftz|].[b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64].f32",
)
def slct(op: Opcode) -> Operation:
    """d = c >= 0 ? a : b; -0.0 counts as 0 and NaN selects b."""
    chosen, control = op.parts[-2], op.parts[-1]
    condition = "flush32(c) >= float32(0)" if op.has("ftz") else "c >= 0"
    body = f"choose({condition}, {_raw(chosen, 'a')}, {_raw(chosen, 'b')})"
    return Operation((f"b{width_of_type(chosen)}",), (chosen, chosen, control), (body,), "alu")
