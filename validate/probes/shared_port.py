"""Who waits when loads, stores, copies and the tensor core want shared memory at the same time?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "How fast are wgmma, loads, stores and bulk copies each when they use the shared memory of one SM together?"
SETTLES = "h100sim/units/shared_port.py"

#: wgmma with both operands in shared memory: (width, warpgroups); None: nobody multiplies.
PRODUCTS = (None, (256, 1), (256, 2), (128, 1), (128, 2), (96, 1), (64, 1), (64, 2), (32, 1))
#: What else runs: name -> (kind, warps).
STREAMS = {
    "alone": ("", 0),
    "4 warps load": ("ld", 4),
    "8 warps load": ("ld", 8),
    "4 warps store": ("st", 4),
    "copies": ("copy", 1),
}
#: wgmma of a batch, batches; loads or stores of a round; bytes of a copy, copies in flight.
BATCH, BATCHES, ROUND, COPY_BYTES, STAGES = 32, 12, 16, 16_384, 4
#: Where things lie in shared memory: A and B (K-major, no swizzle), the streams' own, where copies go.
_A, _B, _STREAM, _COPY = 0, 4_096, 16_384, 32_768
SHARED_BYTES = _COPY + STAGES * COPY_BYTES
#: Cycles that streams run where nobody multiplies.
_ALONE = 30_000


def kernel(product: tuple[int, int] | None, stream: str, warps: int) -> str:
    """Return the kernel: warpgroups that multiply first, then ``warps`` that load, store, or copy until the first warpgroup has
    finished. Each warp writes its cycles and how often it has done its round."""
    n, groups = product or (8, 1)
    threads = 128 * groups + 32 * warps
    registers = n // 2
    accumulators = ", ".join(f"%acc{k}" for k in range(registers))
    operation = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{accumulators}}}, %desc_a, %desc_b, 1, 1, 1, 0, 0;"
    fixed = (128 >> 4) << 16 | (256 >> 4) << 32
    batch = "\n    ".join(
        ("wgmma.fence.sync.aligned;", *[operation] * BATCH, "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")
    )
    fill = "\n    ".join(f"cvt.rn.f32.u32 %acc{k}, %zero;" for k in range(registers))
    alone = f"""mov.u64 %stop, %clock64;
    sub.s64 %stop, %stop, %start;
    setp.lt.s64 %p, %stop, {_ALONE};
    @%p bra MULTIPLY;"""
    multiply = f"""{batch}
    add.u32 %n, %n, 1;
    setp.lt.u32 %p, %n, %batches;
    @%p bra MULTIPLY;"""
    issue_copy = f"""mad.lo.u32 %to, %slot, {COPY_BYTES}, %smem;
    mad.lo.u32 %bar, %slot, 8, %barriers;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {COPY_BYTES};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%to+{_COPY}], [%source], {COPY_BYTES}, [%bar];
    add.u32 %slot, %slot, 1;
    and.b32 %slot, %slot, {STAGES - 1};"""
    # The copies that are still in flight at the end.
    last_copies = "".join(
        f"""mad.lo.u32 %bar, %take, 8, %barriers;
LAST{k}:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], %parity;
    @!%q bra LAST{k};
    add.u32 %take, %take, 1;
    and.b32 %take, %take, {STAGES - 1};
    setp.eq.u32 %q, %take, 0;
    selp.u32 %more, 1, 0, %q;
    xor.b32 %parity, %parity, %more;
    """
        for k in range(STAGES - 1)
    )
    round_ = {
        "ld": "\n    ".join(
            f"ld.volatile.shared.v4.b32 {{%v{4 * k}, %v{4 * k + 1}, %v{4 * k + 2}, %v{4 * k + 3}}}, [%at+{512 * (k % 4)}];"
            for k in range(ROUND)
        ),
        "st": "\n    ".join(f"st.volatile.shared.v4.b32 [%at+{512 * (k % 4)}], {{%v0, %v1, %v2, %v3}};" for k in range(ROUND)),
        "copy": f"""{issue_copy}
    mad.lo.u32 %bar, %take, 8, %barriers;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], %parity;
    @!%q bra WAIT;
    add.u32 %take, %take, 1;
    and.b32 %take, %take, {STAGES - 1};
    setp.eq.u32 %q, %take, 0;
    selp.u32 %more, 1, 0, %q;
    xor.b32 %parity, %parity, %more;""",
        "": "",
    }[stream]
    return f"""{HEADER}.extern .shared .align 1024 .b8 memory[];

.visible .entry probe(.param .u64 out, .param .u64 source, .param .u32 zero, .param .u32 batches)
.maxntid {threads}, 1, 1
{{
    .shared .align 8 .b8 flags[{16 + 8 * STAGES}];
    .reg .pred %p, %q;
    .reg .b32 %smem, %flags, %barriers, %lane, %warp, %zero, %batches, %n, %at, %done, %slot, %take, %parity, %more, %to, %bar, %x;
    .reg .b32 %v<{4 * ROUND}>;
    .reg .f32 %acc<{registers}>;
    .reg .b64 %out, %source, %start, %stop, %w, %desc_a, %desc_b;
    ld.param.u64 %out, [out];
    ld.param.u64 %source, [source];
    ld.param.u32 %zero, [zero];
    ld.param.u32 %batches, [batches];
    mov.u32 %lane, %tid.x;
    shr.u32 %warp, %lane, 5;
    mov.u32 %smem, memory;
    mov.u32 %flags, flags;
    add.u32 %barriers, %flags, 16;
    mul.wide.u32 %w, %warp, 16;
    add.s64 %out, %out, %w;
    setp.ne.u32 %p, %lane, 0;
    @%p bra READY;
    st.shared.u32 [%flags], 0;
    {"".join(f"mbarrier.init.shared::cta.b64 [%barriers+{8 * k}], 1; " for k in range(STAGES))}
    fence.mbarrier_init.release.cluster;
READY:
    mov.u32 %n, 0;
    setp.ge.u32 %p, %warp, {4 * groups};
    @%p bra STREAM;
    and.b32 %x, %smem, 0x3ffff;
    shr.u32 %x, %x, 4;
    cvt.u64.u32 %desc_a, %x;
    or.b64 %desc_a, %desc_a, {fixed:#x};
    add.s64 %desc_b, %desc_a, {_B >> 4};
    {fill}
    {batch if product else ""}
    bar.sync 0;
    mov.u64 %start, %clock64;
MULTIPLY:
    {multiply if product else alone}
    mov.u64 %stop, %clock64;
    st.volatile.shared.u32 [%flags], 1;
    {"st.volatile.shared.f32 [%smem], %acc0;" if product else ""}
    bra DONE;
STREAM:
    and.b32 %at, %lane, 31;
    mul.lo.u32 %at, %at, 16;
    add.u32 %at, %at, %smem;
    add.u32 %at, %at, {_STREAM};
    mov.u32 %slot, 0; mov.u32 %take, 0; mov.u32 %parity, 0;
    add.u32 %v0, %zero, 1; add.u32 %v1, %zero, 2; add.u32 %v2, %zero, 3; add.u32 %v3, %zero, 4;
    bar.sync 0;
    {"and.b32 %x, %lane, 31; setp.ne.u32 %p, %x, 0; @%p ret;" if stream == "copy" else ""}
    mov.u64 %start, %clock64;
    {(issue_copy * (STAGES - 1)).replace(";mad", "; mad") if stream == "copy" else ""}
AGAIN:
    {round_}
    add.u32 %n, %n, 1;
    ld.volatile.shared.u32 %done, [%flags];
    setp.eq.u32 %p, %done, 0;
    @%p bra AGAIN;
    mov.u64 %stop, %clock64;
    {last_copies if stream == "copy" else ""}
DONE:
    sub.s64 %stop, %stop, %start;
    and.b32 %x, %lane, 31;
    setp.ne.u32 %p, %x, 0;
    @%p ret;
    cvt.u64.u32 %w, %n;
    st.global.u64 [%out], %stop;
    st.global.u64 [%out+8], %w;
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "product, stream" -> cycles per wgmma of the SM (None where nobody multiplies) and bytes a cycle that the stream
    moved (None where there is none)."""
    answer: dict[str, Any] = {}
    source = np.zeros(COPY_BYTES, np.uint8)
    for product in PRODUCTS:
        for name, (stream, warps) in STREAMS.items():
            groups = product[1] if product else 1
            if (product is None and not warps) or (groups == 2 and warps > 4):
                continue
            out = np.zeros((4 * groups + warps, 2), np.int64)
            args = [out, source, np.uint32(0), np.uint32(BATCHES)]
            launch(kernel(product, stream, warps), "probe", (1, 1, 1), (len(out) * 32, 1, 1), args, shared_mem=SHARED_BYTES)
            cycles, rounds = out.T.astype(float)
            each = round(float(cycles[: 4 * groups].max()) / (BATCH * BATCHES * groups), 3) if product else None
            size = COPY_BYTES if stream == "copy" else ROUND * 512
            moved = round(float((rounds[4 * groups :] * size / cycles[4 * groups :]).sum()), 2) if warps else None
            label = f"n{product[0]} x {groups}" if product else "nobody"
            answer[f"{label}, {name}"] = [each, moved]
    return answer
