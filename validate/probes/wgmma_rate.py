"""How many cycles does the tensor core need per wgmma of each width?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import cycles, timed_kernel

QUESTION = "How many cycles does one of many m64nNk16 bf16 wgmma take, by width, source of A and number of warpgroups?"
SETTLES = "h100sim/devices.py, TensorCore: operand_cycles, floor_cycles"

WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)

#: Shared memory: A (64 x 16) and B (256 x 16), K-major without swizzle; leading and stride offsets in bytes.
SHARED_BYTES = 16_384
_LEADING, _STRIDE, _B_OFFSET = 128, 256, 4_096


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "ss n8" (both operands in shared memory) or "rs n8" (A in registers) -> cycles per wgmma of the SM, by
    the number of warpgroups 1 to 4; None where their accumulators do not fit."""

    def text(n: int, a: str, groups: int) -> Callable[[int], str]:
        return lambda count: kernel(n, count, a, groups)

    return {
        f"{a} n{n}": [
            None if n // 2 + 40 > 65_536 // (128 * groups) else _per_operation(launch, text(n, a, groups), groups)
            for groups in (1, 2, 3, 4)
        ]
        for a in ("ss", "rs")
        for n in WIDTHS
    }


def _per_operation(launch: Callable[..., Any], text: Callable[[int], str], groups: int) -> float:
    """Return the cycles of the SM per operation, from when the last warpgroup has finished 96 and 320 of its own: which one is last,
    and how long warpgroups take until they alternate, differs by up to 400 cycles (see ``wgmma_order``)."""
    few, many = (max(cycles(launch, text(count), warps=4 * groups)) for count in (96, 320))
    return round((many - few) / (224 * groups), 3)


def operation(n: int, a: str, transposed: int = 0) -> str:
    """Return a wgmma of width ``n`` with A from shared memory ("ss") or from registers ("rs"), B transposed (N-major) if that is 1."""
    accumulators = ", ".join(f"%acc{k}" for k in range(n // 2))
    left = "%desc_a" if a == "ss" else "{%a0, %a1, %a2, %a3}"
    transposes = f"0, {transposed}" if a == "ss" else str(transposed)
    return f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{accumulators}}}, {left}, %desc_b, 1, 1, 1, {transposes};"


def registers(n: int) -> str:
    """Return the declarations that :func:`operation` needs."""
    return f".reg .f32 %acc<{n // 2}>; .reg .b32 %a<4>; .reg .b64 %desc_a, %desc_b;"


def setup(n: int) -> str:
    """Return the text that fills the operands of :func:`operation` and its accumulators."""
    fixed = (_LEADING >> 4) << 16 | (_STRIDE >> 4) << 32
    fill = [*(f"add.u32 %a{k}, %zero, {k};" for k in range(4)), *(f"cvt.rn.f32.u32 %acc{k}, %zero;" for k in range(n // 2))]
    return f"""and.b32 %x, %smem, 0x3ffff;
    shr.u32 %x, %x, 4;
    cvt.u64.u32 %desc_a, %x;
    or.b64 %desc_a, %desc_a, {fixed:#x};
    add.s64 %desc_b, %desc_a, {_B_OFFSET >> 4};
    """ + "\n    ".join(fill)


def kernel(n: int, count: int, a: str = "ss", groups: int = 1) -> str:
    """Return the text of ``count`` wgmma of width ``n`` between one fence and one wait, for ``groups`` warpgroups."""
    body = "\n    ".join(
        (
            "wgmma.fence.sync.aligned;",
            *[operation(n, a)] * count,
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            "mov.b32 %x, %acc0;",
        )
    )
    return timed_kernel(body, registers(n), setup(n), SHARED_BYTES, 128 * groups)
