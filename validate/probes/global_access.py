"""How long do loads of registers from global memory take, by the pattern of their lanes?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How long until loads of a warp's registers have arrived, by pattern, number and warps?"
SETTLES = "h100sim/devices.py, MemorySystem: the l1_* and load_* fields, l2_latency"

#: The first pass meets no code and lines that only memory has, the second other such lines, the third lines that went to L2 just
#: before it, the fourth those of the third, which L1 has.
PASSES, TO_L2 = 4, 2


@dataclass(frozen=True)
class Pattern:
    """Where the lanes of access k of a warp lie: the PTX expression of the lane's part (in %a, from %lane), the bytes from one
    access to the next (a second number: after how many of them the warp goes on to other lines), and the width in registers."""

    lanes: str
    step_bytes: int
    registers: int = 1
    #: Steps within lines, and bytes from a group of them to the next.
    group: int = 1
    group_bytes: int = 0

    def offset(self, k: int) -> int:
        """Return the byte offset of access ``k`` of a warp."""
        return k * self.step_bytes if self.group == 1 else k // self.group * self.group_bytes + k % self.group * self.step_bytes


def _rows(lanes_of_row: int, bytes_of_lane: int, pitch: int) -> str:
    shift = lanes_of_row.bit_length() - 1
    return (
        f"shr.u32 %t, %lane, {shift}; mul.lo.u32 %a, %t, {pitch}; and.b32 %t, %lane, {lanes_of_row - 1};"
        f" mad.lo.u32 %a, %t, {bytes_of_lane}, %a;"
    )


PATTERNS = {
    "one line": Pattern(_rows(32, 4, 0), 128),
    "two lines, 8 bytes": Pattern(_rows(32, 8, 0), 256, 2),
    "four lines, 16 bytes": Pattern(_rows(32, 16, 0), 512, 4),
    "4 rows of 128 bytes": Pattern(_rows(8, 16, 1024), 4096, 4),
    "8 rows of 64 bytes": Pattern(_rows(4, 16, 1024), 8192, 4),
    "8 rows of 32 bytes": Pattern(_rows(4, 8, 1024), 8192, 2),
    "8 rows of 16 bytes": Pattern(_rows(4, 4, 1024), 8192),
    "8 rows of 16 bytes, neighbours": Pattern(_rows(4, 4, 1024), 16, 1, 8, 8192),
    "8 rows of 32 bytes, neighbours": Pattern(_rows(4, 8, 1024), 32, 2, 4, 8192),
    "32 rows of 4 bytes": Pattern(_rows(1, 4, 1024), 32768),
    "8 rows of 16 bytes, 128 apart": Pattern(_rows(4, 4, 128), 1024),
    "8 rows of 16 bytes, 256 apart": Pattern(_rows(4, 4, 256), 2048),
    "8 rows of 16 bytes, 512 apart": Pattern(_rows(4, 4, 512), 4096),
    "8 rows of 16 bytes, 128 apart, neighbours": Pattern(_rows(4, 4, 128), 16, 1, 8, 1024),
    "8 rows of 16 bytes, 256 apart, neighbours": Pattern(_rows(4, 4, 256), 16, 1, 8, 2048),
    "8 rows of 16 bytes, 512 apart, neighbours": Pattern(_rows(4, 4, 512), 16, 1, 8, 4096),
    "8 rows of 64 bytes, 128 apart": Pattern(_rows(4, 16, 128), 1024, 4),
    "32 rows of 4 bytes, 128 apart": Pattern(_rows(1, 4, 128), 4096),
    "one word": Pattern("mov.u32 %a, 0;", 128),
}
#: (loads of a warp, warps).
SIZES = ((1, 1), (8, 1), (16, 1), (8, 4), (16, 4), (16, 8))


def room(pattern: Pattern, count: int) -> int:
    """Return the bytes of global memory of a warp with ``count`` accesses, in steps of 8 KB."""
    used = max(pattern.offset(count), pattern.offset(count - 1) + pattern.step_bytes)
    return -(-used // 8192) * 8192


def kernel(name: str, count: int, warps: int) -> str:
    """Return the text of ``probe(out, data, zero)``: cycles of each warp for each pass."""
    pattern = PATTERNS[name]
    vector = "" if pattern.registers == 1 else f".v{pattern.registers}"
    lines, uses, brings = [], [], []
    for k in range(count):
        names = [f"%r{k * pattern.registers + i}" for i in range(pattern.registers)]
        lines.append(f"ld.global{vector}.b32 {_braced(names)}, [%at+{pattern.offset(k)}];")
        uses += [f"xor.b32 %x, %x, {name};" for name in names]
        brings.append(lines[-1].replace("ld.global", "ld.global.cg"))
    body, bring = ("\n    ".join([*before, *uses]) for before in (lines, brings))
    between = f"""    cvt.u64.u32 %wide, %moved;
    add.s64 %at, %data, %wide;
    mov.u32 %x, %zero;
    setp.ne.u32 %p1, %pass, {TO_L2};
    @%p1 bra MEET;
    {bring}
    and.b32 %x, %x, %zero;
    add.u32 %moved, %moved, %x;
MEET:
"""
    return passes_kernel(pattern, count, warps, (PASSES, TO_L2), between, body)


def passes_kernel(pattern: Pattern, count: int, warps: int, passes: tuple[int, int], between: str, body: str) -> str:
    """Return the text of ``probe(out, data, zero)`` that times ``body`` in each pass. ``passes``: how many, and how many of the
    first move on to data that has not been used; ``between``: what a pass does before its warps meet."""
    total, moves = passes
    per_warp = room(pattern, count)
    return f"""{HEADER}.visible .entry probe(.param .u64 out, .param .u64 data, .param .u32 zero)
.maxntid {32 * warps}, 1, 1
{{
    .shared .align 16 .b8 memory[16];
    .reg .pred %p<2>;
    .reg .b32 %r<{count * pattern.registers + 1}>, %x, %z, %t, %a, %lane, %warp, %zero, %pass, %smem, %from, %to, %moved, %passes;
    .reg .b64 %at, %out, %data, %wide;
    ld.param.u64 %out, [out];
    ld.param.u64 %data, [data];
    ld.param.u32 %zero, [zero];
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    and.b32 %lane, %lane, 31;
    mov.u32 %smem, memory;
    {pattern.lanes}
    mad.lo.u32 %a, %warp, {per_warp}, %a;
    mad.lo.u32 %t, %warp, {4 * total}, 0;
    cvt.u64.u32 %wide, %t;
    add.s64 %out, %out, %wide;
    mov.u32 %pass, 0;
    add.u32 %passes, %zero, {total};
AGAIN:
    min.u32 %moved, %pass, {moves};
    mad.lo.u32 %moved, %moved, {per_warp * warps}, %a;
{between}    bar.sync 0;
    mov.u32 %from, %clock;
    and.b32 %z, %from, %zero;
    add.u32 %moved, %moved, %z;
    cvt.u64.u32 %wide, %moved;
    add.s64 %at, %data, %wide;
    mov.u32 %x, %z;
    {body}
    st.volatile.shared.b32 [%smem], %x;
    mov.u32 %to, %clock;
    sub.u32 %to, %to, %from;
    setp.eq.u32 %p0, %lane, 0;
    @%p0 st.global.u32 [%out], %to;
    add.s64 %out, %out, 4;
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p1, %pass, %passes;
    @%p1 bra AGAIN;
    ret;
}}
"""


def _braced(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


def cycles(launch: Callable[..., Any], name: str, count: int, warps: int, repeats: int = 4) -> list[int]:
    """Return the cycles of the slowest warp in each pass, the least of ``repeats`` launches."""
    data = np.zeros((TO_L2 + 1) * warps * room(PATTERNS[name], count) // 4, np.int32)
    best = np.full(PASSES, np.iinfo(np.int32).max)
    text = kernel(name, count, warps)
    for _ in range(repeats):
        out = np.zeros((warps, PASSES), np.int32)
        launch(text, "probe", (1, 1, 1), (32 * warps, 1, 1), [out, data, np.uint32(0)])
        best = np.minimum(best, out.max(0))
    return [int(count) for count in best]


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "pattern, loads x warps" -> cycles of the slowest warp [first pass, new lines, lines in L2, lines in L1]."""
    return {f"{name}, {count} x {warps}": cycles(launch, name, count, warps) for name in PATTERNS for count, warps in SIZES}
