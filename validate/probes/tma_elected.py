"""When has a thread that ``elect.sync`` chose issued loads, and one that a comparison chose?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .tma_load_latency import REPEATS, kernel, tensor_map

QUESTION = (
    "When has a thread issued loads of boxes, and when have they arrived, by how the thread was chosen? For one that elect.sync has "
    "not chosen an assembler makes a loop over lanes."
)
SETTLES = "h100sim/devices.py, Tma: elected_cycles, box_cycles"

#: (boxes, rows of a box).
CASES = ((1, 8), (1, 64), (2, 64), (4, 64), (8, 8))
#: How the kernel of tma_load_latency chooses its thread, and how it could.
_COMPARED = "setp.ne.u32 %p, %lane, 0;\n    @%p ret;"
_ELECTED = "elect.sync _|%p, 0xffffffff;\n    @!%p ret;"


def elected_kernel(boxes: int, rows: int) -> str:
    """Return the kernel of tma_load_latency with an elected thread."""
    text = kernel(boxes, rows)
    assert _COMPARED in text, "the kernel must choose its thread by a comparison"
    return text.replace(_COMPARED, _ELECTED)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "boxes x bytes, how chosen" -> medians of the cycles to expect, issue and arrive, without the first time."""
    answer = {}
    for boxes, rows in CASES:
        for how, text in (("compared", kernel(boxes, rows)), ("elected", elected_kernel(boxes, rows))):
            source = np.arange(boxes * rows * 32, dtype=np.uint32).reshape(-1, 32)
            out = np.zeros((REPEATS, 3), np.uint32)
            tensor = functools.partial(tensor_map, source, rows)
            launch(text, "probe", (1, 1, 1), (32, 1, 1), [out, tensor, np.uint32(0)], shared_mem=boxes * rows * 128)
            answer[f"{boxes} x {rows * 128}, {how}"] = np.median(out[1:], axis=0).tolist()
    return answer
