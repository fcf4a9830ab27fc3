"""How much does L2 hold of what was uploaded, read by one SM each, read by all SMs, and written?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = (
    "Which part of so many megabytes is still in L2 after an upload, after SMs have read each its part or all of it, or written it?"
)
SETTLES = "h100sim/devices.py, MemorySystem: l2_bytes; h100sim/memory/l2.py"

#: Bytes of a copy, and lines that are loaded one by one to see where they are.
COPY, SAMPLES = 16_384, 256
#: A load that takes longer than this has gone to HBM (see l2_latency).
HIT_CYCLES = 492
#: (how, megabytes).
CASES = (
    *(("uploaded", size) for size in (16, 24, 32, 40, 48, 64)),
    *(("read", size) for size in (16, 24, 32, 40, 48, 64)),
    *(("read by all", size) for size in (16, 24, 32, 40)),
    *(("written", size) for size in (16, 24, 32, 40, 48, 64)),
)


def kernel(how: str, copies: int) -> str:
    """Return a kernel of 132 CTAs that read or write ``copies`` copies; then one loads SAMPLES lines and writes the cycles."""
    step = 1 if how == "read by all" else 132
    start = 0 if how == "read by all" else 1
    if how == "written":
        move = f"""cp.async.bulk.global.shared::cta.bulk_group [%at], [%smem], {COPY};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    else:
        move = f"""mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {COPY};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%smem], [%at], {COPY}, [%barrier];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%barrier], %parity;
    @!%q bra WAIT;
    xor.b32 %parity, %parity, 1;"""
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u64 count, .param .u64 source, .param .u32 zero)
.maxntid 32, 1, 1
{{
    .shared .align 1024 .b8 memory[{COPY}];
    .shared .align 8 .b64 barrier;
    .shared .align 4 .b8 took[{4 * SAMPLES + 4}];
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, %took, %zero, %z, %k, %lane, %cta, %parity, %t0, %t1, %x;
    .reg .b64 %out, %count, %source, %at, %w;
    ld.param.u64 %out, [out];
    ld.param.u64 %count, [count];
    ld.param.u64 %source, [source];
    ld.param.u32 %zero, [zero];
    mov.u32 %smem, memory;
    mov.u32 %barrier, barrier;
    mov.u32 %took, took;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %parity, 0;
    mul.lo.u32 %k, %cta, {start};
MOVE:
    setp.ge.u32 %p, %k, {0 if how == "uploaded" else copies};
    @%p bra MOVED;
    mul.wide.u32 %w, %k, {COPY};
    add.s64 %at, %source, %w;
    {move}
    add.u32 %k, %k, {step};
    bra MOVE;
MOVED:
    red.release.gpu.global.add.u32 [%count], 1;
    setp.ne.u32 %p, %cta, 0;
    @%p ret;
ALL:
    ld.acquire.gpu.global.u32 %x, [%count];
    setp.lt.u32 %p, %x, 132;
    @%p bra ALL;
    mov.u32 %z, 0;
    mov.u32 %k, 0;
LOAD:
    mul.wide.u32 %w, %k, {copies * COPY // SAMPLES // 128 * 128};
    cvt.u64.u32 %at, %z;
    add.s64 %at, %at, %source;
    add.s64 %at, %at, %w;
    mov.u32 %t0, %clock;
    ld.relaxed.gpu.global.u32 %x, [%at];
    and.b32 %z, %x, %zero;
    add.u32 %x, %took, %z;
    st.volatile.shared.u32 [%x+{4 * SAMPLES}], %z;
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    mad.lo.u32 %x, %k, 4, %took;
    st.volatile.shared.u32 [%x], %t1;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {SAMPLES};
    @%p bra LOAD;
    mov.u32 %k, 0;
KEEP:
    mad.lo.u32 %x, %k, 4, %took;
    ld.volatile.shared.u32 %t1, [%x];
    st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {SAMPLES};
    @%p bra KEEP;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "how, megabytes" -> percent of the lines that are in L2, for each quarter of the bytes, and the median cycles of the
    lines that are."""
    answer = {}
    for how, megabytes in CASES:
        source = np.zeros(megabytes << 18, np.uint32)
        out, count = np.zeros(SAMPLES, np.uint32), np.zeros(1, np.uint32)
        arguments = [out, count, source, np.uint32(0)]
        launch(kernel(how, (megabytes << 20) // COPY), "probe", (132, 1, 1), (32, 1, 1), arguments, shared_mem=160 * 1024)
        hit = out <= HIT_CYCLES
        quarters = [round(100 * float(np.mean(part))) for part in hit.reshape(4, -1)]
        answer[f"{how}, {megabytes} MB"] = [*quarters, float(np.median(out[hit])) if hit.any() else None]
    return answer
