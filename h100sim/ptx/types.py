"""Type names of PTX: which modifiers are element types, and how large a variable of a type is.

Spec: PTX ISA 9.1, "Types" ("Fundamental Types", "Alternate Floating-Point Data Formats", "Packed Data Types").
"""

from __future__ import annotations

_INTEGERS = ("b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")

#: Size in bytes of the types that a variable or register can have ("pred" is a register only).
SIZES = {
    **{name: int(name[1:]) // 8 for name in _INTEGERS},
    "f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "tf32": 4, "f32": 4, "f64": 8, "f32x2": 8,
    "u16x2": 4, "s16x2": 4, "u8x4": 4, "s8x4": 4, "e4m3": 1, "e5m2": 1, "e4m3x2": 2, "e5m2x2": 2,
    "e4m3x4": 4, "e5m2x4": 4, "pred": 0,
}  # fmt: skip

FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "tf32", "f32", "f64", "f32x2"))

#: Modifiers of an opcode that name the type of an element; all others are modifiers.
ELEMENT_TYPES = frozenset(SIZES) | {
    "b1", "b4", "u4", "s4", "u2", "s2", "b1024",
    "u8x2", "s8x2", "e2m1", "e2m3", "e3m2", "ue8m0", "ue4m3", "ue8m0x2", "e2m1x2", "e2m3x2", "e3m2x2",
    "e2m1x4", "e2m3x4", "e3m2x4", "s2f6x2", "b6x16_p32", "b4x16_p64", "b8x16",
}  # fmt: skip


def split_opcode(opcode: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return (base, modifiers, types) of an opcode, modifiers and types in written order."""
    base, *parts = opcode.split(".")
    types = tuple(part for part in parts if part in ELEMENT_TYPES)
    return base, tuple(part for part in parts if part not in ELEMENT_TYPES), types
