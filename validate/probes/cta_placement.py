"""Which SMs do the CTAs of a grid start on, in what order, and which SMs can hold one cluster?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "Which SMs do the CTAs of the first wave start on, for each size of cluster, and which SMs form a GPC?"
SETTLES = "h100sim/placement.py; h100sim/devices.py, DeviceModel: gpcs"

#: CTAs of a cluster, and CTAs that an SM has shared memory for.
CASES = ((1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (12, 1), (16, 1), (1, 2), (2, 2), (4, 2), (8, 2), (16, 2), (1, 4), (4, 4))
SHARED_BYTES = {1: 200 * 1024, 2: 100 * 1024, 4: 50 * 1024}
#: Nanoseconds that a CTA stays: longer than it takes to start all of a wave.
STAY = 60_000

_KERNEL = f"""{HEADER}.visible .entry probe(.param .u64 out)
.maxntid 32, 1, 1
{{
    .reg .pred %p;
    .reg .b32 %lane, %cta, %sm;
    .reg .b64 %out, %w, %start, %now, %end;
    mov.u64 %start, %globaltimer;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    add.s64 %end, %start, {STAY};
    ld.param.u64 %out, [out];
    mov.u32 %cta, %ctaid.x;
    mov.u32 %sm, %smid;
    mul.wide.u32 %w, %cta, 24;
    add.s64 %out, %out, %w;
STAY:
    nanosleep.u32 2000;
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %p, %now, %end;
    @%p bra STAY;
    cvt.u64.u32 %w, %sm;
    st.global.u64 [%out], %w;
    st.global.u64 [%out+8], %start;
    st.global.u64 [%out+16], %now;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "clusters of N, M CTAs an SM" -> the SMs of the CTAs that ran at once, in the order of their numbers, how many
    nanoseconds after the first the last of them started, and the SMs of the CTAs that came next; "groups": SMs that shared a
    cluster in some launch, joined."""
    answer: dict[str, Any] = {}
    together: list[set[int]] = []
    for cluster, residents in CASES:
        ctas = (2 * 132 * residents // cluster + 1) * cluster
        out = np.zeros((ctas, 3), np.uint64)
        shared = SHARED_BYTES[residents]
        launch(_KERNEL, "probe", (ctas, 1, 1), (32, 1, 1), [out], shared_mem=shared, cluster=(cluster, 1, 1))
        sm, start, end = out.astype(np.int64).T
        first = np.flatnonzero(start < end.min())
        later = [k for k in np.argsort(start, kind="stable") if k not in set(first)]
        answer[f"clusters of {cluster}, {residents} CTA{'s' * (residents > 1)} an SM"] = {
            "sms": sm[first].tolist(),
            "in_order": bool(len(first) == first.max() + 1),
            "start_spread_ns": int(start[first].max() - start[first].min()),
            "next": sm[later][:32].tolist(),
        }
        for k in range(0, ctas, cluster):
            _join(together, set(sm[k : k + cluster].tolist()))
    answer["groups"] = sorted((sorted(group) for group in together), key=lambda group: group[0])
    return answer


def _join(groups: list[set[int]], more: set[int]) -> None:
    """Join a set with those groups that it touches."""
    for group in [g for g in groups if g & more]:
        more |= group
        groups.remove(group)
    groups.append(more)
