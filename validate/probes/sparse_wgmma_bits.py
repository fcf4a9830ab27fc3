"""Which bits does sparse wgmma return?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = "Which bits does wgmma.mma_async.sp return for random operands and metadata, A in shared memory and in registers?"
SETTLES = "h100sim/units/tensor_core.py and h100sim/numerics/sparse.py: digests must be equal here and on silicon"

#: (shape and types, type of A, sparsity selector).
CASES = (
    ("m64n16k32.f32.f16.f16", "f16", 0),
    ("m64n16k32.f32.f16.f16", "f16", 1),
    ("m64n16k32.f16.f16.f16", "f16", 0),
    ("m64n64k32.f32.bf16.bf16", "bf16", 1),
    ("m64n16k16.f32.tf32.tf32", "tf32", 0),
    ("m64n16k16.f32.tf32.tf32", "tf32", 1),
    ("m64n16k64.f32.e4m3.e4m3", "e4m3", 0),
    ("m64n16k64.f32.e5m2.e4m3", "e5m2", 0),
    ("m64n16k64.f16.e4m3.e5m2", "e4m3", 0),
    ("m64n16k64.s32.s8.s8", "s8", 0),
    ("m64n32k64.satfinite.s32.s8.u8", "s8", 0),
)
PLACES = ("shared", "registers")
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1}
_THREADS, _A_BYTES = 128, 64 * 32


def columns_of(shape: str) -> int:
    return int(shape.split("n")[1].split("k")[0])


def registers_of(shape: str) -> int:
    """Return how many registers of D a thread has."""
    return columns_of(shape) // (4 if shape.split(".")[-3] == "f16" else 2)


def operands(shape: str, type_: str, seed: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the stored A, bytes (64, 32), B, bytes (N, 64), and the metadata of 128 threads. Values are of moderate size,
    with all bit patterns of integers."""
    rng = np.random.default_rng(seed)
    n = columns_of(shape)
    size = _BYTES[type_]

    def values(rows: int, count: int) -> np.ndarray:
        if type_ in ("f16", "bf16", "tf32"):
            x = rng.standard_normal((rows, count)).astype(np.float32)
            if type_ == "f16":
                return x.astype(np.float16).view(np.uint8)
            return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8) if type_ == "bf16" else x.view(np.uint8)
        return rng.integers(0, 256 if type_ == "s8" else 0x70, (rows, count), np.uint8)

    a, b = values(64, 32 // size), values(n, 64 // size)
    nibbles = (0b0100, 0b1110) if type_ == "tf32" else (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110, 0b0001, 0b0110)
    chosen = rng.choice(np.array(nibbles, np.uint32), (_THREADS, 8))
    metadata = (chosen << (np.uint32(4) * np.arange(8, dtype=np.uint32))).sum(1, dtype=np.uint32)
    return a, b, metadata


def image_of(matrix: np.ndarray) -> np.ndarray:
    """Return the bytes of a K-major operand without swizzle: 8 rows of 16 bytes follow each other, then the next 16 bytes of
    the same rows, then the next rows."""
    rows, width = matrix.shape
    return np.ascontiguousarray(matrix.reshape(rows // 8, 8, width // 16, 16).transpose(0, 2, 1, 3)).reshape(-1)


def fragments_of(a: np.ndarray, metadata: np.ndarray) -> np.ndarray:
    """Return uint32 (128, 5): the four registers of A of each thread, and its metadata."""
    words = a.view(np.uint32)
    held = np.zeros((_THREADS, 5), np.uint32)
    for thread in range(_THREADS):
        warp, lane = divmod(thread, 32)
        for r in range(4):
            held[thread, r] = words[16 * warp + lane // 4 + 8 * (r & 1), lane % 4 + 4 * (r >> 1)]
    held[:, 4] = metadata
    return held


def kernel(shape: str, selector: int, place: str, is_float: bool) -> str:
    """Return ``probe(image, held, out)`` for 128 threads: one sparse wgmma on a D of zeros."""
    n, count = columns_of(shape), registers_of(shape)
    d = ", ".join(f"%d{k}" for k in range(count))
    a = "%desc_a" if place == "shared" else "{%x0, %x1, %x2, %x3}"
    scales = ", 1, 1" if is_float else ""
    if shape.split(".")[-2] in ("f16", "bf16"):
        scales += ", 0, 0" if place == "shared" else ", 0"
    words = (_A_BYTES + 64 * n) // 4
    zeros = " ".join(f"mov.b32 %d{k}, 0;" for k in range(count))
    stores = "\n".join(f"    st.global.b32 [%out+{4 * k}], %d{k};" for k in range(count))
    return f"""{HEADER}.visible .entry probe(.param .u64 image, .param .u64 held, .param .u64 out)
.reqntid 128, 1, 1
{{
    .shared .align 1024 .b8 memory[{4 * words}];
    .reg .pred %p, %go;
    .reg .b32 %t, %k, %w, %s, %at, %x<5>, %d<{count}>;
    .reg .b64 %image, %held, %out, %o, %desc_a, %desc_b, %start;
    mov.u32 %t, %tid.x; mov.u32 %s, memory;
    ld.param.u64 %image, [image]; ld.param.u64 %held, [held]; ld.param.u64 %out, [out];
    cvta.to.global.u64 %image, %image; cvta.to.global.u64 %held, %held; cvta.to.global.u64 %out, %out;
    mov.u32 %k, %t;
COPY:
    mul.wide.u32 %o, %k, 4; add.s64 %o, %image, %o; ld.global.b32 %w, [%o];
    mad.lo.u32 %at, %k, 4, %s; st.shared.b32 [%at], %w;
    add.u32 %k, %k, 128; setp.lt.u32 %p, %k, {words}; @%p bra COPY;
    mul.wide.u32 %o, %t, 20; add.s64 %held, %held, %o;
    ld.global.b32 %x0, [%held]; ld.global.b32 %x1, [%held+4]; ld.global.b32 %x2, [%held+8]; ld.global.b32 %x3, [%held+12];
    ld.global.b32 %x4, [%held+16];
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %at, %s, 4; cvt.u64.u32 %start, %at;
    or.b64 %desc_a, %start, {(128 >> 4) << 16 | (256 >> 4) << 32};
    add.u64 %start, %start, {_A_BYTES >> 4};
    or.b64 %desc_b, %start, {(128 >> 4) << 16 | (512 >> 4) << 32};
    setp.eq.u32 %go, %t, 4096;
    {zeros}
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sp.sync.aligned.{shape} {{{d}}}, {a}, %desc_b, %x4, {selector}, %go{scales};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %o, %t, {4 * count}; add.s64 %out, %out, %o;
{stores}
    ret;
}}
"""


def result(launch: Callable[..., Any], shape: str, type_: str, selector: int, place: str) -> np.ndarray:
    """Return the registers of D, uint32 (128, registers)."""
    a, b, metadata = operands(shape, type_)
    image = np.concatenate([image_of(a), image_of(b)]).view(np.uint32).copy()
    out = np.zeros((_THREADS, registers_of(shape)), np.uint32)
    text = kernel(shape, selector, place, type_ != "s8")
    launch(text, "probe", (1, 1, 1), (_THREADS, 1, 1), [image, fragments_of(a, metadata), out])
    return out


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "shape.types selector place" -> SHA-256 of the registers of D."""
    return {
        f"{shape} {selector} {place}": sha256(result(launch, shape, type_, selector, place))
        for shape, type_, selector in CASES
        for place in PLACES
    }
