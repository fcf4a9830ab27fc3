"""How long does the copy engine take for a box that L2 does not hold, by the number of SMs that load?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .l2_latency import FLUSH, spread
from .timed_kernel import HEADER
from .tma_load_latency import tensor_map

QUESTION = (
    "How many cycles until a box is there, one in flight, from HBM and from L2 after an upload, with 1, 8 and 132 SMs loading?"
)
SETTLES = "h100sim/devices.py, MemorySystem: hbm_extra_latency, hbm_box_bytes_per_cycle, hbm_spread, l2_far_cycles"

#: Boxes that an SM loads, and how often it loads all of them.
BOXES, PASSES = 24, 2
#: (SMs, rows of 128 bytes of a box).
CASES = ((1, 8), (1, 64), (1, 128), (1, 256), (8, 64), (8, 128), (132, 8), (132, 64), (132, 128))


def kernel(rows: int) -> str:
    """Return a kernel whose CTAs each load BOXES boxes of ``rows`` of their own one by one, PASSES times, and write the cycles
    of each."""
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 zero)
.maxntid 32, 1, 1
{{
    .shared .align 8 .b64 barrier;
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, %zero, %z, %k, %pass, %lane, %parity, %cta, %first, %y, %t0, %t1;
    .reg .b64 %out, %map, %w;
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    mov.u32 %smem, memory;
    mov.u32 %barrier, barrier;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %w, %cta, {4 * BOXES * PASSES};
    add.s64 %out, %out, %w;
    mul.lo.u32 %first, %cta, {BOXES * rows};
    mov.u32 %parity, 0;
    mov.u32 %pass, 0;
AGAIN:
    mov.u32 %k, 0;
LOAD:
    mov.u32 %t0, %clock;
    and.b32 %z, %t0, %zero;
    mad.lo.u32 %y, %k, {rows}, %first;
    add.u32 %y, %y, %z;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {rows * 128};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%smem], [%map, {{0, %y}}], [%barrier];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%barrier], %parity;
    @!%q bra WAIT;
    mov.u32 %t1, %clock;
    xor.b32 %parity, %parity, 1;
    sub.u32 %t1, %t1, %t0;
    st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {BOXES};
    @%p bra LOAD;
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p, %pass, {PASSES};
    @%p bra AGAIN;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs, bytes, where" -> percentiles (of :mod:`.l2_latency`) of the cycles of a box, without the first of an SM."""
    answer = {}
    for sms, rows in CASES:
        for where, flush in (("uploaded", 0), ("HBM", FLUSH)):
            source = np.zeros((sms * BOXES * rows + flush // 128, 32), np.uint32)
            out = np.zeros((sms, PASSES, BOXES), np.uint32)
            arguments = [out, functools.partial(tensor_map, source, rows), np.uint32(0)]
            launch(kernel(rows), "probe", (sms, 1, 1), (32, 1, 1), arguments, shared_mem=rows * 128)
            answer[f"{sms} SMs, {rows * 128} bytes, {where}"] = spread(out[:, 0, 1:])
            if not flush:
                answer[f"{sms} SMs, {rows * 128} bytes, again"] = spread(out[:, 1, 1:])
                answer[f"{sms} SMs, {rows * 128} bytes, the very first"] = spread(out[:, 0, 0])
    return answer
