"""Kernels without one of their calls: the PTX of one Python line taken out, and what is noticed of it."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

from h100sim.errors import DeadlockError, KernelError


def without(program: ModuleType, kernel: Any, call: str, occurrence: int = 0) -> Any:
    """Return the kernel without the PTX of a Python line: that occurrence of a line that begins with ``call``."""
    with open(str(program.__file__)) as source:
        lines = [n for n, text in enumerate(source, 1) if text.strip().startswith(call)]
    ptx = kernel.ptx.splitlines()
    taken = [n for n, (_, line) in kernel.source_map.items() if line == lines[occurrence]]
    assert taken, f"line {lines[occurrence]} must have PTX"
    for n in taken:
        ptx[n - 1] = ""
    return dataclasses.replace(kernel, ptx="\n".join(ptx))


def noticed(kernel: Any, *inputs: Any) -> set[str]:
    """Run a kernel; return the kinds of its hazards, or what stopped it."""
    try:
        kernel.run(*inputs, max_cycles=300_000)
    except DeadlockError:
        return {"DeadlockError"}
    except KernelError:
        return {"KernelError"}
    return {hazard.kind for hazard in kernel.last_run.hazards}
