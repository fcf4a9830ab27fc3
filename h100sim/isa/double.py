"""Double precision: add sub mul fma mad div rcp sqrt min max abs neg copysign, with every rounding.

Unlike single precision, a NaN operand is the result, made quiet; a NaN out of nothing is 0xFFF8000000000000. Of several
NaN operands, b is taken before c and c before a; only a division prefers a.
rcp.approx.ftz.f64 and rsqrt.approx.f64 are in special_function.py.

Spec: PTX ISA 9.1, "Floating Point Instructions". Measured: tests/data/ptx_scalar.npz, validate/silicon/lane_forms.json.
"""

from __future__ import annotations

from .float import rounding
from .lane import Opcode, Operation, lane_instruction


def _operation(count: int, body: str, mode: int = 0, pipe: str = "f64", nans: str = "bca") -> Operation:
    """Return an operation; ``nans`` are its operands in the order in which one that is NaN becomes the result."""
    names = [name for name in nans if name in "abc"[:count]]
    operands = ", ".join((*names, *("a",) * (3 - count)))
    let = (f"r = float64({body})",)
    style = "serial" if mode else "vector"
    return Operation(("b64",), ("f64",) * count, (f"f64_with_nan(r, {operands})",), pipe, let, style)


@lane_instruction("[add|sub|mul][.rn|.rz|.rm|.rp|].f64")
def add_sub_mul(op: Opcode) -> Operation:
    """d = a + b, a - b or a * b."""
    mode = rounding(op)
    sign = {"add": "+", "sub": "-", "mul": "*"}[op.base]
    if mode == 0:
        return _operation(2, f"a {sign} b")
    if op.base == "mul":
        return _operation(2, f"mul64(a, b, {mode})", mode)
    return _operation(2, f"add64(a, {'b' if op.base == 'add' else '-b'}, {mode})", mode)


@lane_instruction("[fma|mad].[rn|rz|rm|rp].f64")
def fma(op: Opcode) -> Operation:
    """d = a * b + c with one rounding."""
    return signed_fma(op)


def signed_fma(op: Opcode, product: str = "", addend: str = "") -> Operation:
    """Return d = a * b + c with one rounding, "-" before the product or the addend where it is given."""
    mode, operands = rounding(op), f"{product}a, b, {addend}c"
    return _operation(3, f"fma64_directed({operands}, {mode})" if mode else f"fma64({operands})", mode)


@lane_instruction("div.[rn|rz|rm|rp].f64")
def div(op: Opcode) -> Operation:
    """d = a / b, correctly rounded."""
    mode = rounding(op)
    return _operation(2, f"div64(a, b, {mode})" if mode else "div64_nearest(a, b)", mode, nans="ab")


@lane_instruction("rcp.[rn|rz|rm|rp][.ftz|].f64")
def rcp(op: Opcode) -> Operation:
    """d = 1 / a, correctly rounded; .ftz, which the manual does not have, does nothing (machine code of ptxas 13.0)."""
    mode = rounding(op)
    return _operation(1, f"div64(1.0, a, {mode})" if mode else "div64_nearest(1.0, a)", mode)


@lane_instruction("sqrt.[rn|rz|rm|rp].f64")
def sqrt(op: Opcode) -> Operation:
    """d = the square root of a, correctly rounded."""
    mode = rounding(op)
    return _operation(1, f"sqrt64(a, {mode})" if mode else "sqrt64_nearest(a)", mode)


@lane_instruction("[min|max].f64")
def min_max(op: Opcode) -> Operation:
    """d = the smaller or larger operand, the other one if one is NaN."""
    return _operation(2, f"{op.base}64(a, b)")


@lane_instruction("[abs|neg].f64")
def abs_neg(op: Opcode) -> Operation:
    """d = |a| or -a. Measured: neg leaves a NaN as it is."""
    return _operation(1, "abs(a)" if op.base == "abs" else "-a")


@lane_instruction("copysign.f64")
def copysign(op: Opcode) -> Operation:
    """d = b with the sign of a."""
    body = "(a & uint64(0x8000000000000000)) | (b & uint64(0x7FFFFFFFFFFFFFFF))"
    return Operation(("b64",), ("b64", "b64"), (body,), "alu")
