"""cvt and cvt.pack: between integers, floats and the packed small formats.

Registers may be wider than the types: sources are truncated, results zero- or sign-extended.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: cvt, cvt.pack". Which forms exist: ptxas 13.0 for sm_90a.
Measured: tests/data/ptx_scalar.npz, tests/data/scalar_ops.npz.
"""

from __future__ import annotations

from .float import rounding
from .lane import Opcode, Operation, lane_instruction
from .lane_text import width_of_type

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_ANY_INTEGER = "[" + "|".join(_INTEGERS) + "]"
_WORD = "[u16|s16|u32|s32|u64|s64]"
_FLOATS = ("f16", "bf16", "f32", "f64")
_MODES = "[rn|rz|rm|rp]"
_OPTIONAL_MODES = "[.rn|.rz|.rm|.rp|]"
_INTEGRAL_MODES = "[rni|rzi|rmi|rpi]"
_ONE = {"f16": 0x3C00, "bf16": 0x3F80}


def _pipe(op: Opcode) -> str:
    """Return what executes a conversion.

    Spec: CUDA C++ Programming Guide 13.0, "Arithmetic Instructions": conversions from and to 64-bit types run at a
    quarter of the rate of the others, the special function unit's rate. Measured: cvt.rn.bf16x2.f32 in
    validate/silicon/microbenchmarks.json; integers of 32 bits to f32 are arithmetic (I2FP, 4 cycles): validate/silicon/load_latency.json.
    Assumed: f16 to f32 runs on the half-precision pipe, as an addition there.
    """
    types = op.parts[-2:]
    if any(width_of_type(type_) == 64 for type_ in types):
        return "mufu"
    if types in (("f32", "s32"), ("f32", "u32")):
        return "alu"
    return "half" if types == ("f32", "f16") else "cvt"


def _range(type_: str) -> tuple[int, int]:
    width = width_of_type(type_)
    return (-(1 << width - 1), (1 << width - 1) - 1) if type_[0] == "s" else (0, (1 << width) - 1)


def _saturating_pairs() -> list[str]:
    """Return the pairs of integer types for which .sat can do something: ptxas refuses the others."""
    pairs = []
    for result in _INTEGERS:
        for source in _INTEGERS:
            low, high = _range(result)
            source_low, source_high = _range(source)
            if source_low < low or source_high > high:
                pairs.append(f"cvt.sat.{result}.{source}")
    return pairs


@lane_instruction(f"cvt.{_ANY_INTEGER}.{_ANY_INTEGER}", *_saturating_pairs())
def integer_to_integer(op: Opcode) -> Operation:
    """Truncate, or extend by the sign of the source; .sat clamps to the range of the result."""
    result, source = op.parts[-2:]
    body = "int64(a)" if source[0] == "s" else "uint64(a)"
    if op.has("sat"):
        body = _clamp(result, source)
    return Operation((result,), (source,), (body,), "alu", wide=True)


def _clamp(result: str, source: str) -> str:
    low, high = _range(result)
    source_low, source_high = _range(source)
    cast = "int64" if source[0] == "s" else "uint64"
    body = f"{cast}(a)"
    if source_high > high:
        body = f"min({body}, {cast}({high}))"
    return f"max({body}, {cast}({low}))" if source_low < low else body


@lane_instruction(
    f"cvt.{_MODES}[.sat|].[f16|f64].{_ANY_INTEGER}",
    f"cvt.{_MODES}[.ftz|][.sat|].f32.{_ANY_INTEGER}",
    f"cvt.{_MODES}.bf16.{_WORD}",
)
def integer_to_float(op: Opcode) -> Operation:
    """Round an integer to a float; .sat clamps to [0, 1]."""
    result, source = op.parts[-2:]
    mode = rounding(op)
    exact = "float64(a)"
    if width_of_type(source) == 64:
        if result == "f64":
            magnitude = f"f64_from_{source}(a, {mode})"
            return _float_result(op, result, magnitude, magnitude, (source,))
        exact = f"f64_odd_from_{source}(a)"
    return _float_result(op, result, _narrow(result, exact, mode), exact, (source,))


def _narrow(result: str, exact: str, mode: int) -> str:
    """Return the expression that rounds a float64: a float for f32 and f64, bits for f16 and bf16."""
    if result == "f64":
        return exact
    return f"narrow32({exact}, {mode})" if result == "f32" else f"{result}_round({exact}, {mode})"


def _float_result(op: Opcode, result: str, body: str, exact: str, ins: tuple[str, ...], let: tuple = ()) -> Operation:
    """Apply .ftz and .sat to a result; ``exact`` is the expression of the value before rounding."""
    if result == "f32" and op.has("ftz"):
        body = f"flush32({body})"
    if op.has("sat"):
        body = f"saturated_bits({exact}, {_ONE[result]}, {body})" if result in _ONE else f"saturate{width_of_type(result)}({body})"
    return Operation((result,), ins, (body,), _pipe(op), let, wide=True)


def _value(source: str, flush: bool = False) -> str:
    """Return the float64 value of input a."""
    if source == "f64":
        return "a"
    if source == "f32":
        return "float64(flush32(a))" if flush else "float64(a)"
    return f"float64({source}_value(a))"


@lane_instruction(
    f"cvt.{_INTEGRAL_MODES}[.sat|].{_ANY_INTEGER}.[f16|f64]",
    f"cvt.{_INTEGRAL_MODES}[.ftz|][.sat|].{_ANY_INTEGER}.f32",
    f"cvt.{_INTEGRAL_MODES}.{_WORD}.bf16",
)
def float_to_integer(op: Opcode) -> Operation:
    """Round a float to an integer and clamp it to the type's range, with or without .sat.

    Measured: NaN gives 0 for results of up to 32 bits from f32 and f16; otherwise the result's highest bit alone.
    """
    result, source = op.parts[-2:]
    mode = _integral(op)
    low, high = _range(result)
    exact = _value(source, op.has("ftz"))
    nan = _nan_integer(result, source)
    if result == "u64":
        body = f"u64_from_float({exact}, {mode}, uint64({nan}))"
    else:
        body = f"s64_from_float({exact}, {mode}, int64({low}), int64({high}), int64({nan}))"
    return Operation((result,), (source,), (body,), _pipe(op), wide=True)


def _nan_integer(result: str, source: str) -> int:
    width = width_of_type(result)
    if width < 64 and source != "f64":
        return 0
    return -(1 << width - 1) if result[0] == "s" else 1 << width - 1


def _integral(op: Opcode) -> int:
    return ("rni", "rzi", "rmi", "rpi").index(op.parts[0])


@lane_instruction(
    "cvt[.rni|.rzi|.rmi|.rpi|][.ftz|][.sat|].f32.f32",
    "cvt[.rni|.rzi|.rmi|.rpi|][.sat|].[f16.f16|f64.f64]",
    "cvt[.rni|.rzi|.rmi|.rpi|].bf16.bf16",
)
def same_float(op: Opcode) -> Operation:
    """Round a float to an integral value, or only flush and saturate it."""
    type_ = op.type
    exact = _value(type_, op.has("ftz"))
    if op.parts[0] in ("rni", "rzi", "rmi", "rpi"):
        exact = f"round_to_integral({exact}, {_integral(op)})"
        if type_ == "f64" and not op.has("sat"):
            return Operation(("b64",), ("f64",), (f"f64_with_nan({exact}, a, a, a)",), _pipe(op))
    elif type_ in ("f32", "f64") and not (op.has("ftz") or op.has("sat")):
        bits = f"b{width_of_type(type_)}"
        return Operation((bits,), (bits,), ("a",), "alu", wide=True)
    return _float_result(op, type_, _narrow(type_, exact, 0), exact, (type_,))


@lane_instruction(
    "cvt[.ftz|][.sat|].f32.f16",
    f"cvt{_OPTIONAL_MODES}[.ftz|].f32.bf16",
    "cvt[.ftz|][.sat|].f64.f32",
    "cvt[.sat|].f64.f16",
    f"cvt{_OPTIONAL_MODES}.f64.bf16",
)
def widen(op: Opcode) -> Operation:
    """Convert to a wider float, exactly. Measured: f64 and bf16 keep NaN payloads, f32.f16 does not, and none with .ftz."""
    result, source = op.parts[-2:]
    flush = op.has("ftz")
    exact = _value(source, flush)
    if result == "f64" and flush and not op.has("sat"):
        return Operation(("b64",), (source,), ("f64_of_f32(flush32(f32_value(f32_canonical(a))))",), _pipe(op), wide=True)
    if op.has("sat") or flush or (result, source) == ("f32", "f16"):
        return _float_result(op, result, _narrow(result, exact, 0), exact, (source,))
    if result == "f64":
        return Operation(("b64",), (source,), (f"f64_of_{source}(a)",), _pipe(op), wide=True)
    return Operation(("b32",), (source,), ("f32_bits(bf16_value(a))",), "alu", wide=True)


@lane_instruction(
    f"cvt.{_MODES}[.ftz|][.sat|].[f32.f64|f16.f32]",
    f"cvt.{_MODES}[.sat|].f16.f64",
    f"cvt.{_MODES}.bf16.f64",
    f"cvt{_OPTIONAL_MODES}.[f16.bf16|bf16.f16]",
    f"cvt.{_MODES}[.ftz|].bf16.f32",
)
def narrow(op: Opcode) -> Operation:
    """Round to a narrower float, between 16-bit ones to nearest where no mode is written (ptxas 13.0 makes the same machine code).

    Measured: from f64, NaN keeps its payload; .ftz does nothing to an f16."""
    result, source = op.parts[-2:]
    mode = rounding(op)
    flush = op.has("ftz") and result != "f16"
    exact = _value(source, flush)
    if source == "f64" and not op.has("sat"):
        body = f"{result}_of_f64(a, {mode}{f', {flush}' if result == 'f32' else ''})"
        return Operation((f"b{width_of_type(result)}",), (source,), (body,), _pipe(op), wide=True)
    if source == "f32" and mode == 0:
        return _float_result(op, result, f"{result}_from_f32({'flush32(a)' if flush else 'a'})", exact, (source,))
    body = f"narrow32_ftz({exact}, {mode})" if result == "f32" and op.has("ftz") else _narrow(result, exact, mode)
    return _float_result(op, result, body, exact, (source,))


_RELU_OR_FINITE = "[.relu|.satfinite|.relu.satfinite|.satfinite.relu]"


def _clamped(op: Opcode, body: str, type_: str) -> str:
    """Apply .satfinite and .relu to bits of a 16-bit float."""
    if op.has("satfinite"):
        body = f"finite16({body}, {0x7C00 if type_ == 'f16' else 0x7F80})"
    return f"relu16({body})" if op.has("relu") else body


def _half_from_f32(op: Opcode, type_: str, name: str) -> str:
    mode = rounding(op)
    body = f"{type_}_round(float64({name}), {mode})" if mode else f"{type_}_from_f32({name})"
    return _clamped(op, body, type_)


@lane_instruction(f"cvt.[rn|rz]{_RELU_OR_FINITE}.[f16|bf16].f32")
def narrow_clamped(op: Opcode) -> Operation:
    """Round to a 16-bit float; .relu: negative values become 0; .satfinite: no infinity."""
    result = op.parts[-2]
    return Operation((result,), ("f32",), (_half_from_f32(op, result, "a"),), _pipe(op), wide=True)


@lane_instruction(f"cvt.[rn|rz]{_RELU_OR_FINITE.replace(']', '|]')}.[f16x2|bf16x2].f32")
def narrow_pair(op: Opcode) -> Operation:
    """Round two floats to 16 bits each; the first goes to the upper half."""
    type_ = op.parts[-2].removesuffix("x2")
    low, high = _half_from_f32(op, type_, "b"), _half_from_f32(op, type_, "a")
    return Operation(("b32",), ("f32", "f32"), (f"pack16({low}, {high})",), "cvt")


@lane_instruction("cvt.[rn|rz][.relu|].tf32.f32", "cvt.rna[.satfinite|].tf32.f32")
def to_tf32(op: Opcode) -> Operation:
    """Round to tf32: 8 exponent and 10 mantissa bits in the upper part of a word."""
    if op.has("rna"):
        body = "tf32_away(a)"
        if op.has("satfinite"):
            body = f"tf32_finite({body})"
    else:
        body = f"tf32_round(float64(a), {rounding(op)})"
    if op.has("relu"):
        body = f"relu32({body})"
    return Operation(("b32",), ("f32",), (body,), "cvt")


_SMALL_MODES = "rn[.satfinite|.relu.satfinite|.satfinite.relu]"


@lane_instruction(f"cvt.{_SMALL_MODES}.[e4m3x2|e5m2x2].[f32|f16x2]")
def to_fp8_pair(op: Opcode) -> Operation:
    """Round two floats to 8 bits each; the first, or the upper half, goes to the upper byte."""
    result, source = op.parts[-2:]
    name = result.removesuffix("x2")
    ins: tuple[str, ...]
    if source == "f32":
        values, ins = ("float64(b)", "float64(a)"), ("f32", "f32")
    else:
        values, ins = ("float64(f16_value(low16(a)))", "float64(f16_value(high16(a)))"), ("b32",)
    low, high = (f"{name}_round({value})" for value in values)
    if op.has("relu"):
        low, high = f"relu8({low})", f"relu8({high})"
    return Operation(("b16",), ins, (f"{low} | uint32({high} << uint32(8))",), "cvt")


@lane_instruction("cvt.rn[.relu|].f16x2.[e4m3x2|e5m2x2]")
def from_fp8_pair(op: Opcode) -> Operation:
    """Widen two 8-bit floats to f16, exactly."""
    name = op.type.removesuffix("x2")
    halves = [f"f16_from_f32({name}_value({byte}))" for byte in ("a & uint32(255)", "(a >> uint32(8)) & uint32(255)")]
    if op.has("relu"):
        halves = [f"relu16({half})" for half in halves]
    return Operation(("b32",), ("b16",), (f"pack16({halves[0]}, {halves[1]})",), "cvt")


@lane_instruction("cvt.pack.sat.[u16|s16].s32", "cvt.pack.sat.[u2|s2|u4|s4|u8|s8].s32.b32")
def pack(op: Opcode) -> Operation:
    """Clamp two integers to a small type and put them in the low bits, a above b; the rest comes from c, moved up."""
    small = op.parts[2]
    width = int(small[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if small[0] == "s" else (0, (1 << width) - 1)
    mask = (1 << width) - 1
    a, b = (f"uint32(min(max(int64({name}), int64({low})), int64({high})) & int64({mask}))" for name in "ab")
    body = f"{b} | uint32({a} << uint32({width}))"
    if width == 16:
        return Operation(("b32",), ("s32", "s32"), (body,), "alu")
    return Operation(("b32",), ("s32", "s32", "b32"), (f"{body} | uint32(c << uint32({2 * width}))",), "alu")
