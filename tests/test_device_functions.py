"""printf as C formats it, assertions, malloc and free of a kernel."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import h100sim
from tests.kernels import entry, launch, zeros

DECLARATIONS = """
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 i, .param .b64 s);
"""


def string(name: str, text: str) -> str:
    data = ", ".join(str(byte) for byte in text.encode() + b"\0")
    return f".global .align 1 .b8 {name}[{len(text.encode()) + 1}] = {{{data}}};\n"


def print_arguments(*values: int | float) -> tuple[list[str], int]:
    """Return statements that put values into ``buffer`` as the compiler does (integers below 2^31 as int, others and
    doubles as 8 bytes), and the bytes that they take."""
    lines, at = [], 0
    for value in values:
        wide = isinstance(value, float) or not -(1 << 31) <= value < 1 << 32
        size = 8 if wide else 4
        at = -(-at // size) * size
        bits = struct.unpack("<Q", struct.pack("<d", value))[0] if isinstance(value, float) else value & ((1 << 8 * size) - 1)
        lines.append(f"st.local.b{8 * size} [buffer+{at}], {bits};")
        at += size
    return lines, at


def printed(text: str, *values: int | float, block: int = 1, guard: str = "") -> list[str]:
    """Return what printf of a kernel prints. ``%s`` takes the text ``word`` by way of the value 0."""
    lines, size = print_arguments(*values)
    body = f"""
    .local .align 8 .b8 buffer[{max(size, 8)}]; .reg .b64 %a, %f, %w; .reg .pred %p; .reg .b32 %t; .param .b64 x, y; .param .b32 z;
    {" ".join(lines)}
    mov.u64 %w, word; {"st.local.b64 [buffer], %w;" if text.rstrip("!]").endswith("s") else ""}
    mov.u64 %a, buffer; cvta.local.u64 %a, %a; mov.u64 %f, format; st.param.b64 [x], %f; st.param.b64 [y], %a;
    mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 2;
    {guard} call.uni (z), vprintf, (x, y); ld.param.b32 %t, [z];
    ld.param.u64 %a, [out]; {guard} st.global.u32 [%a], %t;
    """
    outside = DECLARATIONS + string("format", text) + string("word", "wörd")
    out, seen = zeros(1), []
    run = launch(entry("u64 out", body, outside=outside), (out,), block=block, console=seen.append)
    assert out[0] == len(values)
    assert not run.hazards
    assert seen == [f"block {t.block}, thread {t.thread}: {t.removesuffix(chr(10))}" for t in run.texts]
    return run.texts


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("plain 100%%\n", (), "plain 100%\n"),
        ("%d|%5d|%-5d|%05d|%+d|% d", (-7, 42, 42, 42, 42, 42), "-7|   42|42   |00042|+42| 42"),
        ("%u %x %X %#x %o %#o %#x", (0xFFFFFFFF, 255, 255, 255, 8, 8, 0), "4294967295 ff FF 0xff 10 010 0"),
        ("%hhd %hd %hhu", (0x1FF, 0x18000, 0x1FF), "-1 -32768 255"),
        ("%lld %llu %lx", (-(1 << 40), (1 << 64) - 1, 1 << 40), "-1099511627776 18446744073709551615 10000000000"),
        ("%f %.2f %8.3f %e %g %G", (1.5, 2.345, -1.0, 12345.678, 1e-5, 1e20), "1.500000 2.35   -1.000 1.234568e+04 1e-05 1E+20"),
        ("%f %F %5.1f %a", (float("inf"), float("-inf"), float("nan"), 1.5), "inf -INF   nan 0x1.8p+0"),
        ("%c%c %3c|%-3c|", (72, 105, 65, 66), "Hi   A|B  |"),
        ("%*d|%-*d|%.*f", (5, 42, 5, 42, 1, 2.25), "   42|42   |2.2"),
        ("%s!", (1 << 40,), "wörd!"),
        ("[%8s]", (1 << 40,), "[    wörd]"),
        ("[%-8.2s]", (1 << 40,), "[wö      ]"),
        ("%p", (1 << 40,), "0x10000000000"),
        ("%d %f %d", (1, 0.5, 2), "1 0.500000 2"),
        ("%q %d", (3,), "%q 3"),
    ],
)
def test_formats_are_those_of_c(text, values, expected):
    assert printed(text, *values) == [expected]


def test_every_lane_prints_for_itself_and_texts_know_their_thread():
    texts = printed("x\n", block=4)
    assert [t.thread for t in texts] == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)]
    assert printed("y\n", block=4, guard="@%p")[0].thread == (2, 0, 0)


def test_texts_are_bounded():
    body = """
    .reg .b64 %f, %z; .reg .pred %p; .reg .b32 %i; .param .b64 x, y; .param .b32 z; mov.u64 %f, format; mov.u32 %i, 0; mov.u64 %z, 0;
    AGAIN: st.param.b64 [x], %f; st.param.b64 [y], %z; call (z), vprintf, (x, y); add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 40; @%p bra AGAIN;
    """
    seen: list[str] = []
    ptx = entry("u64 out", body, outside=DECLARATIONS + string("format", "x" * 999))
    run = launch(ptx, (zeros(1),), console=seen.append)
    assert len(run.texts) == (1 << 20) // 999
    assert seen[-1] == "(texts beyond 1,048,576 bytes are dropped)"
    assert len(seen) == len(run.texts) + 1


def test_a_failed_assertion_names_its_place_and_thread():
    body = """
    .reg .b64 %m, %f, %i; .reg .pred %p; .reg .b32 %t; mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 5;
    mov.u64 %m, message; mov.u64 %f, file; mov.u64 %i, inside; @%p call __assertfail, (%m, %f, 12, %i, 1);
    """
    outside = DECLARATIONS + string("message", "n > 0") + string("file", "kernel.cu") + string("inside", "void f(int)")
    with pytest.raises(h100sim.Trap, match=r"assertion n > 0 must hold, but it failed at kernel.cu:12 in void f\(int\)") as caught:
        launch(entry("u64 out", body, outside=outside), (zeros(1),))
    assert "block (0, 0, 0), thread (5, 0, 0)" in str(caught.value)
    assert caught.value.where.line > 0


MALLOC = """
    .reg .b64 %p, %q, %o; .reg .b32 %t, %v; .reg .pred %null; mov.u32 %t, %tid.x;
    call (%p), malloc, ({size});
    setp.eq.u64 %null, %p, 0; @%null bra END;
    cvta.to.global.u64 %q, %p; st.global.u32 [%q+{last}], %t; ld.u32 %v, [%p+{last}];
    {then}
    ld.param.u64 %o, [out]; mul.wide.u32 %q, %t, 4; add.u64 %o, %o, %q; add.u32 %v, %v, 1; st.global.u32 [%o], %v;
    END:
"""


def allocate(size: int, last: int, then: str, threads: int = 32, device: h100sim.Device | None = None) -> np.ndarray:
    out = zeros(threads)
    body = MALLOC.format(size=size, last=last, then=then)
    launch(entry("u64 out", body, outside=DECLARATIONS), (out,), block=threads, device=device)
    return out


def test_malloc_gives_every_lane_its_own_block():
    assert allocate(24, 20, "call free, (%p);", threads=64).tolist() == list(range(1, 65))


def test_blocks_live_on_after_the_kernel_and_the_heap_is_limited():
    device = h100sim.Device()
    assert np.count_nonzero(allocate(300_000, 0, "", device=device)) == 27
    assert np.count_nonzero(allocate(300_000, 0, "", device=device)) == 0


@pytest.mark.parametrize(
    ("last", "then", "message"),
    [
        (24, "", r"past the end of 'malloc\(24\) of block"),
        (20, "call free, (%p); ld.u32 %v, [%p];", "which was freed"),
        (20, "call free, (%p); call free, (%p);", "address to free must be that of a block of malloc"),
        (20, "add.u64 %p, %p, 4; call free, (%p);", "address to free must be that of a block of malloc"),
    ],
)
def test_wrong_uses_of_the_heap(last, then, message):
    with pytest.raises(h100sim.OutOfRange, match=message):
        allocate(24, last, then)


def test_a_debugger_takes_back_texts_and_blocks():
    body = MALLOC.format(size=16, last=0, then="mov.u64 %q, format; call (%v), vprintf, (%q, %q); call free, (%p);")
    ptx = entry("u64 out", body, outside=DECLARATIONS + string("format", "once\n"))
    out, seen = zeros(1), []
    debugger = h100sim.RawModule(code=ptx).get_function("kernel").debug((1,), (1,), (out,), console=seen.append)
    while debugger.step():
        pass
    debugger.step_back(1000)
    assert debugger.session.machine.runtime.texts == []
    while debugger.step():
        pass
    debugger.session.write_back()
    assert out[0] == 1
    assert seen == ["block (0, 0, 0), thread (0, 0, 0): once"]
