"""The way of register stores out of an SM, against an H200."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import entry, launch, zeros
from validate import probes
from validate.probes import global_stores

SILICON = probes.silicon_answer("global_stores")


@pytest.mark.parametrize(
    "pattern",
    [
        "one line",
        "four lines, 16 bytes",
        "8 rows of 64 bytes",
        "8 rows of 16 bytes",
        "8 rows of 32 bytes, neighbours",
        "32 rows of 4 bytes",
    ],
)
def test_stores_leave_by_sectors_and_queue_as_on_silicon(pattern: str) -> None:
    assert SILICON is not None
    ask, _ = probes._launcher("sim")
    here = [global_stores.cycles(ask, pattern, count, 4, repeats=1)[0] for count in (32, 64)]
    there = [SILICON["results"][f"{pattern}, {count} x 4"][0] for count in (32, 64)]
    assert np.diff(here)[0] == pytest.approx(np.diff(there)[0], rel=0.03)
    assert here[0] == pytest.approx(there[0], rel=0.1)


def held(stores: str) -> int:
    """Return the cycles that the slowest of four warps takes for code that stores 4 bytes a lane to 8 rows."""
    body = f"""
    .reg .b64 %p, %q, %w; .reg .b32 %t, %r, %a, %b, %x, %k; .reg .pred %more; ld.param.u64 %p, [p];
    mov.u32 %t, %tid.x; shr.u32 %r, %t, 2; mul.wide.u32 %w, %r, 256; add.u64 %q, %p, %w; and.b32 %r, %t, 3;
    mul.wide.u32 %w, %r, 4; add.u64 %q, %q, %w; mov.u32 %k, 0; bar.sync 0;
    mov.u32 %a, %clock;
    {stores}
    mov.u32 %b, %clock; sub.u32 %b, %b, %a; mul.wide.u32 %w, %t, 4; add.u64 %p, %p, %w; st.global.u32 [%p+65536], %b;
    """
    data = zeros(65536)
    launch(entry("u64 p", body), (data,), block=128, checks="off")
    return int(data[16384 : 16384 + 128].max())


def test_stores_that_run_once_wait_in_the_queues_of_the_schedulers() -> None:
    """16 of each of four warps: none is held, as in gemm_3_tma on silicon; a loop needs its registers again."""
    once = held(" ".join(f"st.global.u32 [%q+{16 * k}], %t;" for k in range(16)))
    loop = "AGAIN: st.global.u32 [%q], %t; add.u64 %q, %q, 16; add.u32 %k, %k, 1; setp.lt.u32 %more, %k, 16; @%more bra AGAIN;"
    assert once < 240 < held(loop.replace("16;", "16;"))
    many = held(" ".join(f"st.global.u32 [%q+{16 * k}], %t;" for k in range(64)))
    assert many > once + 2_000, "the queues have an end"
