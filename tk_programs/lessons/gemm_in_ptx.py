"""Lesson 1: what one ``mma_AB`` line of the GEMM becomes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tk_programs import gemm
from tk_programs.lessons import toolchain
from tk_programs.lessons.tables import table

CALL = "tk.warpgroup.mma_AB("


def measure(pictures: Path | None = None) -> dict[str, Any]:
    """Build and run the 256^3 GEMM; return the PTX and SASS of one line, and the times of the ways to PTX."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        kernel = gemm.build()
        seconds.append(time.perf_counter() - started)
    a, b = gemm.inputs()
    c = kernel.run(a, b)
    exact, allowed = gemm.reference(a, b)
    (explained,) = (x for x in kernel.explain(show=False).lines if x.source.startswith(CALL))
    ptx = [instruction.partition("//")[0].strip() for instruction in explained.instructions]
    return {
        "python": explained.source,
        "ptx": ptx,
        "ptx_opcodes": dict(Counter(opcode_of(x) for x in ptx)),
        "sass": toolchain.sass_of_line(kernel.ptx, explained.file, explained.line),
        "lines_of_ptx": len(kernel.ptx.splitlines()),
        "seconds_to_ptx": min(seconds),
        "seconds_of_nvcc": toolchain.seconds_of_nvcc(),
        "cycles": kernel.last_run.cycles,
        "hazards": len(kernel.last_run.hazards),
        "is_right": bool((np.abs(c.astype(np.float64) - exact) <= allowed).all()),
    }


def opcode_of(instruction: str) -> str:
    """Return the opcode of a line of PTX or SASS, without its guard."""
    words = instruction.split()
    return words[1 if words[0].startswith("@") else 0].rstrip(";")


def report(figures: dict[str, Any]) -> str:
    """Show the line in three languages."""
    parts = [f"`{figures['python']}` is {len(figures['ptx'])} lines of PTX:"]
    parts.append("\n".join("    " + shortened(x) for x in figures["ptx"]))
    if figures["sass"] is None:
        parts.append("SASS: ptxas and nvdisasm are not both here (`pip install -e '.[cuda]'` in h100sim's folder brings them).")
    else:
        parts.append(f"ptxas makes {len(figures['sass'])} SASS instructions of that line:")
        parts.append("\n".join("    " + shortened(x) for x in figures["sass"]))
    nvcc = figures["seconds_of_nvcc"]
    rows = [("Python to PTX, the whole GEMM", f"{figures['seconds_to_ptx'] * 1000:.0f} ms")]
    rows += [("nvcc to PTX, six lines over a template library", "not here" if nvcc is None else f"{nvcc:.1f} s")]
    rows += [("the GEMM's cycles", f"{figures['cycles']:,}"), ("its result", _judgement(figures))]
    parts.append(table(("what", "measured"), rows))
    return "\n\n".join(parts)


def _judgement(figures: dict[str, Any]) -> str:
    return f"{'within' if figures['is_right'] else 'outside'} the allowance, {figures['hazards']} hazards"


def shortened(instruction: str) -> str:
    """Return an instruction with a long register list cut out."""
    head, brace, rest = instruction.partition("{")
    inside, closing, tail = rest.partition("}")
    names = inside.split(", ")
    return f"{head}{{{names[0]}, ..., {names[-1]}}}{tail}" if brace and closing and len(names) > 4 else instruction


def answer(figures: dict[str, Any]) -> str:
    """Say what the line is."""
    opcodes = figures["ptx_opcodes"]
    (wgmma,) = (count for name, count in opcodes.items() if name.startswith("wgmma.mma_async"))
    words = (
        f"One `mma_AB` of 64 x 128 x 64 is {wgmma} `wgmma.mma_async`, each 16 deep, between a `wgmma.fence` with a proxy "
        f"fence and a `wgmma.commit_group`; the other lines make the two matrix descriptors and move them along K. "
    )
    if figures["sass"] is not None:
        hgmma = sum(opcode_of(x).startswith("HGMMA") for x in figures["sass"])
        words += f"In SASS it is {hgmma} `HGMMA`, one for each. "
    words += f"The text of the whole kernel ({figures['lines_of_ptx']} lines) takes {figures['seconds_to_ptx'] * 1000:.0f} ms"
    nvcc = figures["seconds_of_nvcc"]
    if nvcc is None:
        return words + "; there is no nvcc here to compare with."
    return words + f", {nvcc / figures['seconds_to_ptx']:.0f} times less than nvcc needs for a reduction over templates."


if __name__ == "__main__":
    from tk_programs.lessons import teach

    teach("gemm_in_ptx")
