"""How many bytes a cycle do the copy engines of one SM and of all SMs deliver, from L2 and from HBM?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER
from .tma_load_latency import tensor_map

QUESTION = "How many bytes a cycle arrive with several loads in flight, on one SM and on 132, from L2 and from HBM?"
SETTLES = "h100sim/devices.py, Tma: bytes_per_cycle, box_cycles; MemorySystem: l2_bytes_per_cycle, hbm_bytes_per_cycle"

#: Rows that an SM loads in all, and rows of the tensor that all SMs read again and again ("l2").
ROWS, SHARE_ROWS = 8192, 2048
LAUNCHES = 3
#: Rows of its own that an SM reads again and again, so that all SMs read as many megabytes together ("8 MB of their own").
OWN_ROWS = {"8 MB": 512, "17 MB": 1024, "35 MB": 2048, "69 MB": 4096}
#: (SMs, rows of a box, loads in flight, source).
CASES = (
    *((1, rows, stages, "l2") for rows, stages in ((64, 1), (64, 2), (64, 4), (128, 1), (128, 4), (256, 2), (256, 4))),
    *((132, rows, stages, "l2") for rows, stages in ((64, 1), (64, 4), (128, 1), (128, 2), (128, 4), (256, 4))),
    *((132, rows, stages, "hbm") for rows, stages in ((64, 1), (64, 4), (128, 1), (128, 4), (256, 2))),
    *((sms, 128, 4, "l2") for sms in (16, 66, 100)),
    *((sms, 128, 4, "hbm") for sms in (1, 8, 33, 66)),
    *((132, 128, 4, f"{size} of their own") for size in OWN_ROWS),
    *((132, 128, 1, f"{size} of their own") for size in ("8 MB", "35 MB")),
    *((sms, 128, 4, "35 MB of their own") for sms in (1, 16, 66)),
)


def kernel(rows: int, stages: int, stride: int, wrap: int) -> str:
    """Return a kernel whose CTAs each load ROWS rows in boxes of ``rows`` with ``stages`` in flight and write the cycles.

    CTA c starts at row c * ``stride``; rows wrap after ``wrap`` (a power of two) within its share.
    """
    # Where all start at row 0 the assembler must not know it, or it makes another loop.
    place = f"""    mov.u32 %k, {stride or "%ctaid.y"};
    mul.lo.u32 %first, %first, %k;
    mov.u32 %n, 0; mov.u32 %slot, 0; mov.u32 %taken, 0; mov.u32 %row, 0; mov.u32 %parity, 0;
"""
    return ring_kernel(rows, stages, ROWS // rows, wrap, place)


def ring_kernel(rows: int, stages: int, loads: int, wrap: int, place: str, registers: str = "") -> str:
    """Return a kernel whose CTAs each load ``loads`` boxes of ``rows`` with ``stages`` in flight and write the cycles. ``place`` sets
    %first (the first row of a CTA's share) and %row (where in it to begin), and clears the rest; it may use ``registers``."""
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .align 64 .b8 map[128])
.maxntid 32, 1, 1
{{
    .shared .align 8 .b8 barriers[{8 * stages}];
    .reg .pred %p, %q;
    .reg .b32 %smem, %barrier, {registers}%first, %k, %lane, %parity, %slot, %taken, %row, %y, %at, %bar, %n;
    .reg .b64 %out, %map, %w, %start, %stop;
    ld.param.u64 %out, [out];
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    mov.u32 %smem, memory;
    mov.u32 %barrier, barriers;
    mov.u32 %lane, %tid.x;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    {"".join(f"mbarrier.init.shared::cta.b64 [%barrier+{8 * s}], 1; " for s in range(stages))}
    fence.mbarrier_init.release.cluster;
    mov.u32 %first, %ctaid.x;
    mul.wide.u32 %w, %first, 8;
    add.s64 %out, %out, %w;
{place}    mov.u64 %start, %clock64;
NEXT:
    setp.ge.u32 %p, %n, {loads};
    @%p bra TAKE;
    add.u32 %y, %row, %first;
    mad.lo.u32 %at, %slot, {rows * 128}, %smem;
    mad.lo.u32 %bar, %slot, 8, %barrier;
    add.u32 %row, %row, {rows};
    and.b32 %row, %row, {wrap - 1};
    add.u32 %slot, %slot, 1;
    setp.eq.u32 %q, %slot, {stages};
    selp.u32 %slot, 0, %slot, %q;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {rows * 128};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%at], [%map, {{0, %y}}], [%bar];
TAKE:
    add.u32 %n, %n, 1;
    setp.lt.u32 %p, %n, {stages};
    @%p bra NEXT;
    sub.u32 %k, %n, {stages};
    mad.lo.u32 %bar, %taken, 8, %barrier;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], %parity;
    @!%q bra WAIT;
    add.u32 %taken, %taken, 1;
    setp.eq.u32 %q, %taken, {stages};
    selp.u32 %taken, 0, %taken, %q;
    @%q xor.b32 %parity, %parity, 1;
    setp.lt.u32 %p, %k, {loads - 1};
    @%p bra NEXT;
    mov.u64 %stop, %clock64;
    sub.s64 %stop, %stop, %start;
    st.global.u64 [%out], %stop;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs, rows, in flight, source" -> bytes per cycle of an SM (mean over SMs, median of launches: some are slow)."""
    answer = {}
    for sms, rows, stages, source in CASES:
        # From HBM every SM reads rows of its own: more than L2 holds. From L2 all read the same, or each its own.
        own = OWN_ROWS.get(source.removesuffix(" of their own"), ROWS)
        share = SHARE_ROWS if source == "l2" else own
        # Whatever the number of SMs, the rows of all are uploaded: those that are read are the first to leave L2.
        tensor = np.zeros((share if source == "l2" else share * 132, 32), np.uint32)
        out = np.zeros(sms, np.int64)
        text = kernel(rows, stages, 0 if source == "l2" else share, 1 << (share - 1).bit_length())
        arguments = [out, functools.partial(tensor_map, tensor, rows)]
        took = []
        for _ in range(LAUNCHES):
            launch(text, "probe", (sms, 1, 1), (32, 1, 1), arguments, shared_mem=rows * 128 * stages)
            took.append(float(np.mean(out)))
        answer[f"{sms} SMs, {rows} rows, {stages} in flight, {source}"] = round(ROWS * 128 / float(np.median(took)), 2)
    return answer
