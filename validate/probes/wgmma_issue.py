"""How many wgmma can a warpgroup issue before it has to wait for the tensor core?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import wgmma_rate
from .timed_kernel import RESTART, cycles, timed_kernel

QUESTION = "How many cycles until 1, 2, ... wgmma are issued, and until they are done, for one and two warpgroups at once?"
SETTLES = "h100sim/devices.py, TensorCore: issue_cycles, queue_depth, tail_cycles"

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
#: Width, source of A, and whether B is transposed.
KINDS = (
    (64, "ss", 0),
    (128, "ss", 0),
    (256, "ss", 0),
    (64, "rs", 0),
    (128, "rs", 0),
    (128, "ss", 1),
    (64, "rs", 1),
    (128, "rs", 1),
)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "ss n64, issued" and "ss n64, done" -> cycles for each of COUNTS of the slowest warp, for one warpgroup and for two."""
    results: dict[str, Any] = {}
    for n, a, transposed in KINDS:
        for groups in (1, 2):
            of = "1 warpgroup" if groups == 1 else f"{groups} warpgroups"
            for what, until_done in (("issued", False), ("done", True)):
                times = [cycles(launch, kernel(n, count, a, transposed, groups, until_done), 4 * groups) for count in COUNTS]
                kind = f"{a} n{n} transposed" if transposed else f"{a} n{n}"
                results[f"{kind}, {what}, {of}"] = [max(time) for time in times]
    return results


def kernel(n: int, count: int, a: str, transposed: int, groups: int, until_done: bool) -> str:
    """Return the text of a kernel that counts until ``count`` wgmma are issued, or until their results are there.

    The cycles between the end of the issue and the end of the wait are taken out by setting the start later.
    """
    later = "" if until_done else "sub.s64 %after, %after, %issued;\n    add.s64 %start, %start, %after;"
    body = "\n    ".join(
        (
            RESTART,
            "wgmma.fence.sync.aligned;",
            *[wgmma_rate.operation(n, a, transposed)] * count,
            "wgmma.commit_group.sync.aligned;",
            "mov.u64 %issued, %clock64;",
            "wgmma.wait_group.sync.aligned 0;",
            "mov.u64 %after, %clock64;",
            later,
            "mov.b32 %x, %acc0;",
        )
    )
    registers = f"{wgmma_rate.registers(n)} .reg .b64 %issued, %after;"
    return timed_kernel(body, registers, wgmma_rate.setup(n), wgmma_rate.SHARED_BYTES, 128 * groups)
