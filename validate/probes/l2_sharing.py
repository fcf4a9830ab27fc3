"""How many bytes a cycle does L2 deliver where several SMs read the same lines, at the same time or one behind another?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER
from .tma_load_latency import tensor_map

QUESTION = (
    "How many bytes a cycle reach an SM when groups of SMs read the same boxes, by the SMs of a group and how far they are apart?"
)
SETTLES = "h100sim/devices.py, MemorySystem: l2_slices, l2_slice_bytes_per_cycle, l2_merge_cycles"

#: Rows of 128 bytes of a box, of what a group reads again and again, and of what an SM loads in all; boxes in flight.
ROWS, SHARE, TOTAL, STAGES = 128, 512, 8192, 4
#: (SMs of a group, whether they are neighbours, boxes that each begins behind the one before).
CASES = (
    *((group, True, 0) for group in (1, 2, 4, 8, 16, 33, 66, 132)),
    *((group, False, 0) for group in (2, 4, 8, 16, 33, 66)),
    *((group, False, 1) for group in (2, 4, 132)),
)


def kernel(group: int, are_neighbours: bool, skew: int) -> str:
    """Return a kernel of 132 CTAs, one on each SM, that write the cycles of their loads."""
    groups = 132 // group
    which = f"div.u32 %mine, %sm, {group}; rem.u32 %rank, %sm, {group};"
    if not are_neighbours:
        which = f"rem.u32 %mine, %sm, {groups}; div.u32 %rank, %sm, {groups};"
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .align 64 .b8 map[128])
.maxntid 32, 1, 1
{{
    .shared .align 8 .b8 barriers[{8 * STAGES}];
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, %sm, %mine, %rank, %first, %k, %lane, %parity, %slot, %taken, %row, %y, %at, %bar, %n;
    .reg .b64 %out, %map, %w, %start, %stop;
    ld.param.u64 %out, [out];
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    mov.u32 %smem, memory;
    mov.u32 %barrier, barriers;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    {"".join(f"mbarrier.init.shared::cta.b64 [%barrier+{8 * s}], 1; " for s in range(STAGES))}
    fence.mbarrier_init.release.cluster;
    mov.u32 %first, %ctaid.x;
    mul.wide.u32 %w, %first, 8;
    add.s64 %out, %out, %w;
    mov.u32 %sm, %smid;
    {which}
    mul.lo.u32 %first, %mine, {SHARE};
    mul.lo.u32 %row, %rank, {skew * ROWS};
    and.b32 %row, %row, {SHARE - 1};
    mov.u32 %n, 0; mov.u32 %slot, 0; mov.u32 %taken, 0; mov.u32 %parity, 0;
    mov.u64 %start, %clock64;
NEXT:
    setp.ge.u32 %p, %n, {TOTAL // ROWS};
    @%p bra TAKE;
    add.u32 %y, %row, %first;
    mad.lo.u32 %at, %slot, {ROWS * 128}, %smem;
    mad.lo.u32 %bar, %slot, 8, %barrier;
    add.u32 %row, %row, {ROWS};
    and.b32 %row, %row, {SHARE - 1};
    add.u32 %slot, %slot, 1;
    setp.eq.u32 %q, %slot, {STAGES};
    selp.u32 %slot, 0, %slot, %q;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {ROWS * 128};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%at], [%map, {{0, %y}}], [%bar];
TAKE:
    add.u32 %n, %n, 1;
    setp.lt.u32 %p, %n, {STAGES};
    @%p bra NEXT;
    sub.u32 %k, %n, {STAGES};
    mad.lo.u32 %bar, %taken, 8, %barrier;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], %parity;
    @!%q bra WAIT;
    add.u32 %taken, %taken, 1;
    setp.eq.u32 %q, %taken, {STAGES};
    selp.u32 %taken, 0, %taken, %q;
    @%q xor.b32 %parity, %parity, 1;
    setp.lt.u32 %p, %k, {TOTAL // ROWS - 1};
    @%p bra NEXT;
    mov.u64 %stop, %clock64;
    sub.s64 %stop, %stop, %start;
    st.global.u64 [%out], %stop;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs of a group, how" -> bytes per cycle of an SM (mean of all)."""
    answer = {}
    for group, are_neighbours, skew in CASES:
        tensor = np.zeros((-(-132 // group) * SHARE, 32), np.uint32)
        out = np.zeros(132, np.int64)
        arguments = [out, functools.partial(tensor_map, tensor, ROWS)]
        # So much shared memory that an SM has room for one CTA.
        launch(kernel(group, are_neighbours, skew), "probe", (132, 1, 1), (32, 1, 1), arguments, shared_mem=160 * 1024)
        how = "neighbours" if are_neighbours else "apart"
        label = f"{group} SMs, {how}" + f", {skew} boxes behind" * bool(skew)
        answer[label] = round(TOTAL * 128 / float(np.mean(out)), 2)
    return answer
