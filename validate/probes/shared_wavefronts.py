"""How many cycles does an access to shared memory keep its port busy, by width and by the addresses of the lanes?

Sixteen warps of a CTA repeat the access, so that latency hides and the port is what limits; each pattern of addresses
has a CTA, and an SM, of its own. A wavefront is a cycle of the port.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from h100sim.errors import UsageError

from .shared_patterns import LIMIT_BYTES, patterns
from .timed_kernel import HEADER

QUESTION = "How many wavefronts does each kind of access to shared memory need for each pattern of lane addresses?"
SETTLES = "h100sim/layouts/banks.py"

WARPS, UNROLLED = 16, 16
#: Loads in flight per warp; the registers of more would be spilled.
IN_FLIGHT = 4
#: Stores to a cluster's shared memory count their bytes on an mbarrier, which holds less than 2**20 of them.
ASYNC_WARPS = 4
_PATTERNS_PER_LAUNCH = 33


@dataclass(frozen=True)
class Access:
    """An instruction: its text, with {r} its registers and {at} its address; its width; does it read?"""

    text: str
    width_bytes: int
    registers: int
    is_load: bool

    @property
    def is_matrix(self) -> bool:
        return "matrix" in self.text

    @property
    def is_async(self) -> bool:
        return "async" in self.text


_ASYNC = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"

ACCESSES = {
    "ld.b8": Access("ld.volatile.shared.u8 {r}, {at};", 1, 1, True),
    "ld.b16": Access("ld.volatile.shared.u16 {r}, {at};", 2, 1, True),
    "ld.b32": Access("ld.volatile.shared.b32 {r}, {at};", 4, 1, True),
    "ld.b64": Access("ld.volatile.shared.v2.b32 {r}, {at};", 8, 2, True),
    "ld.b128": Access("ld.volatile.shared.v4.b32 {r}, {at};", 16, 4, True),
    "st.b8": Access("st.volatile.shared.u8 {at}, {r};", 1, 1, False),
    "st.b16": Access("st.volatile.shared.u16 {at}, {r};", 2, 1, False),
    "st.b32": Access("st.volatile.shared.b32 {at}, {r};", 4, 1, False),
    "st.b64": Access("st.volatile.shared.v2.b32 {at}, {r};", 8, 2, False),
    "st.b128": Access("st.volatile.shared.v4.b32 {at}, {r};", 16, 4, False),
    **{
        f"ldmatrix.x{n}{t}": Access(f"ldmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16 {{r}}, {{at}};", 16, n, True)
        for n, t in ((1, ""), (2, ""), (4, ""), (4, ".trans"))
    },
    **{
        f"stmatrix.x{n}{t}": Access(f"stmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16 {{at}}, {{r}};", 16, n, False)
        for n, t in ((1, ""), (2, ""), (4, ""), (4, ".trans"))
    },
    "st.async.b32": Access(f"{_ASYNC}.b32 {{at}}, {{r}}, [%mbar];", 4, 1, False),
    "st.async.b64": Access(f"{_ASYNC}.v2.b32 {{at}}, {{r}}, [%mbar];", 8, 2, False),
    "st.async.b128": Access(f"{_ASYNC}.v4.b32 {{at}}, {{r}}, [%mbar];", 16, 4, False),
}


#: Stores to the other CTA of a cluster of two; both do the same.
_PEER = """    vote.sync.ballot.b32 %x, %p0, 0xffffffff;
    popc.b32 %x, %x;
    ld.param.u32 %bytes, [bytes_per_lane];
    mul.lo.u32 %bytes, %bytes, %x;
    mov.u32 %rank, %cluster_ctarank;
    xor.b32 %rank, %rank, 1;
    mapa.shared::cluster.u32 %a, %a, %rank;
    mapa.shared::cluster.u32 %mbar, %barrier, %rank;
"""
_MEET = """    @!%p1 bra MEET;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%barrier], %bytes;
    fence.mbarrier_init.release.cluster;
MEET:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
_WAIT = """
    @!%p1 bra READY;
    mbarrier.arrive.shared::cta.b64 %state, [%barrier];
READY:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%barrier], 0;
    @!%p2 bra READY;"""


def kernel(access: Access) -> str:
    """Return the PTX of ``probe(out, offsets, rounds, zero, bytes_per_lane)``: per CTA, [cycles, SM]."""
    lines = []
    for k in range(UNROLLED):
        # Matrix loads and stores are not volatile; different places keep an assembler from merging any.
        first = k % IN_FLIGHT * access.registers if access.is_load else 0
        names = [f"%r{first + i}" for i in range(access.registers)]
        vector = len(names) > 1 or access.is_matrix
        registers = f"{{{', '.join(names)}}}" if vector else names[0]
        if access.is_load:
            # Use what these registers held; an assembler drops a load that is not used.
            lines.append(f"xor.b32 %x, %x, {names[0]};")
        lines.append(access.text.format(r=registers, at=f"[%a+{128 * k}]"))
    body = "\n    ".join(lines)
    return f"""{HEADER}.visible .entry probe(
    .param .u64 out, .param .u64 offsets, .param .u32 rounds, .param .u32 zero, .param .u32 bytes_per_lane)
.maxntid {32 * WARPS}, 1, 1
{{
    .shared .align 1024 .b8 memory[{LIMIT_BYTES + 128 * UNROLLED + 1024}];
    .shared .align 8 .b64 barrier;
    .reg .pred %p<4>;
    .reg .b32 %r<{IN_FLIGHT * 4}>;
    .reg .b32 %thread, %lane, %cta, %a, %mbar, %barrier, %rank, %rounds, %zero, %z, %x, %bytes, %sm;
    .reg .b64 %out, %offsets, %wide, %start, %stop, %state;
    ld.param.u64 %out, [out];
    ld.param.u64 %offsets, [offsets];
    cvta.to.global.u64 %out, %out;
    cvta.to.global.u64 %offsets, %offsets;
    ld.param.u32 %rounds, [rounds];
    ld.param.u32 %zero, [zero];
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %sm, %smid;
    setp.eq.u32 %p1, %thread, 0;
    {"shr.u32 %x, %cta, 1;" if access.is_async else "mov.u32 %x, %cta;"}
    mad.lo.u32 %x, %x, 32, %lane;
    mul.wide.u32 %wide, %x, 4;
    add.s64 %offsets, %offsets, %wide;
    ld.global.u32 %a, [%offsets];
    setp.ge.s32 %p0, %a, 0;
    max.s32 %a, %a, 0;
    mov.u32 %x, memory;
    add.u32 %a, %a, %x;
    mov.u32 %barrier, barrier;
{_PEER if access.is_async else ""}{_registers()}
{_MEET if access.is_async else ""}    bar.sync 0;
    mov.u64 %start, %clock64;
    cvt.u32.u64 %z, %start;
    and.b32 %z, %z, %zero;
    @!%p0 bra DONE;
AGAIN:
    add.u32 %a, %a, %z;
    {body}
    sub.u32 %rounds, %rounds, 1;
    setp.ne.u32 %p3, %rounds, 0;
    @%p3 bra AGAIN;
DONE:{_WAIT if access.is_async else ""}
    st.volatile.shared.b32 [memory+{LIMIT_BYTES + 128 * UNROLLED + 1020}], %x;
    bar.sync 0;
    mov.u64 %stop, %clock64;
    sub.s64 %stop, %stop, %start;
    cvt.u64.u32 %start, %sm;
    mul.wide.u32 %wide, %cta, 16;
    add.s64 %out, %out, %wide;
    @%p1 st.global.v2.u64 [%out], {{%stop, %start}};
    ret;
}}
"""


def _registers() -> str:
    return "\n".join(f"    add.u32 %r{i}, %lane, {i};" for i in range(IN_FLIGHT * 4))


def wavefronts(launch: Callable[..., Any], access: Access, repeats: int = 3) -> dict[str, float]:
    """Return pattern -> cycles of the port per access of a warp, the least of ``repeats`` launches."""
    asked = patterns(access.width_bytes)
    offsets = np.array(list(asked.values()), np.int32)
    if access.is_matrix:
        offsets = np.maximum(offsets, 0)
    warps, ctas, few, many = (ASYNC_WARPS, 2, 4, 24) if access.is_async else (WARPS, 1, 4, 36)
    text = kernel(access)

    def cycles(rounds: int) -> np.ndarray:
        best = np.full(len(offsets), np.iinfo(np.int64).max)
        for first in range(0, len(offsets), _PATTERNS_PER_LAUNCH):
            rows = offsets[first : first + _PATTERNS_PER_LAUNCH]
            per_lane = np.uint32(rounds * UNROLLED * warps * access.width_bytes)
            for _ in range(repeats):
                out = np.zeros((len(rows) * ctas, 2), np.int64)
                given = [out, rows, np.uint32(rounds), np.uint32(0), per_lane]
                launch(text, "probe", (len(out), 1, 1), (32 * warps, 1, 1), given, cluster=(ctas, 1, 1))
                if len(set(out[:, 1])) != len(out):
                    raise UsageError("probe must have an SM for each CTA, not fewer")
                least = best[first : first + len(rows)]
                np.minimum(least, out[:, 0].reshape(len(rows), ctas).min(1), out=least)
        return best

    slope = (cycles(many) - cycles(few)) / ((many - few) * UNROLLED * warps)
    return {name: round(float(cost), 3) for name, cost in zip(asked, slope, strict=True)}


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return access -> pattern -> wavefronts."""
    return {name: wavefronts(launch, access) for name, access in ACCESSES.items()}
