"""How long does a warp take to hand over stores to global memory, by the pattern of their lanes?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .global_access import PATTERNS, room
from .timed_kernel import HEADER

QUESTION = "How long until stores of a warp's registers have been issued, and one to shared memory behind them, by pattern, number and warps?"
SETTLES = "h100sim/devices.py, MemorySystem: store_sector_cycles, store_part_cycles, store_queue"

#: The second and third pass store to the same lines, behind what is still on its way.
PASSES = 3
#: (stores of a warp, warps).
SIZES = ((8, 1), (32, 1), (8, 4), (32, 4), (64, 4))


def kernel(name: str, count: int, warps: int) -> str:
    """Return the text of ``probe(out, data, zero)``: cycles of each warp for each pass."""
    pattern = PATTERNS[name]
    per_warp = room(pattern, count)
    vector = "" if pattern.registers == 1 else f".v{pattern.registers}"
    stored = "%x" if pattern.registers == 1 else f"{{{', '.join(['%x'] * pattern.registers)}}}"
    body = "\n    ".join(f"st.global{vector}.b32 [%at+{pattern.offset(k)}], {stored};" for k in range(count))
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u64 data, .param .u32 zero)
.maxntid {32 * warps}, 1, 1
{{
    .shared .align 16 .b8 memory[16];
    .reg .pred %p<2>;
    .reg .b32 %r<{count * pattern.registers + 1}>, %x, %z, %t, %a, %lane, %warp, %zero, %pass, %smem, %from, %to, %moved, %passes;
    .reg .b64 %at, %out, %data, %wide;
    ld.param.u64 %out, [out];
    ld.param.u64 %data, [data];
    ld.param.u32 %zero, [zero];
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    and.b32 %lane, %lane, 31;
    mov.u32 %smem, memory;
    {pattern.lanes}
    mad.lo.u32 %a, %warp, {per_warp}, %a;
    mad.lo.u32 %t, %warp, {4 * PASSES}, 0;
    cvt.u64.u32 %wide, %t;
    add.s64 %out, %out, %wide;
    mov.u32 %pass, 0;
    add.u32 %passes, %zero, {PASSES};
AGAIN:
    min.u32 %moved, %pass, 1;
    mad.lo.u32 %moved, %moved, {per_warp * warps}, %a;
    bar.sync 0;
    mov.u32 %from, %clock;
    and.b32 %z, %from, %zero;
    add.u32 %moved, %moved, %z;
    cvt.u64.u32 %wide, %moved;
    add.s64 %at, %data, %wide;
    mov.u32 %x, %z;
    {body}
    st.volatile.shared.b32 [%smem], %x;
    mov.u32 %to, %clock;
    sub.u32 %to, %to, %from;
    setp.eq.u32 %p0, %lane, 0;
    @%p0 st.global.u32 [%out], %to;
    add.s64 %out, %out, 4;
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p1, %pass, %passes;
    @%p1 bra AGAIN;
    ret;
}}
"""


def cycles(launch: Callable[..., Any], name: str, count: int, warps: int, repeats: int = 4) -> list[int]:
    """Return the cycles of the slowest warp in each pass, the least of ``repeats`` launches."""
    data = np.zeros(2 * warps * room(PATTERNS[name], count) // 4, np.int32)
    best = np.full(PASSES, np.iinfo(np.int32).max)
    text = kernel(name, count, warps)
    for _ in range(repeats):
        out = np.zeros((warps, PASSES), np.int32)
        launch(text, "probe", (1, 1, 1), (32 * warps, 1, 1), [out, data, np.uint32(0)])
        best = np.minimum(best, out.max(0))
    return [int(count) for count in best]


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "pattern, stores x warps" -> cycles of the slowest warp [first pass, second, third]."""
    return {
        f"{name}, {count} x {warps}": cycles(launch, name, count, warps)
        for name in PATTERNS
        for count, warps in SIZES
        if "apart" not in name
    }
