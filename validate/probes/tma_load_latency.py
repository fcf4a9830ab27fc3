"""How long does a load by the copy engine take, the first time and later, and when does its thread go on?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from h100sim.tma.tensor_map import TensorMap

from .timed_kernel import HEADER

QUESTION = "When has a thread issued loads of boxes of 128-byte rows, and when have they arrived, data in L2?"
SETTLES = "h100sim/devices.py, Tma: issue_cycles, latency_cycles, bytes_per_cycle, box_cycles, descriptor_cycles"

REPEATS = 8
#: (boxes, rows of a box).
CASES = ((1, 8), (1, 32), (1, 64), (1, 128), (1, 256), (2, 8), (4, 8), (8, 8), (2, 64), (4, 64), (8, 64), (4, 128), (3, 256))


def kernel(boxes: int, rows: int) -> str:
    """Return a kernel that loads ``boxes`` boxes REPEATS times and writes the cycles to expect, issue and arrive."""
    loads = "\n    ".join(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[%smem+{k * rows * 128}], [%map, {{0, %y{k}}}], [%barrier];"
        for k in range(boxes)
    )
    places = "\n    ".join(f"add.u32 %y{k}, %z, {k * rows};" for k in range(boxes))
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 zero)
.maxntid 32, 1, 1
{{
    .shared .align 8 .b64 barrier;
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, %zero, %z, %k, %lane, %parity, %y<16>, %t<4>;
    .reg .b64 %out, %map;
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
    mov.u32 %k, 0;
AGAIN:
    mov.u32 %t0, %clock;
    and.b32 %z, %t0, %zero;
    and.b32 %parity, %k, 1;
    {places}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {boxes * rows * 128};
    mov.u32 %t1, %clock;
    {loads}
    mov.u32 %t2, %clock;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%barrier], %parity;
    @!%q bra WAIT;
    mov.u32 %t3, %clock;
    sub.u32 %t1, %t1, %t0;
    sub.u32 %t2, %t2, %t0;
    sub.u32 %t3, %t3, %t0;
    st.global.u32 [%out], %t1;
    st.global.u32 [%out+4], %t2;
    st.global.u32 [%out+8], %t3;
    add.s64 %out, %out, 12;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {REPEATS};
    @%p bra AGAIN;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "boxes x bytes" -> [expected, issued, arrived] cycles: those of the first time, and the median of the others."""
    answer = {}
    for boxes, rows in CASES:
        source = np.arange(boxes * rows * 32, dtype=np.uint32).reshape(-1, 32)
        out = np.zeros((REPEATS, 3), np.uint32)
        tensor = functools.partial(tensor_map, source, rows)
        size = boxes * rows * 128
        launch(kernel(boxes, rows), "probe", (1, 1, 1), (32, 1, 1), [out, tensor, np.uint32(0)], shared_mem=size)
        answer[f"{boxes} x {rows * 128}"] = {"first": out[0].tolist(), "then": np.median(out[1:], axis=0).tolist()}
    return answer


def tensor_map(array: np.ndarray, rows: int, address_of: Callable[[np.ndarray], int]) -> TensorMap:
    """Return the map of an array of 128-byte rows in boxes of ``rows``."""
    return TensorMap.tiled("u32", address_of(array), array.shape[::-1], (128,), (32, rows), swizzle="128B")
