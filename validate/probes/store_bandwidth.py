"""How many bytes a cycle do the copy engines of one SM and of all SMs store to L2, and add to it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How many bytes a cycle leave with all SMs storing or adding, and what does a barrier of a cluster cost that releases?"
SETTLES = "h100sim/devices.py, Tma: reduce_bytes_per_cycle; MemorySystem: l2_write_bytes_per_cycle; Barriers: cluster_*"

#: Bytes of a copy, copies of a round and rounds: an SM stores 64 KB eight times over.
SIZE, COPIES, ROUNDS = 16_384, 4, 8
STORES = {
    "store": "cp.async.bulk.global.shared::cta.bulk_group",
    "add f32": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32",
}
#: SMs that store, and numbers of SMs below which they do, so that both of a TPC store.
COUNTS = ((1, 132), (2, 132), (16, 132), (66, 132), (88, 132), (110, 132), (132, 132), (132, 66), (132, 16))


def kernel(operation: str, step: int = 0, is_loading: bool = False) -> str:
    """Return a kernel whose CTAs, those on SMs below ``below``, each store to 64 KB of their own and write the cycles of each
    round; a round begins ``step`` bytes behind the one before. If ``is_loading``, every second copy is a load of such bytes."""
    copies = "\n    ".join(
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%smem+{k * SIZE}], [%to+{k * SIZE}], {SIZE}, [%barrier];"
        if is_loading and k & 1
        else f"{operation} [%to+{k * SIZE}], [%smem+{k * SIZE}], {SIZE};"
        for k in range(COPIES)
    )
    wait = """WAIT:
    and.b32 %lane, %k, 1;
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%barrier], %lane;
    @!%p bra WAIT;"""
    expect = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {COPIES // 2 * SIZE};"
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .u64 target, .param .u32 below)
.maxntid 32, 1, 1
{{
    .shared .align 8 .b64 barrier;
    .reg .pred %p;
    .reg .b32 %smem, %barrier, %k, %lane, %cta, %sm, %below, %t<2>;
    .reg .b64 %out, %to, %w;
    ld.param.u64 %out, [out];
    ld.param.u64 %to, [target];
    mov.u32 %smem, memory;
    mov.u32 %barrier, barrier;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    ld.param.u32 %below, [below];
    mov.u32 %sm, %smid;
    setp.ge.u32 %p, %sm, %below;
    @%p ret;
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %w, %cta, {SIZE * COPIES + ROUNDS * step};
    add.s64 %to, %to, %w;
    mul.wide.u32 %w, %cta, {4 * ROUNDS};
    add.s64 %out, %out, %w;
    mov.u32 %k, 0;
AGAIN:
    mov.u32 %t0, %clock;
    {expect * is_loading}
    {copies}
    cp.async.bulk.commit_group;
    {wait * is_loading}
    cp.async.bulk.wait_group 0;
    add.s64 %to, %to, {step};
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {ROUNDS};
    @%p bra AGAIN;
    ret;
}}
"""


def cluster_kernel(release: str, is_dirty: bool) -> str:
    """Return a kernel of two CTAs that writes the cycles of an arrive and of the wait behind it, four times, with or without
    a store to global memory before it."""
    dirty = "st.global.u32 [%out+64], %k;" if is_dirty else ""
    return f"""{HEADER}.visible .entry probe(.param .u64 out)
.maxntid 32, 1, 1
.reqnctapercluster 2, 1, 1
{{
    .reg .pred %p;
    .reg .b32 %k, %cta, %t<4>;
    .reg .b64 %out, %w;
    ld.param.u64 %out, [out];
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %w, %cta, 128;
    add.s64 %out, %out, %w;
    mov.u32 %k, 0;
AGAIN:
    {dirty}
    mov.u32 %t0, %clock;
    barrier.cluster.arrive{release}.aligned;
    mov.u32 %t1, %clock;
    barrier.cluster.wait.aligned;
    mov.u32 %t2, %clock;
    sub.u32 %t2, %t2, %t1;
    sub.u32 %t1, %t1, %t0;
    st.global.v2.u32 [%out], {{%t1, %t2}};
    add.s64 %out, %out, 8;
    add.u32 %k, %k, 1;
    barrier.cluster.arrive.relaxed.aligned;
    barrier.cluster.wait.aligned;
    setp.lt.u32 %p, %k, 4;
    @%p bra AGAIN;
    ret;
}}
"""


def line_kernel(warps: int) -> str:
    """Return a kernel whose warps store 64 KB in all, 16 bytes a lane, again and again; it writes as :func:`kernel` does."""
    stores = "\n    ".join(f"st.global.v4.u32 [%to+{k * 512}], {{%k, %k, %k, %k}};" for k in range(SIZE * COPIES // 512 // warps))
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u64 target, .param .u32 below)
.maxntid {32 * warps}, 1, 1
{{
    .reg .pred %p;
    .reg .b32 %k, %lane, %warp, %cta, %t<2>;
    .reg .b64 %out, %to, %w;
    ld.param.u64 %out, [out];
    ld.param.u64 %to, [target];
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %w, %cta, {SIZE * COPIES};
    add.s64 %to, %to, %w;
    mul.wide.u32 %w, %cta, {4 * ROUNDS};
    add.s64 %out, %out, %w;
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    and.b32 %lane, %lane, 31;
    mul.wide.u32 %w, %warp, {SIZE * COPIES // warps};
    add.s64 %to, %to, %w;
    mul.wide.u32 %w, %lane, 16;
    add.s64 %to, %to, %w;
    mov.u32 %k, 0;
AGAIN:
    bar.sync 0;
    mov.u32 %t0, %clock;
    {stores}
    bar.sync 0;
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    setp.ne.u32 %p, %warp, 0;
    @!%p st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {ROUNDS};
    @%p bra AGAIN;
    ret;
}}
"""


def rate(out: np.ndarray) -> float:
    """Return bytes per cycle of an SM from the mean cycles of the later rounds (SM, round); 0: an SM that took no part."""
    return round(SIZE * COPIES / float(np.mean(out[out[:, -1] > 0, 2:])), 2)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "operation, SMs" -> bytes per cycle of an SM (from the mean cycles of the later rounds of all SMs), and
    "cluster ..." -> cycles of four arrives and their waits in turn. "neighbours": only SMs with numbers below 66 store, so
    that both of a TPC do; other counts leave it to the GPU which SMs are used. "half loads": of the bytes, half are loaded."""
    answer: dict[str, Any] = {}

    def ask(text: str, sms: int, below: int, step: int = 0, threads: int = 32) -> float:
        target = np.zeros((sms, (SIZE * COPIES + ROUNDS * step) // 4), np.float32)
        out = np.zeros((sms, ROUNDS), np.uint32)
        launch(text, "probe", (sms, 1, 1), (threads, 1, 1), [out, target, np.uint32(below)], shared_mem=SIZE * COPIES)
        return rate(out)

    for name, operation in STORES.items():
        for sms, below in COUNTS:
            label = f"{sms} SMs" if below == 132 else f"{below} neighbours"
            answer[f"{name}, {label}"] = ask(kernel(operation), sms, below)
    for sms in (1, 66, 132):
        answer[f"half loads, {sms} SMs"] = ask(kernel(STORES["store"], is_loading=True), sms, 132)
        answer[f"new bytes, {sms} SMs"] = ask(kernel(STORES["store"], step=SIZE * COPIES), sms, 132, SIZE * COPIES)
    for warps in (1, 4, 8):
        for sms in (1, 66, 132):
            answer[f"st.v4, {warps} warps, {sms} SMs"] = ask(line_kernel(warps), sms, 132, threads=32 * warps)
    for release in (".release", ".relaxed"):
        for is_dirty in (False, True):
            out = np.zeros((2, 32), np.uint32)
            launch(cluster_kernel(release, is_dirty), "probe", (2, 1, 1), (32, 1, 1), [out], cluster=(2, 1, 1))
            answer[f"cluster {release}{' behind a store' * is_dirty}"] = out[0, :8].tolist()
    return answer
