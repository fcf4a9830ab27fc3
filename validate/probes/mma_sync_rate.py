"""How often can mma.sync be issued, and when is its result usable?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import per_repetition, timed_kernel

QUESTION = "How many cycles does an mma.sync take that waits for nothing, and one that waits for the one before?"
SETTLES = "h100sim/devices.py, TensorCore: the mma_* fields"

#: Shape and types -> registers of (D and C, A, B).
SHAPES = {
    "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 4, 2),
    "m16n8k8.row.col.f32.bf16.bf16.f32": (4, 2, 1),
    "m16n8k16.row.col.f32.f16.f16.f32": (4, 4, 2),
    "m16n8k16.row.col.f16.f16.f16.f16": (2, 4, 2),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 4, 2),
    "m16n8k32.row.col.s32.s8.s8.s32": (4, 4, 2),
}
CHAINS = 8


def _line(shape: str, chain: int) -> str:
    d, a, b = SHAPES[shape]
    kind = "%f" if shape.endswith("f32") else "%r"
    accumulator = ", ".join(f"{kind}{4 * chain + k}" for k in range(d))
    left, right = (", ".join(f"%{name}{k}" for k in range(count)) for name, count in (("a", a), ("b", b)))
    return f"mma.sync.aligned.{shape} {{{accumulator}}}, {{{left}}}, {{{right}}}, {{{accumulator}}};"


def _text(shape: str, chains: int) -> Callable[[int], str]:
    registers = f".reg .f32 %f<{4 * CHAINS}>; .reg .b32 %r<{4 * CHAINS}>, %a<4>, %b<4>, %t;"
    setup = "".join(f"mov.b32 %a{k}, %zero; mov.b32 %b{k}, %zero;" for k in range(4))
    start = "".join(f"add.u32 %r{k}, %z, {k}; cvt.rn.f32.u32 %f{k}, %r{k};" for k in range(4 * CHAINS))
    end = "".join(f"mov.b32 %t, %f{k}; xor.b32 %x, %x, %t; xor.b32 %x, %x, %r{k};" for k in range(4 * CHAINS))

    def build(n: int) -> str:
        body = "\n    ".join(_line(shape, k % chains) for k in range(n))
        return timed_kernel(f"{start}\n    {body}\n    {end}", registers, setup)

    return build


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return shape -> cycles per instruction [independent, one warp; independent, four warps; dependent]."""
    return {
        shape: [
            per_repetition(launch, _text(shape, CHAINS), few=32, many=160, warps=1),
            per_repetition(launch, _text(shape, CHAINS), few=32, many=160, warps=4),
            per_repetition(launch, _text(shape, 1), few=32, many=160, warps=1),
        ]
        for shape in SHAPES
    }
