"""How long do accesses to the shared memory of another CTA of the cluster take, and how many bytes a cycle go there?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = (
    "How many cycles do a load and a round of arrivals take between CTAs of a cluster, how many bytes a cycle do all move there?"
)
SETTLES = "h100sim/devices.py, ClusterNetwork"

#: Loads of the latency, bytes of a copy, and how often each is repeated; loads or stores in flight of a warp.
LOADS, COPY, REPEATS, UNROLL = 16, 16_384, 8, 8
WARPS = 8

_LOAD = """
    mov.u32 %from, %{where};
    mov.u32 %k, 0;
LOAD_{where}:
    mov.u32 %t0, %clock;
    and.b32 %z, %t0, %zero;
    add.u32 %at, %from, %z;
    ld.volatile.shared::cluster.u32 %x0, [%at];
    and.b32 %z, %x0, %zero;
    add.u32 %at, %smem, %z;
    st.volatile.shared.u32 [%at+64], %z;
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    @%first st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {loads};
    @%p bra LOAD_{where};
"""

_PING_PONG = f"""
    @!%first bra RANG;
    mov.u32 %k, 0;
RING:
    mov.u32 %t0, %clock;
    and.b32 %z, %k, 1;
    setp.eq.u32 %q, %rank, 0;
    @%q mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%theirs];
RING_WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [%ours], %z;
    @!%p bra RING_WAIT;
    @!%q mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%theirs];
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {LOADS};
    @%p bra RING;
RANG:
"""


def _moves(operation: str) -> str:
    """Return UNROLL accesses of 16 bytes a lane to the memory of the next CTA, one behind another."""
    if operation == "load":
        return "\n    ".join(
            f"ld.volatile.shared::cluster.v4.u32 {{{', '.join(f'%x{4 * k + j}' for j in range(4))}}}, [%at+{512 * k}];"
            for k in range(UNROLL)
        ) + "".join(f"\n    xor.b32 %sum, %sum, %x{k};" for k in range(4 * UNROLL))
    return "\n    ".join(f"st.shared::cluster.v4.u32 [%at+{512 * k}], {{%z, %z, %z, %z}};" for k in range(UNROLL))


def _stream(operation: str) -> str:
    """Return code that writes the cycles of REPEATS rounds of accesses by all warps."""
    if operation == "copy":
        body = f"""@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%ours+8], {COPY};
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %t0, %clock;
    @%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%theirs_data], [%smem], {COPY}, [%theirs+8];
    and.b32 %z, %k, 1;
COPY_WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%ours+8], %z;
    @!%p bra COPY_WAIT;"""
    else:
        body = f"""bar.sync 0;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %t0, %clock;
    and.b32 %z, %t0, %zero;
    mad.lo.u32 %at, %warp, {512 * UNROLL // 4}, %theirs_data;
    add.u32 %at, %at, %lane16;
    add.u32 %at, %at, %z;
    {_moves(operation)}
    {_moves(operation)}
    and.b32 %z, %sum, %zero;
    add.u32 %at, %smem, %z;
    st.volatile.shared.u32 [%at+64], %z;"""
    return f"""
    mov.u32 %sum, 0;
    mov.u32 %k, 0;
STREAM:
    {body}
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    @%first st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {REPEATS};
    @%p bra STREAM;
"""


def kernel(cluster: int, operation: str) -> str:
    """Return a kernel of clusters whose CTAs do an operation on the memory of the next CTA of the cluster ("latency", "ring",
    "load", "store", "copy") and write the cycles."""
    code = {"latency": _LOAD.format(where="smem", loads=LOADS) + _LOAD.format(where="theirs_data", loads=LOADS), "ring": _PING_PONG}
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u32 zero)
.maxntid {32 * WARPS}, 1, 1
.reqnctapercluster {cluster}, 1, 1
{{
    .shared .align 1024 .b8 memory[{2 * COPY}];
    .shared .align 8 .b8 barriers[16];
    .reg .pred %p, %q, %first;
    .reg .b32 %smem, %ours, %theirs, %theirs_data, %rank, %next, %zero, %z, %k, %lane16, %warp, %at, %from, %sum, %t0, %t1;
    .reg .b32 %thread, %x<{4 * UNROLL}>;
    .reg .b64 %out, %w;
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    mov.u32 %smem, memory;
    mov.u32 %ours, barriers;
    mov.u32 %thread, %tid.x;
    setp.eq.u32 %first, %thread, 0;
    shr.u32 %warp, %thread, 5;
    and.b32 %lane16, %thread, 31;
    shl.b32 %lane16, %lane16, 4;
    mov.u32 %rank, %cluster_ctarank;
    add.u32 %next, %rank, 1;
    setp.eq.u32 %p, %next, {cluster};
    selp.u32 %next, 0, %next, %p;
    mapa.shared::cluster.u32 %theirs, %ours, %next;
    mapa.shared::cluster.u32 %theirs_data, %smem, %next;
    add.u32 %theirs_data, %theirs_data, {COPY};
    mov.u32 %at, %ctaid.x;
    mul.wide.u32 %w, %at, {4 * 2 * LOADS};
    add.s64 %out, %out, %w;
    @%first mbarrier.init.shared::cta.b64 [%ours], 1;
    @%first mbarrier.init.shared::cta.b64 [%ours+8], 1;
    fence.mbarrier_init.release.cluster;
    st.shared.u32 [%smem], %zero;
    st.shared.u32 [%smem+{COPY}], %zero;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    {code.get(operation) or _stream(operation)}
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "cluster, operation" -> cycles of a load of its own and of the other's memory, of a round trip of arrivals (medians),
    and bytes per cycle of a CTA that all CTAs of the cluster move at once."""
    answer: dict[str, Any] = {}
    moved = {"load": 2 * UNROLL * 512 * WARPS, "store": 2 * UNROLL * 512 * WARPS, "copy": COPY}
    for cluster in (2, 4, 8):
        for operation in ("latency", *(("ring",) if cluster == 2 else ()), "load", "store", "copy"):
            out = np.zeros((cluster, 2 * LOADS), np.uint32)
            launch(
                kernel(cluster, operation),
                "probe",
                (cluster, 1, 1),
                (32 * WARPS, 1, 1),
                [out, np.uint32(0)],
                cluster=(cluster, 1, 1),
            )
            if operation == "latency":
                medians = [float(np.median(out[:, k * LOADS + 1 : (k + 1) * LOADS])) for k in range(2)]
                answer[f"cluster of {cluster}, load, own and other"] = medians
            elif operation == "ring":
                answer[f"cluster of {cluster}, round of arrivals"] = float(np.median(out[0, 2:LOADS]))
            else:
                rate = moved[operation] / float(np.mean(out[:, 2:REPEATS]))
                answer[f"cluster of {cluster}, {operation}"] = round(rate, 2)
    return answer
