"""How many cycles does the tensor core need per wgmma of each width?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import per_repetition, timed_kernel

QUESTION = "How many cycles does one of many m64nNk16 bf16 wgmma take, both operands in shared memory, one warpgroup?"
SETTLES = "h100sim/devices.py, TensorCore: operand_cycles, floor_cycles"

WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)

#: Shared memory: A (64 x 16) and B (256 x 16), K-major without swizzle; leading and stride offsets in bytes.
_SHARED_BYTES = 16_384
_LEADING, _STRIDE, _B_OFFSET = 128, 256, 4_096


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "n8" -> cycles per wgmma, and so on."""

    def text(n: int) -> Callable[[int], str]:
        return lambda count: kernel(n, count)

    return {f"n{n}": per_repetition(launch, text(n), few=32, many=96, warps=4) for n in WIDTHS}


def kernel(n: int, count: int) -> str:
    """Return the text of ``count`` wgmma of width ``n`` between one fence and one wait."""
    accumulators = ", ".join(f"%acc{k}" for k in range(n // 2))
    operation = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{accumulators}}}, %desc_a, %desc_b, 1, 1, 1, 0, 0;"
    fixed = (_LEADING >> 4) << 16 | (_STRIDE >> 4) << 32
    setup = f"""and.b32 %x, %smem, 0x3ffff;
    shr.u32 %x, %x, 4;
    cvt.u64.u32 %desc_a, %x;
    or.b64 %desc_a, %desc_a, {fixed:#x};
    add.s64 %desc_b, %desc_a, {_B_OFFSET >> 4};
    """ + "\n    ".join(f"cvt.rn.f32.u32 %acc{k}, %zero;" for k in range(n // 2))
    body = "\n    ".join(
        (
            "wgmma.fence.sync.aligned;",
            *[operation] * count,
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            "mov.b32 %x, %acc0;",
        )
    )
    return timed_kernel(body, f".reg .f32 %acc<{n // 2}>; .reg .b64 %desc_a, %desc_b;", setup, _SHARED_BYTES)
