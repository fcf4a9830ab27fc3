"""What a text for an older architecture may not use: the verdicts of ptxas 13.0."""

from __future__ import annotations

import pytest

import h100sim

_DECLARATIONS = """.reg .b32 r, s, u, q<8>; .reg .b64 a, b; .reg .pred p; .reg .b16 h; .reg .f32 f, g, x<4>; .reg .f64 d, y<12>;
.shared .align 128 .b8 sm[256]; .reg .b128 w;"""
#: Statement -> the least target, "" for one that sm_75 has.
_STATEMENTS = {
    "wgmma.fence.sync.aligned;": "sm_90a",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {x0,x1,x2,x3}, a, b, 1,1,1,0,0;": "sm_90a",
    "setmaxnreg.inc.sync.aligned.u32 40;": "sm_90a",
    "elect.sync r|p, 0xffffffff;": "sm_90",
    "mbarrier.init.shared.b64 [sm], 1;": "sm_80",
    "mbarrier.arrive.expect_tx.shared.b64 _, [sm], 16;": "sm_90",
    "mbarrier.try_wait.parity.shared.b64 p, [sm], 0;": "sm_90",
    "mbarrier.test_wait.shared.b64 p, [sm], a;": "sm_80",
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];": "sm_90",
    "barrier.cluster.arrive;": "sm_90",
    "mapa.shared::cluster.u32 r, s, u;": "sm_90",
    "cp.async.ca.shared.global [sm], [a], 16;": "sm_80",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r], [a], 16, [s];": "sm_90",
    "cp.async.bulk.commit_group;": "sm_90",
    "fence.proxy.async;": "sm_90",
    "fence.mbarrier_init.release.cluster;": "sm_90",
    "fence.acq_rel.cluster;": "sm_90",
    "fence.acq_rel.gpu;": "",
    "griddepcontrol.wait;": "sm_90",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [sm], {r};": "sm_90",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r}, [sm];": "",
    "redux.sync.add.u32 r, s, 0xffffffff;": "sm_80",
    "match.any.sync.b32 r, s, 0xffffffff;": "",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {x0,x1,x2,x3},{q0,q1,q2,q3},{q4,q5},{x0,x1,x2,x3};": "sm_89",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {y0,y1},{y2},{y3},{y0,y1};": "",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {y0,y1,y2,y3},{y4,y5,y6,y7},{y8,y9},{y0,y1,y2,y3};": "sm_90",
    "cvt.rn.satfinite.e4m3x2.f32 h, f, g;": "sm_89",
    "cvt.rn.tf32.f32 r, f;": "sm_90",
    "cvt.rna.tf32.f32 r, f;": "",
    "add.bf16 h, h, h;": "sm_90",
    "fma.rn.bf16 h, h, h, h;": "",
    "max.u16x2 r, r, s;": "sm_90",
    "atom.global.add.noftz.bf16 h, [a], h;": "sm_90",
    "atom.global.add.noftz.f16 h, [a], h;": "",
    "red.global.add.v2.f32 [a], {x0,x1};": "sm_90",
    "atom.acquire.cluster.global.add.u32 r, [a], 1;": "sm_90",
    "ld.shared::cluster.u32 r, [s];": "sm_90",
    "ld.global.L2::cache_hint.u32 r, [a], b;": "sm_80",
    "mov.u32 r, %clusterid.x;": "sm_90",
    "mov.u32 r, %cluster_ctarank;": "sm_90",
    "mov.u32 r, %dynamic_smem_size;": "",
}
_TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a")


@pytest.mark.parametrize("statement", _STATEMENTS)
def test_an_instruction_needs_its_target(statement):
    needed = _STATEMENTS[statement]
    for target in _TARGETS:
        text = f".version 8.6\n.target {target}\n.address_size 64\n.visible .entry k() {{ {_DECLARATIONS}\n{statement} ret; }}"
        kernel = h100sim.RawModule(code=text).get_function("k")
        if needed and _TARGETS.index(target) < _TARGETS.index(needed):
            with pytest.raises(h100sim.PtxError, match=rf"must be for \.target {needed}, not {target}"):
                _ = kernel.program
        else:
            assert kernel.program is not None
