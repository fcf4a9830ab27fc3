"""How long does a GPU take from the end of one launch to the first instruction of the next one of the same stream?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = (
    "How many nanoseconds lie between the last instruction of a launch and the first of the launch that waits behind it, "
    "by grid, CTA and cluster?"
)
SETTLES = "h100sim/devices.py, DeviceModel: launch_cycles"

#: Launches that are queued together, and nanoseconds that each CTA stays: longer than the host takes to queue a launch.
LAUNCHES, STAY = 24, 20_000
#: (CTAs, warps of a CTA, bytes of shared memory, CTAs of a cluster).
CASES = ((1, 1, 0, 1), (132, 4, 0, 1), (132, 12, 160 << 10, 1), (132, 12, 160 << 10, 2), (132, 12, 227 << 10, 1), (1056, 4, 0, 1))

#: One launch: the first and the last global timer of its CTAs, in nanoseconds.
RECORD = np.dtype([("start", "u8"), ("end", "u8")])


def kernel(warps: int, cluster: int) -> str:
    """Return a kernel ``probe(out, done, ctas)``: launch n writes RECORD n of ``out``; ``done`` counts CTAs over all launches."""
    return f"""{HEADER}.extern .shared .align 16 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .u64 done, .param .u32 ctas)
.maxntid {32 * warps}, 1, 1
{f".reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""}
{{
    .reg .pred %p;
    .reg .b32 %k, %ctas;
    .reg .b64 %out, %done, %start, %now, %end, %w;
    mov.u64 %start, %globaltimer;
    mov.u32 %k, %tid.x;
    setp.ne.u32 %p, %k, 0;
    @%p bra END;
    ld.param.u64 %out, [out];
    ld.param.u64 %done, [done];
    ld.param.u32 %ctas, [ctas];
    ld.volatile.global.u32 %k, [%done];
    div.u32 %k, %k, %ctas;
    mul.wide.u32 %w, %k, {RECORD.itemsize};
    add.s64 %out, %out, %w;
    red.global.min.u64 [%out], %start;
    add.s64 %end, %start, {STAY};
STAY:
    nanosleep.u32 100;
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %p, %now, %end;
    @%p bra STAY;
    // All CTAs of this launch have read the count when it changes; the last clock of a CTA has next to nothing behind it.
    atom.global.add.u32 %k, [%done+4], 1;
    add.u32 %k, %k, 1;
    rem.u32 %k, %k, %ctas;
    setp.eq.u32 %p, %k, 0;
    @%p red.global.add.u32 [%done], %ctas;
    mov.u64 %now, %globaltimer;
    red.global.max.u64 [%out+8], %now;
END:
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return for each case the nanoseconds between launches (percentiles 10, 50, 90)."""
    answer: dict[str, Any] = {}
    for ctas, warps, shared, cluster in CASES:
        records = np.zeros(LAUNCHES, RECORD)
        records["start"] = np.iinfo(np.int64).max
        done = np.zeros(2, np.uint32)
        launch(kernel(warps, cluster), "probe", (ctas, 1, 1), (32 * warps, 1, 1), [records.view(np.uint8), done, np.uint32(ctas)],
               shared_mem=shared, cluster=(cluster, 1, 1), times=LAUNCHES)  # fmt: skip
        gaps = (records["start"][1:] - records["end"][:-1]).astype(np.int64)
        label = f"{ctas} CTA{'s' * (ctas > 1)} of {warps} warp{'s' * (warps > 1)}, {shared >> 10} KB, clusters of {cluster}"
        answer[label] = np.percentile(gaps[3:], (10, 50, 90)).tolist()
    return answer
