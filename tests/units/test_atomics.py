"""atom and red: what ends up in memory and what each lane gets back, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros

LANES = np.arange(32)
START = """
    .shared .align 16 .b8 s[64]; .reg .b32 %r_value, %t, %x, %s; .reg .b64 %a; .reg .f32 %f; .reg .b16 %h;
    mov.u32 %t, %tid.x; mov.u32 %s, s; ld.param.u64 %a, [mem]; mad.lo.u32 %x, %t, 3, 1;
"""


@pytest.mark.parametrize(
    ("opcode", "start", "old"),
    [
        ("add.u32", 5, lambda m, x: m + x),
        ("min.s32", 50, min),
        ("max.u32", 5, max),
        ("and.b32", 0xFF, lambda m, x: m & x),
        ("or.b32", 0, lambda m, x: m | x),
        ("xor.b32", 9, lambda m, x: m ^ x),
        ("exch.b32", 7, lambda m, x: x),
        ("inc.u32", 3, lambda m, x: 0 if m >= x else m + 1),
        ("dec.u32", 3, lambda m, x: x if m == 0 or m > x else m - 1),
    ],
)
def test_lanes_take_turns_in_ascending_order(opcode, start, old):
    mem, out, expected = np.array([start], np.uint32), zeros(32), []
    launch(entry("u64 mem, u64 out", START + f"atom.global.{opcode} %r_value, [%a], %x;" + STORE_THREAD), (mem, out))
    value = start
    for lane in range(32):
        expected.append(value)
        value = old(value, 3 * lane + 1)
    assert out.tolist() == expected
    assert mem.tolist() == [value]


def test_compare_and_swap_lets_one_lane_in():
    mem, out = np.array([100], np.uint32), zeros(32)
    launch(
        entry("u64 mem, u64 out", START + "atom.relaxed.gpu.global.cas.b32 %r_value, [%a], 100, %t;" + STORE_THREAD),
        (mem, out),
    )
    assert out.tolist() == [100] + [0] * 31
    assert mem.tolist() == [0]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_sums_of_f32_keep_subnormal_numbers_in_shared_memory_alone(space):
    tiny = np.array([3], np.uint32)
    where = "%a" if space == "global" else "%s"
    body = START + "ld.global.u32 %x, [%a]; st.shared.u32 [%s], %x; mov.b32 %f, %x; bar.sync 0;"
    body += f"red.{space}.add.f32 [{where}], %f; bar.sync 0; ld.{space}.u32 %r_value, [{where}];" + STORE_THREAD
    out = zeros(32)
    launch(entry("u64 mem, u64 out", body), (tiny, out))
    assert out.tolist() == [0 if space == "global" else 3 * 33] * 32


def test_vectors_and_pairs_add_element_by_element():
    body = START + ".reg .f32 %v<4>; cvt.rn.f32.u32 %v0, %t; mov.f32 %v1, 0f3F800000; mov.f32 %v2, %v0; mov.f32 %v3, %v1;"
    body += "red.global.v4.f32.add [%a], {%v0, %v1, %v2, %v3}; mov.b32 %x, 0x40003C00;"
    body += "red.relaxed.gpu.global.add.noftz.f16x2 [%a+16], %x;"
    mem = zeros(5)
    launch(entry("u64 mem", body), (mem,))
    assert mem[:4].view(np.float32).tolist() == [496, 32, 496, 32]
    assert mem[4:].view(np.float16).tolist() == [32, 64]


def test_sixty_four_bits():
    body = (
        START
        + ".reg .b64 %y; cvt.u64.u32 %y, %x; shl.b64 %y, %y, 32; red.global.add.u64 [%a], %y;"
        + "atom.global.max.s64 %y, [%a+8], %y;"
    )
    mem = np.array([1, -5], np.int64)
    launch(entry("u64 mem", body), (mem,))
    assert mem.tolist() == [1 + (int((3 * LANES + 1).sum()) << 32), 94 << 32]


@pytest.mark.parametrize("opcode", ["atom.global.add.s64", "red.global.exch.b32"])
def test_what_is_not_an_atomic_is_refused(opcode):
    d = "%r_value, " if opcode.startswith("atom") else ""
    with pytest.raises(h100sim.PtxError, match=f"^{opcode} must"):
        launch(entry("u64 mem", START + f"{opcode} {d}[%a], %x;"), (zeros(1),))


def test_128_bits_are_exchanged_and_compared():
    """Lane 0 exchanges, then compares with what is there and with what is not."""
    body = """
    .reg .b128 %new, %old, %seen; .reg .b64 %p, %o, %a, %b; .reg .b32 %t; .reg .pred %first;
    mov.u32 %t, %tid.x; setp.ne.u32 %first, %t, 0; @%first ret;
    ld.param.u64 %p, [mem]; ld.param.u64 %o, [out];
    ld.global.b128 %new, [%o];
    atom.global.exch.b128 %old, [%p], %new;
    st.global.b128 [%o], %old;
    atom.global.cas.b128 %seen, [%p], %old, %old;
    st.global.b128 [%o+16], %seen;
    atom.global.cas.b128 %seen, [%p], %new, %old;
    mov.b128 {%a, %b}, %seen; st.global.u64 [%o+32], %a; st.global.u64 [%o+40], %b;
"""
    mem, out = np.array([1, 2], np.uint64), np.array([3, 4, 0, 0, 0, 0], np.uint64)
    launch(entry("u64 mem, u64 out", body), (mem, out))
    assert mem.tolist() == [1, 2] and out.tolist() == [1, 2, 3, 4, 3, 4]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_lanes_at_one_address_take_turns(space):
    """Two cycles for each lane more at the address that most have; lanes without one do not count."""

    def cycles(lanes, step):
        where = "%a" if space == "global" else "%w"
        body = (
            START
            + f""".reg .b64 %w, %c0, %c1, %o; .reg .pred %p; .reg .b32 %d;
        mul.lo.u32 %d, %t, {step}; add.u32 %s, %s, %d; cvt.u64.u32 %w, %s; cvt.u64.u32 %c0, %d; add.s64 %a, %a, %c0;
        setp.lt.u32 %p, %t, {lanes}; mov.u64 %c0, %clock64;
        @%p atom.{space}.add.u32 %x, [{where}], 1; add.u32 %x, %x, 1; st.volatile.global.u32 [%a], %x;
        mov.u64 %c1, %clock64; sub.s64 %c1, %c1, %c0; cvt.u32.u64 %r_value, %c1;"""
        )
        out = zeros(32)
        launch(entry("u64 mem, u64 out", body.replace("s[64]", "s[512]") + STORE_THREAD), (zeros(512), out))
        return int(out[0])

    assert cycles(32, 0) - cycles(1, 0) == 62
    assert cycles(16, 0) - cycles(1, 0) == 30
    assert cycles(32, 4) == cycles(1, 4)
