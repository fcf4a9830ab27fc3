"""Registers of wgmmas that a function does not wait for: which functions touch some, and what they compute then."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.pending import touches_pending
from h100sim.ptx import parse
from tests.kernels import entry, launch

REGISTERS = ".reg .pred %p<4>; .reg .b32 %t, %r<9>; .reg .b64 %out, %o, %da, %db; .reg .f32 %d<4>, %e<4>, %x<4>; .reg .b32 %a<4>;\n"
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
SCALE = "add.f32 %d0, %d0, %d0;"
COPY = "mov.f32 %e0, %d0; mov.f32 %e1, %d1; mov.f32 %e2, %d2; mov.f32 %e3, %d3;"


def wait(pending: int = 0) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


def wgmma(d: str = "d", a: str = "") -> str:
    """m64n8k16 of bf16 into four registers; A in registers, or in shared memory as B is."""
    left = "{" + ", ".join(f"%{a}{k}" for k in range(4)) + "}" if a else "%da"
    results = ", ".join(f"%{d}{k}" for k in range(4))
    transposes = "0" if a else "0, 0"
    return f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{results}}}, {left}, %db, 0, 1, 1, {transposes};"


def touches(*body: str) -> bool:
    module = parse(entry("u64 out", REGISTERS + "\n".join((*body, "ret;"))))
    return touches_pending(module.functions["kernel"])


@pytest.mark.parametrize(
    "body",
    [
        [wgmma(), SCALE, COMMIT, wait()],
        [wgmma(), COMMIT, SCALE, wait()],
        # What is not committed is not waited for.
        [wgmma(), wait(), SCALE],
        [wgmma(), COMMIT, wgmma("e"), COMMIT, wait(1), "add.f32 %e0, %e0, %e0;", wait()],
        # On one of two ways.
        [wgmma(), COMMIT, "@%p0 bra M;", wait(), "M:", SCALE],
        # In the next round of a loop.
        ["L:", SCALE, wgmma(), COMMIT, "@%p0 bra L;", wait()],
        [wgmma(), COMMIT, COPY, "add.f32 %e0, %e0, %e0;", wait(), wgmma("e"), COMMIT, wait()],
        [wgmma(), COMMIT, "mov.f32 %x0, %d0;", wait()],
        [wgmma(a="a"), COMMIT, "mov.b32 %a0, 0;", wait()],
        [wgmma(), COMMIT, wgmma("e", "d"), COMMIT, wait()],
        [wgmma(), COMMIT, "st.global.f32 [%out], %d1;", wait()],
    ],
)
def test_an_access_to_what_is_pending(body: list[str]) -> None:
    assert touches(*body)


@pytest.mark.parametrize(
    "body",
    [
        [wgmma(), COMMIT, wait(), SCALE],
        [wgmma(), COMMIT, wgmma("e"), COMMIT, wait(1), SCALE, wait(), "add.f32 %e0, %e0, %e0;"],
        [wgmma(), wgmma(), COMMIT, wait(), SCALE],
        [wgmma(a="a"), COMMIT, "mov.b32 %r0, %a0;", wait()],
        [wgmma(), COMMIT, "add.f32 %x0, %x1, %x2;", wait(), SCALE],
        # Copies between registers of wgmmas, which compilers write: the state goes with the value.
        [wgmma(), COMMIT, COPY, wait(), "add.f32 %e0, %e0, %e0;", wgmma("e"), COMMIT, wait()],
        ["L:", wgmma(), COMMIT, "@%p0 bra L;", wait(), SCALE],
        [SCALE],
    ],
)
def test_an_access_to_what_is_done(body: list[str]) -> None:
    assert not touches(*body)


#: A (64 x 16) and B (16 x 8) of ones in shared memory, as core matrices.
TILES = """
    .shared .align 128 .b8 s[2304]; mov.u32 %t, %tid.x; ld.param.u64 %out, [out]; mov.u32 %r0, s; mov.u32 %r2, %t;
FILL: mad.lo.u32 %r1, %r2, 4, %r0; st.shared.b32 [%r1], 0x3F803F80; add.u32 %r2, %r2, 128; setp.lt.u32 %p0, %r2, 576; @%p0 bra FILL;
    fence.proxy.async.shared::cta; bar.sync 0;
    shr.u32 %r1, %r0, 4; cvt.u64.u32 %da, %r1; add.u64 %da, %da, 0x1000080000; add.u64 %db, %da, 128;
    mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o;
"""


@pytest.mark.parametrize("early", [False, True])
def test_values_are_those_of_program_order_all_the_same(early: bool) -> None:
    """ptxas injects a wait; the checks say that the text has none."""
    body = [FENCE, wgmma(), *([SCALE, COMMIT, wait()] if early else [COMMIT, wait(), SCALE]), "st.global.f32 [%out], %d0;", "ret;"]
    out = np.zeros(128, np.float32)
    run = launch(entry("u64 out", REGISTERS + TILES + "\n".join(body)), (out,), block=128)
    assert (out == 32).all()
    assert [hazard.kind for hazard in run.hazards] == (["register-race"] if early else [])
