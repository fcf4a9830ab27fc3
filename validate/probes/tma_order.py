"""Do loads and stores of the copy engine pass each other?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "When has a load arrived that is issued behind stores, and when have stores been read that are issued behind a load?"
SETTLES = "h100sim/units/tma_engine.py: one queue for loads and stores"

REPEATS = 8
#: Bytes of a store, and of a load, of each case.
CASES = tuple((stored, loaded) for stored in (0, 1_024, 4_096, 16_384, 65_536) for loaded in (1_024, 16_384))


def kernel(stored: int, loaded: int, is_store_first: bool) -> str:
    """Return a kernel that stores and loads, one behind the other, and writes the cycles until the load has arrived and until
    the stores have been read, REPEATS times."""
    copies = [
        f"cp.async.bulk.global.shared::cta.bulk_group [%to+{at}], [%smem+{at}], {min(stored - at, 16_384)};"
        for at in range(0, stored, 16_384)
    ]
    copies.append("cp.async.bulk.commit_group;")
    load = f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%smem+65536], [%from], {loaded}, [%barrier];"
    issued = "\n    ".join([*copies, load] if is_store_first else [load, *copies])
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .u64 source, .param .u64 target)
.maxntid 32, 1, 1
{{
    .shared .align 8 .b64 barrier;
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, %k, %lane, %parity, %t<3>;
    .reg .b64 %out, %from, %to;
    ld.param.u64 %out, [out];
    ld.param.u64 %from, [source];
    ld.param.u64 %to, [target];
    mov.u32 %smem, memory;
    mov.u32 %barrier, barrier;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    mov.u32 %k, 0;
AGAIN:
    and.b32 %parity, %k, 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {loaded};
    mov.u32 %t0, %clock;
    {issued}
    {"" if is_store_first else "cp.async.bulk.wait_group.read 0; mov.u32 %t2, %clock;"}
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%barrier], %parity;
    @!%q bra WAIT;
    mov.u32 %t1, %clock;
    {"cp.async.bulk.wait_group.read 0; mov.u32 %t2, %clock;" if is_store_first else ""}
    sub.u32 %t1, %t1, %t0;
    sub.u32 %t2, %t2, %t0;
    st.global.u32 [%out], %t1;
    st.global.u32 [%out+4], %t2;
    cp.async.bulk.wait_group 0;
    add.s64 %out, %out, 8;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, {REPEATS};
    @%p bra AGAIN;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "which first, bytes stored, bytes loaded" -> [cycles until the load has arrived, until the stores have been read],
    medians of the later repetitions. Whichever thread waits second sees its event no earlier than the first."""
    answer = {}
    for first in ("store", "load"):
        for stored, loaded in CASES:
            source, target = np.zeros(loaded // 4, np.uint32), np.zeros(max(stored, 16) // 4, np.uint32)
            out = np.zeros((REPEATS, 2), np.uint32)
            text = kernel(stored, loaded, first == "store")
            launch(text, "probe", (1, 1, 1), (32, 1, 1), [out, source, target], shared_mem=81_920)
            answer[f"{first} first, {stored} stored, {loaded} loaded"] = np.median(out[2:], axis=0).tolist()
    return answer
