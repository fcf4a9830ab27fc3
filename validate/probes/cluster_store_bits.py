"""Which bits do bulk reductions, st.async and red.async leave?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = (
    "What do cp.reduce.async.bulk, st.async and red.async leave in memory, for every operation and type, special values included?"
)
SETTLES = "h100sim/units/bulk_copies.py, h100sim/units/async_stores.py: digests must be equal here and on silicon"

_ORDERED = ("u32", "s32", "u64", "s64", "f16", "bf16")
#: Operation -> types, for reductions of global memory.
GLOBAL: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": _ORDERED,
    "max": _ORDERED,
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}
#: The same for shared memory of another CTA, by bulk copies and by red.async.
CLUSTER: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}
STORES = ("b32", "b64", "v2.b32", "v4.b32", "v2.b64", "v4.f32", "u64", "s32")
WORDS = 1024

_GLOBAL = (
    HEADER
    + """.visible .entry probe(.param .u64 to, .param .u64 from)
{{
    .shared .align 128 .b8 memory[4096];
    .reg .b64 %to, %from, %o; .reg .b32 %t, %s, %at, %k, %w; .reg .pred %p;
    mov.u32 %t, %tid.x; mov.u32 %s, memory; ld.param.u64 %to, [to]; ld.param.u64 %from, [from];
    cvta.to.global.u64 %to, %to; cvta.to.global.u64 %from, %from;
    mov.u32 %k, %t;
COPY:
    mul.wide.u32 %o, %k, 4; add.s64 %o, %from, %o; ld.global.b32 %w, [%o]; mad.lo.u32 %at, %k, 4, %s; st.shared.b32 [%at], %w;
    add.u32 %k, %k, 32; setp.lt.u32 %p, %k, 1024; @%p bra COPY;
    fence.proxy.async.shared::cta; bar.sync 0;
    setp.ne.u32 %p, %t, 0; @%p bra DONE;
    {copy} [%to], [%s], 4096;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:
    ret;
}}
"""
)

#: CTA 0 changes the shared memory of CTA 1, which holds ``to`` at the start and writes it back at the end.
_CLUSTER = (
    HEADER
    + """.visible .entry probe(.param .u64 to, .param .u64 from)
.reqnctapercluster 2, 1, 1
{{
    .shared .align 128 .b8 memory[4096]; .shared .align 8 .b64 barrier;
    .reg .b64 %to, %from, %mine, %o, %state, %l<4>;
    .reg .b32 %t, %s, %at, %k, %w, %rank, %b, %far, %one, %i<4>; .reg .pred %p, %q, %done;
    mov.u32 %t, %tid.x; mov.u32 %s, memory; mov.u32 %b, barrier; mov.u32 %rank, %cluster_ctarank; mov.u32 %one, 1;
    ld.param.u64 %to, [to]; ld.param.u64 %from, [from]; cvta.to.global.u64 %to, %to; cvta.to.global.u64 %from, %from;
    setp.eq.u32 %p, %rank, 1; selp.b64 %mine, %to, %from, %p; setp.eq.u32 %q, %t, 0;
    mov.u32 %k, %t;
COPY:
    mul.wide.u32 %o, %k, 4; add.s64 %o, %mine, %o; ld.global.b32 %w, [%o]; mad.lo.u32 %at, %k, 4, %s; st.shared.b32 [%at], %w;
    add.u32 %k, %k, 32; setp.lt.u32 %done, %k, 1024; @%done bra COPY;
    @%q mbarrier.init.shared::cta.b64 [%b], 1;
    @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], 4096;
    fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    @%p bra WAIT;
    mapa.shared::cluster.u32 %far, %s, %one; mapa.shared::cluster.u32 %b, %b, %one;
    {send}
    bra DONE;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
    mov.u32 %k, %t;
BACK:
    mul.wide.u32 %o, %k, 4; add.s64 %o, %to, %o; mad.lo.u32 %at, %k, 4, %s; ld.shared.b32 %w, [%at]; st.global.b32 [%o], %w;
    add.u32 %k, %k, 32; setp.lt.u32 %done, %k, 1024; @%done bra BACK;
DONE:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    ret;
}}
"""
)

_COMPLETES = "shared::cluster.mbarrier::complete_tx::bytes"


def bulk_kernel(operation: str, type_: str, is_cluster: bool) -> str:
    noftz = "noftz." if operation == "add" and type_ in ("f16", "bf16") else ""
    name = f"{operation}.{noftz}{type_}"
    if is_cluster:
        copy = f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{name}"
        return _CLUSTER.format(send=f"@%q {copy} [%far], [%s], 4096, [%b];")
    return _GLOBAL.format(copy=f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}")


def async_kernel(opcode: str, type_: str) -> str:
    """Return the kernel whose CTA 0 sends its shared memory, value by value, with st.async or red.async."""
    count = int(type_[1]) if type_[0] == "v" else 1
    wide = type_.endswith("64")
    size = count * (8 if wide else 4)
    names = [f"%{'l' if wide else 'i'}{k}" for k in range(count)]
    source = "{" + ", ".join(names) + "}" if count > 1 else names[0]
    vector = f"v{count}.{'b64' if wide else 'b32'}" if count > 1 else ("b64" if wide else "b32")
    return _CLUSTER.format(
        send=f"""mov.u32 %k, %t;
SEND:
    mad.lo.u32 %at, %k, {size}, %s; ld.shared.{vector} {source}, [%at]; mad.lo.u32 %at, %k, {size}, %far;
    {opcode}.{type_} [%at], {source}, [%b];
    add.u32 %k, %k, 32; setp.lt.u32 %done, %k, {4096 // size}; @%done bra SEND;"""
    )


def words(type_: str, seed: int) -> np.ndarray:
    """Return 4096 bytes: random bits, with the special values of floats at the start, in all pairs."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 1 << 32, WORDS, np.uint32)
    special = {
        "f16": (np.uint16, (0, 0x8000, 1, 0x8001, 0x3FF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x3C00, 0xBC00, 0x7BFF)),
        "bf16": (np.uint16, (0, 0x8000, 1, 0x8001, 0x7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x3F80, 0xBF80, 0x7F7F)),
        "f32": (
            np.uint32,
            (0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0x00800001, 0x80800000),
        ),
        "f64": (np.uint64, (0, 1 << 63, 1, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0x3FF0 << 48, 0xBFF0 << 48)),
    }.get(type_)
    if special:
        element, values = special
        pairs = np.array([pair[seed % 2] for pair in np.ndindex(len(values), len(values))])
        raw.view(element)[: len(pairs)] = np.array(values, element)[pairs]
    elif seed % 2:
        raw[::2] &= np.uint32(0xFF)
    return raw


def result(launch: Callable[..., Any], text: str, type_: str) -> np.ndarray:
    to, source = words(type_, 10), words(type_, 11)
    launch(text, "probe", (2 if "reqnctapercluster" in text else 1, 1, 1), (32, 1, 1), [to, source])
    return to


def cases() -> dict[str, tuple[str, str]]:
    """Return name -> (kernel, type)."""
    found = {}
    for where, table in (("global", GLOBAL), ("cluster", CLUSTER)):
        for operation, types in table.items():
            for type_ in types:
                found[f"bulk {where} {operation}.{type_}"] = (bulk_kernel(operation, type_, where == "cluster"), type_)
    for type_ in STORES:
        found[f"st.async {type_}"] = (async_kernel(f"st.async.weak.{_COMPLETES}", type_), type_)
    for operation, types in CLUSTER.items():
        for type_ in types:
            found[f"red.async {operation}.{type_}"] = (
                async_kernel(f"red.async.relaxed.cluster.{_COMPLETES}.{operation}", type_),
                type_,
            )
    return found


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return name -> SHA-256 of the 4096 bytes that were changed."""
    return {name: sha256(result(launch, text, type_)) for name, (text, type_) in cases().items()}
