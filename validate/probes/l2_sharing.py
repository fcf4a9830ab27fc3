"""How many bytes a cycle does L2 deliver where several SMs read the same lines, at the same time or one behind another?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .tma_bandwidth import ring_kernel
from .tma_load_latency import tensor_map

QUESTION = (
    "How many bytes a cycle reach an SM when groups of SMs read the same boxes, by the SMs of a group and how far they are apart?"
)
SETTLES = "h100sim/devices.py, MemorySystem: l2_slices, l2_slice_bytes_per_cycle, l2_merge_cycles"

#: Rows of 128 bytes of a box, of what a group reads again and again, and of what an SM loads in all; boxes in flight.
ROWS, SHARE, TOTAL, STAGES = 128, 512, 8192, 4
#: (SMs of a group, whether they are neighbours, boxes that each begins behind the one before).
CASES = (
    *((group, True, 0) for group in (1, 2, 4, 8, 16, 33, 66, 132)),
    *((group, False, 0) for group in (2, 4, 8, 16, 33, 66)),
    *((group, False, 1) for group in (2, 4, 132)),
)


def kernel(group: int, are_neighbours: bool, skew: int) -> str:
    """Return a kernel of 132 CTAs, one on each SM, that write the cycles of their loads."""
    groups = 132 // group
    which = f"div.u32 %mine, %sm, {group}; rem.u32 %rank, %sm, {group};"
    if not are_neighbours:
        which = f"rem.u32 %mine, %sm, {groups}; div.u32 %rank, %sm, {groups};"
    place = f"""    mov.u32 %sm, %smid;
    {which}
    mul.lo.u32 %first, %mine, {SHARE};
    mul.lo.u32 %row, %rank, {skew * ROWS};
    and.b32 %row, %row, {SHARE - 1};
    mov.u32 %n, 0; mov.u32 %slot, 0; mov.u32 %taken, 0; mov.u32 %parity, 0;
"""
    return ring_kernel(ROWS, STAGES, TOTAL // ROWS, SHARE, place, "%sm, %mine, %rank, ")


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "SMs of a group, how" -> bytes per cycle of an SM (mean of all)."""
    answer = {}
    for group, are_neighbours, skew in CASES:
        tensor = np.zeros((-(-132 // group) * SHARE, 32), np.uint32)
        out = np.zeros(132, np.int64)
        arguments = [out, functools.partial(tensor_map, tensor, ROWS)]
        # So much shared memory that an SM has room for one CTA.
        launch(kernel(group, are_neighbours, skew), "probe", (132, 1, 1), (32, 1, 1), arguments, shared_mem=160 * 1024)
        how = "neighbours" if are_neighbours else "apart"
        label = f"{group} SMs, {how}" + f", {skew} boxes behind" * bool(skew)
        answer[label] = round(TOTAL * 128 / float(np.mean(out)), 2)
    return answer
