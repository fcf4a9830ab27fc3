"""What do the first instructions of a CTA cost: parameters, addresses of variables, special registers, loads of memory?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = (
    "How many cycles does each of the first things that a warp asks for take, one after another, from its first instruction on?"
)
SETTLES = "h100sim/devices.py, Fetch: constant_cycles; MemorySystem: page_cycles"

#: Bytes between the first and the last parameter.
FAR = 1024
#: (what is asked for, the instructions that leave it in %x); ``%z`` is 0 and comes from the step before.
STEPS = (
    ("nothing", "mov.u32 %x, %t;"),
    ("nothing again", "mov.u32 %x, %t;"),
    ("a parameter", "ld.param.u32 %x, [near];"),
    ("another one beside it", "ld.param.u32 %x, [beside];"),
    ("one 1 KB further", "ld.param.u32 %x, [further];"),
    ("the address of a variable", "mov.u64 %w, variable; cvt.u32.u64 %x, %w;"),
    ("%ctaid.x", "mov.u32 %x, %ctaid.x;"),
    ("%smid", "mov.u32 %x, %smid;"),
    ("%globaltimer", "mov.u64 %w, %globaltimer; cvt.u32.u64 %x, %w;"),
    ("a line", "ld.param.u64 %from, [source]; ld.relaxed.gpu.global.u32 %x, [%from];"),
    ("the line behind it", "ld.relaxed.gpu.global.u32 %x, [%from+128];"),
    ("a line of the other half of L2 perhaps", "ld.relaxed.gpu.global.u32 %x, [%from+4096];"),
    ("the first line again", "ld.relaxed.gpu.global.u32 %x, [%from];"),
    ("a line of another page", "ld.relaxed.gpu.global.u32 %x, [%from+4194304];"),
    ("the line behind that", "ld.relaxed.gpu.global.u32 %x, [%from+4194432];"),
    ("nothing at last", "mov.u32 %x, %t;"),
)
#: Bytes of the array that is loaded from.
SOURCE = 8 << 20


def kernel() -> str:
    """Return a kernel of one warp whose first lane writes the cycles of each of STEPS, behind the time until the first of them."""
    steps = "\n".join(
        f"""    mov.u32 %t, %clock;
    {asks}
    and.b32 %z, %x, %zero;
    add.u32 %at, %smem, %z;
    st.volatile.shared.u32 [%at+{8 * k}], %t;
    mov.u32 %t, %clock;
    st.volatile.shared.u32 [%smem+{8 * k + 4}], %t;"""
        for k, (_, asks) in enumerate(STEPS)
    )
    moves = "\n".join(
        f"    ld.volatile.shared.u32 %t, [%smem+{4 * k}]; st.global.u32 [%out+{4 * k + 4}], %t;" for k in range(2 * len(STEPS))
    )
    return f"""{HEADER}.visible .global .align 8 .b8 variable[1024];

.visible .entry probe(
    .param .u32 near, .param .u32 beside, .param .u64 out, .param .u64 source, .param .align 8 .b8 pad[{FAR}], .param .u32 further
)
.maxntid 32, 1, 1
{{
    .shared .align 8 .b8 took[{8 * len(STEPS)}];
    .reg .b32 %x, %z, %t, %first, %at, %smem, %zero, %lane, %cta;
    .reg .pred %p;
    .reg .b64 %w, %from, %out;
    mov.u32 %first, %clock;
    mov.u32 %smem, took;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    st.volatile.shared.u32 [%smem], %lane;
    ld.volatile.shared.u32 %zero, [%smem];
{steps}
    ld.param.u64 %out, [out];
    mov.u32 %cta, %ctaid.x;
    mad.wide.u32 %out, %cta, {8 * len(STEPS) + 4}, %out;
    st.global.u32 [%out], %first;
{moves}
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs" -> step -> cycles (the least, the median and the greatest over SMs and launches), "start": those until the first step."""
    answer: dict[str, Any] = {}
    for sms in (1, 132):
        took = []
        for _ in range(5):
            out = np.zeros((sms, 2 * len(STEPS) + 1), np.uint32)
            source = np.zeros(SOURCE // 4, np.uint32)
            pad = bytes(FAR)
            launch(kernel(), "probe", (sms, 1, 1), (32, 1, 1), [np.uint32(0), np.uint32(0), out, source, pad, np.uint32(0)])
            took.append(out)
        clocks = np.concatenate(took).astype(np.int64)
        steps = {"start": clocks[:, 1] - clocks[:, 0]}
        steps |= {name: clocks[:, 2 * k + 2] - clocks[:, 2 * k + 1] for k, (name, _) in enumerate(STEPS)}
        answer[f"{sms} SMs"] = {name: np.percentile(cycles, (0, 50, 100)).astype(int).tolist() for name, cycles in steps.items()}
    return answer
