"""In which order does the tensor core take the wgmma of several warpgroups?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import cycles
from .wgmma_rate import kernel

QUESTION = "When has each of several warpgroups finished that start together and have the same number of wgmma to do?"
SETTLES = "h100sim/units/tensor_core.py, the queue"

WIDTHS, COUNTS, GROUPS = (8, 64, 128), (1, 8, 32, 96, 320), (1, 2, 3, 4)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "ss n128, 3 x 96" (A in shared memory, three warpgroups with 96 each) -> cycles of each warpgroup."""
    return {
        f"{a} n{n}, {groups} x {count}": cycles(launch, kernel(n, count, a, groups), warps=4 * groups)[::4]
        for a in ("ss", "rs")
        for n in WIDTHS
        for groups in GROUPS
        for count in COUNTS
    }
