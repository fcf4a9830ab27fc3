"""Which bits do mma.sp, 4-bit mma.sync, and mma.sync of f64 with every rounding return?

Every opcode runs on 16 tiles: random bits, floats of like exponents, few non-zeros and accumulators near the limits.
Metadata is legal in every lane, also in those that the sparsity selector does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np

from h100sim.layouts.fragments import fragment

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = (
    "Which bits do sparse mma.sync (every type, shape and selector), 4-bit mma.sync and mma.sync of f64 (every rounding) return?"
)
SETTLES = "h100sim/numerics/mma_sync.py, sparse.py: shapes, metadata and steps of mma.sp, steps of 4-bit products, roundings of f64"

TILES = 16
_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "e4m3": 8,
    "e5m2": 8,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "f32": 32,
    "s32": 32,
    "f64": 64,
}
#: Exponent and mantissa bits of the float types.
_FIELDS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2), "f32": (8, 23), "f64": (11, 52)}
_SP = "mma.sp::ordered_metadata.sync.aligned."
_MMA = "mma.sync.aligned."

#: Opcodes of mma.sp, and how many selectors each has.
SPARSE = (
    *((f"m16n8k{k}.row.col.{t}", n)
      for k, n in ((16, 4), (32, 2)) for t in ("f32.f16.f16.f32", "f16.f16.f16.f16", "f32.bf16.bf16.f32")),
    *((f"m16n8k{k}.row.col.f32.tf32.tf32.f32", n) for k, n in ((8, 4), (16, 2))),
    *((f"m16n8k{k}.row.col{sat}.s32.{a}.{b}.s32", n)
      for k, n in ((32, 2), (64, 1)) for sat, a, b in (("", "s8", "s8"), (".satfinite", "s8", "u8"), ("", "u8", "u8"))),
    *((f"m16n8k64.row.col.f32.{a}.{b}.f32", 1) for a, b in product(("e4m3", "e5m2"), repeat=2)),
    *((f"m16n8k{k}.row.col{sat}.s32.{a}.{b}.s32", n)
      for k, n in ((64, 2), (128, 1)) for sat, a, b in (("", "s4", "s4"), (".satfinite", "s4", "u4"), ("", "u4", "u4"))),
)  # fmt: skip
#: Dense opcodes of 4-bit integers.
DENSE = tuple(
    f"{shape}.row.col{sat}.s32.{a}.{b}.s32"
    for shape in ("m8n8k32", "m16n8k32", "m16n8k64")
    for sat, a, b in (("", "s4", "s4"), (".satfinite", "s4", "u4"), (".satfinite", "u4", "u4"), ("", "u4", "s4"))
)
#: Dense opcodes of f64.
DOUBLE = tuple(
    f"{shape}.row.col{rounding}.f64.f64.f64.f64"
    for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    for rounding in ("", ".rz", ".rm", ".rp")
)


def cases() -> list[tuple[str, int]]:
    """Return (opcode, selector); the selector is -1 for a dense product."""
    sparse = [(_SP + rest, selector) for rest, count in SPARSE for selector in range(count)]
    return sparse + [(_MMA + rest, -1) for rest in (*DENSE, *DOUBLE)]


def types(opcode: str) -> tuple[str, str, str]:
    """Return the types of D, A and B."""
    d, a, b = [part for part in opcode.split(".") if part in _BITS][:3]
    return d, a, b


def inputs(opcode: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return A (TILES, M, stored K), B (TILES, N, K), C (TILES, M, N) as uint64 bits, metadata M (TILES, 32) uint32."""
    rng = np.random.default_rng([seed, *opcode.encode()])
    d, a, b = types(opcode)
    shapes = {name: fragment(opcode, name.lower()).shape for name in "ABC"}
    found = {name: _elements(rng, t, (TILES, *shapes[name])) for name, t in zip("ABC", (a, b, d), strict=True)}
    nibbles = [0b0100, 0b1110] if a == "tf32" else [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110]
    chosen = rng.choice(nibbles, (TILES, 32, 8)).astype(np.uint32)
    found["M"] = (chosen << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    return found


def _elements(rng: np.random.Generator, type_: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = rng.integers(0, 1 << _BITS[type_], shape, np.uint64)
    if type_ == "s32":
        bits[1::4] = np.where(bits[1::4] & np.uint64(1), np.uint64(0x7FFFFFFF), np.uint64(0x80000000)) ^ (
            bits[1::4] >> np.uint64(22)
        )
    if type_ in _FIELDS:
        exponent, mantissa = _FIELDS[type_]
        top, bias = (1 << exponent) - 1, (1 << (exponent - 1)) - 1
        for tile in range(1, TILES):
            spread = min((1, 3, 6, top - bias - 1)[tile % 4], top - bias - 1)
            field = rng.integers(bias - spread, bias + spread, shape[1:], np.uint64)
            keep = np.uint64((1 << mantissa) - 1 | 1 << (exponent + mantissa))
            bits[tile] = (bits[tile] & keep) | field << np.uint64(mantissa)
        bits[5::6] *= rng.random(bits[5::6].shape) < 0.2
    elif type_ != "s32":
        bits[3::5] *= rng.random(bits[3::5].shape) < 0.2
    return bits


def _registers(opcode: str, which: str, elements: np.ndarray) -> np.ndarray:
    """Return the registers (TILES, registers, 32 lanes) of an operand."""
    owner, word = fragment(opcode, which), word_of(opcode)
    words = np.zeros((TILES, int(owner["register"].max()) + 1, 32), word)
    for tile in range(TILES):
        parts = (elements[tile] << owner["bit"].astype(np.uint64)).astype(word)
        np.bitwise_or.at(words[tile], (owner["register"], owner["lane"]), parts)
    return words


def word_of(opcode: str) -> type[np.uint32] | type[np.uint64]:
    """Return what a register holds."""
    return np.uint64 if types(opcode)[0] == "f64" else np.uint32


def kernel(opcode: str, selector: int, counts: dict[str, int]) -> str:
    """Return the text of ``probe(in, out)``: one warp for each tile."""
    word, size = ("b64", 8) if types(opcode)[0] == "f64" else ("b32", 4)
    c_type = "f32" if types(opcode)[0] == "f32" else word
    kinds = {"a": word, "b": word, "c": c_type, "m": word, "d": c_type}
    total = sum(counts.values())
    lines = [f".reg .{kinds[name]} %{name}<{max(count, 1)}>;" for name, count in (*counts.items(), ("d", counts["c"]))]
    lines += [
        ".reg .b32 %lane, %tile;", ".reg .b64 %in, %out, %offset;", "mov.u32 %lane, %tid.x;", "mov.u32 %tile, %ctaid.x;",
        "ld.param.u64 %in, [in];", "ld.param.u64 %out, [out];", f"mul.wide.u32 %offset, %lane, {size};",
        "add.s64 %in, %in, %offset;", "add.s64 %out, %out, %offset;", f"mul.wide.u32 %offset, %tile, {32 * size * total};",
        "add.s64 %in, %in, %offset;", f"mul.wide.u32 %offset, %tile, {32 * size * counts['c']};", "add.s64 %out, %out, %offset;",
    ]  # fmt: skip
    place = 0
    for name, count in counts.items():
        lines += [f"ld.global.{kinds[name]} %{name}{k}, [%in+{32 * size * (place + k)}];" for k in range(count)]
        place += count
    groups = {name: "{" + ", ".join(f"%{name}{k}" for k in range(counts["c" if name == "d" else name])) + "}" for name in "dabc"}
    metadata = "" if selector < 0 else f", %m0, {selector}"
    lines.append(f"{opcode} {', '.join(groups.values())}{metadata};")
    lines += [f"st.global.{c_type} [%out+{32 * size * k}], %d{k};" for k in range(counts["c"])]
    body = "\n    ".join((*lines, "ret;"))
    return f"{HEADER}.visible .entry probe(.param .u64 in, .param .u64 out)\n{{\n    {body}\n}}\n"


def result(launch: Callable[..., Any], opcode: str, selector: int) -> np.ndarray:
    """Return D (TILES, M, N) as bits, uint64 of f64, else uint32."""
    given = inputs(opcode, selector + 1)
    words = {name.lower(): _registers(opcode, name.lower(), given[name]) for name in "ABC"}
    words["m"] = given["M"][:, None, :] if selector >= 0 else np.zeros((TILES, 0, 32), word_of(opcode))
    counts = {name: value.shape[1] for name, value in words.items()}
    out = np.zeros((TILES, counts["c"], 32), word_of(opcode))
    everything = np.ascontiguousarray(np.concatenate(list(words.values()), axis=1))
    launch(kernel(opcode, selector, counts), "probe", (TILES, 1, 1), (32, 1, 1), [everything, out])
    owner = fragment(opcode, "d")
    bits = out[:, owner["register"], owner["lane"]] >> owner["bit"].astype(out.dtype)
    return bits & np.uint32(0xFFFF) if types(opcode)[0] == "f16" else bits


def name(opcode: str, selector: int) -> str:
    return opcode if selector < 0 else f"{opcode} selector {selector}"


def measure(launch: Callable[..., Any], asked: Iterable[tuple[str, int]] | None = None) -> dict[str, Any]:
    """Return opcode and selector -> SHA-256 of D."""
    return {name(*case): sha256(result(launch, *case)) for case in (cases() if asked is None else asked)}
