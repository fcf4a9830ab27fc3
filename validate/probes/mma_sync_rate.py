"""How often can mma.sync be issued, and when is its result usable?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import per_repetition, timed_kernel

QUESTION = (
    "How many cycles does an mma.sync take that waits for nothing (one, four, eight and sixteen warps of an SM), that waits for the "
    "C of the one before, and that waits for its A?"
)
SETTLES = "h100sim/units/mma_sync.py, the table of costs"

#: Shape and types -> registers of (D and C, A, B).
SHAPES = {
    "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 4, 2),
    "m16n8k8.row.col.f32.bf16.bf16.f32": (4, 2, 1),
    "m16n8k16.row.col.f32.f16.f16.f32": (4, 4, 2),
    "m16n8k8.row.col.f32.f16.f16.f32": (4, 2, 1),
    "m16n8k16.row.col.f16.f16.f16.f16": (2, 4, 2),
    "m16n8k8.row.col.f16.f16.f16.f16": (2, 2, 1),
    "m16n8k4.row.col.f32.tf32.tf32.f32": (4, 2, 1),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 4, 2),
    "m8n8k16.row.col.s32.s8.s8.s32": (2, 1, 1),
    "m16n8k16.row.col.s32.s8.s8.s32": (4, 2, 1),
    "m16n8k32.row.col.s32.s8.s8.s32": (4, 4, 2),
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc": (4, 4, 2),
    "m8n8k4.row.col.f64.f64.f64.f64": (2, 1, 1),
    "m16n8k4.row.col.f64.f64.f64.f64": (4, 2, 1),
    "m16n8k8.row.col.f64.f64.f64.f64": (4, 4, 2),
    "m16n8k16.row.col.f64.f64.f64.f64": (4, 8, 4),
}
CHAINS = 8


def _line(shape: str, chain: int, through_a: bool) -> str:
    d, a, b = SHAPES[shape]
    wide = ".f64." in shape
    kind, prefix = ("%d", "w") if wide else ("%r", "")
    first = [f"{kind}{4 * chain + k}" for k in range(d)]
    left, right, added = ([f"%{prefix}{name}{k}" for k in range(count)] for name, count in (("a", a), ("b", b), ("c", d)))
    # D and A in the same registers: nothing has to be moved.
    operands = (first, first[:a], right, added) if through_a else (first, left, right, first)
    return f"mma.sync.aligned.{shape} {', '.join('{' + ', '.join(names) + '}' for names in operands)};"


def _text(shape: str, chains: int, through_a: bool = False) -> Callable[[int], str]:
    count, wide = 4 * CHAINS, ".f64." in shape
    registers = (
        f".reg .f64 %d<{count}>, %wa<8>, %wb<4>, %wc<4>; .reg .b32 %r<{count}>, %a<8>, %b<4>, %c<4>, %t, %low, %high; .reg .f32 %f;"
    )
    constants = [f"%{name}{k}" for name, n in (("a", 8), ("b", 4), ("c", 4)) for k in range(n)]
    if wide:
        setup = "".join(f"cvt.rn.f64.u32 %w{name[1:]}, %zero;" for name in constants)
        start = "".join(f"add.u32 %r{k}, %z, {k}; cvt.rn.f64.u32 %d{k}, %r{k};" for k in range(count))
        end = "".join(f"mov.b64 {{%low, %high}}, %d{k}; xor.b32 %x, %x, %low; xor.b32 %x, %x, %high;" for k in range(count))
    else:
        setup = "".join(f"mov.b32 {name}, %zero;" for name in constants)
        start = "".join(f"add.u32 %r{k}, %z, {k}; cvt.rn.f32.u32 %f, %r{k}; mov.b32 %r{k}, %f;" for k in range(count))
        end = "".join(f"xor.b32 %x, %x, %r{k};" for k in range(count))

    def build(n: int) -> str:
        body = "\n    ".join(_line(shape, k % chains, through_a) for k in range(n))
        return timed_kernel(f"{start}\n    {body}\n    {end}", registers, setup, threads=512)

    return build


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return shape -> cycles per instruction of a warp [independent, one warp; independent, four warps; dependent through C;
    independent, eight warps; independent, sixteen warps; dependent through A, None where A has more registers than D]."""

    def ask(shape: str, chains: int, warps: int, through_a: bool = False) -> float:
        return per_repetition(launch, _text(shape, chains, through_a), few=96, many=352, warps=warps)

    return {
        shape: [
            ask(shape, CHAINS, 1),
            ask(shape, CHAINS, 4),
            ask(shape, 1, 1),
            ask(shape, CHAINS, 8),
            ask(shape, CHAINS, 16),
            ask(shape, 1, 1, through_a=True) if SHAPES[shape][1] <= SHAPES[shape][0] else None,
        ]
        for shape in SHAPES
    }
