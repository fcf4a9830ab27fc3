"""createpolicy, discard, applypriority, prefetch: what they check and what they change."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import entry, launch, zeros

START = ".reg .b64 %a, %d; .reg .b32 %r; .reg .f32 %f; ld.param.u64 %a, [mem];\n"


def run(text: str, memory: np.ndarray, **options) -> h100sim.Run:
    return launch(entry("u64 mem", START + text), (memory,), block=1, **options)


@pytest.mark.parametrize(("fraction", "code"), [(0.0, 0), (0.0625, 0), (0.07, 1), (0.5, 7), (1.0, 15), (2.0, 15)])
def test_a_fraction_in_a_register_is_held_in_sixteenths(fraction, code):
    out = np.zeros(1, np.uint64)
    run(f"mov.f32 %f, {fraction}; createpolicy.fractional.L2::evict_first.b64 %d, %f; st.global.u64 [%a], %d;", out)
    assert int(out[0]) == 0x1200 << 48 | code << 52


def test_discarded_bytes_lose_their_value():
    data = np.arange(64, dtype=np.uint32)
    run("discard.global.L2 [%a+128], 128;", data)
    assert data[:32].tolist() == list(range(32)) and (data[32:] == 0xCDCDCDCD).all()


def test_a_discard_is_a_write():
    body = START + ".reg .pred %p; mov.u32 %r, %ctaid.x; setp.eq.u32 %p, %r, 0;"
    body += "@%p discard.global.L2 [%a], 128; @!%p ld.global.u32 %r, [%a];"
    found = launch(entry("u64 mem", body), (zeros(32),), block=1, grid=2)
    assert [h.kind for h in found.hazards] == ["race"]


@pytest.mark.parametrize(
    "text", ["prefetch.global.L2 [%a+4096];", "prefetchu.L1 [%a];", "applypriority.global.L2::evict_normal [%a], 128;"]
)
def test_hints_change_nothing(text):
    data = np.arange(32, dtype=np.uint32)
    run(text, data)
    assert data.tolist() == list(range(32))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("discard.global.L2 [%a+64], 128;", h100sim.MisalignedAddress, "address must be a multiple of 128"),
        ("applypriority.global.L2::evict_normal [%a+128], 128;", h100sim.OutOfRange, "must lie in an allocation"),
        ("discard.global.L2 [%a], 64;", h100sim.PtxError, "size must be 128"),
        ("createpolicy.cvt.L2.b64 %d, %a;", h100sim.PtxError, "createpolicy.cvt.L2.b64: access properties of the runtime are not"),
        ("createpolicy.fractional.L2::evict_last.L2::evict_last.b64 %d;", h100sim.PtxError, "must have a primary priority"),
    ],
)
def test_what_is_wrong_is_an_error(text, error, message):
    with pytest.raises(error, match=message):
        run(text, zeros(32))
