"""The PTX around a timed piece of code, shared by the probes that count cycles.

The first timed instruction depends on the first clock (its bits, masked by a parameter that is 0), and the second clock
is read after a volatile store of the result, so that an assembler cannot move the work out from between the clocks.
The timed piece runs PASSES times and the last one counts: code is fetched the first time (see ``instruction_fetch``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: How often the timed piece runs in a launch.
PASSES = 2

#: Reads the start again, surely behind the barrier. Measured (softmax_rate, 2026-11-29): instructions behind a ``bar.sync`` that need
#: nothing, the read of the clock among them, issue before it opens, which counts where warps come to it at different times.
RESTART = """ld.volatile.shared.b32 %z, [%smem];
    st.volatile.shared.b32 [%smem], %z;
    mov.u64 %start, %clock64;
    and.b32 %z, %z, %zero;"""

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n\n"


def timed_kernel(body: str, registers: str = "", setup: str = "", shared_bytes: int = 1024, threads: int = 128) -> str:
    """Return a kernel ``probe(out, zero)`` of up to ``threads`` threads that writes, for each warp, the cycles that ``body`` took.

    ``body`` may use ``%z`` (0, but only known at run time), ``%smem`` (shared address), ``%warp`` and ``%lane``; it
    leaves a result in ``%x`` (b32).
    """
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u32 zero)
.maxntid {threads}, 1, 1
{{
    .shared .align 1024 .b8 memory[{shared_bytes}];
    .reg .pred %p<8>;
    .reg .b32 %x, %z, %smem, %warp, %lane, %zero, %pass, %passes;
    .reg .b64 %start, %stop, %out, %wide;
    {registers}
    ld.param.u64 %out, [out];
    ld.param.u32 %zero, [zero];
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    and.b32 %lane, %lane, 31;
    mov.u32 %smem, memory;
    mov.u32 %x, %zero;
    {setup}
    mov.u32 %pass, 0;
    add.u32 %passes, %zero, {PASSES};
TIMED_AGAIN:
    bar.sync 0;
    mov.u64 %start, %clock64;
    cvt.u32.u64 %z, %start;
    and.b32 %z, %z, %zero;
    {body}
    st.volatile.shared.b32 [%smem+{shared_bytes - 4}], %x;
    mov.u64 %stop, %clock64;
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p6, %pass, %passes;
    @%p6 bra TIMED_AGAIN;
    sub.s64 %stop, %stop, %start;
    mul.wide.u32 %wide, %warp, 8;
    add.s64 %out, %out, %wide;
    setp.eq.u32 %p7, %lane, 0;
    @%p7 st.global.u64 [%out], %stop;
    ret;
}}
"""


def cycles(launch: Callable[..., Any], ptx: str, warps: int = 1, repeats: int = 4) -> list[int]:
    """Return the cycles of each warp: the least of ``repeats`` launches, of which the first ones warm the caches."""
    best = np.full(warps, np.iinfo(np.int64).max)
    for _ in range(repeats):
        out = np.zeros(warps, np.int64)
        launch(ptx, "probe", (1, 1, 1), (32 * warps, 1, 1), [out, np.uint32(0)])
        best = np.minimum(best, out)
    return [int(count) for count in best]


def per_repetition(launch: Callable[..., Any], text: Callable[[int], str], few: int, many: int, warps: int = 1) -> float:
    """Return the cycles of one repetition: the slope between ``text(few)`` and ``text(many)``, mean over warps."""
    short, long = (cycles(launch, text(count), warps) for count in (few, many))
    return round(float(np.mean(np.subtract(long, short))) / (many - few), 3)
