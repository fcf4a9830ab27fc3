"""Comparison: setp, set, testp.

A float comparison is false when an operand is NaN, the ones ending in u are true then.

Spec: PTX ISA 9.1, "Comparison and Selection Instructions: setp, set", "Half Precision Comparison Instructions",
"Floating Point Instructions: testp". Measured: tests/data/ptx_scalar.npz (set, testp).
"""

from __future__ import annotations

from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type

_SIGNS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_SIGNED = "[eq|ne|lt|le|gt|ge]"
_UNSIGNED = "[eq|ne|lt|le|gt|ge|lo|ls|hi|hs]"
_FLOAT = "[eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan]"
_COMBINE = "[.and|.or|.xor|]"
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def comparison(comparator: str, type_: str, a: str, b: str) -> str:
    """Return the condition for two expressions of a type."""
    if type_[0] != "f":
        return f"{a} {_SIGNS[comparator]} {b}"
    if comparator == "num":
        return f"({a} == {a} and {b} == {b})"
    if comparator == "nan":
        return f"({a} != {a} or {b} != {b})"
    if comparator == "ne":
        return f"({a} < {b} or {a} > {b})"
    if comparator == "equ":
        return f"(not ({a} < {b} or {a} > {b}))"
    if comparator in _UNORDERED:
        opposite = {"neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}[comparator]
        return f"(not {a} {opposite} {b})"
    return f"{a} {_SIGNS[comparator]} {b}"


def _values(op: Opcode, type_: str) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Return statements, and the pairs of float or integer expressions to compare (two pairs for packed types)."""
    flush = op.has("ftz")
    if type_ not in _HALVES:
        return (), [("flush32(a)", "flush32(b)") if flush else ("a", "b")]
    number = type_.removesuffix("x2")
    name = f"{number}_flushed" if flush else f"{number}_value"
    let = [f"{x}{half} = {name}({part}({x}))" for x in "ab" for half, part in (("l", "low16"), ("h", "high16"))]
    if not type_.endswith("x2"):
        return tuple(let[0::2]), [("al", "bl")]
    return tuple(let), [("al", "bl"), ("ah", "bh")]


def _combined(op: Opcode, condition: str, name: str) -> str:
    match op.choose("and", "or", "xor"):
        case "and":
            return f"({condition}) and {name}"
        case "or":
            return f"({condition}) or {name}"
        case "xor":
            return f"({condition}) != {name}"
    return condition


@lane_instruction(
    f"setp.{_SIGNED}{_COMBINE}.[s16|s32|s64]",
    f"setp.{_UNSIGNED}{_COMBINE}.[u16|u32|u64]",
    f"setp.[eq|ne]{_COMBINE}.[b16|b32|b64]",
    f"setp.{_FLOAT}{_COMBINE}[.ftz|].[f32|f16|f16x2]",
    f"setp.{_FLOAT}{_COMBINE}.[f64|bf16|bf16x2]",
)
def setp(op: Opcode) -> Operation:
    """p = (a cmp b) op c and q = !(a cmp b) op c; of packed types p is for the low halves, q for the high halves (left out where it is
    not written: machine code of ptxas 13.0)."""
    let, pairs = _values(op, op.type)
    kind = "f32" if op.type in _HALVES else op.type
    conditions = [comparison(op.parts[0], kind, a, b) for a, b in pairs]
    if len(conditions) == 1 and op.destinations == 2:
        conditions.append(f"not ({conditions[0]})")
    conditions = conditions[: op.destinations]
    combine = op.choose("and", "or", "xor") is not None
    body = tuple(_combined(op, condition, "c") for condition in conditions)
    operand = f"b{width_of_type(op.type)}" if op.type in _HALVES else op.type
    ins = (operand, operand, "pred") if combine else (operand, operand)
    return Operation(("pred",) * len(body), ins, body, "half" if op.type in _HALVES else "alu", let)


@lane_instruction(
    f"set.{_SIGNED}{_COMBINE}.[u32|s32|f32|f16|bf16].[s16|s32|s64]",
    f"set.{_UNSIGNED}{_COMBINE}.[u32|s32|f32|f16|bf16].[u16|u32|u64]",
    f"set.[eq|ne]{_COMBINE}.[u32|s32|f32|f16|bf16].[b16|b32|b64]",
    f"set.{_FLOAT}{_COMBINE}[.ftz|].[u32|s32|f32|f16].f32",
    f"set.{_FLOAT}{_COMBINE}.[u32|s32|f32|f16|bf16].f64",
    f"set.{_FLOAT}{_COMBINE}.bf16.[f32|f16]",
    f"set.{_FLOAT}{_COMBINE}[.ftz|].[f16|u16|s16|u32|s32].f16",
    f"set.{_FLOAT}{_COMBINE}.[bf16|u16|s16|u32|s32].bf16",
    f"set.{_FLOAT}{_COMBINE}[.ftz|].[f16x2|u32|s32].f16x2",
    f"set.{_FLOAT}{_COMBINE}.[bf16x2|u32|s32].bf16x2",
)
def set_(op: Opcode) -> Operation:
    """d = all ones, or 1.0 for a float result, where (a cmp b) op c holds; packed types give one result per half."""
    result, source = op.parts[-2:]
    let, pairs = _values(op, source)
    kind = "f32" if source in _HALVES else source
    conditions = [_combined(op, comparison(op.parts[0], kind, a, b), "c") for a, b in pairs]
    packed = len(conditions) == 2
    width = 16 if packed else width_of_type(result)
    true = {"f32": 0x3F800000, "f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80}.get(result)
    value = f"uint32({(1 << width) - 1 if true is None else true})"
    chosen = [f"({value} if {condition} else uint32(0))" for condition in conditions]
    body = f"pack16({chosen[0]}, {chosen[1]})" if packed else chosen[0]
    operand = f"b{width_of_type(source)}" if source in _HALVES else source
    ins = (operand, operand) if op.choose("and", "or", "xor") is None else (operand, operand, "pred")
    return Operation((f"b{width_of_type(result)}",), ins, (body,), "half" if source in _HALVES else "alu", let)


_TESTS = {
    "finite": "m < inf",
    "infinite": "m == inf",
    "number": "m <= inf",
    "notanumber": "m > inf",
    "normal": "m < inf and (m >= least or m == zero)",
    "subnormal": "m < least and m != zero",
}


@lane_instruction("testp.[finite|infinite|number|notanumber|normal|subnormal].[f32|f64]")
def testp(op: Opcode) -> Operation:
    """p = a is of the named class. Measured: a zero is normal."""
    width = width_of_type(op.type)
    word = f"uint{width}"
    inf, least = (0x7F800000, 0x00800000) if width == 32 else (0x7FF0000000000000, 0x0010000000000000)
    condition = _TESTS[op.parts[0]].replace("inf", f"{word}({inf})").replace("least", f"{word}({least})")
    let = (f"m = a & {word}({(1 << width - 1) - 1})",)
    return Operation(("pred",), (f"b{width}",), (condition.replace("zero", f"{word}(0)"),), "alu", let)
