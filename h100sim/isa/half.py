"""Half precision: add sub mul fma min max abs neg of f16, bf16 and their pairs.

Results are rounded once, subnormals are kept unless .ftz, NaN becomes 0x7FFF.

Spec: PTX ISA 9.1, "Half Precision Floating-Point Instructions". Measured: tests/data/ptx_scalar.npz.
Left out: rounding of bf16 fma other than .rn, which the manual does not have though ptxas takes it.
Assumed: .oob takes 0x7FF7, which out-of-bounds elements of a tensor copy are filled with, as its NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from .lane import Opcode, Operation, lane_instruction

_ONE = {"f16": 0x3C00, "bf16": 0x3F80}


def _lanes(op: Opcode, count: int, half: Callable[..., str]) -> Operation:
    """Return an operation from an expression over 16-bit codes, for one value or for both halves."""
    names = "abc"[:count]
    if op.type.endswith("x2"):
        low = half(*(f"low16({name})" for name in names))
        high = half(*(f"high16({name})" for name in names))
        return Operation(("b32",), ("b32",) * count, (f"pack16({low}, {high})",), "half")
    return Operation((op.type,), (op.type,) * count, (half(*names),), "half")


def _number(op: Opcode) -> str:
    return op.type.removesuffix("x2")


def _value(op: Opcode, code: str) -> str:
    return f"{_number(op)}_{'flushed' if op.has('ftz') else 'value'}({code})"


def _finish(op: Opcode, body: str, exact: str) -> str:
    """Apply .ftz, .sat and .relu to a result; ``exact`` is the expression of its value before rounding."""
    if op.has("ftz"):
        body = f"f16_flush_tiny({body}, {exact})"
    if op.has("sat"):
        body = f"saturate16({body}, {_ONE[_number(op)]})"
    return f"relu16({body})" if op.has("relu") else body


@lane_instruction("[add|sub|mul][.rn|][.ftz|][.sat|].[f16|f16x2]", "[add|sub|mul][.rn|].[bf16|bf16x2]")
def add_sub_mul(op: Opcode) -> Operation:
    """d = a + b, a - b or a * b. float32 holds f16 products and bf16 or f16 sums well enough to round them again."""
    sign = {"add": "+", "sub": "-", "mul": "*"}[op.base]
    number = _number(op)

    def half(a: str, b: str) -> str:
        a, b = _value(op, a), _value(op, b)
        if number == "bf16" and op.base == "mul":
            return _finish(op, f"bf16_round(float64({a}) * float64({b}), 0)", "")
        return _finish(op, f"{number}_from_f32(float32({a} {sign} {b}))", f"float32({a} {sign} {b})")

    return _lanes(op, 2, half)


@lane_instruction(
    "fma.rn[.ftz|][.sat|.relu|].[f16|f16x2]",
    "fma.rn[.relu|].[bf16|bf16x2]",
    "fma.rn.oob[.relu|].[bf16|bf16x2]",
    "fma.rn.oob[.relu|.sat|].[f16|f16x2]",
)
def fma(op: Opcode) -> Operation:
    """d = a * b + c with one rounding; .oob: +0 if a or b is the out-of-bounds NaN."""
    return signed_fma(op)


def signed_fma(op: Opcode, product: str = "", addend: str = "") -> Operation:
    """Return d = a * b + c with one rounding, "-" before the product or the addend where it is given."""

    def half(a: str, b: str, c: str) -> str:
        x, y, z = (f"float64({_value(op, code)})" for code in (a, b, c))
        exact = f"sum_to_odd({product}{x} * {y}, {addend}{z})"
        body = _finish(op, f"{_number(op)}_round({exact}, 0)", exact)
        if op.has("oob"):
            body = f"(uint32(0) if {a} == uint32(0x7FF7) or {b} == uint32(0x7FF7) else {body})"
        return body

    return _lanes(op, 3, half)


@lane_instruction(
    "[min|max][.ftz|][.NaN|][.xorsign.abs|].[f16|f16x2]",
    "[min|max][.NaN|][.xorsign.abs|].[bf16|bf16x2]",
)
def min_max(op: Opcode) -> Operation:
    """d = the smaller or larger operand; .NaN: NaN if either is; .xorsign.abs: of magnitudes, with the product's
    sign."""
    name = f"{op.base}32{'_nan' if op.has('NaN') else ''}{'_xorsign' if op.has('xorsign') else ''}"
    return _lanes(op, 2, lambda a, b: f"{_number(op)}_from_f32({name}({_value(op, a)}, {_value(op, b)}))")


@lane_instruction("[abs|neg][.ftz|].[f16|f16x2]", "[abs|neg].[bf16|bf16x2]")
def abs_neg(op: Opcode) -> Operation:
    """d = |a| or -a."""
    sign = "abs" if op.base == "abs" else "-"
    return _lanes(op, 1, lambda a: f"{_number(op)}_from_f32({sign}({_value(op, a)}))")
