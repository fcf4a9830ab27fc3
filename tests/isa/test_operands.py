"""Operands that ptxas 13.0 refuses or takes, whatever the operation; and statements in the forms that people write."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros

_DECLARATIONS = """.reg .b32 r, q, r2, r3; .reg .u32 ru; .reg .b64 a, b; .reg .pred p; .reg .b16 h, h1, h2, h3; .reg .f16 hf; .reg .f32 f;
.reg .f64 d; .reg .f16x2 x2; .reg .v2 .f32 v2, w2; .reg .v4 .b32 t4; .reg .b128 w; .shared .align 16 .b32 s[4];\n"""


def decode(statement: str) -> None:
    _ = h100sim.RawModule(code=entry("u64 o", _DECLARATIONS + statement + " ret;")).get_function("kernel").program


@pytest.mark.parametrize(
    "statement",
    [
        "cvt.u64.u32 a, %tid.x;", "mov.u16 h, %tid.x;", "add.u32 r, WARP_SZ, 1;", "ld.global.f32 a, [a];", "ld.global.b16 f, [a];",
        "ld.global.b32 d, [a];", "st.global.b16 [a], f;", "st.global.f32 [a], a;", "ld.global.u32 x2, [a];", "ld.global.u8 r, [a];",
        "ld.global.b128 w, [a];", "st.global.f32 [a], 1.0;", "mov.b32 r, 0f3F800000;", "and.b32 r, r, 0f3F800000;", "fence.sc.cta;",
        "ret.uni;", "barrier.cluster.arrive.aligned;", "add.f32 f, f, 0d3FF0000000000000;", "st.global.u64 [a], 5;",
        "mov.b64 a, 1.0;", "st.global.b64 [a], 1.0;", "lop3.b32 r, r, q, r2, 256;", "lop3.b32 r, r, q, r2, -1;", "st.global.b32 [a], r+4;",
        "createpolicy.fractional.L2::evict_last.b64 a, 0f3F800000;", "st.shared.v2.b32 [r], {1.0, q};", "setp.lt.u32 p, r+4, q;",
        "mov.b32 {h, _}, r;", "mov.v2.b64 {a, b}, {b, a};", "mov.v4.u16 {h, h1, h2, h3}, {h1, h, h2, h3};",
    ],
)  # fmt: skip
def test_what_ptxas_takes(statement):
    decode(statement)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("st.shared.u32 [s], %tid.x;", "operand of st must be a register or a constant, not the special register %tid.x"),
        ("add.u64 a, a, %clock64;", "not the special register %clock64"),
        ("bar.sync %tid.x;", "not the special register"),
        ("add.s32 r, q, 1.5;", "add constant must be an integer for an operand of type .u32, not a floating-point one"),
        ("and.b32 r, q, 1.0;", "constant of and.b32 must have as many bits as .b32, not the 64 of a floating-point one"),
        ("st.global.b32 [a], 1.0;", "constant of st.global.b32 must have as many bits as .b32"),
        ("cvta.to.shared.u32 r, q;", "type of cvta.to.shared.u32 must be .u64, the size of an address"),
        ("cvta.u64 a, b;", "state space of cvta.u64 must be given, not left out"),
        ("add.u32 r+4, r2, r3;", "operands of add must end with ;, not with +"),
        ("fma.rn.f32 f, f, f+1, f;", "must be an integer of 16 to 64 bits, not one of type .f32"),
        ("vabsdiff4.u32.s32.u32 r, q, r2, r3;", "video instructions are not"),
        ("mov.u32 r, 1.5;", "constant must be an integer for an operand of type .u32"),
        ("mov.f32 f, 1;", "constant must be a floating-point one such as 1.0 for an operand of type .f32"),
        ("fma.rn.f32 f, f, 1, f;", "constant must be a floating-point one"),
        ("setp.eq.f32 p, f, 0;", "constant must be a floating-point one"),
        ("st.global.f32 [a], 1;", "constant must be a floating-point one"),
        ("ld.global.u64 r, [a];", "register r of ld.global.u64 must hold .u64, not .b32"),
        ("ld.global.u32 f, [a];", "register f of ld.global.u32 must hold .u32, not .f32"),
        ("ld.global.u8 f, [a];", "must hold .u8, not .f32"),
        ("ld.global.f32 d, [a];", "must hold .f32, not .f64"),
        ("ld.global.f32 ru, [a];", "must hold .f32, not .u32"),
        ("ld.global.u16 hf, [a];", "must hold .u16, not .f16"),
        ("st.global.v2.u32 [a], {f, f};", "must hold .u32, not .f32"),
        ("ld.shared.nc.u32 r, [s];", "state space of ld.shared.nc.u32 must be .global"),
        ("bar.sync;", "barrier of bar.sync must be given"),
        ("shfl.sync.idx.b32 r, q, 0, 31;", "operands of shfl.sync.idx.b32 must be those that the manual lists"),
        ("nanosleep 5;", "type of nanosleep must be .u32"),
        ("add.u32 1, r, r;", "result of add.u32 must go to a register"),
        ("fence.sc;", "scope of fence.sc must be one of .cta, .cluster, .gpu and .sys"),
        ("ret 5;", "operands of ret must be none, not 1"),
        ("mov.v2.b32 {r, q}, {r, q, r2, r3};", "vectors of mov.v2.b32 must have 2 elements, not 2 and 4"),
        ("st.param.u64 [o], 5;", r"st state space must be writable, not a parameter of the entry \(o\)"),
        ("wgmma.wait_group.sync.aligned -1;", "wgmma.wait_group count must be a non-negative immediate, not -1"),
        (".shared .b8 big[232449];", "shared variables of kernel must have at most 232,448 bytes, not 232,465"),
    ],
)
def test_what_ptxas_refuses(statement, message):
    with pytest.raises(h100sim.PtxError, match=message):
        decode(statement)


LANE = np.arange(32)
HEAD = ".reg .b32 %r_value, %t, %x, %y, %b; .reg .b64 %a, %w; .reg .pred %p, %q; .reg .b16 %h, %k; .reg .f32 %f; .reg .f64 %d;\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (".reg .v2 .b32 %v; mov.b32 %v.x, %t; mov.b32 %v.y, 5; add.u32 %r_value, %v.r, %v.g;", LANE + 5),
        (".reg .v4 .b32 %v; mov.v2.u32 {%v.x, %v.y}, {%t, 3}; mov.b64 %w, {%v.x, %v.y}; mov.b64 {%r_value, %v.z}, %w;"
         "add.u32 %r_value, %r_value, %v.z;", LANE + 3),
        (".reg .v4 .u32 %v; mov.v4.u32 %v, %ntid; add.u32 %r_value, %v.x, %v.w;", LANE * 0 + 32),
        ("mov.u32 %x, 1; { .reg .b32 %x; mov.u32 %x, 2; { .reg .b64 %x; mov.u64 %x, 40; cvt.u32.u64 %r_value, %x; }"
         "add.u32 %r_value, %r_value, %x; } add.u32 %r_value, %r_value, %x;", LANE * 0 + 43),
        ("mov.u32 %r_value, 0; { L: add.u32 %r_value, %r_value, 1; setp.lt.u32 %p, %r_value, 3; @%p bra L; }"
         "{ L: add.u32 %r_value, %r_value, 10; setp.lt.u32 %p, %r_value, 40; @%p bra L; }", LANE * 0 + 43),
        (".shared .align 16 .b32 s[64]; mov.u32 %b, s; mad.lo.u32 %b, %t, 4, %b; add.u32 %b, %b, 128; st.shared.u32 [%b+-64], %t;"
         "ld.shared.u32 %r_value, [%b + -0x40];", LANE),
        ("mov.u32 %r_value, 0x10; add.u32 %r_value, %r_value, 010; add.u32 %r_value, %r_value, 0b11; add.u32 %r_value, %r_value, 5U;"
         "add.s32 %r_value, %r_value, -(3+2)*2; add.u32 %r_value, %r_value, (1<<4)|1; add.u32 %r_value, %r_value, 7 > 3 ? 100 : 200;",
         LANE * 0 + 16 + 8 + 3 + 5 - 10 + 17 + 100),
        ("mov.f32 %f, 0f3F800000; add.f32 %f, %f, 0F40000000; add.f32 %f, %f, 1.5; cvt.f64.f32 %d, %f; add.f64 %d, %d, 1.0e1;"
         "cvt.rzi.u32.f64 %r_value, %d;", LANE * 0 + 14),
        ("setp.lt.u32 %p, %t, 16; mov.u32 %r_value, 7; @%p mov.u32 %r_value, 9; @!%p add.u32 %r_value, %r_value, 1;"
         "@!%p shl.b32 %r_value, %r_value, 1; @%p setp.eq.u32 %q, %t, 3; @!%p setp.eq.u32 %q, %t, 20;"
         "@%q add.u32 %r_value, %r_value, 1000; @%p bra X; @!%p add.u32 %r_value, %r_value, 5000; X:",
         np.where(LANE < 16, 9, 5016) + np.where((LANE == 3) | (LANE == 20), 1000, 0)),
        ("setp.ge.u32 %p, %t, 5; mov.pred %q, %p; not.pred %q, %q; and.pred %p, %p, %q; or.pred %p, %p, 1; selp.u32 %r_value, 4, 3, %q;"
         "@%p add.u32 %r_value, %r_value, 1;", np.where(LANE < 5, 5, 4)),
        (".shared .align 16 .b32 s[128]; mov.u32 %b, s; mad.lo.u32 %b, %t, 16, %b; st.shared.v4.u32 [%b], {%t, 1, 2, 3};"
         "ld.shared.v4.u32 {%r_value, _, _, %x}, [%b]; add.u32 %r_value, %r_value, %x;", LANE + 3),
        ("mov.b32 {%h, %k}, 0x00050003; cvt.u32.u16 %x, %h; cvt.u32.u16 %y, %k; mad.lo.u32 %r_value, %x, 10, %y;", LANE * 0 + 35),
        ("shfl.sync.down.b32 %x|%p, %t, 1, 0x1f, -1; shfl.sync.idx.b32 %r_value, %t, 3, 31, 0xffffffff;"
         "add.u32 %r_value, %r_value, %x; @!%p add.u32 %r_value, %r_value, 100;", np.where(LANE < 31, LANE + 1, 131) + 3),
        ("add .u32 %r_value , %t , 1 ; // one\n /* two\nlines */ add.u32\t%r_value,%r_value,1;", LANE + 2),
    ],
)  # fmt: skip
def test_statements_as_people_write_them(body, expected):
    out = zeros(32)
    run = launch(entry("u64 out", HEAD + "mov.u32 %t, %tid.x;\n" + body + STORE_THREAD), (out,))
    assert run.hazards == []
    assert out.tolist() == expected.tolist()


def test_register_and_constant_as_an_operand():
    body = """.reg .b32 %r_value, x, y; .reg .pred p; .reg .b64 a;
    mov.u32 x, %tid.x; mov.u32 y, x+-3; setp.gt.s32 p, y+1, 4;
    mul.lo.u32 %r_value, x+1, y+3; @p add.u32 %r_value, %r_value+100, 0x10;"""
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD + "ret;"), (out,))
    x = np.arange(32)
    assert np.array_equal(out, (x + 1) * x + np.where(x - 2 > 4, 116, 0))


@pytest.mark.parametrize(("types", "dtype"), [("u32.u32.u32", np.uint8), ("u32.s32.s32", np.int8)])
@pytest.mark.parametrize("form", ["", ".sat", ".add"])
def test_absolute_differences_of_bytes(types, dtype, form):
    body = f""".reg .b32 %r_value, i, p, q; .reg .b64 a, b, k;
    mov.u32 i, %tid.x; mul.wide.u32 k, i, 4; ld.param.u64 a, [x]; ld.param.u64 b, [y]; add.u64 a, a, k; add.u64 b, b, k;
    ld.global.u32 p, [a]; ld.global.u32 q, [b]; vabsdiff4.{types}{form} %r_value, p, q, i;"""
    words = np.random.default_rng(5).integers(0, 1 << 32, (2, 32), dtype=np.uint32)
    words[:, :2] = (0, 0x80FF7F00), (0x8000_7FFF, 0x7F00_80FF)
    out = zeros(32)
    launch(entry("u64 x, u64 y, u64 out", body + STORE_THREAD + "ret;"), (words[0].copy(), words[1].copy(), out))
    a, b = (w.copy().view(dtype).astype(int).reshape(32, 4) for w in words)
    difference = np.abs(a - b)
    expected = difference.sum(1) + np.arange(32) if form == ".add" else difference.astype(np.uint8).view(np.uint32)[:, 0]
    assert np.array_equal(out, expected)
