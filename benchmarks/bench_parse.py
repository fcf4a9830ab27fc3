"""How many lines of PTX the parser reads in a minute, on one core.

Texts: what nvcc made of three small CUDA files (tests/ptx/data), and one long kernel written here in the style of a
CUTLASS main loop: nested scopes, 64 registers to a wgmma, copies, branches. Run with ``python
benchmarks/bench_parse.py``; ``--json`` for a record. Target: 200,000 lines a minute.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from h100sim.ptx import format_module, parse

DATA = Path(__file__).parent.parent / "tests/ptx/data"
TARGET = 200_000


def long_kernel(steps: int) -> str:
    """Return a kernel of about 13 lines for every step."""
    d = ", ".join(f"%f{k}" for k in range(64))
    lines = [
        ".version 8.6\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];",
        ".visible .entry long(.param .align 64 .b8 map[128], .param .u64 out)\n{",
        ".reg .pred %p<4>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<64>;\n.reg .f32 %f<64>;",
    ]
    for step in range(steps):
        lines.append(f"""$L__BB0_{step}:
\tadd.s32 \t%r{step % 60}, %r{(step + 1) % 60}, -16;
\tld.shared.v4.b32 \t{{%r1, %r2, %r3, %r4}}, [%r5+{16 * step}];
\t{{
\t.reg .pred P1;
\tLAB_WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%r6], %r7;
\t@P1 bra DONE;
\tbra LAB_WAIT;
\tDONE:
\t}}
\twgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{{d}}}, %rd1, %rd2, %p1, 1, 1, 0, 0;
\tfma.rn.f32 \t%f1, %f2, 0f3F800000, %f3;
\t@%p1 bra \t$L__BB0_{step};""")
    return "\n".join([*lines, "ret;\n}\n"])


def lines_per_minute(text: str, seconds: float = 1.0) -> float:
    """Parse a text again and again for ``seconds`` and return the best speed."""
    lines = text.count("\n")
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        parse(text)
        best = min(best, time.perf_counter() - start)
    return 60 * lines / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    texts = {path.stem: path.read_text() for path in sorted(DATA.glob("*.ptx"))}
    texts["long kernel"] = long_kernel(3000)
    texts["long kernel, canonical"] = format_module(parse(texts["long kernel"]))
    speeds = {name: round(lines_per_minute(text)) for name, text in texts.items()}
    if as_json:
        print(json.dumps({"unit": "lines per minute", "target": TARGET, "speeds": speeds}))
        return
    for name, speed in speeds.items():
        lines = texts[name].count("\n")
        print(f"{name:24s} {lines:7,d} lines {speed:12,d} lines/min  {speed / TARGET:5.1f} x the target")


if __name__ == "__main__":
    main()
