"""Which SM gets which CTA, how far apart do they start, and how long is an SM empty between two of them?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = (
    "In which order do SMs get CTAs, when do the CTAs of a wave start, and how many cycles lie between a CTA and its successor?"
)
SETTLES = "h100sim/devices.py, DeviceModel: cta_cycles; h100sim/ctas.py, start_clusters"

#: CTAs for each SM, and cycles that a CTA stays.
WAVES, STAY = 4, 4000
#: (warps of a CTA, bytes of shared memory, registers of a thread, CTAs of a cluster).
CASES = ((1, 160 << 10, 32, 1), (4, 160 << 10, 32, 1), (12, 160 << 10, 168, 1), (12, 160 << 10, 168, 2), (32, 0, 32, 1))

#: One record: clock of the SM at start and end, global timer at the start (ns), SM.
RECORD = np.dtype([("start", "u8"), ("end", "u8"), ("start_ns", "u8"), ("sm", "u8")])


def kernel(warps: int, registers: int, cluster: int) -> str:
    """Return a kernel whose CTAs stay for STAY cycles and write a RECORD."""
    return f"""{HEADER}.extern .shared .align 16 .b8 memory[];

.visible .entry probe(.param .u64 out)
.maxntid {32 * warps}, 1, 1
.maxnreg {registers}
{f".reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""}
{{
    .reg .pred %p;
    .reg .b32 %k, %sm;
    .reg .b64 %out, %w, %start, %now, %timer;
    mov.u64 %start, %clock64;
    mov.u64 %timer, %globaltimer;
    ld.param.u64 %out, [out];
    mov.u32 %k, %ctaid.x;
    mul.wide.u32 %w, %k, {RECORD.itemsize};
    add.s64 %out, %out, %w;
STAY:
    mov.u64 %now, %clock64;
    sub.s64 %w, %now, %start;
    setp.lt.s64 %p, %w, {STAY};
    @%p bra STAY;
    bar.sync 0;
    mov.u32 %k, %tid.x;
    setp.ne.u32 %p, %k, 0;
    @%p ret;
    mov.u32 %sm, %smid;
    cvt.u64.u32 %w, %sm;
    st.global.v2.u64 [%out+16], {{%timer, %w}};
    mov.u64 %now, %clock64;
    st.global.v2.u64 [%out], {{%start, %now}};
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return for each case the SMs of the first 132 CTAs, the nanoseconds from the first start to theirs (percentiles 0, 50, 100),
    and the cycles from the last clock of a CTA to the first of its successor on the SM (percentiles 10, 50, 90)."""
    answer: dict[str, Any] = {}
    for warps, shared, registers, cluster in CASES:
        records = np.zeros(132 * WAVES, RECORD)
        launch(kernel(warps, registers, cluster), "probe", (len(records), 1, 1), (32 * warps, 1, 1), [records.view(np.uint8)],
               shared_mem=shared, cluster=(cluster, 1, 1))  # fmt: skip
        label = f"{warps} warps, {shared >> 10} KB, {registers} registers, cluster of {cluster}"
        first = records[:132]
        answer[f"{label}: SMs"] = first["sm"].tolist()
        answer[f"{label}: start ns"] = np.percentile(first["start_ns"] - records["start_ns"].min(), (0, 50, 100)).tolist()
        gaps: list[int] = []
        for sm in np.unique(records["sm"]) if shared else ():
            of_sm = np.sort(records[records["sm"] == sm], order="start")
            gaps += (of_sm["start"][1:] - of_sm["end"][:-1]).astype(np.int64).tolist()
        if gaps:
            answer[f"{label}: gap"] = np.percentile(gaps, (10, 50, 90)).tolist()
    return answer
