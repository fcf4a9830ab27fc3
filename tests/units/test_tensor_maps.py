"""tensormap.replace builds what the driver encodes; copies see a changed map once it has been acquired."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.tma import TensorMap
from h100sim.units.tensor_maps import FIELDS
from tests.kernels import entry, launch, zeros

REPLACE = "tensormap.replace.tile"


def replacements(m: TensorMap, address: str, space: str, registers: tuple[str, str] = ("%r", "%d")) -> str:
    """Return the instructions that make ``m`` out of 128 zero bytes, through a 32-bit and a 64-bit register."""
    r, d = registers
    code = {"u8": 0, "u32": 2, "f16": 6, "f32": 7, "f32_ftz": 8, "f64": 9, "bf16": 10, "tf32": 11, "tf32_ftz": 12}[m.dtype]
    lines = [f"mov.u64 {d}, {m.address}; {REPLACE}.global_address{space}.b1024.b64 {address}, {d};"]
    lines.append(f"mov.u32 {r}, {m.rank - 1}; {REPLACE}.rank{space}.b1024.b32 {address}, {r};")
    for name, values in (("box_dim", m.box), ("global_dim", m.dims), ("element_stride", m.element_strides)):
        lines += [f"mov.u32 {r}, {v}; {REPLACE}.{name}{space}.b1024.b32 {address}, {k}, {r};" for k, v in enumerate(values)]
    lines += [f"mov.u64 {d}, {v}; {REPLACE}.global_stride{space}.b1024.b64 {address}, {k}, {d};" for k, v in enumerate(m.strides)]
    for name, value in (
        ("elemtype", code),
        ("interleave_layout", ("none", "16B", "32B").index(m.interleave)),
        ("swizzle_mode", ("none", "32B", "64B", "128B").index(m.swizzle)),
        ("fill_mode", int(m.oob_fill == "nan")),
    ):
        lines.append(f"{REPLACE}.{name}{space}.b1024.b32 {address}, {value};")
    return "\n".join(lines)


MAPS = [
    TensorMap.tiled("bf16", 0x7F0000001200, [640, 48], [1280], [64, 48], swizzle="128B"),
    TensorMap.tiled("tf32", 0x7F0000000010, [100, 7, 5], [400, 2800], [32, 4, 2], [1, 2, 1], swizzle="128B", oob_fill="nan"),
    TensorMap.tiled("u8", 0x7F0000000400, [1 << 32, 9, 8, 7, 6], [1 << 33, 1 << 34, 1 << 35, 1 << 36], [64, 3, 2, 2, 2]),
    TensorMap.tiled("f32_ftz", 0x7F0000000400, [64, 8, 8], [256, 2048], [8, 8, 8], interleave="32B", swizzle="32B"),
]


@pytest.mark.parametrize("m", MAPS, ids=lambda m: m.dtype)
@pytest.mark.parametrize("space", [".global", ""])
def test_a_zeroed_buffer_becomes_the_map_of_the_driver(m, space):
    """All but the driver's notes from byte 64 on and the L2 promotion, which no field sets."""
    body = ".reg .b64 %a, %d; .reg .b32 %r; ld.param.u64 %a, [map];\n" + replacements(m, "[%a]", space)
    out = np.zeros(32, np.uint32)
    launch(entry("u64 map", body), (out,), block=1)
    assert out[:16].tolist() == np.frombuffer(bytes(m), np.uint32)[:16].tolist()
    assert TensorMap.decode(out.tobytes()).dims == m.dims


def test_the_rounding_bit_stays_when_the_type_changes():
    body = ".reg .b64 %a; ld.param.u64 %a, [map];"
    body += f"{REPLACE}.elemtype.global.b1024.b32 [%a], 11; {REPLACE}.elemtype.global.b1024.b32 [%a], 7;"
    out = np.zeros(32, np.uint32)
    launch(entry("u64 map", body), (out,), block=1)
    assert out[2] == 7 << 7 | 1 << 16


#: A warp copies a map to global memory, changes its address there through shared memory, and loads a box with each.
CHANGE = """
    .shared .align 128 .b8 box[2048]; .shared .align 128 .b8 image[128]; .shared .align 8 .b64 bar;
    .reg .b64 %map, %copy, %out, %at, %d, %state, %one, %two, %o; .reg .b32 %t, %image, %box, %bar, %n, %k; .reg .pred %q, %done;
    mov.u32 %t, %tid.x; setp.eq.u32 %q, %t, 0; mov.u32 %image, image; mov.u32 %box, box; mov.u32 %bar, bar;
    ld.param.u64 %map, [from]; ld.param.u64 %copy, [work]; ld.param.u64 %out, [out];
    ld.param.u64 %one, [one]; ld.param.u64 %two, [two];
    mul.wide.u32 %o, %t, 4; add.u64 %at, %map, %o; ld.global.u32 %n, [%at];
    mad.lo.u32 %k, %t, 4, %image; st.shared.u32 [%k], %n;
    @%q mbarrier.init.shared::cta.b64 [%bar], 1; @%q fence.mbarrier_init.release.cluster; bar.warp.sync -1;
    {replace}
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%copy], [%image], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%copy], 128;
    @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 1024;
    @%q cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%box], [%copy, {{0, 0}}], [%bar];
FIRST: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0; @!%done bra FIRST;
    @%q tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%image], %two;
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%copy], [%image], 128;
    {acquire}
    add.u32 %box, %box, 1024;
    @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 1024;
    @%q cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%box], [%copy, {{0, 0}}], [%bar];
SECOND: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 1; @!%done bra SECOND;
    ld.shared.u32 %n, [%box]; ld.shared.u32 %k, [%box+-1024];
    @%q st.global.u32 [%out], %k; @%q st.global.u32 [%out+4], %n;
"""
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%copy], 128;"


def change(acquire: str) -> tuple[list[int], h100sim.Run]:
    device = h100sim.Device()
    one, two = (device.asarray(np.full((16, 16), v, np.uint32)) for v in (11, 22))
    m = TensorMap.tiled("u32", one.address + 0, [16, 16], [64], [16, 16])
    image = np.frombuffer(bytes(m), np.uint32).copy()
    image[:2] = 0
    text = "@%q tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%image], %one;"
    ptx = entry("u64 from, u64 work, u64 out, u64 one, u64 two", CHANGE.format(replace=text, acquire=acquire))
    out, work = zeros(2), zeros(32)
    run = launch(ptx, (image, work, out, one, two), device=device)
    return out.tolist(), run


def test_a_changed_map_is_seen_once_it_is_acquired():
    out, run = change(ACQUIRE)
    assert out == [11, 22] and not run.hazards


def test_a_changed_map_is_not_seen_without_the_fence():
    out, run = change("")
    assert out == [11, 11]
    assert [h.kind for h in run.hazards] == ["proxy-race"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{REPLACE}.box_dim.global.b1024.b32 [%a], 5, %r", "box_dim ordinal must be from 0 to 4, not 5"),
        (f"{REPLACE}.global_stride.global.b1024.b64 [%a], 4, %a", "global_stride ordinal must be from 0 to 3, not 4"),
        (f"{REPLACE}.elemtype.global.b1024.b32 [%a], 13", "elemtype must be from 0 to 12 on sm_90a, not 13"),
        (f"{REPLACE}.swizzle_atomicity.global.b1024.b32 [%a], 1", "must name a field of sm_90a: global_address, "),
        ("fence.proxy.tensormap::generic.acquire.gpu [%a], 64", "size must be 128, that of a tensor map, not 64"),
        ("fence.proxy.tensormap::generic.acquire.gpu", "must have the address of a tensor map"),
    ],
)
def test_what_there_is_not_is_refused(text, message):
    body = f".reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [map]; mov.u32 %r, 1; {text};"
    with pytest.raises(h100sim.PtxError, match=message):
        launch(entry("u64 map", body), (zeros(32),), block=1)


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("%a", h100sim.IllegalInstruction, "tensor map must be 128 bytes that the driver encoded"),
        ("%n", h100sim.OutOfRange, "address must lie in an allocation"),
    ],
    ids=["rubbish", "nothing there"],
)
def test_a_map_that_was_never_encoded_is_an_error(address, error, message):
    body = f""".shared .align 128 .b8 s[128]; .shared .align 8 .b64 bar; .reg .b64 %a, %n; .reg .b32 %s, %b;
    ld.param.u64 %a, [map]; mov.u64 %n, 64; mov.u32 %s, s; mov.u32 %b, bar; mbarrier.init.shared::cta.b64 [%b], 1;
    cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%s], [{address}, {{0}}], [%b];"""
    text = entry("u64 map", body)
    with pytest.raises(error, match=f"cp.async.bulk.tensor.*{message}") as caught:
        launch(text, (np.full(32, 0xFFFFFFFF, np.uint32),), block=1)
    assert caught.value.where.line == 1 + text[: text.index("cp.async.bulk")].count("\n")


def test_every_field_has_a_test():
    text = "".join(replacements(m, "[%a]", "") for m in MAPS)
    assert all(f".{field}." in text for field in FIELDS)


#: CTA 0 changes the address of a map in global memory and raises a flag; CTA 1 waits for it and loads a box.
HANDED_OVER = """
    .shared .align 128 .b8 box[1024]; .shared .align 8 .b64 bar;
    .reg .b64 %map, %out, %flag, %two, %state; .reg .b32 %t, %cta, %box, %bar, %n; .reg .pred %q, %p, %done;
    mov.u32 %t, %tid.x; setp.ne.u32 %q, %t, 0; @%q ret; mov.u32 %cta, %ctaid.x; mov.u32 %box, box; mov.u32 %bar, bar;
    ld.param.u64 %map, [work]; ld.param.u64 %out, [out]; ld.param.u64 %flag, [flag]; ld.param.u64 %two, [two];
    setp.eq.u32 %p, %cta, 1; @%p bra LOAD;
    tensormap.replace.tile.global_address.global.b1024.b64 [%map], %two;
    {release}
    mov.u32 %n, 1; st.release.gpu.global.u32 [%flag], %n;
    ret;
LOAD:
    ld.acquire.gpu.global.u32 %n, [%flag]; setp.eq.u32 %p, %n, 0; @%p bra LOAD;
    {acquire}
    mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 1024;
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%box], [%map, {{0, 0}}], [%bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0; @!%done bra WAIT;
    ld.shared.u32 %n, [%box]; st.global.u32 [%out], %n;
"""


@pytest.mark.parametrize("acquires", [True, False])
def test_a_map_is_handed_over_in_global_memory(acquires):
    device = h100sim.Device()
    one, two = (device.asarray(np.full((16, 16), v, np.uint32)) for v in (11, 22))
    image = np.frombuffer(bytes(TensorMap.tiled("u32", one.address, [16, 16], [64], [16, 16])), np.uint32).copy()
    release = "fence.proxy.tensormap::generic.release.gpu;"
    acquire = "fence.proxy.tensormap::generic.acquire.gpu [%map], 128;" if acquires else ""
    ptx = entry("u64 work, u64 out, u64 flag, u64 two", HANDED_OVER.format(release=release, acquire=acquire))
    out, flag = zeros(1), zeros(1)
    run = launch(ptx, (image, out, flag, two), grid=2, block=32, device=device)
    assert out.tolist() == [22]
    assert [h.kind for h in run.hazards] == ([] if acquires else ["proxy-race"])
