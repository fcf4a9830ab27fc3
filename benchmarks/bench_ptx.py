"""What a PTX kernel costs before and while it runs: first start, later starts, warp instructions a second.

    python -m benchmarks.bench_ptx [--json]

A kernel of 60 distinct operations starts in a process of its own, first with an empty folder for compiled code, then with
what that run left there. Processor time is what counts on a shared machine: the first start compiles in two processes.
Then the speed of kernels that do something: the programs of this repository, cycles and bits, checks off. Targets: 8 s,
1 s, 5 M warp instructions/s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

import h100sim
import tk_programs

#: 60 operations; %r are b32, %l b64, %f f32, %d f64, %h b16, %p predicates.
OPERATIONS = (
    *("add.s32 %r1, %r2, %r3", "sub.s32 %r1, %r2, %r3", "mul.lo.s32 %r1, %r2, %r3", "mul.hi.u32 %r1, %r2, %r3"),
    *("mad.lo.s32 %r1, %r2, %r3, %r4", "min.s32 %r1, %r2, %r3", "max.u32 %r1, %r2, %r3", "abs.s32 %r1, %r2"),
    *("and.b32 %r1, %r2, %r3", "or.b32 %r1, %r2, %r3", "xor.b32 %r1, %r2, %r3", "not.b32 %r1, %r2", "shl.b32 %r1, %r2, 3"),
    *("shr.u32 %r1, %r2, 3", "shr.s32 %r1, %r2, 3", "bfe.u32 %r1, %r2, 4, 8", "bfi.b32 %r1, %r2, %r3, 4, 8", "popc.b32 %r1, %r2"),
    *("clz.b32 %r1, %r2", "brev.b32 %r1, %r2", "prmt.b32 %r1, %r2, %r3, 12816", "lop3.b32 %r1, %r2, %r3, %r4, 106"),
    *("selp.b32 %r1, %r2, %r3, %p1", "setp.lt.s32 %p1, %r2, %r3", "setp.gt.f32 %p2, %f2, %f3", "mov.b32 %r1, %r2"),
    *("mul.wide.u32 %l1, %r2, %r3", "add.s64 %l1, %l2, %l3", "shl.b64 %l1, %l2, 7", "cvt.u64.u32 %l1, %r2", "cvt.u32.u64 %r1, %l2"),
    *("add.f32 %f1, %f2, %f3", "sub.f32 %f1, %f2, %f3", "mul.f32 %f1, %f2, %f3", "fma.rn.f32 %f1, %f2, %f3, %f4"),
    *("add.ftz.f32 %f1, %f2, %f3", "fma.rn.ftz.f32 %f1, %f2, %f3, %f4", "div.rn.f32 %f1, %f2, %f3", "rcp.rn.f32 %f1, %f2"),
    *("sqrt.rn.f32 %f1, %f2", "max.f32 %f1, %f2, %f3", "abs.f32 %f1, %f2", "neg.f32 %f1, %f2", "ex2.approx.ftz.f32 %f1, %f2"),
    *("lg2.approx.f32 %f1, %f2", "rcp.approx.ftz.f32 %f1, %f2", "rsqrt.approx.f32 %f1, %f2", "tanh.approx.f32 %f1, %f2"),
    *("cvt.rn.f32.s32 %f1, %r2", "cvt.rzi.s32.f32 %r1, %f2", "cvt.rn.f16.f32 %h1, %f2", "cvt.f32.f16 %f1, %h2"),
    *("cvt.rn.bf16x2.f32 %r1, %f2, %f3", "add.f16x2 %r1, %r2, %r3", "fma.rn.f16x2 %r1, %r2, %r3, %r4", "add.f64 %d1, %d2, %d3"),
    *("fma.rn.f64 %d1, %d2, %d3, %d4", "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1"),
    *("ld.global.u32 %r1, [%l4]", "st.global.u32 [%l4], %r1"),
)  # fmt: skip


def kernel() -> str:
    """Return a kernel that executes each of the operations once."""
    body = "".join(f"    {operation};\n" for operation in OPERATIONS)
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry sixty(.param .u64 out)
{{
    .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .f32 %f<8>; .reg .f64 %d<8>; .reg .pred %p<4>;
    ld.param.u64 %l4, [out];
{body}    ret;
}}
"""


def start_once() -> None:
    """Run the kernel of 60 operations; what a process of its own does."""
    h100sim.RawModule(code=kernel()).get_function("sixty")(1, 32, (np.zeros(64, np.uint32),))


def start_seconds(cache: str) -> tuple[float, float]:
    """Return the processor and wall seconds of a process that runs the kernel once."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from benchmarks.bench_ptx import start_once; start_once()"],
        env={**os.environ, "H100SIM_CACHE_DIR": cache},
        check=True,
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def program_rate(name: str, values: str) -> float:
    """Return the warp instructions a second of a program, the best of three warm runs."""
    program = getattr(tk_programs, name)
    built = program.build()
    inputs = program.inputs(0)
    built.run(*inputs, values=values, checks="off", trace="off")
    rates = []
    for _ in range(3):
        start = time.process_time()
        built.run(*inputs, values=values, checks="off", trace="off")
        rates.append(built.last_run.instructions / (time.process_time() - start))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as cache:
        starts = {"first start": start_seconds(cache), "later start": start_seconds(cache)}
    rates = {(name, values): program_rate(name, values) for name in ("gemm", "attention") for values in ("none", "exact")}
    if as_json:
        speeds = {f"{name} {values}": rate for (name, values), rate in rates.items()}
        print(json.dumps({"operations": len(OPERATIONS), "seconds": starts, "warp_instructions_per_second": speeds}))
        return
    print(f"kernel of {len(OPERATIONS)} operations    processor s     wall s   target")
    for (name, (used, wall)), target in zip(starts.items(), (8, 1), strict=True):
        print(f"{name:26}{used:15.2f}{wall:11.2f}{target:8}")
    print("program    values    M warp instructions/s")
    for (name, values), rate in rates.items():
        print(f"{name:10} {values:8}{rate / 1e6:21.1f}")


if __name__ == "__main__":
    main()
