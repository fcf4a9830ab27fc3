"""The kilobyte of shared memory that the system keeps for itself."""

from __future__ import annotations

import pytest

from tests.kernels import entry, launch, zeros

_BODY = ".shared .align 16 .b8 tile[64]; .reg .b32 %a, %v; .reg .b64 %d; mov.u32 %v, 7; mov.u32 %a, {start}; {access}"
_DESCRIPTOR = """
    .reg .f32 %f<4>; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}}, %d, %d, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""


@pytest.mark.parametrize(
    ("start", "access", "doing"),
    [
        ("0", "st.shared.u32 [%a], %v;", "written"),
        ("1016", "st.shared.v2.u32 [%a], {%v, %v};", "written"),
        ("64", "ld.shared.u32 %v, [%a];", "read"),
        ("0", "atom.shared.add.u32 %v, [%a+4], 1;", "written"),
        ("0", f"mov.u64 %d, 0; {_DESCRIPTOR.replace('{{', '{').replace('}}', '}')}", "read by wgmma"),
    ],
)
def test_memory_of_the_system_is_left_alone(start, access, doing):
    run = launch(
        entry("u64 out", _BODY.replace("{start}", start).replace("{access}", access)), (zeros(1),), block=128, shared_mem=2048
    )
    found = next(h for h in run.hazards if h.kind == "reserved-memory")
    assert "must be left to the system, which keeps what lies before 0x400" in found.message
    assert found.message.endswith(f"not {doing}")


@pytest.mark.parametrize(
    ("start", "access"),
    [
        ("tile", "st.shared.u32 [%a], %v;"),
        ("1024", "st.shared.v2.u32 [%a], {%v, %v};"),
        ("%reserved_smem_offset_0", "st.shared.u32 [%a], %v;"),
    ],
)
def test_memory_of_the_kernel_is_its_own(start, access):
    text = entry("u64 out", _BODY.replace("{start}", start).replace("{access}", access))
    assert not any(h.kind == "reserved-memory" for h in launch(text, (zeros(1),), block=32, shared_mem=2048).hazards)
