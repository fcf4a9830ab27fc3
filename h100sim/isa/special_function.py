"""Approximate functions: ex2 lg2 rcp rsqrt sqrt sin cos tanh, div.approx and div.full.

Each is one operation of the special function unit, with scaling around it where subnormals are kept. The 16-bit forms
cut the unit's result.

Spec: PTX ISA 9.1, "Floating Point Instructions", "Half Precision Floating-Point Instructions: ex2, tanh".
Measured: validate/silicon/exhaustive.json, validate/silicon/lane_forms.json, tests/data/ptx_scalar.npz.
"""

from __future__ import annotations

from .lane import Opcode, Operation, lane_instruction


def _f32(body: str, count: int = 1) -> Operation:
    return Operation(("f32",), ("f32",) * count, (body,), "mufu")


_FLUSHED = {"ex2": "mufu_ex2", "lg2": "mufu_lg2", "rcp": "mufu_rcp", "rsqrt": "mufu_rsq", "sqrt": "mufu_sqrt"}


@lane_instruction("[ex2|lg2|rcp|rsqrt|sqrt].approx[.ftz|].f32")
def approximate(op: Opcode) -> Operation:
    """d = 2^a, log2(a), 1 / a, 1 / sqrt(a) or sqrt(a)."""
    return _f32(f"{_FLUSHED[op.base]}(a)" if op.has("ftz") else f"{op.base}_approx(a)")


@lane_instruction("[sin|cos].approx[.ftz|].f32")
def trigonometric(op: Opcode) -> Operation:
    """d = sin(a) or cos(a); a subnormal argument gives the same as zero."""
    return _f32(f"{op.base}_approx(a)")


@lane_instruction("tanh.approx.f32")
def tanh(op: Opcode) -> Operation:
    """d = tanh(a)."""
    return _f32("tanh_approx(a)")


@lane_instruction("ex2.approx.[f16|f16x2]", "ex2.approx.ftz.[bf16|bf16x2]", "tanh.approx.[f16|f16x2|bf16|bf16x2]")
def half_function(op: Opcode) -> Operation:
    """d = 2^a or tanh(a) of 16-bit floats."""
    number = op.type.removesuffix("x2")

    def half(code: str) -> str:
        value = f"{number}_flushed({code})" if op.has("ftz") else f"{number}_value({code})"
        name = "mufu_ex2" if op.base == "ex2" else "tanh_approx"
        return f"{number}_cut({name}({value}))"

    if op.type.endswith("x2"):
        return Operation(("b32",), ("b32",), (f"pack16({half('low16(a)')}, {half('high16(a)')})",), "mufu")
    return Operation((op.type,), (op.type,), (half("a"),), "mufu")


@lane_instruction("div.[approx|full][.ftz|].f32")
def div(op: Opcode) -> Operation:
    """d = a times the approximate reciprocal of b, scaled where b is subnormal and, by div.full, where it is large."""
    name = "div_approx" if op.has("approx") else "div_full"
    if op.has("ftz"):
        return _f32(f"{name}_ftz(flush32(a), flush32(b))", 2)
    return _f32(f"{name}(a, b)", 2)


@lane_instruction("rcp.approx.ftz.f64", "rsqrt.approx[.ftz|].f64")
def double(op: Opcode) -> Operation:
    """d = 1 / a or 1 / sqrt(a): 20 fraction bits, refined for rsqrt without .ftz."""
    name = "mufu_rcp64h" if op.base == "rcp" else "mufu_rsq64h" if op.has("ftz") else "rsqrt64_approx"
    return Operation(("b64",), ("f64",), (f"{name}(a)",), "mufu")
