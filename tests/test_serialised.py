"""wgmma in code that was compiled without optimisation, where accumulators live in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import entry, launch

_D = "{d0, d1, d2, d3}"
_LOADS = " ".join(f"ld.local.f32 e{k}, [stack+{4 * k}]; mov.f32 d{k}, e{k};" for k in range(4))
_STORES = " ".join(f"st.local.f32 [stack+{4 * k}], d{k};" for k in range(4))
_WGMMA = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {_D}, a, a, 1, 1, 1, 0, 0;"


def product(steps: str) -> tuple[np.ndarray, set[str]]:
    """Multiply matrices of ones twice (``steps``); return what threads hold then, and the kinds of hazards."""
    body = f"""
    .reg .f32 d<4>, e<4>; .reg .b32 t, s; .reg .b64 a, o, k; .reg .pred p; .shared .align 1024 .b8 tile[4096]; .local .b32 stack[4];
    mov.u32 t, %tid.x; mov.u32 s, tile; shl.b32 t, t, 5; add.u32 s, s, t;
    st.shared.v4.b32 [s], {{0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80}};
    st.shared.v4.b32 [s+16], {{0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80}};
    fence.proxy.async.shared::cta; bar.sync 0;
    mov.u32 s, tile; shr.u32 s, s, 4; cvt.u64.u32 a, s; or.b64 a, a, 0x1000080000;
    mov.f32 d0, 0.0; mov.f32 d1, 0.0; mov.f32 d2, 0.0; mov.f32 d3, 0.0; {_STORES}
    bra NEXT; NEXT: wgmma.fence.sync.aligned;
    {steps}
    ld.param.u64 o, [out]; mov.u32 t, %tid.x; mul.wide.u32 k, t, 16; add.u64 o, o, k;
    st.global.v4.f32 [o], {_D}; ret;"""
    out = np.zeros((128, 4), np.float32)
    found = launch(entry("u64 out", body), (out,), block=128)
    return out, {hazard.kind for hazard in found.hazards}


@pytest.mark.parametrize("label", ["", "bra ON; ON:"])
def test_accumulators_in_memory_are_waited_for(label):
    step = f"{_LOADS} {_WGMMA} {_STORES}"
    end = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    out, kinds = product(f"{step} {label} {step} {end} {_LOADS}")
    assert (out == 32).all() and not kinds


def test_accumulators_in_registers_are_not():
    _, kinds = product(f"{_WGMMA} {_STORES} {_WGMMA} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
    assert kinds == {"register-race"}
