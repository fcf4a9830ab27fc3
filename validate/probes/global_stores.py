"""How long does a warp take to hand over stores to global memory, by the pattern of their lanes?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .global_access import PATTERNS, passes_kernel, room

QUESTION = "How long until stores of a warp's registers have been issued, and one to shared memory behind them, by pattern, number and warps?"
SETTLES = "h100sim/devices.py, MemorySystem: store_sector_cycles, store_part_cycles, store_queue"

#: The second and third pass store to the same lines, behind what is still on its way.
PASSES = 3
#: (stores of a warp, warps).
SIZES = ((8, 1), (32, 1), (8, 4), (16, 4), (32, 4), (64, 4))


def kernel(name: str, count: int, warps: int) -> str:
    """Return the text of ``probe(out, data, zero)``: cycles of each warp for each pass."""
    pattern = PATTERNS[name]
    vector = "" if pattern.registers == 1 else f".v{pattern.registers}"
    stored = "%x" if pattern.registers == 1 else f"{{{', '.join(['%x'] * pattern.registers)}}}"
    body = "\n    ".join(f"st.global{vector}.b32 [%at+{pattern.offset(k)}], {stored};" for k in range(count))
    return passes_kernel(pattern, count, warps, (PASSES, 1), "", body)


def cycles(launch: Callable[..., Any], name: str, count: int, warps: int, repeats: int = 4) -> list[int]:
    """Return the cycles of the slowest warp in each pass, the least of ``repeats`` launches."""
    data = np.zeros(2 * warps * room(PATTERNS[name], count) // 4, np.int32)
    best = np.full(PASSES, np.iinfo(np.int32).max)
    text = kernel(name, count, warps)
    for _ in range(repeats):
        out = np.zeros((warps, PASSES), np.int32)
        launch(text, "probe", (1, 1, 1), (32 * warps, 1, 1), [out, data, np.uint32(0)])
        best = np.minimum(best, out.max(0))
    return [int(count) for count in best]


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "pattern, stores x warps" -> cycles of the slowest warp [first pass, second, third]."""
    return {f"{name}, {count} x {warps}": cycles(launch, name, count, warps) for name in PATTERNS for count, warps in SIZES}
