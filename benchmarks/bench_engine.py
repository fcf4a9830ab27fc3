"""Warp instructions per second of the engine in a loop of plain arithmetic, timing on, checks off.

    python -m benchmarks.bench_engine

The peer in the same run is NumPy doing the same arithmetic on 32-wide rows, one call per instruction: what an interpreter that
works on whole warps would cost.
"""

from __future__ import annotations

import time

import numpy as np

import h100sim

UNROLL = 10


def kernel(iterations: int) -> str:
    """Return a loop of adds, multiply-adds and xors with dependences."""
    body = "".join(
        f"add.u32 %r{1 + k % 8}, %r{1 + (k + 1) % 8}, %r{1 + (k + 3) % 8};\n"
        f"mad.lo.s32 %r{1 + (k + 2) % 8}, %r{1 + k % 8}, %r9, %r{1 + k % 7};\n"
        f"xor.b32 %r{1 + (k + 4) % 8}, %r{1 + k % 8}, %r{1 + (k + 5) % 8};\n"
        for k in range(UNROLL)
    )
    return f"""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry loop(.param .u64 out) {{
    .reg .b32 %r<20>; .reg .pred %p; .reg .b64 %a;
    ld.param.u64 %a, [out]; mov.u32 %r0, 0; mov.u32 %r1, 3; mov.u32 %r2, 5; mov.u32 %r3, 1;
L:  {body}
    add.u32 %r0, %r0, 1; setp.lt.u32 %p, %r0, {iterations}; @%p bra L;
    st.global.u32 [%a], %r1;
}}"""


def numpy_rate() -> float:
    a, b = np.arange(32, dtype=np.uint32), np.ones(32, np.uint32)
    start = time.process_time()
    n = 100_000
    for _ in range(n):
        np.add(a, b, out=a)
    return n / (time.process_time() - start)


def main() -> None:
    peer = numpy_rate()
    print(f"{'warps':>5}  {'M warp instructions/s':>21}  {'x NumPy rows':>12}")
    for warps in (1, 4, 16):
        function = h100sim.RawModule(code=kernel(400_000 // warps)).get_function("loop")
        rates = []
        for _ in range(3):
            start = time.process_time()
            run = function(1, 32 * warps, (np.zeros(1, np.uint32),), checks="off", trace="off")
            rates.append(run.instructions / (time.process_time() - start))
        best = max(rates)
        print(f"{warps:5}  {best / 1e6:21.1f}  {best / peer:12.1f}")


if __name__ == "__main__":
    main()
