"""How many bytes a cycle do ordinary loads bring to one SM and to all of them, from L1, L2 and HBM?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How many bytes a cycle do loads of 4 and 16 bytes a lane bring to an SM, by warps, from L1, from L2 and from HBM?"
SETTLES = "h100sim/devices.py, MemorySystem: load_bytes_per_cycle, l1_bytes_per_cycle; Issue: l1_latency"

#: Loads in flight of a warp, and how often a warp issues that many.
UNROLL, ROUNDS = 8, 16
#: (SMs, warps, bytes of a lane, operator, bytes of the source of an SM; 0: the warps load other lines all the time, from HBM).
CASES = (
    *((1, warps, 16, ".cg", 1 << 18) for warps in (1, 4, 16)),
    *((1, warps, 4, ".cg", 1 << 18) for warps in (1, 4, 16)),
    *((1, warps, 16, ".ca", 1 << 14) for warps in (1, 4, 16)),
    *((1, warps, 4, ".ca", 1 << 14) for warps in (1, 16)),
    *((132, warps, 16, ".cg", 1 << 18) for warps in (1, 4, 16)),
    *((132, warps, 16, ".cg", 0) for warps in (1, 4, 16)),
)


def kernel(size: int, operator: str, source_bytes: int, warps: int) -> str:
    """Return a kernel that loads ``size`` bytes a lane, UNROLL loads at a time, and writes the cycles of each warp, twice: the
    second time it goes on where the first time has ended. The source begins again after ``source_bytes``, or never (0)."""
    step = 32 * size
    span = UNROLL * step * warps
    words = size // 4
    loads = "\n    ".join(
        f"ld.global{operator}{'.v4' * (words == 4)}.u32 "
        f"{'{' * (words == 4)}{', '.join(f'%x{k * words + j}' for j in range(words))}{'}' * (words == 4)}, [%from+{k * step}];"
        for k in range(UNROLL)
    )
    mixed = "\n    ".join(f"xor.b32 %sum, %sum, %x{k};" for k in range(UNROLL * words))
    total = ROUNDS * span
    wrap = f"and.b32 %at, %at, {source_bytes - 1};" if source_bytes else ""
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u64 source, .param .u32 zero)
.maxntid {32 * warps}, 1, 1
{{
    .shared .align 4 .b32 mixed;
    .reg .pred %p;
    .reg .b32 %smem, %lane, %warp, %cta, %at, %k, %pass, %sum, %z, %zero, %t0, %t1, %x<{UNROLL * words}>;
    .reg .b64 %out, %source, %from, %w;
    ld.param.u64 %out, [out];
    ld.param.u64 %source, [source];
    ld.param.u32 %zero, [zero];
    mov.u32 %smem, mixed;
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    and.b32 %lane, %lane, 31;
    mov.u32 %cta, %ctaid.x;
    mad.lo.u32 %k, %cta, {warps}, %warp;
    mul.wide.u32 %w, %k, 8;
    add.s64 %out, %out, %w;
    mul.wide.u32 %w, %cta, {2 * total if source_bytes == 0 else 0};
    add.s64 %source, %source, %w;
    mul.wide.u32 %w, %lane, {size};
    add.s64 %source, %source, %w;
    mov.u32 %sum, 0;
    mov.u32 %pass, 0;
    mul.lo.u32 %at, %warp, {UNROLL * step};
    bar.sync 0;
AGAIN:
    mov.u32 %k, 0;
    mov.u32 %t0, %clock;
NEXT:
    {wrap}
    cvt.u64.u32 %w, %at;
    add.s64 %from, %source, %w;
    {loads}
    {mixed}
    and.b32 %z, %sum, %zero;
    add.u32 %at, %at, %z;
    add.u32 %at, %at, {span};
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {ROUNDS};
    @%p bra NEXT;
    add.u32 %z, %smem, %z;
    st.volatile.shared.u32 [%z], %sum;
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    setp.eq.u32 %p, %lane, 0;
    @%p st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p, %pass, 2;
    @%p bra AGAIN;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs, warps, bytes a lane, operator, source" -> bytes per cycle of an SM in the second round."""
    answer = {}
    for sms, warps, size, operator, source_bytes in CASES:
        moved = ROUNDS * UNROLL * 32 * size * warps
        # From HBM: what is uploaded behind the lines drives them out of L2.
        source = np.zeros((source_bytes or 2 * moved * sms + (64 << 20)) // 4 + 64, np.uint32)
        out = np.zeros((sms * warps, 2), np.uint32)
        text = kernel(size, operator, source_bytes, warps)
        launch(text, "probe", (sms, 1, 1), (32 * warps, 1, 1), [out, source, np.uint32(0)])
        where = f"{source_bytes >> 10} KB" if source_bytes else "hbm"
        answer[f"{sms} SMs, {warps} warps, {size} bytes, {operator[1:]}, {where}"] = round(moved / float(np.mean(out[:, 1])), 2)
    return answer
