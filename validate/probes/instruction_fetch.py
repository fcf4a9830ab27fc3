"""What does it cost to run through code for the first time, and through a loop that is larger than a cache?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How many cycles does each KB of straight or scattered code take when a launch first runs it, and when again?"
SETTLES = "h100sim/devices.py, Fetch"

#: Instructions between two clock reads: with the read and its store about 1 KB of code.
BLOCK = 60
PASSES = 3


def kernel(blocks: int, skipped: int) -> str:
    """Return a kernel that runs ``blocks`` blocks of arithmetic PASSES times and writes the clock behind each.

    Behind each block stand ``skipped`` instructions that a branch, taken always, jumps over.
    """
    lines = []
    for b in range(blocks):
        lines += [f"fma.rn.f32 %f{k % 4}, %f{k % 4}, %g1, %g2;" for k in range(BLOCK)]
        lines += ["mov.u32 %t, %clock;", "st.volatile.shared.u32 [%at], %t;", "add.u32 %at, %at, 4;"]
        if skipped:
            lines += [f"@%taken bra B{b};"]
            lines += [f"fma.rn.f32 %f{k % 4}, %f{k % 4}, %g2, %g1;" for k in range(skipped)]
            lines += [f"B{b}:"]
    body = "\n    ".join(lines)
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u32 zero)
.maxntid 384, 1, 1
{{
    .shared .align 16 .b8 times[{(blocks + 1) * PASSES * 4}];
    .reg .pred %taken, %again, %one;
    .reg .f32 %f<4>, %g<4>;
    .reg .b32 %t, %at, %zero, %pass, %k;
    .reg .b64 %out;
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    cvt.rn.f32.u32 %g1, %zero;
    mov.f32 %g2, %g1; mov.f32 %f0, %g1; mov.f32 %f1, %g1; mov.f32 %f2, %g1; mov.f32 %f3, %g1;
    setp.eq.u32 %taken, %zero, 0;
    mov.u32 %at, times;
    mov.u32 %pass, 0;
AGAIN:
    mov.u32 %t, %clock;
    st.volatile.shared.u32 [%at], %t;
    add.u32 %at, %at, 4;
    {body}
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %again, %pass, {PASSES};
    @%again bra AGAIN;
    bar.sync 0;
    mov.u32 %t, %tid.x;
    setp.ne.u32 %one, %t, 0;
    @%one ret;
    mov.u32 %at, times;
    mov.u32 %k, 0;
COPY:
    ld.volatile.shared.u32 %t, [%at];
    st.global.u32 [%out], %t;
    add.u32 %at, %at, 4;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %again, %k, {(blocks + 1) * PASSES};
    @%again bra COPY;
    add.f32 %f0, %f0, %f1; add.f32 %f0, %f0, %f2; add.f32 %f0, %f0, %f3;
    st.global.f32 [%out], %f0;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return layout -> for each pass, the cycles from one clock read to the next, by block."""
    answer = {}
    for name, blocks, skipped, warps in (
        ("32 KB straight", 32, 0, 1),
        ("32 KB straight, 4 warps", 32, 0, 4),
        ("32 KB straight, 12 warps", 32, 0, 12),
        ("160 KB straight", 160, 0, 1),
        ("1 KB of each 2 KB", 24, 60, 1),
        ("1 KB of each 5 KB", 24, 250, 1),
    ):
        out = np.zeros((blocks + 1) * PASSES + 1, np.uint32)
        launch(kernel(blocks, skipped), "probe", (1, 1, 1), (32 * warps, 1, 1), [out, np.uint32(0)])
        times = out[:-1].reshape(PASSES, blocks + 1).astype(np.int64)
        answer[name] = np.diff(times, axis=1).tolist()
    return answer
