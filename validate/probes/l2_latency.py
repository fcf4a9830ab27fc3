"""How long does a load take that L1 does not hold: from the near and the far half of L2, and from HBM?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How many cycles until a word of another line is there, one load at a time, by SM: after an upload, again, and from HBM?"
SETTLES = "h100sim/devices.py, MemorySystem: l2_latency, l2_far_cycles, hbm_extra_latency, hbm_spread"

#: Lines that an SM loads, how far they lie apart in bytes, and how often it loads all of them.
LINES, STRIDE, PASSES = 128, 33 * 128, 3
#: Bytes that are uploaded behind the lines so that L2 no longer holds them.
FLUSH = 96 << 20
PERCENTILES = (1, 10, 25, 50, 75, 90, 99)


def kernel(own_bytes: int) -> str:
    """Return a kernel whose CTAs each load LINES lines one by one, PASSES times, and write the cycles of each load. CTA c
    starts ``own_bytes`` * c behind the first line."""
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u64 source, .param .u64 sms, .param .u32 zero)
.maxntid 32, 1, 1
{{
    .shared .align 4 .b8 took[{4 * LINES + 4}];
    .reg .pred %p;
    .reg .b32 %zero, %z, %k, %pass, %lane, %cta, %sm, %x, %t0, %t1, %took, %at;
    .reg .b64 %out, %source, %sms, %w, %from;
    ld.param.u64 %out, [out];
    ld.param.u64 %source, [source];
    ld.param.u64 %sms, [sms];
    ld.param.u32 %zero, [zero];
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mov.u32 %took, took;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %sm, %smid;
    mul.wide.u32 %w, %cta, 4;
    add.s64 %sms, %sms, %w;
    st.global.u32 [%sms], %sm;
    mul.wide.u32 %w, %cta, {4 * LINES * PASSES};
    add.s64 %out, %out, %w;
    mul.wide.u32 %w, %cta, {own_bytes};
    add.s64 %source, %source, %w;
    mov.u32 %z, 0;
    mov.u32 %pass, 0;
AGAIN:
    mov.u32 %k, 0;
LOAD:
    mad.lo.u32 %at, %k, {STRIDE}, %z;
    cvt.u64.u32 %w, %at;
    add.s64 %from, %source, %w;
    mov.u32 %t0, %clock;
    ld.relaxed.gpu.global.u32 %x, [%from];
    and.b32 %z, %x, %zero;
    add.u32 %x, %took, %z;
    st.volatile.shared.u32 [%x+{4 * LINES}], %z;
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    mad.lo.u32 %at, %k, 4, %took;
    st.volatile.shared.u32 [%at], %t1;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {LINES};
    @%p bra LOAD;
    mov.u32 %k, 0;
KEEP:
    mad.lo.u32 %at, %k, 4, %took;
    ld.volatile.shared.u32 %t1, [%at];
    st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {LINES};
    @%p bra KEEP;
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p, %pass, {PASSES};
    @%p bra AGAIN;
    ret;
}}
"""


def took(launch: Callable[..., Any], ctas: int, own_bytes: int, flush_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (cycles of each load (CTA, pass, line), SM of each CTA) of one launch behind an upload of the lines; what is
    uploaded behind them are ``flush_bytes``."""
    source = np.zeros((own_bytes * (ctas - 1) + LINES * STRIDE + flush_bytes) // 4, np.uint32)
    cycles = np.zeros((ctas, PASSES, LINES), np.uint32)
    sms = np.zeros(ctas, np.uint32)
    launch(kernel(own_bytes), "probe", (ctas, 1, 1), (32, 1, 1), [cycles, source, sms, np.uint32(0)])
    return cycles, sms


def spread(cycles: np.ndarray) -> list[int]:
    """Return PERCENTILES of cycles."""
    return [int(x) for x in np.percentile(cycles, PERCENTILES)]


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs, lines, pass" -> PERCENTILES of the cycles of a load, and for 16 lines the cycles of each SM (the least of two
    passes), SMs in order."""
    answer: dict[str, Any] = {}
    own = LINES * STRIDE
    for ctas, own_bytes, flush, name in (
        (1, 0, 0, "1 SM, uploaded"),
        (132, 0, 0, "132 SMs, the same lines, uploaded"),
        (132, own, 0, "132 SMs, lines of their own, uploaded"),
        (1, 0, FLUSH, "1 SM, HBM"),
        (8, own, FLUSH, "8 SMs, lines of their own, HBM"),
        (132, 0, FLUSH, "132 SMs, the same lines, HBM"),
        (132, own, FLUSH, "132 SMs, lines of their own, HBM"),
    ):
        cycles, sms = took(launch, ctas, own_bytes, flush)
        for k, when in enumerate(("first", "second", "third")):
            answer[f"{name}, {when}"] = spread(cycles[:, k])
        if name == "132 SMs, the same lines, uploaded":
            answer["sm"] = sorted(sms.tolist())
            for line in range(16):
                least = cycles[np.argsort(sms), 1:, line].min(axis=1)
                answer[f"line {line}, by SM"] = least.tolist()
    return answer
