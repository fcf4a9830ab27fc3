"""wmma in kernels: products against NumPy, strides, shared memory, what is refused. The bits are in test_silicon_bits."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import HEADER, entry, launch
from validate.probes import wmma_bits as probe


def run(ptx, name, grid, block, args):
    return launch(ptx, tuple(args), grid=grid, block=block, name=name)


@pytest.mark.parametrize("shape", ["m16n16k16", "m8n32k16", "m32n8k16"])
@pytest.mark.parametrize("layouts", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")])
def test_small_integers_multiply_exactly(shape, layouts):
    """Every pair of layouts: integers in f16 have no rounding, so NumPy must agree."""
    m, n, k = probe.SHAPES[shape]
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-8, 8, size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
    in_memory = [
        np.ascontiguousarray(x if layout == "row" else x.T).astype(np.float16) for x, layout in zip((a, b), layouts, strict=True)
    ]
    d = np.zeros((m, n), np.float32)
    run(probe.product_kernel(probe.Product(shape, "f16", "f32", "f32", layouts)), "probe", 1, 32, [*in_memory, c, d])
    assert np.array_equal(d, a @ b + c)


def test_saturation_of_integers():
    m, n, k = 16, 16, 16
    a, b = np.full((m, k), 127, np.int8), np.full((k, n), 127, np.int8)
    c, d = np.full((m, n), 2**31 - 1, np.int32), np.zeros((m, n), np.int32)
    text = probe.product_kernel(probe.Product("m16n16k16", "s8", "s32", "s32"), satfinite=True)
    run(text, "probe", 1, 32, [a, b, c, d])
    assert (d == 2**31 - 1).all()


#: Loads C with a stride of 24 from shared memory and stores it by columns with a stride of 20.
STRIDES = """
    .shared .align 32 .b8 s[2048]; .reg .b64 %in, %out, %o; .reg .b32 %t, %s, %k, %w, %at; .reg .f32 %c<8>; .reg .pred %p;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %s, s; mov.u32 %k, %t;
COPY: mul.wide.u32 %o, %k, 4; add.u64 %o, %in, %o; ld.global.b32 %w, [%o]; mad.lo.u32 %at, %k, 4, %s; st.shared.b32 [%at], %w;
    add.u32 %k, %k, 32; setp.lt.u32 %p, %k, 384; @%p bra COPY;
    {sync}
    wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}}, [%s], 24;
    wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%out], {{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}}, 20;
"""


def test_strides_and_shared_memory():
    source, out = np.arange(16 * 24, dtype=np.float32), np.full(16 * 20, -1, np.float32)
    found = launch(entry("u64 in, u64 out", STRIDES.format(sync="bar.sync 0;")), (source, out))
    assert np.array_equal(out.reshape(16, 20)[:, :16], source.reshape(16, 24)[:, :16].T)
    assert (out.reshape(16, 20)[:, 16:] == -1).all() and not found.hazards


def test_a_load_is_an_access_that_races():
    source, out = np.arange(16 * 24, dtype=np.float32), np.zeros(16 * 20, np.float32)
    found = launch(entry("u64 in, u64 out", STRIDES.format(sync="")), (source, out), block=64)
    assert any(h.kind == "race" for h in found.hazards)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r0,%r1,%r2,%r3}, [%a], %r4",
            "wmma type of m16n16k8 must be one that goes with tf32",
        ),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.s8 {%r0}, [%a], %r4", "must have 2 registers, not 1"),
        ("wmma.load.a.sync.aligned.row.m8n8k16.global.s8 {%r0}, [%a], %r4", "shape must be one of m16n16k16, m8n32k16"),
        ("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%a], %r4", "layout of s4 must be .row, not .col"),
        (
            "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r0,%r1}, {%r2}, {%r3}, {%r0,%r1}",
            "layouts of s4 must be .row.col",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0,%r1}, {%r2}, {%r3}, {%r0,%r1}",
            "must name .xor.popc or .and.popc",
        ),
        ("wmma.load.d.sync.aligned.row.m16n16k16.global.f16 {%r0}, [%a], %r4", "must name a matrix"),
        (
            "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f16 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, {%r0,%r1,%r2,%r3}, "
            "{%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}",
            "C of the type of D",
        ),
    ],
)
def test_what_there_is_not_is_refused(text, message):
    body = f".reg .b64 %a; .reg .b32 %r<8>; .reg .f32 %f<8>; ld.param.u64 %a, [mem]; {text};"
    with pytest.raises(h100sim.PtxError, match=message):
        launch(entry("u64 mem", body), (np.zeros(64, np.uint32),))


def test_a_part_of_a_warp_cannot():
    text = f"""{HEADER}.visible .entry kernel(.param .u64 mem)
{{ .reg .b64 %a; .reg .b32 %r<2>, %t; .reg .pred %p; ld.param.u64 %a, [mem]; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 16;
    @%p wmma.load.a.sync.aligned.row.m16n16k16.global.s8 {{%r0, %r1}}, [%a]; ret; }}"""
    with pytest.raises(h100sim.IllegalInstruction, match="must be executed by all lanes"):
        launch(text, (np.zeros(64, np.uint32),))
