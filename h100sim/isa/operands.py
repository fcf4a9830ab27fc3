"""Operands that no instruction, or none of a mnemonic, may have: what the table of operations does not decide by itself.

Measured: ptxas 13.0, see tests/isa/test_operands.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ptx.module import Imm, Instruction, Operand, Reg, Special, Vector
from ..ptx.types import SIZES
from .lane_text import width_of_type

#: Instructions that may read a special register; %clock and its kin only mov.
_READ_SPECIALS = ("mov", "cvt")
_TAKE_NOTHING = ("ret", "exit", "trap", "brkpt")
#: Instructions whose last type is not that of their constant: a fraction is a float.
_FLOAT_FOR_BITS = ("createpolicy",)
_SCOPES = ("cta", "cluster", "gpu", "sys")


def wrong_operand(instruction: Instruction) -> str:
    """Return in a sentence what is wrong with the operands of an instruction, or ""."""
    base = instruction.base
    if base not in _READ_SPECIALS:
        for operand in _atoms(instruction.operands):
            if isinstance(operand, Special) and operand.name != "WARP_SZ":
                return f"operand of {base} must be a register or a constant, not the special register %{operand.name}"
    if base not in _FLOAT_FOR_BITS and (wrong := _wrong_float(instruction)):
        return wrong
    if base in _TAKE_NOTHING and instruction.operands and not instruction.has("return"):
        return f"operands of {base} must be none, not {len(instruction.operands)}"
    if base in ("ld", "ldu", "st"):
        return _wrong_access(instruction)
    is_named = base in ("bar", "barrier") and not instruction.has("cluster")
    if is_named and not instruction.operands and _has_any(instruction, "sync", "arrive", "red"):
        return f"barrier of {instruction.opcode} must be given, not left out"
    if base == "fence" and _has_any(instruction, "sc", "acq_rel") and not _has_any(instruction, *_SCOPES):
        return f"scope of {instruction.opcode} must be one of .cta, .cluster, .gpu and .sys, not left out"
    if base == "nanosleep" and instruction.types != ("u32",):
        return f"type of {instruction.opcode} must be .u32, not left out"
    return ""


def _has_any(instruction: Instruction, *modifiers: str) -> bool:
    return any(m in instruction.modifiers for m in modifiers)


def wrong_immediate(operand: Imm, type_: str) -> str:
    """Return what is wrong with a constant as an operand of a type, or ""."""
    if operand.kind == "int" and type_ in ("f32", "f64"):
        return f"constant must be a floating-point one such as {operand.value}.0 for an operand of type .{type_}, not an integer"
    if operand.kind != "int" and type_[:1] in ("u", "s"):
        return f"constant must be an integer for an operand of type .{type_}, not a floating-point one"
    return ""


def _wrong_float(instruction: Instruction) -> str:
    """A float constant is no integer, and untyped bits only of its own width: 0f3F800000 has 32 bits, 1.0 has 64."""
    type_ = instruction.types[-1] if instruction.types else ""
    if type_[:1] not in ("u", "s", "b", "p") or type_.startswith("bf"):
        return ""
    for operand in instruction.operands:
        if not isinstance(operand, Imm) or operand.kind == "int":
            continue
        width = 32 if operand.kind == "f32" else 64
        if not _is_untyped(type_):
            return f"{instruction.base} {wrong_immediate(operand, 'u' + type_[1:])}"
        if width != width_of_type(type_):
            return f"constant of {instruction.opcode} must have as many bits as .{type_}, not the {width} of a floating-point one"
    return ""


def _wrong_access(instruction: Instruction) -> str:
    """ld and st: registers may be wider than the element, but not narrower, and of a fitting kind."""
    if instruction.base == "ld" and instruction.has("nc") and not instruction.has("global"):
        return f"state space of {instruction.opcode} must be .global, as .nc asks, not another"
    if not instruction.types or len(instruction.operands) < 2:
        return f"operands of {instruction.opcode} must be an address and a register or constant with a type, not fewer"
    type_ = instruction.types[-1]
    width = 8 * SIZES.get(type_, 0)
    values = instruction.operands[0] if instruction.base != "st" else instruction.operands[1]
    for value in _atoms((values,)):
        if not isinstance(value, Reg):
            continue
        declared = value.register.type
        if declared == "pred" or width_of_type(declared) < width or not _may_move(declared, type_):
            return f"register {value.register.name} of {instruction.opcode} must hold .{type_}, not .{declared}"
    return ""


def _may_move(declared: str, type_: str) -> bool:
    """May a register that is wide enough take part in a load or store of a type?"""
    if _is_untyped(type_) or _is_untyped(declared) or declared == type_:
        return True
    return type_[0] in "su" and (declared[0] in "su" or declared == "f16x2")


def _is_untyped(type_: str) -> bool:
    return type_[0] == "b" and type_[1:].isdigit()


def _atoms(operands: tuple[Operand, ...]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, Vector):
            yield from operand.elements
        else:
            yield operand
