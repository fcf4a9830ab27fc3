"""Collectives and matrix moves against what an NVIDIA H200 returned (driver 580.159, CUDA 13.0, 2026-11-29)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros

DATA = Path(__file__).parents[1] / "data" / "warp_ops.npz"

LOAD = """
    .shared .align 128 .b8 tile[2048];
    .reg .b64 %x, %y, %o; .reg .b32 %t, %l, %s, %a, %w<8>, %d<24>, %c; .reg .pred %p, %q;
    ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; mov.u32 %l, %laneid; mov.u32 %t, %ctaid.x; mad.lo.s32 %t, %t, 32, %l;
    mul.wide.u32 %o, %t, 32; add.s64 %x, %x, %o; mul.wide.u32 %o, %t, 96; add.s64 %y, %y, %o;
    ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%x]; ld.global.v4.u32 {%w4, %w5, %w6, %w7}, [%x+16];
    mov.u32 %s, tile; mad.lo.s32 %a, %l, 32, %s;
    st.shared.v4.u32 [%a], {%w0, %w1, %w2, %w3}; st.shared.v4.u32 [%a+16], {%w4, %w5, %w6, %w7};
    bar.warp.sync 0xffffffff;
"""
OPERATIONS = """
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%d0, %d1, %d2, %d3}, [%a];
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%d4, %d5, %d6, %d7}, [%a];
    stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%a+1024], {%w0, %w1, %w2, %w3};
    bar.warp.sync 0xffffffff;
    ld.shared.v4.u32 {%d8, %d9, %d10, %d11}, [%a+1024];
    movmatrix.sync.aligned.m8n8.trans.b16 %d12, %w4;
    shfl.sync.bfly.b32 %d13, %w0, 5, 31, 0xffffffff;
    shfl.sync.down.b32 %d14, %w1, 3, 0x181f, 0xffffffff;
    shfl.sync.up.b32 %d15, %w2, 7, 0x1000, 0xffffffff;
    and.b32 %c, %w4, 63; shfl.sync.idx.b32 %d16, %w3, %c, 0x181f, 0xffffffff;
    and.b32 %c, %w5, 1; setp.ne.u32 %p, %c, 0; vote.sync.ballot.b32 %d17, %p, 0xffffffff;
    redux.sync.add.u32 %d18, %w6, 0xffffffff;
    redux.sync.min.s32 %d19, %w7, 0xffffffff;
"""


def test_the_bits_are_those_of_silicon():
    data = np.load(DATA)
    x, want = data["X"], data["Y"]
    stores = "".join(f"st.global.u32 [%y+{4 * k}], %d{k};\n" for k in range(20))
    got = np.zeros_like(want)
    run = launch(entry("u64 x, u64 y", LOAD + OPERATIONS + stores), (x.copy(), got), grid=len(x))
    wrong = [k for k in range(20) if (got[..., k] != want[..., k]).any()]
    assert wrong == []
    assert run.hazards == []


def test_match_and_elect_are_those_of_silicon():
    data = np.load(DATA)
    x, want = data["X"], data["Y"]
    body = """
    and.b32 %c, %w1, 3; match.any.sync.b32 %d0, %c, 0xffffffff;
    elect.sync %d1|%q, 0xffffffff;
    st.global.u32 [%y], %d0; st.global.u32 [%y+4], %d1;
    """
    got = np.zeros_like(want)
    launch(entry("u64 x, u64 y", LOAD + body), (x.copy(), got), grid=len(x))
    assert (got[..., 0] == want[..., 21]).all()
    assert (got[..., 1] == 0).all()


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("shfl.sync.bfly.b32 %a, %a, 1, 31, 0x0000ffff;", "member mask must contain the executing lanes, not 0x0000ffff"),
        ("@%p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%a}, [%s];", "must be executed by all lanes of the warp together"),
    ],
)
def test_misuse_is_an_error(instruction, message):
    body = """
    .shared .align 16 .b8 tile[512]; .reg .b32 %a, %s, %t; .reg .pred %p;
    mov.u32 %s, tile; mov.u32 %t, %tid.x; mov.u32 %a, 0; setp.lt.u32 %p, %t, 8;
    """
    with pytest.raises(h100sim.IllegalInstruction, match=message):
        launch(entry("u64 out", body + instruction), (zeros(1),))


def test_tiles_of_a_warp_name_different_members():
    """The lanes are together, but each tile of eight has a mask of its own, as cooperative groups make them."""
    body = """
    .reg .b32 %r_value, %lane, %tile, %m, %x, %y; .reg .pred %p; mov.u32 %lane, %laneid;
    shr.u32 %tile, %lane, 3; shl.b32 %tile, %tile, 3;
    shl.b32 %m, 255, %tile; shfl.sync.bfly.b32 %x, %lane, 1, 0x181f, %m; redux.sync.add.u32 %y, %lane, %m;
    mad.lo.u32 %r_value, %y, 100, %x; bar.warp.sync %m; setp.gt.u32 %p, %lane, 12; vote.sync.ballot.b32 %y, %p, %m;
    popc.b32 %y, %y; mad.lo.u32 %r_value, %y, 100000, %r_value; activemask.b32 %y; popc.b32 %y, %y;
    mad.lo.u32 %r_value, %y, 10000000, %r_value;
    """
    out = zeros(32)
    run = launch(entry("u64 out", body + STORE_THREAD), (out,))
    lane = np.arange(32)
    over = np.array([sum(k > 12 for k in range(8 * t, 8 * t + 8)) for t in range(4)])[lane // 8]
    sums = np.array([sum(range(8 * t, 8 * t + 8)) for t in range(4)])[lane // 8]
    assert out.tolist() == (320_000_000 + over * 100_000 + sums * 100 + (lane ^ 1)).tolist()
    assert run.hazards == []
