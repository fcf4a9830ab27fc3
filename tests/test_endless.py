"""Launches that can never end although their warps keep trying."""

from __future__ import annotations

import pytest

import h100sim
from tests.kernels import entry, launch, zeros


def test_a_warp_that_issues_wgmmas_for_ever_without_its_warpgroup():
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d0, %d1, %d2, %d3}, %x, %x, 1, 1, 1, 0, 0;"
    body = f"""
    .reg .b32 %w, %n; .reg .f32 %d<4>; .reg .b64 %x; .reg .pred %p;
    mov.u32 %w, %warpid; mov.u64 %x, 64; setp.eq.u32 %p, %w, 0; @%p bra OTHER; mov.u32 %n, 0;
    L: wgmma.fence.sync.aligned; {wgmma} add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 40; @%p bra L; bra END;
    OTHER: bar.sync 1, 128;
    END:
    """
    with pytest.raises(h100sim.DeadlockError, match="no warp can proceed"):
        launch(entry("u64 out", body), (zeros(1),), block=128, shared_mem=4096)
