"""Where the cycles of a warp went: every cycle from the start of its CTA to its exit has exactly one cause.

Between one issue and the next a warp first issues (one cycle), then waits for what it was suspended for, then for what kept the
next instruction (operands, an issue slot, a busy pipe, its code), and what remains is the cost of the instruction that it issued:
for arithmetic the latencies that the schedule could not hide. Needs a trace that holds every instruction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from .trace import Cause, Event, Trace, Wait

#: What a suspended warp waits for, apart from mbarriers and named barriers, which have names of their own.
WAIT_NAMES = {
    Wait.WGMMA: "wgmma results",
    Wait.BULK: "its bulk copies",
    Wait.REGISTERS: "registers (setmaxnreg)",
    Wait.CLUSTER: "the cluster barrier",
    Wait.RECONVERGENCE: "lanes of its warp",
    Wait.WARPGROUP: "warps of its warpgroup",
    Wait.SLEEP: "nanosleep",
    Wait.CP_ASYNC: "cp.async",
}

#: What kept an instruction from issuing earlier.
STALL_NAMES = {
    Cause.DEPENDENCY: "operands",
    Cause.SCHEDULER: "an issue slot",
    Cause.PIPE: "a busy pipe",
    Cause.MEMORY: "memory",
    Cause.TENSOR_CORE: "the tensor core's queue",
    Cause.TMA: "the TMA engine's queue",
    Cause.BRANCH: "a branch",
    Cause.FETCH: "its code",
}

#: What the cycles of an instruction are called that are not its issue, by how its opcode starts.
_COSTS = {
    "wgmma": "wgmma instructions",
    "cp.async": "copy instructions",
    "mbarrier": "mbarrier instructions",
    "bar": "barrier instructions",
    "fence": "fences",
    "membar": "fences",
    "setmaxnreg": "setmaxnreg",
    "ld": "memory instructions",
    "st": "memory instructions",
    "red": "memory instructions",
    "atom": "memory instructions",
    "bra": "branches",
    "ret": "branches",
    "nanosleep": "nanosleep",
}
ISSUING, ARITHMETIC, BEFORE = "issuing", "latency of arithmetic", "its first instruction"


def spent(
    trace: Trace, warps: Sequence[int], waits: Sequence[tuple[int, int, int, str]], stalls: Mapping[Cause, str]
) -> dict[int, dict[str, int]]:
    """Return warp -> cause -> cycles for warps whose instructions are in the trace; causes add up to the life of the warp.

    ``waits``: (warp, blocked, resumed, name) of suspensions; ``stalls``: what to call the causes of late issues.
    """
    issued = trace.of(Event.ISSUED)
    by_warp = {warp: issued[issued["warp"] == warp] for warp in warps}
    costs = costs_of(trace)
    suspended: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for warp, blocked, resumed, name in waits:
        suspended[warp].append((blocked, resumed, name))
    found = {}
    for warp, rows in by_warp.items():
        if len(rows):
            start, end = _life(trace, warp)
            found[warp] = partition(rows, start, end, suspended[warp], costs, stalls)
    return found


def costs_of(trace: Trace) -> np.ndarray:
    """Return what the cycles of each instruction are called that are not its issue, by its index. The last entry is the return of a
    body that ends without one."""
    return np.array([*(cost_of(opcode) for opcode in trace.kernel.opcodes), cost_of("ret")], object)


def cost_of(opcode: str) -> str:
    for start, name in _COSTS.items():
        if opcode == start or opcode.startswith((start + ".", start + "_")):
            return name
    return ARITHMETIC


def _life(trace: Trace, warp: int) -> tuple[int, int]:
    cta = trace.ctas[int(trace.warps["cta"][warp])]
    exits = trace.of(Event.EXITED)
    exits = exits[exits["warp"] == warp]
    return int(cta["start"]), int(exits["time"].max()) if len(exits) else int(cta["end"])


def partition(
    rows: np.ndarray,
    start: int,
    end: int,
    waits: Sequence[tuple[int, int, str]],
    costs: np.ndarray,
    stalls: Mapping[Cause, str],
) -> dict[str, int]:
    """Share the cycles from ``start`` to ``end``: gap k lies in front of issue k, the last one behind the last issue."""
    found: dict[str, int] = defaultdict(int)
    times = np.maximum.accumulate(np.minimum(rows["time"].astype(np.int64), end))
    edges = np.concatenate(([start], times, [max(end, int(times[-1]))]))
    left = np.diff(edges)
    for blocked, resumed, name in waits:
        k = min(int(np.searchsorted(times, resumed)), len(left) - 1)
        cycles = int(min(left[k], max(0, min(resumed, edges[k + 1]) - max(blocked, edges[k]))))
        left[k] -= cycles
        found[name] += cycles
    issue = np.minimum(left[1:], 1)
    left[1:] -= issue
    found[ISSUING] += int(issue.sum())
    late = np.minimum(rows["a"].astype(np.int64), left[:-1])
    for cause in np.unique(rows["b"]):
        chosen = rows["b"] == cause
        if cause:
            found[stalls.get(Cause(int(cause)), Cause(int(cause)).name.lower())] += int(late[chosen].sum())
            left[:-1][chosen] -= late[chosen]
    found[BEFORE] += int(left[0])
    for name in np.unique(costs[rows["pc"]].astype(str)):
        found[str(name)] += int(left[1:][costs[rows["pc"]] == name].sum())
    return {name: cycles for name, cycles in found.items() if cycles}
