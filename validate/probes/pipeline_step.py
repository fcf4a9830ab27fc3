"""How many cycles does a step of a pipeline of a producer warp and consumer warpgroups take whose data is there at once?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import wgmma_rate
from .timed_kernel import HEADER

QUESTION = (
    "How many cycles does a step of a ring of slots take, waits, products, arrivals and all, where the producer copies nothing, by "
    "width of the wgmma, number of consumers and slots?"
)
SETTLES = (
    "h100sim/devices.py, Barriers: mbarrier_wait_latency, mbarrier_wake_cycles, fence_cycles; h100sim/schedule.py: ends of loops"
)

#: Steps of a short and of a long run; wgmma of a step.
FEW, MANY, PRODUCTS = 24, 88, 4
#: (width of the wgmma, consumers, slots, whether a fence.proxy.async stands in front of the products).
CASES = (
    *((n, 1, 4, True) for n in (8, 32, 64, 128, 256)),
    *((n, 2, 4, True) for n in (8, 64, 128, 256)),
    *((64, consumers, 4, False) for consumers in (1, 2)),
    *((n, 1, 1, True) for n in (8, 64, 128)),
    (64, 2, 1, True),
)


def kernel(n: int, consumers: int, slots: int, fenced: bool, steps: int) -> str:
    """Return a kernel of a producer warpgroup, of which one thread works, and ``consumers`` others, that writes the cycles that each
    consumer warp took for ``steps`` steps."""
    operation = wgmma_rate.operation(n, "ss", 0)
    fence = "fence.proxy.async.shared::cta;" if fenced else ""
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u32 zero)
.maxntid {128 * (1 + consumers)}, 1, 1
{{
    .shared .align 1024 .b8 memory[{wgmma_rate.SHARED_BYTES}];
    .shared .align 8 .b8 barriers[{16 * slots}];
    .reg .pred %p<8>;
    .reg .b32 %smem, %barrier, %at, %warp, %lane, %group, %rank, %slot, %phase, %other, %k, %x, %zero;
    .reg .b64 %start, %stop, %out, %wide;
    {wgmma_rate.registers(n)}
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    mov.u32 %smem, memory;
    mov.u32 %barrier, barriers;
    mov.u32 %warp, %tid.x;
    and.b32 %lane, %warp, 31;
    shr.u32 %warp, %warp, 5;
    shfl.sync.idx.b32 %warp, %warp, 0, 31, 0xffffffff;
    shr.u32 %group, %warp, 2;
    and.b32 %rank, %warp, 3;
    {wgmma_rate.setup(n)}
    setp.ne.u32 %p0, %warp, 0;
    @%p0 bra READY;
    elect.sync _|%p1, 0xffffffff;
    @!%p1 bra READY;
    {" ".join(f"mbarrier.init.shared::cta.b64 [%barrier+{8 * k}], 1;" for k in range(slots))}
    {" ".join(f"mbarrier.init.shared::cta.b64 [%barrier+{8 * (slots + k)}], {consumers};" for k in range(slots))}
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    mov.u32 %slot, 0;
    mov.u32 %phase, 0;
    mov.u32 %k, 0;
    setp.ne.u32 %p0, %group, 0;
    @%p0 bra CONSUMER;
    setp.ne.u32 %p0, %rank, 0;
    @%p0 ret;
    elect.sync _|%p1, 0xffffffff;
    @!%p1 ret;
FILL:
    mad.lo.u32 %at, %slot, 8, %barrier;
    xor.b32 %other, %phase, 1;
EMPTY:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%at+{8 * slots}], %other;
    @!%p2 bra EMPTY;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%at], 0;
    add.u32 %slot, %slot, 1;
    setp.eq.u32 %p3, %slot, {slots};
    selp.u32 %slot, 0, %slot, %p3;
    @%p3 xor.b32 %phase, %phase, 1;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p4, %k, {steps};
    @%p4 bra FILL;
    ret;
CONSUMER:
    mov.u64 %start, %clock64;
STEP:
    mad.lo.u32 %at, %slot, 8, %barrier;
FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%at], %phase;
    @!%p2 bra FULL;
    wgmma.fence.sync.aligned;
    {fence}
    {" ".join([operation] * PRODUCTS)}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    setp.ne.u32 %p5, %rank, 0;
    @%p5 bra ARRIVED;
    elect.sync _|%p6, 0xffffffff;
    @!%p6 bra ARRIVED;
    mbarrier.arrive.release.cta.shared::cta.b64 _, [%at+{8 * slots}];
ARRIVED:
    add.u32 %slot, %slot, 1;
    setp.eq.u32 %p3, %slot, {slots};
    selp.u32 %slot, 0, %slot, %p3;
    @%p3 xor.b32 %phase, %phase, 1;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p4, %k, {steps};
    @%p4 bra STEP;
    st.volatile.shared.f32 [%smem], %acc0;
    mov.u64 %stop, %clock64;
    sub.s64 %stop, %stop, %start;
    mul.wide.u32 %wide, %warp, 8;
    add.s64 %out, %out, %wide;
    setp.eq.u32 %p7, %lane, 0;
    @%p7 st.global.u64 [%out], %stop;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "n64, 2 consumers, 4 slots" -> cycles of a step, mean over consumer warps (the least of 4 launches)."""
    answer = {}
    for n, consumers, slots, fenced in CASES:
        took = []
        for steps in (FEW, MANY):
            best = np.full(4 * (1 + consumers), np.iinfo(np.int64).max)
            for _ in range(4):
                out = np.zeros(4 * (1 + consumers), np.int64)
                launch(
                    kernel(n, consumers, slots, fenced, steps),
                    "probe",
                    (1, 1, 1),
                    (128 * (1 + consumers), 1, 1),
                    [out, np.uint32(0)],
                )
                best = np.minimum(best, out)
            took.append(float(np.mean(best[4:])))
        label = f"n{n}, {consumers} consumers, {slots} slots" + ", no fence" * (not fenced)
        answer[label] = round((took[1] - took[0]) / (MANY - FEW), 2)
    return answer
