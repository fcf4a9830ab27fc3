"""Writes the text of a lane operation: a function over rows of a warp's register file.

Values of the PTX types inside expressions: unsigned and untyped integers are uint32 or uint64, signed ones int32 or
int64, f32 float32, f64 float64, a predicate bool; f16, bf16 and packed types are their bits in a uint32. A result of
type f32 or f64 has its NaN made canonical; results that must keep a payload are given as b32 or b64.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module

_NUMPY = ("bool_", "float32", "float64", "int16", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8")
_NUMERICS = (
    "host_float",
    "integers",
    "float32",
    "float64",
    "conversions",
    "special_functions",
)
_NAMES = "abcdefghijklmnop"
_ACCESSORS = ("choose", "load32", "load64", "merge32", "merge64", "row", "scratch", "store32", "store64")


@cache
def width_of_type(type_: str) -> int:
    """Return the width in bits of a PTX type ("pred" is 1; a packed type has the width of its register)."""
    if type_ == "pred":
        return 1
    if type_ == "tf32":
        return 32
    found = re.fullmatch(r"(?:[a-z]+|e\dm)(\d+)(?:x(\d))?", type_)
    assert found, f"PTX type must end in its width, not {type_}"
    if type_.startswith(("e4m3", "e5m2")):
        return 8 * int(found[2] or 1)
    return int(found[1]) * int(found[2] or 1)


@dataclass(frozen=True, slots=True)
class Slot:
    """An operand's PTX type in the instruction, its register's width in bits, and whether a predicate is read
    inverted."""

    type: str
    width: int
    negated: bool = False

    @property
    def kind(self) -> str:
        """The kind of row that holds it."""
        return "pred" if self.width == 1 else "u32" if self.width <= 32 else f"u{self.width}"

    @property
    def bits(self) -> int:
        """The width of the elements of that row."""
        return 64 if self.width >= 64 else 32

    @property
    def is_wide(self) -> bool:
        return self.width > width_of_type(self.type)


@cache
def _modules() -> dict[str, str]:
    """Return which numerics module each function that expressions may call comes from."""
    found = {}
    for name in _NUMERICS:
        for function in import_module(f"h100sim.numerics.{name}").__all__:
            found[function] = name
    return found


def read(slot: Slot, row: str) -> str:
    """Return the expression for the value of an operand in one lane."""
    if slot.type == "pred":
        return f"({row} >> uint32(lane)) & uint32(1) {'==' if slot.negated else '!='} uint32(0)"
    width = width_of_type(slot.type)
    value = f"load{slot.bits}({row}, lane)"
    if slot.type == "f32":
        return f"f32_value({value})" if slot.width == 32 else f"f32_value(uint32({value}))"
    if slot.type == "f64":
        return f"f64_value({value})"
    if slot.type[0] == "s":
        return f"int{width}({value})" if width >= 32 else f"int32(int{width}({value}))"
    if slot.width == width:
        return value
    return f"uint32({value})" if width == 32 else f"uint32({value} & uint{max(slot.width, 32)}({(1 << width) - 1}))"


def write(slot: Slot, value: str) -> str:
    """Return the expression for the bits that go to a register, zero- or sign-extended to its width."""
    row = 64 if slot.width == 64 else 32
    width = width_of_type(slot.type)
    if slot.type == "f32":
        return f"f32_canonical({value})" if row == 32 else f"uint64(f32_canonical({value}))"
    if slot.type == "f64":
        return f"f64_canonical({value})"
    if width == slot.width and width >= 32:
        return f"uint{width}({value})"
    if slot.type[0] == "s" and slot.width > width:
        extended = f"int{row}(int{width}({value}))"
        return f"uint{row}({extended})" if slot.width >= 32 else f"uint32({extended}) & uint32(65535)"
    return f"uint{row}(uint{max(width, 8)}({value}))"


def function_text(
    style: str, let: tuple[str, ...], body: tuple[str, ...], targets: tuple[Slot, ...], sources: tuple[Slot, ...]
) -> str:
    """Return imports and a function; see :class:`h100sim.isa.lane.Operation` for the style.

    The function's name is its own: Numba's names of compiled functions must not clash between processes.
    """
    lines = _mask_lines(body, targets, sources) if style == "mask" else _lane_lines(style == "serial", let, body, targets, sources)
    text = "\n".join([*("    " + line for line in lines), ""])
    name = f"lane_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"{_imports(text)}\n\n\ndef {name}(regs, mask, ops, ctx):\n{text}"


def _imports(function: str) -> str:
    used = set(re.findall(r"[A-Za-z_]\w*", function))
    lines = []
    if numpy_names := sorted(used & set(_NUMPY)):
        lines.append(f"from numpy import {', '.join(numpy_names)}")
    rows = sorted(used & set(_ACCESSORS))
    lines.append(f"from h100sim.isa.lane_rows import {', '.join(rows)}")
    lines += [f"from h100sim.numerics.{_modules()[name]} import {name}" for name in sorted(used & set(_modules()))]
    return "\n".join(lines)


def _mask_lines(body: tuple[str, ...], targets: tuple[Slot, ...], sources: tuple[Slot, ...]) -> list[str]:
    """Whole predicates at once: expressions over 32-bit masks."""
    lines = []
    for k, (name, slot) in enumerate(zip(_NAMES, sources, strict=False)):
        lines.append(f"{name} = {'~' if slot.negated else ''}load32(row(regs, ops, {len(targets) + k}), 0)")
    lines.append("active = uint32(mask)")
    lines += [f"m{k} = uint32({expression})" for k, expression in enumerate(body)]
    return lines + _merge_predicates(targets) + ["return 0"]


def _merge_predicates(targets: tuple[Slot, ...]) -> list[str]:
    lines = []
    for k, slot in enumerate(targets):
        if slot.kind == "pred":
            lines.append(f"p{k} = row(regs, ops, {k})")
            lines.append(f"store32(p{k}, 0, uint32((load32(p{k}, 0) & ~active) | (m{k} & active)))")
    return lines


def _lane_lines(
    serial: bool, let: tuple[str, ...], body: tuple[str, ...], targets: tuple[Slot, ...], sources: tuple[Slot, ...]
) -> list[str]:
    lines = []
    for k, (name, slot) in enumerate(zip(_NAMES, sources, strict=False)):
        pointer = f"row(regs, ops, {len(targets) + k})"
        lines.append(f"{name}_row = {f'load32({pointer}, 0)' if slot.kind == 'pred' else pointer}")
    for k, slot in enumerate(targets):
        lines += _prepare(k, slot)
    lines.append("active = uint32(mask)")
    lines.append("for lane in range(32):")
    inner = ["if active >> uint32(lane) & uint32(1) == uint32(0):", "    continue"] if serial else []
    for name, slot in zip(_NAMES, sources, strict=False):
        inner += _read_lines(slot, name)
    inner += let
    inner += _result_lines(body, targets)
    lines += ["    " + line for line in inner]
    lines += _store_lines(targets)
    return lines + _merge_predicates(targets) + ["return 0"]


def _prepare(k: int, slot: Slot) -> list[str]:
    if slot.kind == "pred":
        return [f"m{k} = uint32(0)"]
    if slot.kind == "u128":
        return [f"low{k} = scratch()", f"high{k} = scratch()"]
    return [f"t{k} = scratch()"]


def _read_lines(slot: Slot, name: str) -> list[str]:
    row = f"{name}_row"
    if slot.kind == "u128":
        return [f"{name}_low = load64({row}, lane)", f"{name}_high = load64({row}, lane + 32)"]
    return [f"{name} = {read(slot, row)}"]


def _result_lines(body: tuple[str, ...], targets: tuple[Slot, ...]) -> list[str]:
    lines = []
    expressions = iter(body)
    for k, slot in enumerate(targets):
        if slot.kind == "pred":
            lines += [f"if {next(expressions)}:", f"    m{k} |= uint32(1) << uint32(lane)"]
        elif slot.kind == "u128":
            lines += [f"store64({half}{k}, lane, uint64({next(expressions)}))" for half in ("low", "high")]
        else:
            lines.append(f"store{slot.bits}(t{k}, lane, {write(slot, next(expressions))})")
    return lines


def _store_lines(targets: tuple[Slot, ...]) -> list[str]:
    """Copy the active lanes of scratch rows to the register file."""
    lines = []
    for k, slot in enumerate(targets):
        if slot.kind == "u128":
            lines += [f"merge64(row(regs, ops, {k}), {start}, {half}{k}, active)" for start, half in ((0, "low"), (32, "high"))]
        elif slot.kind != "pred":
            lines.append(f"merge{slot.bits}(row(regs, ops, {k}), 0, t{k}, active)")
    return lines
