"""How long until the results of a wgmma can be read, and how long one of several takes, by its form?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import cycles, timed_kernel

QUESTION = (
    "How many cycles from before a fence until the results of one and of nine wgmma can be read, by width, operands and types?"
)
SETTLES = "h100sim/devices.py, TensorCore: tail_cycles, register_tail_cycles"

WIDTHS, COUNTS = (8, 16, 32, 64, 128, 192, 256), (1, 9)
#: Form -> opcode behind the shape's N, is A in registers, immediates behind scale-d, registers of D for N 8.
FORMS = {
    "bf16": ("k16.f32.bf16.bf16", False, "1, 1, 0, 0", 4),
    "bf16, A in registers": ("k16.f32.bf16.bf16", True, "1, 1, 0", 4),
    "bf16, A transposed": ("k16.f32.bf16.bf16", False, "1, 1, 1, 0", 4),
    "bf16, B transposed": ("k16.f32.bf16.bf16", False, "1, 1, 0, 1", 4),
    "bf16, both transposed": ("k16.f32.bf16.bf16", False, "1, 1, 1, 1", 4),
    "bf16, A in registers, B transposed": ("k16.f32.bf16.bf16", True, "1, 1, 1", 4),
    "f16, D in f16": ("k16.f16.f16.f16", False, "1, 1, 0, 0", 2),
    "tf32": ("k8.f32.tf32.tf32", False, "1, 1", 4),
    "e4m3": ("k32.f32.e4m3.e4m3", False, "1, 1", 4),
    "s8": ("k32.s32.s8.s8", False, "", 4),
}
#: Shared memory: A and B behind it, rows of 128 bytes with the 128-byte swizzle; a row of 8 x 8 cores is 1,024 bytes.
_SHARED_BYTES, _B_OFFSET = 8_192 + 32_768 + 1_024, 8_192
_LEADING, _STRIDE, _SWIZZLE = 2_048, 1_024, 1


def kernel(form: str, n: int, count: int) -> str:
    """Return the text of ``count`` wgmma between one fence and one wait of one warpgroup."""
    opcode, in_registers, immediates, registers_of_8 = FORMS[form]
    kind = "%s" if ".s32." in opcode else "%h" if opcode.startswith("k16.f16") else "%f"
    d = [f"{kind}{k}" for k in range(registers_of_8 * n // 8)]
    left = "{%a0, %a1, %a2, %a3}" if in_registers else "%desc_a"
    end = f", {immediates}" if immediates else ""
    operation = f"wgmma.mma_async.sync.aligned.m64n{n}{opcode} {{{', '.join(d)}}}, {left}, %desc_b, 1{end};"
    fixed = (_LEADING >> 4) << 16 | (_STRIDE >> 4) << 32 | _SWIZZLE << 62
    fill = [*(f"add.u32 %a{k}, %zero, {k};" for k in range(4)), *(f"mov.b32 {name}, %zero;" for name in d)]
    setup = f"""and.b32 %x, %smem, 0x3ffff;
    shr.u32 %x, %x, 4;
    cvt.u64.u32 %desc_a, %x;
    or.b64 %desc_a, %desc_a, {fixed:#x};
    add.s64 %desc_b, %desc_a, {_B_OFFSET >> 4};
    """ + "\n    ".join(fill)
    body = "\n    ".join(
        (
            "wgmma.fence.sync.aligned;",
            *[operation] * count,
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            f"mov.b32 %x, {d[0]};",
        )
    )
    registers = ".reg .f32 %f<128>; .reg .b32 %s<128>, %h<64>, %a<4>; .reg .b64 %desc_a, %desc_b;"
    return timed_kernel(body, registers, setup, _SHARED_BYTES)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "form, n" -> cycles of the slowest warp for one and for nine operations."""
    return {
        f"{form}, n{n}": [max(cycles(launch, kernel(form, n, count), warps=4)) for count in COUNTS]
        for form in FORMS
        for n in WIDTHS
    }
