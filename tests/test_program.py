"""State spaces of a module: initialisers, addresses in them, constant and local memory."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros


def test_initialisers_of_global_and_constant_variables():
    outside = """
    .global .align 4 .u32 table[4] = {7, 8, 9};
    .const .align 4 .u32 weights[3] = {100, 200, 300};
    """
    body = """
    .reg .b32 %r_value, %t, %v; .reg .b64 %o, %a;
    mov.u32 %t, %tid.x; and.b32 %t, %t, 1; mul.wide.u32 %o, %t, 4;
    mov.u64 %a, table; add.s64 %a, %a, %o; ld.global.u32 %r_value, [%a+4];
    mov.u64 %a, weights; add.s64 %a, %a, %o; ld.const.u32 %v, [%a]; add.u32 %r_value, %r_value, %v;
    ld.const.u32 %v, [weights+8]; add.u32 %r_value, %r_value, %v;
    ld.global.u32 %v, [table+12]; add.u32 %r_value, %r_value, %v;
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD, outside=outside), (out,))
    assert out.tolist() == [408, 509] * 16


def test_addresses_in_initialisers_are_followed_in_the_generic_space():
    outside = """
    .global .align 4 .u32 table[3] = {7, 8, 9};
    .const .align 4 .u32 weights[3] = {100, 200, 300};
    .global .align 8 .u64 places[3] = {generic(table)+4, generic(weights)+8, table};
    """
    body = """
    .reg .b32 %r_value, %v; .reg .b64 %a;
    ld.global.u64 %a, [places]; ld.u32 %r_value, [%a];
    ld.global.u64 %a, [places+8]; ld.u32 %v, [%a]; add.u32 %r_value, %r_value, %v;
    ld.global.u64 %a, [places+16]; ld.global.u32 %v, [%a]; add.u32 %r_value, %r_value, %v;
    mov.u64 %a, weights; cvta.const.u64 %a, %a; ld.u32 %v, [%a]; add.u32 %r_value, %r_value, %v;
    """
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD, outside=outside), (out,))
    assert set(out.tolist()) == {8 + 300 + 7 + 100}


def test_launches_on_one_device_share_module_variables():
    body = """
    .reg .b32 %r; .reg .b64 %a;
    ld.global.u32 %r, [counter]; add.u32 %r, %r, 1; st.global.u32 [counter], %r;
    ld.param.u64 %a, [out]; st.global.u32 [%a], %r;
    """
    module = h100sim.RawModule(code=entry("u64 out", body, outside=".global .align 4 .u32 counter = 5;"))
    kernel, device, out = module.get_function("kernel"), h100sim.Device(), zeros(1)
    for expected in (6, 7):
        kernel(1, 1, (out,), device=device)
        assert out[0] == expected
    assert module.get_global("counter", device).numpy().view(np.uint32)[0] == 7
    kernel(1, 1, (out,), device=h100sim.Device())
    assert out[0] == 6
    with pytest.raises(h100sim.UsageError, match="variable must be one of the module's"):
        module.get_global("other", device)


def test_local_variables_belong_to_one_lane():
    body = """
    .local .align 8 .b8 depot[64];
    .reg .b32 %r_value, %t, %v; .reg .b64 %l, %g;
    mov.u32 %t, %tid.x; mov.u64 %l, depot; cvta.local.u64 %g, %l;
    st.local.u32 [%l+4], %t; add.u32 %v, %t, 1000; st.u32 [%g+60], %v; bar.sync 0;
    ld.u32 %r_value, [%g+4]; ld.local.u32 %v, [depot+60]; add.u32 %r_value, %r_value, %v;
    """
    out = zeros(128)
    launch(entry("u64 out", body + STORE_THREAD), (out,), grid=2, block=64)
    assert out.tolist() == [2 * t + 1000 for t in range(64)] * 2


def test_a_local_access_behind_the_variables_is_an_error():
    body = ".local .align 8 .b8 depot[16]; .reg .b32 %r; ld.local.u32 %r, [depot+16];"
    with pytest.raises(h100sim.errors.OutOfRange, match="must lie in the local space"):
        launch(entry("u64 out", body), (zeros(1),))


@pytest.mark.parametrize(
    ("outside", "message"),
    [
        (".extern .global .align 4 .u32 x;", "variable x must be defined in the module"),
        (".const .align 4 .b8 big[65540];", "constant variables must fit 65,536 bytes, not 65,540"),
    ],
)
def test_variables_that_have_no_place(outside, message):
    with pytest.raises(h100sim.PtxError, match=message):
        launch(entry("u64 out", "ret;", outside=outside), (zeros(1),))


@pytest.mark.parametrize("space", ["global", "const"])
def test_variables_that_a_function_declares_live_as_long_as_those_of_the_module(space):
    body = f".{space} .align 4 .u32 w[2] = {{41, 42}}; .reg .b32 %r_value; ld.{space}.u32 %r_value, [w+4];"
    out = zeros(32)
    launch(entry("u64 out", body + STORE_THREAD), (out,))
    assert set(out.tolist()) == {42}


def test_variables_of_two_functions_may_share_a_name():
    outside = """
    .func (.param .b32 r) next() {
        .global .align 8 .u32 count = 7; .global .u64 place = count;
        .reg .b64 %a; .reg .b32 %v;
        ld.global.u64 %a, [place]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [count], %v; st.param.b32 [r], %v; ret; }
    """
    body = """
    .global .u32 count = 100; .param .b32 x; .reg .b32 %r_value, %v;
    call (x), next; call (x), next; ld.param.b32 %r_value, [x]; ld.global.u32 %v, [count]; add.u32 %r_value, %r_value, %v;
    """
    out = zeros(1)
    launch(entry("u64 out", body + STORE_THREAD, outside=outside), (out,), block=1)
    assert out[0] == 9 + 100


def test_only_the_shared_variables_that_a_kernel_names_take_room():
    outside = ".shared .align 4 .b8 other[40000]; .shared .align 4 .b8 mine[64];"
    body = ".reg .b32 %r_value; mov.u32 %r_value, mine;"
    out = zeros(1)
    launch(entry("u64 out", body + STORE_THREAD, outside=outside), (out,), block=1)
    assert out[0] == 0x400


@pytest.mark.parametrize(
    "statement",
    ["mov.u32;", "bar.sync;", "ld.global.u32 %r0;", "elect.sync;", "cp.async.bulk.wait_group;", "mbarrier.init.shared.b64 [%r0];",
     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 %r0;", "cp.async.bulk.commit_group 1;", "add.u32 %r0, .f32, 1;"],
)  # fmt: skip
def test_operands_that_are_missing_or_of_another_kind_are_refused(statement):
    text = entry("u64 out", f".reg .b32 %r<2>; {statement}")
    with pytest.raises(h100sim.PtxError) as caught:
        _ = h100sim.RawModule(code=text).get_function("kernel").program
    assert caught.value.line > 0


def test_the_host_writes_variables():
    body = """
    .reg .b32 %r_value, %v; ld.const.u32 %r_value, [weights+4]; ld.global.u32 %v, [offset]; add.u32 %r_value, %r_value, %v;
    """
    outside = ".const .align 4 .u32 other; .const .align 4 .u32 weights[2] = {1, 2}; .global .align 4 .u32 offset = 10;"
    module = h100sim.RawModule(code=entry("u64 out", body + STORE_THREAD, outside=outside))
    kernel, device, out = module.get_function("kernel"), h100sim.Device(), zeros(1)
    kernel(1, 1, (out,), device=device)
    assert out[0] == 12
    module.get_global("weights", device).write(np.array([5, 6], np.uint32))
    module.get_global("offset", device).write(np.array([70], np.uint32))
    kernel(1, 1, (out,), device=device)
    assert out[0] == 76
    assert module.get_global("weights", device).numpy().view(np.uint32).tolist() == [5, 6]
    with pytest.raises(h100sim.UsageError, match="array must have the 8 bytes of the buffer, not 4"):
        module.get_global("weights", device).write(np.zeros(1, np.uint32))
    with pytest.raises(h100sim.UsageError, match=r"\.global and \.const ones \(other, weights, offset\), not nothing"):
        module.get_global("nothing", device)
