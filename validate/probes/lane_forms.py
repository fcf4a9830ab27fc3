"""Which bits do the scalar instructions return on operands chosen to be awkward?

Every opcode of the instruction table that takes registers, set, setp and slct thinned out (their comparisons and types
combine freely). Several opcodes share a kernel, so that all are asked in some fifty launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from h100sim.isa import lane
from h100sim.isa.lane_text import width_of_type

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = "Which bits do the scalar instructions return on 1,024 triples of awkward operands?"
SETTLES = "h100sim/isa, h100sim/numerics: every form of the lane instructions; digests must be equal here and on silicon"

ROWS = 1024
_THREADS = 128
_OPCODES_PER_KERNEL = 32
#: Every how many opcodes of a table that is a product of many choices are asked.
_THINNED = {"set": 13, "setp": 7, "slct": 3}
#: Forms with an immediate or vectors (tested apart).
_LEFT_OUT = ("lop3", "mov")


def opcodes() -> list[str]:
    """Return the opcodes that are asked; comparisons of pairs once more with both results, as ``opcode|q``."""
    asked = [
        opcode
        for base, group in lane.forms().items()
        if base not in _LEFT_OUT
        for opcode in islice(group, 0, None, _THINNED.get(base, 1))
    ]
    return asked + [f"{opcode}|q" for opcode in asked if opcode.startswith("setp.") and opcode.endswith("x2")]


def operands() -> np.ndarray:
    """Return the operands: uint64 (ROWS, 3), of which an instruction takes the low bits.

    Rows take turns: random bits; floats of one width near its limits, special or equal up to sign; small integers; results
    just below the smallest normal number.
    """
    rng = np.random.default_rng(2026)
    words = rng.integers(0, 1 << 64, (ROWS, 3), np.uint64, endpoint=False)
    pools = {width: _floats(rng, *layout) for width, layout in {32: (8, 23), 64: (11, 52), 16: (5, 10)}.items()}
    pools[17] = _floats(rng, 8, 7)
    for row in range(ROWS):
        kind = row % 8
        if kind in (1, 2):
            words[row] = _repeated(rng.choice(pools[32], 6), 32)
        elif kind in (3, 4):
            words[row] = rng.choice(pools[64], 3)
        elif kind in (5, 6):
            words[row] = _repeated(rng.choice(pools[16 if kind == 5 else 17], 12), 16)
        elif kind == 7:
            words[row] = rng.choice(_integers(), 3)
        if row % 16 >= 13:
            words[row, 1] = words[row, 0] ^ (np.uint64(0x8000800080008000) if row % 2 else np.uint64(0))
        if row % 64 in (3, 17):
            words[row, 2] = _minus_product(words[row], 64 if row % 64 == 3 else 32)
        if row % 16 == 1:
            words[row] = _nearly_normal(rng, row // 16)
    return words


def _nearly_normal(rng: np.random.Generator, kind: int) -> np.ndarray:
    """Return operands whose product, sum, quotient or value is so little below a smallest normal that it rounds to it.

    What .ftz makes of that depends on whether the exact or the rounded result is looked at.
    """
    sign = int(rng.choice((-1, 1)))
    bits, least = (11, -14) if kind % 6 in (2, 3) else (24, -126)
    m = int(rng.integers(1 << bits - 1, 1 << bits))
    other = ((1 << 2 * bits - 1) - 1) // m  # m * other is just below 2^(2 * bits - 1)
    half = 1 - 2 * bits + least
    if kind % 6 in (0, 2):  # a * b, with c zero
        values = (sign * m * 2.0 ** (half // 2), other * 2.0 ** (half - half // 2), 0.0)
    elif kind % 6 in (1, 3):  # a * b + c, a * b just below twice the smallest normal
        values = (sign * m * 2.0 ** (half // 2), other * 2.0 ** (half - half // 2 + 1), -sign * 2.0**least)
    elif kind % 6 == 4:  # a / b
        values = (sign * (m - 1) * 2.0 ** (3 + least), m * 2.0**3, 0.0)
    else:  # an f64 that is narrowed
        values = (sign * 2.0**least * (1 - 2.0**-30 * int(rng.integers(1, 50))), 0.0, 0.0)
        return np.array(values, np.float64).view(np.uint64)
    word = np.uint16 if bits == 11 else np.uint32
    found = np.array(values, np.float16 if bits == 11 else np.float32).view(word).astype(np.uint64)
    return found * np.uint64(0x0001000100010001 if bits == 11 else 0x0000000100000001)


def _repeated(parts: np.ndarray, width: int) -> np.ndarray:
    """Pack parts of ``width`` bits into three words."""
    shifts = np.arange(0, 64, width, dtype=np.uint64)
    return (parts.reshape(3, -1).astype(np.uint64) << shifts).sum(1, dtype=np.uint64)


def _floats(rng: np.random.Generator, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Return floats as bits: limits, special values, powers of two and their neighbours, random ones near 1."""
    top, one = (1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1
    exponents = [0, 1, 2, mantissa_bits, one - 1, one, one + 1, one + mantissa_bits, one + 31, one + 63, top - 1, top]
    exponents += [int(e) for e in rng.integers(0, top, 8)]
    full = (1 << mantissa_bits) - 1
    mantissas = [0, 1, full, full - 1, full >> 1, (full >> 1) + 1, (full >> 1) + 2, 0x55555555555555 & full]
    mantissas += [int(m) for m in rng.integers(0, full, 6)]
    sign = 1 << (exponent_bits + mantissa_bits)
    found = [s | min(e, top) << mantissa_bits | m for e in exponents for m in mantissas for s in (0, sign)]
    return np.array(found, np.uint64)


def _integers() -> np.ndarray:
    """Return small numbers, shift amounts, and the limits of every integer type and their neighbours."""
    near = [0, 1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256]
    near += [(1 << width) + offset for width in (7, 8, 15, 16, 31, 32, 63) for offset in (-1, 0, 1)]
    return np.array([n & (1 << 64) - 1 for m in near for n in (m, -m, m << 32 | m)], np.uint64)


def _minus_product(words: np.ndarray, width: int) -> np.uint64:
    """Return -(a * b) rounded, so that a * b + c shows what is kept below the last place."""
    float_type, bits = (np.float64, np.uint64) if width == 64 else (np.float32, np.uint32)
    a, b = (words[k : k + 1].view(np.uint64).astype(bits).view(float_type)[0] for k in (0, 1))
    with np.errstate(all="ignore"):
        return np.uint64(np.array([-(a * b)], float_type).view(bits)[0])


def results(launch: Callable[..., Any], asked: Sequence[str]) -> dict[str, np.ndarray]:
    """Return opcode -> its results as uint64 (ROWS,), zero-extended; a carry is folded in (see :func:`_store`)."""
    words = operands()
    found: dict[str, Any] = {}
    for first in range(0, len(asked), _OPCODES_PER_KERNEL):
        group = asked[first : first + _OPCODES_PER_KERNEL]
        answers = np.zeros((len(group), ROWS), np.uint64)
        launch(kernel(group), "probe", (ROWS // _THREADS, 1, 1), (_THREADS, 1, 1), [words, answers])
        found |= dict(zip(group, answers, strict=True))
    return found


def measure(launch: Callable[..., Any], asked: Sequence[str] = ()) -> dict[str, Any]:
    """Return opcode -> the beginning of the SHA-256 of its results, of all opcodes if none are given."""
    return {opcode: sha256(answer)[:16] for opcode, answer in results(launch, asked or opcodes()).items()}


def kernel(group: Sequence[str]) -> str:
    """Return the text of a kernel that runs a few opcodes, one after the other, on the operands of its thread."""
    bodies = "".join(_body(k, opcode) for k, opcode in enumerate(group))
    return f"""{HEADER}.visible .entry probe(.param .u64 words, .param .u64 answers)
{{
    .reg .b32 %index, %threads, %cta, %carry;
    .reg .b64 %words, %answers, %offset, %x0, %x1, %x2, %y, %wide;
    mov.u32 %index, %tid.x;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mad.lo.u32 %index, %cta, %threads, %index;
    ld.param.u64 %words, [words];
    ld.param.u64 %answers, [answers];
    mul.wide.u32 %offset, %index, 24;
    add.s64 %words, %words, %offset;
    ld.global.u64 %x0, [%words];
    ld.global.u64 %x1, [%words+8];
    ld.global.u64 %x2, [%words+16];
    mul.wide.u32 %offset, %index, 8;
    add.s64 %answers, %answers, %offset;
{bodies}    ret;
}}
"""


def register_of(opcode: str, type_: str, place: int, wide: bool) -> str:
    """Return the type of the register for an operand (its place among the sources, or -1 for a result)."""
    type_ = _written(opcode, type_, place)
    if type_ in ("pred", "f16", "f16x2", "f32", "f64"):
        return type_
    return f"b{max(width_of_type(type_), 32 if wide else 16)}"


def _body(k: int, opcode: str) -> str:
    """Return the lines that run one opcode: declare, narrow the operands, execute, widen and store the result."""
    opcode, both, _ = opcode.partition("|")
    op = lane.operation(opcode, 2 if both else 1)
    ins = [t for t in op.ins if t != "#"]
    is_wide = op.wide and "bf16" not in opcode.split(".")
    registers = [(f"%i{k}_{n}", register_of(opcode, t, n, is_wide)) for n, t in enumerate(ins)]
    targets = [(f"%o{k}_{n}", register_of(opcode, t, -1, is_wide)) for n, t in enumerate(op.outs)]
    lines = ["{", *(f".reg .{type_} {name};" for name, type_ in (*registers, *targets))]
    for n, (name, type_) in enumerate(registers):
        lines += _narrow(name, type_, f"%x{n % 3}" if n < 3 else "7", k)
    if op.carry_in:
        lines += [".reg .b32 %low, %high;", "mov.b64 {%low, %high}, %x2;", "add.cc.u32 %low, %low, %high;"]
    sources = ["7" if n >= 3 else name for n, (name, _) in enumerate(registers)]
    lines.append(f"{opcode} {', '.join(('|'.join(name for name, _ in targets), *sources))};")
    lines += _store(k, targets, op.carry_out)
    return "".join(f"    {line}\n" for line in (*lines, "}"))


def _written(opcode: str, type_: str, place: int) -> str:
    """Return the type that the opcode names where the operation takes plain bits of the same width."""
    floats = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32")
    parts = [part for part in opcode.split(".")[1:] if part in floats]
    if type_[0] == "b" and parts and opcode.split(".")[0] not in ("set", "slct"):
        named = parts[0] if place < 0 else parts[-1]
        if named != "tf32" and width_of_type(named) == width_of_type(type_):
            return named
    return type_


def _narrow(name: str, type_: str, word: str, k: int) -> list[str]:
    if word == "7":
        return []
    if type_ == "pred":
        return [f"{{ .reg .b64 %bit; and.b64 %bit, {word}, 1; setp.ne.u64 {name}, %bit, 0; }}"]
    width = {"f16": 16, "f16x2": 32, "f32": 32, "f64": 64}.get(type_) or int(type_[1:])
    if width == 64:
        return [f"mov.b64 {name}, {word};"]
    if width == 32:
        return [f"{{ .reg .b32 %rest; mov.b64 {{{name}, %rest}}, {word}; }}"]
    return [f"{{ .reg .b16 %r<3>; mov.b64 {{{name}, %r0, %r1, %r2}}, {word}; }}"]


def _store(k: int, targets: list[tuple[str, str]], carry: bool) -> list[str]:
    """Widen a result and store it; a second predicate is bit 1.

    A carry is added as bit 32, or times an odd number to a 64-bit result.
    """
    name, type_ = targets[0]
    if type_ == "pred":
        lines = [f"selp.u64 %y, 1, 0, {name};"]
        lines += [f"@{second} or.b64 %y, %y, 2;" for second, _ in targets[1:]]
    else:
        width = {"f16": 16, "f16x2": 32, "f32": 32, "f64": 64}.get(type_) or int(type_[1:])
        zero = "{ .reg .b32 %zero; mov.b32 %zero, 0; mov.b64 %y, {" + name + ", %zero}; }"
        lines = [f"mov.b64 %y, {name};"] if width == 64 else [zero]
        if width == 16:
            lines = ["{ .reg .b16 %zero; mov.b16 %zero, 0; mov.b64 %y, {" + name + ", %zero, %zero, %zero}; }"]
        if carry:
            factor = "0x9E3779B97F4A7C15" if width == 64 else "0x100000000"
            lines = ["addc.u32 %carry, 0, 0;", *lines, "cvt.u64.u32 %wide, %carry;"]
            lines.append(f"mad.lo.u64 %y, %wide, {factor}, %y;")
    return [*lines, f"st.global.u64 [%answers+{8 * ROWS * k}], %y;"]
