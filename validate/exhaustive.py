"""All 2^32 inputs of an instruction, here and on silicon.

An opcode that reads 32 bits altogether (one f32 or u32, a pair of f16, both halves of an f16x2) can be tried on every
input there is. Results are folded into 256 checksums, one for each value of the input's highest byte, so that two
machines can be compared, and a difference found, without keeping 16 GB. A GPU takes milliseconds for an opcode, this
module some seconds on every core.

The checksum of a block is the sum over its inputs x, modulo 2^64, of ``v ^ v >> 29`` times an odd constant, where v is
(result + x * an odd constant) times another. Terms may be added in any order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, c_int64
from pathlib import Path
from typing import Any

import numpy as np

from h100sim.errors import UsageError
from h100sim.isa import lane
from h100sim.isa.lane_text import width_of_type
from h100sim.native import address_of, array_at, call, i32, i64
from h100sim.numerics.scalar import ROW_BYTES

from .probes.lane_forms import register_of
from .probes.timed_kernel import HEADER

SILICON = Path(__file__).parent / "silicon" / "exhaustive.json"

BLOCKS = 256
BLOCK_INPUTS = 1 << 24

_INPUT_FACTOR, _RESULT_FACTOR, _SUM_FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9
#: What the second operand of a conversion of two f32 is: the input times this.
_SECOND_FACTOR = 0x9E3779B1
_MUFU = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos")

OPCODES = (
    *(f"{name}.approx{ftz}.f32" for name in _MUFU for ftz in ("", ".ftz")),
    *("tanh.approx.f32", "tanh.approx.f16x2", "tanh.approx.bf16x2", "ex2.approx.f16x2", "ex2.approx.ftz.bf16x2"),
    *(f"{name}.{mode}{ftz}.f32" for name in ("rcp", "sqrt") for mode in ("rn", "rz", "rm", "rp") for ftz in ("", ".ftz")),
    *(f"{name}{mode}.{type_}" for name in ("add", "sub", "mul") for mode in ("", ".rn") for type_ in ("f16", "bf16")),
    *(f"{name}{mode}.f16" for name in ("add", "sub", "mul") for mode in (".ftz", ".sat")),
    *(f"{name}{nan}.{type_}" for name in ("min", "max") for nan in ("", ".NaN") for type_ in ("f16", "bf16")),
    *(f"cvt.{mode}.{type_}.f32" for mode in ("rn", "rz") for type_ in ("f16", "bf16", "f16x2", "bf16x2")),
    *("cvt.rn.relu.f16x2.f32", "cvt.rn.relu.bf16x2.f32", "cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32"),
    *(f"cvt.rn.satfinite{relu}.{small}x2.{type_}"
      for small in ("e4m3", "e5m2") for relu in ("", ".relu") for type_ in ("f32", "f16x2")),
    *(f"cvt.{mode}.{type_}.f32"
      for mode in ("rni", "rzi", "rmi", "rpi") for type_ in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32")),
    *(f"cvt.{mode}.{result}.{source}"
      for mode in ("rn", "rz", "rm", "rp") for result in ("f16", "bf16", "f32") for source in ("u32", "s32")),
    *("cvt.f64.f32", "cvt.sat.f32.f32", "cvt.ftz.f32.f32", "abs.ftz.f32", "neg.ftz.f32", "popc.b32", "bfind.s32"),
)  # fmt: skip


def _operands(opcode: str) -> tuple[tuple[str, ...], str]:
    """Return the PTX types of an opcode's operands, and how they come from the input: "word", "halves", "two"."""
    ins = lane.operation(opcode).ins
    if len(ins) == 1:
        return ins, "word"
    if ins == ("f32", "f32"):
        return ins, "two"
    assert [t.removeprefix("b") for t in ins] == ["f16"] * 2, f"operands of {opcode} must have 32 bits altogether"
    return ins, "halves"


_SHAPES = ("word", "halves", "two")


def _sum_block(arguments, mask, ops, ctx):
    """Add up one block. Words: function, registers, operand offsets, shape, first input, how many times 32 inputs, width of
    the result (negative if it is signed, and is extended to 32 bits), where the sum goes."""
    w = i64(arguments, 8)
    function, regs, offsets, shape = w[0], w[1], w[2], w[3]
    width = w[6]
    places = i32(offsets, 3)
    results = array_at(regs + places[0], (32,), np.uint32)
    wide_results = array_at(regs + places[0], (32,), np.uint64)
    first = array_at(regs + places[1], (32,), np.uint32)
    second = array_at(regs + places[2], (32,), np.uint32)
    total = np.uint64(0)
    for step in range(w[5]):
        start = np.uint32(w[4] + 32 * step)
        for k in range(32):
            x = np.uint32(start + np.uint32(k))
            if shape == 1:
                first[k] = x & np.uint32(0xFFFF)
                second[k] = x >> np.uint32(16)
            else:
                first[k] = x
                if shape == 2:
                    second[k] = np.uint32(x * np.uint32(_SECOND_FACTOR))
        call(function, regs, 0xFFFFFFFF, offsets, 0)
        for k in range(32):
            result = wide_results[k] if width == 64 else np.uint64(results[k])
            if width < 0:
                low = np.int32(results[k] << np.uint32(32 + width)) >> np.int32(32 + width)
                result = np.uint64(np.uint32(low))
            v = result + np.uint64(start + np.uint32(k)) * np.uint64(_INPUT_FACTOR)
            v *= np.uint64(_RESULT_FACTOR)
            v ^= v >> np.uint64(29)
            total += v * np.uint64(_SUM_FACTOR)
    i64(w[7], 1)[0] = np.int64(total)
    return 0


def checksums(opcode: str, blocks: Sequence[int] = range(BLOCKS)) -> list[int]:
    """Return the checksums of some blocks, computed here on every core."""
    _, shape = _operands(opcode)
    form = lane.natural_form(opcode)
    function, summing = lane.compile_form(form), CFUNCTYPE(*[c_int64] * 5)(address_of(_sum_block))
    out = lane.operation(opcode).outs[0]
    width = -width_of_type(out) if out in ("s8", "s16") else width_of_type(out)
    kinds = (*form.outs, *form.ins)
    offsets = np.cumsum([0, *(ROW_BYTES[kind] for kind in kinds)]).astype(np.int32)

    def one(block: int) -> int:
        regs, sums = np.zeros(1024, np.uint8), np.zeros(1, np.int64)
        words = np.array(
            [
                *(function, regs.ctypes.data, offsets.ctypes.data, _SHAPES.index(shape), block * BLOCK_INPUTS),
                *(BLOCK_INPUTS // 32, width, sums.ctypes.data),
            ],
            np.int64,
        )
        summing(words.ctypes.data, 0, 0, 0)
        return int(sums.view(np.uint64)[0])

    with ThreadPoolExecutor(_cores()) as pool:
        return list(pool.map(one, blocks))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kernel(opcode: str) -> str:
    """Return the text of ``probe(sums, first)``: CTA (x, y) adds its part of block first + y to sums[y].

    256 threads, gridDim.x a power of two up to 256; each thread does the rest of the block's inputs.
    """
    ins, shape = _operands(opcode)
    op = lane.operation(opcode)
    strict = "bf16" in opcode.split(".")
    registers = [register_of(opcode, t, n, op.wide and not strict) for n, t in enumerate(ins)]
    result = register_of(opcode, op.outs[0], -1, op.wide and not strict)
    names = [f"%i{n}" for n in range(len(ins))]
    declared = "".join(f"    .reg .{t} {name};\n" for name, t in zip((*names, "%o"), (*registers, result), strict=True))
    if shape == "word":
        load = "mov.b32 %i0, %x;" if _width(registers[0]) == 32 else "cvt.u16.u32 %i0, %x;"
    elif shape == "halves":
        load = "mov.b32 {%i0, %i1}, %x;"
    else:
        load = f"mov.b32 %i0, %x;\n    mul.lo.u32 %second, %x, {_SECOND_FACTOR};\n    mov.b32 %i1, %second;"
    widen = {
        16: "mov.b16 %none, 0;\n    mov.b64 %v, {%o, %none, %none, %none};",
        32: "mov.b64 %v, {%o, %zero};",
        64: "mov.b64 %v, %o;",
    }[_width(result)]
    return f"""{HEADER}.visible .entry probe(.param .u64 sums, .param .u32 first)
{{
    .reg .pred %more;
    .reg .b16 %none;
    .reg .b32 %x, %end, %step, %part, %zero, %second, %block;
    .reg .b64 %sums, %total, %v, %w, %high;
{declared}    ld.param.u64 %sums, [sums];
    ld.param.u32 %block, [first];
    mov.u32 %part, %ctaid.y;
    mul.wide.u32 %v, %part, 8;
    add.s64 %sums, %sums, %v;
    add.u32 %block, %block, %part;
    shl.b32 %block, %block, 24;
    mov.u32 %part, %ctaid.x;
    mov.u32 %x, %tid.x;
    mad.lo.u32 %x, %part, 256, %x;
    mov.u32 %step, %nctaid.x;
    shl.b32 %step, %step, 8;
    mov.u32 %zero, 0;
    mov.u64 %total, 0;
    mov.u32 %end, %x;
    add.u32 %x, %x, %block;
again:
    {load}
    {opcode} %o, {", ".join(names)};
    {widen}
    cvt.u64.u32 %w, %x;
    mul.lo.u64 %w, %w, {_INPUT_FACTOR};
    add.u64 %v, %v, %w;
    mul.lo.u64 %v, %v, {_RESULT_FACTOR};
    shr.u64 %high, %v, 29;
    xor.b64 %v, %v, %high;
    mad.lo.u64 %total, %v, {_SUM_FACTOR}, %total;
    add.u32 %x, %x, %step;
    add.u32 %end, %end, %step;
    setp.lt.u32 %more, %end, {BLOCK_INPUTS};
    @%more bra again;
    red.global.add.u64 [%sums], %total;
    ret;
}}
"""


def _width(register: str) -> int:
    return {"f16": 16, "f16x2": 32, "f32": 32, "f64": 64}.get(register) or int(register[1:])


def measure(launch: Callable[..., Any], opcode: str, blocks: int = BLOCKS) -> list[int]:
    """Return the checksums of the first blocks, computed by the kernel."""
    sums = np.zeros(blocks, np.uint64)
    launch(kernel(opcode), "probe", (64, blocks, 1), (256, 1, 1), [sums, np.uint32(0)])
    return [int(s) for s in sums]


def text_of(sums: Iterable[int]) -> str:
    """Return checksums as one text of 16 hexadecimal digits each."""
    return "".join(f"{s:016x}" for s in sums)


def silicon() -> dict[str, list[int]]:
    """Return the committed checksums of silicon by opcode."""
    results = json.loads(SILICON.read_text())["results"]
    return {opcode: [int(text[k : k + 16], 16) for k in range(0, len(text), 16)] for opcode, text in results.items()}


def differing_blocks(opcode: str, blocks: Iterable[int] = range(BLOCKS)) -> list[int]:
    """Return the blocks of an opcode whose results here and on silicon differ. UsageError for one not captured."""
    captured = silicon()
    if opcode not in captured:
        raise UsageError(f"opcode must be one that was captured ({', '.join(captured)}), not {opcode}")
    asked = list(blocks)
    return [k for k, s in zip(asked, checksums(opcode, asked), strict=True) if s != captured[opcode][k]]
