"""How long does a store by the copy engine hold its thread, its source, and whoever waits for its end?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from h100sim.tma.tensor_map import TensorMap

from .timed_kernel import HEADER

QUESTION = "When does a thread go on that stores boxes of 128-byte rows, when are their sources read, when are they done?"
SETTLES = "h100sim/devices.py, Tma: the store_* fields"

REPEATS = 8


def kernel(boxes: int, rows: int) -> str:
    """Return a kernel that stores ``boxes`` boxes ``REPEATS`` times and writes the cycles to issue, read and end."""
    stores = "\n    ".join(
        f"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {{0, %y{k}}}], [%smem+{k * rows * 128}];"
        for k in range(boxes)
    )
    places = "\n    ".join(f"add.u32 %y{k}, %z, {k * rows};" for k in range(boxes))
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .align 64 .b8 map[128], .param .u32 zero)
.maxntid 32, 1, 1
{{
    .reg .pred %p;
    .reg .b32 %smem, %zero, %z, %k, %lane, %y<16>, %t<4>;
    .reg .b64 %out, %map;
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    mov.u32 %smem, memory;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mov.u32 %k, 0;
AGAIN:
    mov.u32 %t0, %clock;
    and.b32 %z, %t0, %zero;
    {places}
    fence.proxy.async.shared::cta;
    {stores}
    cp.async.bulk.commit_group;
    mov.u32 %t1, %clock;
    cp.async.bulk.wait_group.read 0;
    mov.u32 %t2, %clock;
    cp.async.bulk.wait_group 0;
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


def _map(array: np.ndarray, rows: int, address_of: Callable[[np.ndarray], int]) -> TensorMap:
    return TensorMap.tiled("u32", address_of(array), array.shape[::-1], (128,), (32, rows), swizzle="128B")


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "boxes x bytes" -> [issued, read, done] cycles: those of the first time, and the median of the others."""
    answer = {}
    for boxes, rows in ((1, 8), (1, 32), (1, 64), (1, 128), (1, 256), (2, 64), (4, 64), (8, 64), (2, 128), (4, 128)):
        target = np.zeros((boxes * rows, 32), np.uint32)
        out = np.zeros((REPEATS, 3), np.uint32)
        tensor = functools.partial(_map, target, rows)
        shape = (1, 1, 1), (32, 1, 1)
        launch(kernel(boxes, rows), "probe", *shape, [out, tensor, np.uint32(0)], shared_mem=boxes * rows * 128)
        answer[f"{boxes} x {rows * 128}"] = {"first": out[0].tolist(), "then": np.median(out[1:], axis=0).tolist()}
    return answer
