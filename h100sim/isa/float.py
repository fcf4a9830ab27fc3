"""Single precision: add sub mul fma mad div rcp sqrt min max abs neg copysign, with rounding, .ftz and .sat.

div.full, div.approx, rcp.approx and sqrt.approx are in special_function.py. NaN results are canonical.

Spec: PTX ISA 9.1, "Floating Point Instructions". Measured: tests/data/ptx_scalar.npz.
"""

from __future__ import annotations

from .lane import Opcode, Operation, lane_instruction

_ROUNDINGS = ("rn", "rz", "rm", "rp")


def rounding(op: Opcode) -> int:
    """Return the rounding mode: 0 to nearest even (also where none is written), 1 toward zero, 2 down, 3 up."""
    return _ROUNDINGS.index(op.choose(*_ROUNDINGS) or "rn")


def _finish(op: Opcode, count: int, body: str, pipe: str = "fma", flushed: bool = False) -> Operation:
    """Apply .ftz to inputs and result and .sat to the result; ``flushed``: the expression does .ftz to the result."""
    let: tuple[str, ...] = ()
    if op.has("ftz"):
        let = tuple(f"{name} = flush32({name})" for name in "abc"[:count])
        body = body if flushed else f"flush32({body})"
    if op.has("sat"):
        body = f"saturate32({body})"
    return Operation(("f32",), ("f32",) * count, (body,), pipe, let)


@lane_instruction("[add|sub|mul][.rn|.rz|.rm|.rp|][.ftz|][.sat|].f32")
def add_sub_mul(op: Opcode) -> Operation:
    """d = a + b, a - b or a * b."""
    mode = rounding(op)
    sign = {"add": "+", "sub": "-", "mul": "*"}[op.base]
    if op.base == "mul" and mode:
        return _finish(op, 2, f"mul32(a, b, {mode}, {op.has('ftz')})", flushed=True)
    if op.base == "mul" and op.has("ftz"):
        return _finish(op, 2, "mul32_ftz(a, b)", flushed=True)
    if mode == 0:
        return _finish(op, 2, f"a {sign} b")
    return _finish(op, 2, f"add32(a, {'b' if op.base == 'add' else '-b'}, {mode})")


@lane_instruction("[fma|mad].[rn|rz|rm|rp][.ftz|][.sat|].f32")
def fma(op: Opcode) -> Operation:
    """d = a * b + c with one rounding."""
    return signed_fma(op)


def signed_fma(op: Opcode, product: str = "", addend: str = "") -> Operation:
    """Return d = a * b + c with one rounding, "-" before the product or the addend where it is given."""
    mode, operands = rounding(op), f"{product}a, b, {addend}c"
    if mode:
        return _finish(op, 3, f"fma32_directed({operands}, {mode}, {op.has('ftz')})", flushed=True)
    return _finish(op, 3, f"fma32{'_ftz' if op.has('ftz') else ''}({operands})", flushed=True)


def _quotient(op: Opcode, a: str, b: str) -> str:
    """Return the expression of a / b. To nearest, no quotient of normal numbers below 2^-126 rounds to it."""
    mode = rounding(op)
    return f"div32({a}, {b}, {mode}, {op.has('ftz')})" if mode else f"div32_nearest({a}, {b})"


@lane_instruction("div.[rn|rz|rm|rp][.ftz|].f32")
def div(op: Opcode) -> Operation:
    """d = a / b, correctly rounded."""
    return _finish(op, 2, _quotient(op, "a", "b"), "mufu", flushed=rounding(op) != 0)


@lane_instruction("rcp.[rn|rz|rm|rp][.ftz|].f32")
def rcp(op: Opcode) -> Operation:
    """d = 1 / a, correctly rounded."""
    return _finish(op, 1, _quotient(op, "float32(1)", "a"), "mufu", flushed=rounding(op) != 0)


@lane_instruction("sqrt.[rn|rz|rm|rp][.ftz|].f32")
def sqrt(op: Opcode) -> Operation:
    """d = the square root of a, correctly rounded."""
    mode = rounding(op)
    return _finish(op, 1, f"sqrt32(a, {mode})" if mode else "sqrt32_nearest(a)", "mufu")


@lane_instruction("[min|max][.ftz|][.NaN|][.xorsign.abs|].f32")
def min_max(op: Opcode) -> Operation:
    """d = the smaller or larger operand; .NaN: NaN if either is; .xorsign.abs: of magnitudes, with the product's
    sign."""
    name = f"{op.base}32{'_nan' if op.has('NaN') else ''}"
    if op.has("xorsign"):
        name += "_xorsign"
    return _finish(op, 2, f"{name}(a, b)", "alu")


@lane_instruction("[abs|neg][.ftz|].f32")
def abs_neg(op: Opcode) -> Operation:
    """d = |a| or -a."""
    return _finish(op, 1, "abs(a)" if op.base == "abs" else "-a")


@lane_instruction("copysign.f32")
def copysign(op: Opcode) -> Operation:
    """d = b with the sign of a."""
    body = "(a & uint32(0x80000000)) | (b & uint32(0x7FFFFFFF))"
    return Operation(("b32",), ("b32", "b32"), (body,), "alu")
