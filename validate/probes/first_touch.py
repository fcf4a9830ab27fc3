"""What do the first loads of a launch cost: of a tensor map, of a page, of a line that was uploaded?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER
from .tma_load_latency import tensor_map

QUESTION = "How many cycles do the loads of a launch take one after another, by whether the map, the page and the lines are new?"
SETTLES = "h100sim/devices.py, Tma: descriptor_cycles; MemorySystem: page_cycles, l2_far_cycles"

#: Rows of 128 bytes of a box, and of a tensor (16 MB).
ROWS, TENSOR = 64, 1 << 17
#: The loads in turn: (map, first row). The maps are of two tensors; a page has 2 MB, 16,384 rows.
LOADS = (
    *((0, 0), (0, 0), (0, 64), (0, 64), (0, 128), (0, 128), (1, 0), (1, 0), (1, 64), (1, 64)),
    *((0, 16384), (0, 16384), (0, 16448), (0, 49152), (0, 49152), (1, 65536), (1, 65536), (1, 65600), (0, 0), (1, 0)),
)
LABELS = [f"map {m}, row {row}" for m, row in LOADS]


def kernel(flight: int) -> str:
    """Return a kernel whose CTAs each do LOADS one by one and write the cycles of each. CTA c starts ``flight`` * c rows later."""
    loads = "\n".join(
        f"""    mov.u32 %t0, %clock;
    and.b32 %z, %t0, %zero;
    add.u32 %y, %first, {row};
    add.u32 %y, %y, %z;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {ROWS * 128};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%smem], [%map{m}, {{0, %y}}], [%barrier];
WAIT{k}:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%barrier], {k & 1};
    @!%q bra WAIT{k};
    mov.u32 %t1, %clock;
    sub.u32 %t1, %t1, %t0;
    st.volatile.shared.u32 [%took+{4 * k}], %t1;"""
        for k, (m, row) in enumerate(LOADS)
    )
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u32 zero)
.maxntid 32, 1, 1
{{
    .shared .align 8 .b64 barrier;
    .shared .align 4 .b8 took[{4 * len(LOADS)}];
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, %zero, %z, %k, %lane, %cta, %first, %y, %t0, %t1, %took;
    .reg .b64 %out, %map<2>, %w;
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    mov.b64 %map0, a;
    cvta.param.u64 %map0, %map0;
    mov.b64 %map1, b;
    cvta.param.u64 %map1, %map1;
    mov.u32 %smem, memory;
    mov.u32 %barrier, barrier;
    mov.u32 %took, took;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %w, %cta, {4 * len(LOADS)};
    add.s64 %out, %out, %w;
    mul.lo.u32 %first, %cta, {flight};
{loads}
    mov.u32 %k, 0;
KEEP:
    ld.volatile.shared.u32 %t1, [%took];
    add.u32 %took, %took, 4;
    st.global.u32 [%out], %t1;
    add.s64 %out, %out, 4;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {len(LOADS)};
    @%p bra KEEP;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs, lines" -> the medians over SMs and launches of the cycles of each of LOADS."""
    answer: dict[str, Any] = {"loads": LABELS}
    for sms, flight, name in (
        (1, 0, "1 SM"),
        (4, 0, "4 SMs, the same"),
        (132, 0, "132 SMs, the same"),
        (132, 128, "132 SMs, their own"),
    ):
        found = []
        for _ in range(5):
            a, b = (np.zeros((TENSOR, 32), np.uint32) for _ in range(2))
            out = np.zeros((sms, len(LOADS)), np.uint32)
            arguments = [out, functools.partial(tensor_map, a, ROWS), functools.partial(tensor_map, b, ROWS), np.uint32(0)]
            launch(kernel(flight), "probe", (sms, 1, 1), (32, 1, 1), arguments, shared_mem=ROWS * 128)
            found.append(out)
        answer[name] = np.median(np.concatenate(found), axis=0).tolist()
    return answer
