"""How many cycles does the tensor core need per sparse wgmma of each width?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import cycles, timed_kernel

QUESTION = "How many cycles does one of many sparse m64nNk32 bf16 wgmma take, by width, source of A and number of warpgroups?"
SETTLES = "h100sim/units/tensor_core.py, cycles_of: what a sparse operation reads and computes per cycle"

WIDTHS = (8, 16, 32, 64, 128, 256)

#: Shared memory: stored A (64 x 16) and B (256 x 32), K-major without swizzle; offsets in bytes.
_SHARED_BYTES, _LEADING, _A_STRIDE, _B_STRIDE, _B_OFFSET = 24_576, 128, 256, 512, 4_096
#: Each chunk of four keeps its first two elements.
_METADATA = 0x44444444


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "ss n8" (both operands in shared memory) or "rs n8" (A in registers) -> cycles per wgmma of the SM, by 1 and 2
    warpgroups."""
    return {f"{a} n{n}": [_per_operation(launch, n, a, groups) for groups in (1, 2)] for a in ("ss", "rs") for n in WIDTHS}


def _per_operation(launch: Callable[..., Any], n: int, a: str, groups: int) -> float:
    few, many = (max(cycles(launch, kernel(n, count, a, groups), warps=4 * groups)) for count in (32, 96))
    return round((many - few) / (64 * groups), 3)


def kernel(n: int, count: int, a: str, groups: int) -> str:
    """Return the text of ``count`` sparse wgmma of width ``n`` between one fence and one wait, for ``groups`` warpgroups."""
    accumulators = ", ".join(f"%acc{k}" for k in range(n // 2))
    left, transposes = ("%desc_a", "0, 0") if a == "ss" else ("{%a0, %a1, %a2, %a3}", "0")
    opcode = f"wgmma.mma_async.sp.sync.aligned.m64n{n}k32.f32.bf16.bf16"
    operation = f"{opcode} {{{accumulators}}}, {left}, %desc_b, %meta, 0, 1, 1, 1, {transposes};"
    fill = [*(f"add.u32 %a{k}, %zero, {k};" for k in range(4)), *(f"cvt.rn.f32.u32 %acc{k}, %zero;" for k in range(n // 2))]
    setup = f"""and.b32 %x, %smem, 0x3ffff; shr.u32 %x, %x, 4; cvt.u64.u32 %desc_a, %x;
    add.s64 %desc_b, %desc_a, {_B_OFFSET >> 4}; add.u32 %meta, %zero, {_METADATA};
    or.b64 %desc_a, %desc_a, {(_LEADING >> 4) << 16 | (_A_STRIDE >> 4) << 32:#x};
    or.b64 %desc_b, %desc_b, {(_LEADING >> 4) << 16 | (_B_STRIDE >> 4) << 32:#x};
    """ + "\n    ".join(fill)
    end = ("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "mov.b32 %x, %acc0;")
    body = "\n    ".join(("wgmma.fence.sync.aligned;", *[operation] * count, *end))
    registers = f".reg .f32 %acc<{n // 2}>; .reg .b32 %a<4>, %meta; .reg .b64 %desc_a, %desc_b;"
    return timed_kernel(body, registers, setup, _SHARED_BYTES, 128 * groups)
