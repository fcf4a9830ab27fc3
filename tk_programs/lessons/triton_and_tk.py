"""Lesson 6: one GEMM in Triton and in TK, side by side: what each wrote, what it needs, how long it takes."""

from __future__ import annotations

import importlib.util
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import h100sim
from h100sim import tk
from tk_programs import gemm
from tk_programs.lessons import silicon, toolchain
from tk_programs.lessons.tables import table

M = 512
#: Both kernels: a matrix of 512, tiles of 128 x 128 x 64, 3 stages; Triton's warps all do the same work.
SETTINGS = {"k": M, "n": M, "bm": 128, "bn": 128, "bk": 64, "stages": 3, "warps": 8}
GRID = (M // SETTINGS["bm"], M // SETTINGS["bn"])
#: What to count in a text: the start of an opcode.
COUNTED = (
    "wgmma.mma_async", "wgmma.wait_group", "cp.async.bulk.tensor", "cp.async.cg", "mbarrier", "bar.sync", "ldmatrix",
    "stmatrix", "st.global", "setmaxnreg",
)  # fmt: skip


def tk_kernel() -> tk.Kernel:
    """Return TK's kernel."""
    bm, bn, bk, stages = (SETTINGS[name] for name in ("bm", "bn", "bk", "stages"))
    return gemm.build(M, M, M, bm, bn, bk, stages)


def kept_triton_kernel() -> tuple[str, dict[str, Any]]:
    """Return the PTX of Triton that comes with the lesson, and its launch."""
    here = Path(__file__).with_name("triton_gemm.ptx")
    kept = json.loads(here.with_suffix(".json").read_text())
    assert kept["settings"] == SETTINGS, "the PTX that comes with the lesson must be of the lesson's settings"
    return here.read_text(), kept["launch"]


def triton_kernel() -> tuple[str, dict[str, Any], float | None]:
    """Return Triton's PTX, its launch, and the seconds that compiling took; None for the text that came with h100sim."""
    if importlib.util.find_spec("triton") is None:
        return *kept_triton_kernel(), None
    from tk_programs.lessons import triton_gemm

    started = time.perf_counter()
    ptx, launch = triton_gemm.compile_to_ptx(**SETTINGS)
    return ptx, launch, time.perf_counter() - started


def run_triton(ptx: str, launch: dict[str, Any], a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, h100sim.Run]:
    """Run Triton's PTX; return C and the run."""
    function = h100sim.RawModule(code=ptx).get_function(launch["entry"])
    function.max_dynamic_shared_size_bytes = launch["shared_bytes"]
    c = np.zeros((M, M), a.dtype)
    # The last two parameters are scratch memory, for the profiler and for tensor maps: this kernel has neither.
    scratch = np.zeros(256, np.uint8)
    run = function(GRID, (launch["threads"],), [a, b, c, scratch, scratch], shared_mem=launch["shared_bytes"])
    return c, run


def _facts(name: str, ptx: str, seconds: float | None, threads: int, shared: int, stages: int, run: Any) -> dict[str, Any]:
    opcodes = [
        instruction.opcode for function in h100sim.ptx.parse(ptx).functions.values() for instruction in function.instructions
    ]
    counts = Counter(word for opcode in opcodes for word in COUNTED if opcode.startswith(word))
    return {
        "language": name,
        "seconds_to_ptx": seconds,
        "instructions": len(opcodes),
        "counts": {word: counts[word] for word in COUNTED},
        "resources": toolchain.resources(ptx),
        "threads": threads,
        "shared_bytes": shared,
        "stages": stages,
        "ctas": len(run.ctas),
        "cycles": run.cycles,
        "cycles_of_a_cta": round(float(np.median(run.ctas["end"] - run.ctas["start"]))),
        "instructions_executed": int(run.instructions),
        "hazards": len(run.hazards),
    }


def measure(folder: Path | None = None) -> dict[str, Any]:
    """Run both kernels on the same matrices."""
    a, b = gemm.inputs(0, m=M, n=M, k=M)
    started = time.perf_counter()
    kernel = tk_kernel()
    seconds = time.perf_counter() - started
    c = kernel.run(a, b)
    run = kernel.last_run
    tk_facts = _facts("TK", kernel.ptx, seconds, kernel.block[0], kernel.shared_bytes, SETTINGS["stages"], run)
    ptx, launch, compiling = triton_kernel()
    triton_c, run = run_triton(ptx, launch, a, b)
    facts = _facts("Triton", ptx, compiling, launch["threads"], launch["shared_bytes"], launch["stages"], run)
    exact, allowed = gemm.reference(a, b)
    return {
        "m": M,
        "triton": launch["triton"],
        "kernels": [facts, tk_facts],
        "silicon_cycles_of_a_cta": silicon.times()["triton_and_tk"]["cycles_of_a_cta"],
        "same_bits": bool(np.array_equal(c.view(np.uint16), triton_c.view(np.uint16))),
        "is_right": [bool((np.abs(x.astype(np.float64) - exact) <= allowed).all()) for x in (triton_c, c)],
    }


def report(figures: dict[str, Any]) -> str:
    """Show the kernels side by side."""
    kernels = figures["kernels"]

    def row(name: str, *values: object) -> tuple[str, ...]:
        return name, *(f"{v:,}" if isinstance(v, int) else str(v) for v in values)

    def seconds(kernel: dict[str, Any]) -> str:
        return "came with h100sim" if kernel["seconds_to_ptx"] is None else f"{kernel['seconds_to_ptx'] * 1000:,.0f} ms"

    def resource(kernel: dict[str, Any], name: str) -> object:
        return kernel["resources"][name] if kernel["resources"] else "ptxas is not here"

    rows = [
        row("time to PTX", *map(seconds, kernels)),
        row("PTX instructions", *(k["instructions"] for k in kernels)),
        *(row(f"  {word}", *(k["counts"][word] for k in kernels)) for word in COUNTED),
        row("registers at entry (ptxas)", *(resource(k, "registers") for k in kernels)),
        row("bytes spilled", *(resource(k, "spilled_bytes") for k in kernels)),
        row("threads of a CTA", *(k["threads"] for k in kernels)),
        row("shared bytes", *(k["shared_bytes"] for k in kernels)),
        row("stages", *(k["stages"] for k in kernels)),
        row("CTAs", *(k["ctas"] for k in kernels)),
        row("warp instructions executed", *(k["instructions_executed"] for k in kernels)),
        row("predicted cycles", *(k["cycles"] for k in kernels)),
        row("predicted cycles of a CTA", *(k["cycles_of_a_cta"] for k in kernels)),
        row("cycles of a CTA on an H200", *(figures["silicon_cycles_of_a_cta"][k["language"].lower()] for k in kernels)),
        row("hazards", *(k["hazards"] for k in kernels)),
    ]
    return table((f"GEMM {figures['m']}^3", f"Triton {figures['triton']}", "TK"), rows)


def answer(figures: dict[str, Any]) -> str:
    """Say how the two differ."""
    triton, ours = figures["kernels"]
    same = "the same bits" if figures["same_bits"] else "results that differ in bits"
    copies = (SETTINGS["bm"] + SETTINGS["bn"]) * SETTINGS["bk"] * 2 // 16 // triton["threads"]
    on_silicon = figures["silicon_cycles_of_a_cta"]
    faster, slower = sorted(figures["kernels"], key=lambda kernel: kernel["cycles"])
    return (
        f"Both issue m64n128k16 products and give {same}. Triton fills a stage with {copies} `cp.async` of 16 bytes in "
        f"every thread of {triton['threads'] // 32} warps and keeps them apart by `bar.sync`; in TK one thread starts "
        f"{1 + SETTINGS['bm'] // 64} TMA copies a stage, and mbarriers carry the news. "
        f"The machine executes {triton['instructions_executed']:,} warp instructions for the one and "
        f"{ours['instructions_executed']:,} for the other. {faster['language']} is predicted to take {faster['cycles']:,} cycles, "
        f"{slower['language']} {slower['cycles']:,}; a CTA of them took {on_silicon[faster['language'].lower()]:,} and "
        f"{on_silicon[slower['language'].lower()]:,} on an H200."
    )


if __name__ == "__main__":
    from tk_programs.lessons import teach

    teach("triton_and_tk")
