"""Tensor copies in kernels: stores of im2col boxes, reductions, prefetches, several lanes, several CTAs."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.tma import TensorMap, tma_load
from h100sim.trace import Event
from tests.kernels import HEADER, launch, zeros


def kernel(body: str, extra: str = "") -> str:
    return f"""{HEADER}
.visible .entry kernel(.param .align 64 .b8 map[128]{extra})
{{
    .shared .align 1024 .b8 s[8192]; .shared .align 8 .b64 bar;
    .reg .b64 %map, %state, %to; .reg .b32 %t, %s, %b, %k, %n, %c, %r; .reg .pred %q, %done; .reg .b16 %mask;
    mov.u32 %t, %tid.x; setp.eq.u32 %q, %t, 0; mov.u32 %s, s; mov.u32 %b, bar; mov.u64 %map, map; cvta.param.u64 %map, %map;
    {body}
    ret;
}}
"""


#: Every thread writes its number at its place in shared memory: 32 elements of 4 bytes for each of 16 rows.
FILL = """
    mov.u32 %k, 0; mad.lo.u32 %c, %t, 4, %s;
ROW: mad.lo.u32 %n, %k, 100, %t; st.shared.u32 [%c], %n; add.u32 %c, %c, 128; add.u32 %k, %k, 1;
    setp.lt.u32 %done, %k, 16; @%done bra ROW;
    fence.proxy.async.shared::cta; bar.sync 0;
"""
FILLED = (np.arange(16, dtype=np.uint32)[:, None] * 100 + np.arange(32, dtype=np.uint32)).astype(np.uint32)
DRAIN = "@%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;"


def image_map(device: h100sim.Device, pixels: int = 16) -> tuple[TensorMap, h100sim.host.Buffer]:
    """A map of images (2, 8, 8, 32 channels) of u32, whose boxes are ``pixels`` pixels of all channels."""
    tensor = device.asarray(np.zeros((2, 8, 8, 32), np.uint32), name="images")
    strides = [128, 128 * 8, 128 * 64]
    return TensorMap.im2col("u32", tensor.address, [32, 8, 8, 2], strides, [0, 0], [0, 0], 32, pixels), tensor


def test_an_im2col_store_writes_pixels():
    device = h100sim.Device()
    m, tensor = image_map(device)
    store = "@%q cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%map, {0, 4, 7, 0}], [%s];"
    run = launch(kernel(FILL + store + DRAIN), (m,), device=device)
    found = tensor.numpy().reshape(-1, 32)
    first = 7 * 8 + 4
    assert np.array_equal(found[first : first + 16], FILLED)
    assert found[:first].max() == 0 and found[first + 16 :].max() == 0 and not run.hazards
    rows = run.trace.of(Event.TMA_GLOBAL)
    assert (rows["b"] * rows["c"]).sum() == 16 * 128 and len(rows) == 1


def test_an_im2col_reduction_adds_to_pixels():
    device = h100sim.Device()
    m, tensor = image_map(device)
    add = "@%q cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group [%map, {0, 0, 0, 1}], [%s];"
    launch(kernel(FILL + add + DRAIN + add + DRAIN), (m,), device=device)
    assert np.array_equal(tensor.numpy()[1].reshape(-1, 32)[:16], 2 * FILLED)


def test_an_im2col_load_shifts_to_its_tap():
    device = h100sim.Device()
    data = np.arange(2 * 8 * 8 * 32, dtype=np.uint32).reshape(2, 8, 8, 32)
    tensor = device.asarray(data)
    m = TensorMap.im2col("u32", tensor.address, [32, 8, 8, 2], [128, 1024, 8192], [-1, -1], [-1, -1], 32, 16)
    load = """
    @%q mbarrier.init.shared::cta.b64 [%b], 1; @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], 2048; bar.sync 0;
    @%q cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%s], [%map, {0, -1, -1, 0}], [%b], {1, 2};
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
    ld.param.u64 %to, [out]; mul.wide.u32 %state, %t, 4; add.u64 %to, %to, %state; mad.lo.u32 %c, %t, 4, %s; mov.u32 %k, 0;
ROW: ld.shared.u32 %n, [%c]; st.global.u32 [%to], %n; add.u64 %to, %to, 128; add.u32 %c, %c, 128; add.u32 %k, %k, 1;
    setp.lt.u32 %done, %k, 16; @%done bra ROW;
"""
    out = zeros(512)
    launch(kernel(load, ", .param .u64 out"), (m, out), device=device)
    shared = np.zeros(8192, np.uint8)
    tma_load(m, (0, -1, -1, 0), device.memory, shared, 0, (1, 2))
    assert np.array_equal(out, shared[:2048].view(np.uint32))
    assert np.array_equal(out.reshape(16, 32)[0], data[0, 1, 0])


def test_every_lane_that_executes_a_store_issues_one():
    """32 lanes store 32 boxes of one row each; the events of one instruction stay within bounds."""
    device = h100sim.Device()
    tensor = device.asarray(np.zeros((32, 32), np.uint32))
    m = TensorMap.tiled("u32", tensor.address, [32, 32], [128], [32, 1])
    body = "mad.lo.u32 %c, %t, 128, %s; st.shared.u32 [%c], %t; st.shared.u32 [%c+124], %t;"
    body += "fence.proxy.async.shared::cta; bar.warp.sync -1;"
    body += "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, %t}], [%c];"
    body += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    run = launch(kernel(body), (m,), device=device)
    found = tensor.numpy()
    assert found[:, 0].tolist() == found[:, 31].tolist() == list(range(32))
    assert len(run.trace.of(Event.TMA_ISSUED)) == 32


def test_a_multicast_writes_the_same_box_to_every_cta_of_the_mask():
    device = h100sim.Device()
    tensor = device.asarray(np.arange(512, dtype=np.uint32).reshape(16, 32))
    m = TensorMap.tiled("u32", tensor.address, [32, 16], [128], [32, 16], swizzle="128B")
    body = """
    @%q mbarrier.init.shared::cta.b64 [%b], 1; @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], 2048;
    @%q fence.mbarrier_init.release.cluster; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r, %cluster_ctarank; setp.eq.and.u32 %q, %r, 1, %q; mov.u16 %mask, 3;
    @%q cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [%s], [%map, {0, 0}], [%b], %mask;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
    mov.u32 %n, %ctaid.x; mad.lo.u32 %n, %n, 32, %t; mul.wide.u32 %state, %n, 4; ld.param.u64 %to, [out]; add.u64 %to, %to, %state;
    mad.lo.u32 %c, %t, 4, %s; ld.shared.u32 %n, [%c]; st.global.u32 [%to], %n;
"""
    out = zeros(64)
    run = launch(kernel(body, ", .param .u64 out"), (m, out), grid=2, cluster=(2, 1, 1), device=device)
    assert out.tolist() == list(range(32)) * 2 and not run.hazards
    assert run.trace.of(Event.TMA_COMPLETED)["cta"].tolist() == [0, 1]


@pytest.mark.parametrize("mode", ["tile", "im2col"])
def test_a_prefetch_is_a_hint(mode):
    device = h100sim.Device()
    m, tensor = image_map(device)
    if mode == "tile":
        m = TensorMap.tiled("u32", tensor.address, [32, 8, 8, 2], [128, 1024, 8192], [32, 8, 2, 1])
    offsets = ", {0, 0}" if mode == "im2col" else ""
    run = launch(
        kernel(f"@%q cp.async.bulk.prefetch.tensor.4d.L2.global.{mode} [%map, {{0, 0, 0, 0}}]{offsets};"), (m,), device=device
    )
    assert not len(run.trace.of(Event.TMA_ISSUED, Event.TMA_GLOBAL)) and not run.hazards


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.im2col_no_offs.bulk_group [%map, {0, 0}], [%s]",
            "rank must be from .3d to .5d, not .2d",
        ),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0, 0}], [%s]", "must have 2 coordinates, not 3"),
        (
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [%s]",
            "must name one reduction of add, min",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%map, {0, 0}], [%s]",
            r"must not have \.tile::scatter4",
        ),
        (
            "cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%s], [%map, {0, 0, 0, 0}], [%b], {0}",
            "must have 2 im2col offsets, not 1",
        ),
    ],
)
def test_what_there_is_not_is_refused(text, message):
    m, _ = image_map(device := h100sim.Device())
    with pytest.raises(h100sim.PtxError, match=message):
        launch(kernel(text + ";"), (m,), device=device)


def test_the_rank_must_be_that_of_the_map():
    m, _ = image_map(device := h100sim.Device())
    store = "@%q cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [%s];"
    with pytest.raises(h100sim.IllegalInstruction, match=r"rank must be that of the tensor map \(4\), not 2"):
        launch(kernel(store), (m,), device=device)


def test_copies_take_cache_hints():
    """Load a box and store it elsewhere, both with a policy of createpolicy."""
    device = h100sim.Device()
    source = device.asarray(np.arange(512, dtype=np.uint32).reshape(16, 32))
    target = device.asarray(np.zeros((16, 32), np.uint32))
    maps = [TensorMap.tiled("u32", buffer.address, [32, 16], [128], [32, 16]) for buffer in (source, target)]
    body = (
        """
    .reg .b64 %policy, %there; createpolicy.fractional.L2::evict_first.b64 %policy;
    mov.u64 %there, target; cvta.param.u64 %there, %there;
    @%q mbarrier.init.shared::cta.b64 [%b], 1; @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], 2048; bar.sync 0;
    @%q cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint
        [%s], [%map, {0, 0}], [%b], %policy;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
    @%q cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%there, {0, 0}], [%s], %policy;
"""
        + DRAIN
    )
    run = launch(kernel(body, ", .param .align 64 .b8 target[128]"), tuple(maps), device=device)
    assert np.array_equal(target.numpy(), source.numpy()) and not run.hazards


def test_a_map_may_lie_in_constant_memory():
    device = h100sim.Device()
    source = device.asarray(np.arange(512, dtype=np.uint32).reshape(16, 32))
    m = TensorMap.tiled("u32", source.address, [32, 16], [128], [32, 16])
    words = ", ".join(str(word) for word in np.frombuffer(bytes(m), np.uint32))
    text = f"""{HEADER}
.const .align 64 .b32 constant_map[32] = {{ {words} }};
.visible .entry kernel(.param .u64 out)
{{
    .shared .align 128 .b8 s[2048]; .shared .align 8 .b64 bar;
    .reg .b64 %map, %out, %state, %o; .reg .b32 %t, %s, %b, %w; .reg .pred %q, %done;
    mov.u32 %t, %tid.x; setp.eq.u32 %q, %t, 0; mov.u32 %s, s; mov.u32 %b, bar;
    mov.u64 %map, constant_map; cvta.const.u64 %map, %map; @%q prefetch.tensormap [%map];
    @%q mbarrier.init.shared::cta.b64 [%b], 1; @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], 2048; bar.sync 0;
    @%q cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%map, {{0, 0}}], [%b];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
    mad.lo.u32 %s, %t, 4, %s; ld.shared.u32 %w, [%s]; ld.param.u64 %out, [out]; mul.wide.u32 %o, %t, 4; add.u64 %out, %out, %o;
    st.global.u32 [%out], %w;
    ret;
}}
"""
    out = zeros(32)
    launch(text, (out,), device=device)
    assert out.tolist() == list(range(32))
