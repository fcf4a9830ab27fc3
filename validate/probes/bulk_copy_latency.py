"""How long does a bulk copy from L2 take, by size?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How many cycles from the issue of cp.async.bulk to the completed mbarrier, data in L2, one thread, by size?"
SETTLES = "h100sim/devices.py, Tma: latency_cycles, bytes_per_cycle"

SIZES = (128, 1_024, 4_096, 16_384, 32_768)

_KERNEL = (
    HEADER
    + """.visible .entry probe(.param .u64 out, .param .u64 source, .param .u32 bytes)
{
    .shared .align 1024 .b8 memory[32768];
    .shared .align 8 .b64 barrier;
    .reg .pred %p<4>;
    .reg .b32 %thread, %memory, %barrier, %bytes, %k, %parity;
    .reg .b64 %out, %source, %start, %issued, %stop, %state;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %p0, %thread, 0;
    @%p0 bra DONE;
    ld.param.u64 %out, [out];
    ld.param.u64 %source, [source];
    cvta.to.global.u64 %source, %source;
    ld.param.u32 %bytes, [bytes];
    mov.u32 %memory, memory;
    mov.u32 %barrier, barrier;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async.shared::cta;
    mov.u32 %k, 0;
AGAIN:
    and.b32 %parity, %k, 1;
    mov.u64 %start, %clock64;
    mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%barrier], %bytes;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%memory], [%source], %bytes, [%barrier];
    mov.u64 %issued, %clock64;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%barrier], %parity;
    @!%p1 bra WAIT;
    mov.u64 %stop, %clock64;
    sub.s64 %issued, %issued, %start;
    sub.s64 %stop, %stop, %start;
    st.global.v2.u64 [%out], {%issued, %stop};
    add.s64 %out, %out, 16;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p2, %k, 16;
    @%p2 bra AGAIN;
DONE:
    ret;
}
"""
)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return size in bytes -> medians of [cycles until the thread goes on, cycles until the copy has completed]."""
    found = {}
    source = np.random.default_rng(0).integers(0, 256, max(SIZES), np.uint8)
    for size in SIZES:
        out = np.zeros((16, 2), np.int64)
        launch(_KERNEL, "probe", (1, 1, 1), (32, 1, 1), [out, source, np.uint32(size)])
        # The first copies miss L2.
        found[str(size)] = [float(cycles) for cycles in np.median(out[4:], axis=0)]
    return found
