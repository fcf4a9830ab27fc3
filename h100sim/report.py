"""What a run amounts to: cycles, what each role waited for, bytes moved, and how busy the tensor cores were.

:func:`summarise` makes a :class:`Summary` from a trace alone, so a saved trace gives the report of the run that wrote
it; :func:`as_dict` and :func:`as_text` show it. A role is represented by the warp that lives longest, because the
others of a producer often do nothing; cycles are means over CTAs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from . import attribution, intervals, waiting
from .trace import Cause, Copy, Event, KernelInfo, Trace

if TYPE_CHECKING:
    from .shared_accesses import SharedInstruction

_LOADS = (Copy.TENSOR_LOAD, Copy.BULK_LOAD)
_STORES = (Copy.TENSOR_STORE, Copy.TENSOR_REDUCE, Copy.BULK_STORE, Copy.BULK_REDUCE)

#: Spec: H100 whitepaper, "H100 SM Architecture": four partitions, each with a warp scheduler.
SCHEDULERS = 4
#: Instructions with bank conflicts that the text names.
_CONFLICTS_SHOWN = 5


@dataclass(frozen=True)
class Waited:
    """What a role waited for: for how many cycles and how often, per CTA."""

    what: str
    cycles: float
    times: float


@dataclass(frozen=True)
class Role:
    """One role: how many CTAs have it, how long its longest-lived warp lived, its waits and the stalls of its issues.

    ``stalls`` and ``spent`` are empty for a trace that does not hold every instruction; ``spent`` gives every cycle one cause
    (:mod:`h100sim.attribution`) and adds up to ``cycles``.
    """

    name: str
    ctas: int
    cycles: float
    waits: tuple[Waited, ...]
    stalls: tuple[Waited, ...]
    spent: tuple[Waited, ...] = ()


@dataclass(frozen=True)
class Traffic:
    """Bulk copies in one direction."""

    copies: int
    bytes: int


@dataclass(frozen=True)
class TensorCores:
    """wgmma operations and how near they came to the peak of the SMs that ran CTAs.

    ``of_peak`` is the cycles they need at the full rate over the cycles of the kernel, ``in_flight`` the part of the
    kernel in which one was executing.
    """

    operations: int
    flop: int
    of_peak: float
    in_flight: float


@dataclass(frozen=True)
class IssueSlots:
    """The schedulers of the SMs that ran CTAs: their ``cycles`` while a CTA was there, and in how many of these one of them
    ``issued``. In the others no warp was eligible."""

    schedulers: int
    cycles: int
    issued: int


@dataclass(frozen=True)
class Summary:
    """What a run amounts to; see the fields' own types. ``issue_slots``: None for a trace that does not hold every instruction."""

    kernel: str
    device: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    cycles: int
    microseconds: float
    clock_mhz: int
    ctas: int
    sms: int
    events: int
    roles: tuple[Role, ...]
    loads: Traffic
    stores: Traffic
    tensor_cores: TensorCores
    shared_memory: tuple[SharedInstruction, ...]
    issue_slots: IssueSlots | None


def summarise(trace: Trace) -> Summary:
    """Return the summary of a trace."""
    from .shared_accesses import shared_instructions

    kernel = trace.kernel
    sms = len(np.unique(trace.ctas["sm"]))
    return Summary(
        kernel=kernel.name,
        device=kernel.device,
        grid=kernel.grid,
        block=kernel.block,
        cluster=kernel.cluster,
        cycles=int(trace.cycles),
        microseconds=float(trace.cycles) / kernel.clock_mhz,
        clock_mhz=kernel.clock_mhz,
        ctas=len(trace.ctas),
        sms=sms,
        events=len(trace),
        roles=_roles(trace),
        loads=_traffic(trace, _LOADS),
        stores=_traffic(trace, _STORES),
        tensor_cores=tensor_cores(trace, sms),
        shared_memory=shared_instructions(trace),
        issue_slots=_issue_slots(trace),
    )


def _roles(trace: Trace) -> tuple[Role, ...]:
    lives = _lives(trace)
    role_of = _representatives(trace, lives)
    waited = [(wait.warp, wait.what, wait.resumed - wait.blocked) for wait in waiting.whole(trace, list(role_of))]
    waits, stalls = (_totals(found, role_of) for found in (waited, _stall_cycles(trace)))
    partition = attribution.spent(_closed(trace), list(role_of), waiting.parts(trace, list(role_of)))
    spent = _totals([(warp, what, cycles) for warp, of in partition.items() for what, cycles in of.items()], role_of)
    return tuple(
        Role(name, len(warps), float(np.mean(lives[warps])), waits[name], stalls[name], spent[name])
        for name in dict.fromkeys(role_of.values())
        if (warps := [warp for warp, role in role_of.items() if role == name])
    )


def _closed(trace: Trace) -> Trace:
    """Return the trace with an end for every CTA: the last cycle for those that a stopped run had not ended."""
    ends = intervals.cta_ends(trace)
    if np.array_equal(ends, trace.ctas["end"]):
        return trace
    ctas = trace.ctas.copy()
    ctas["end"] = ends
    return replace(trace, ctas=ctas)


def _representatives(trace: Trace, lives: np.ndarray) -> dict[int, str]:
    """Return warp -> role for the warp of each role and CTA that lives longest (the first of them)."""
    best: dict[tuple[int, str], int] = {}
    for warp, (cta, rank) in enumerate(zip(trace.warps["cta"].tolist(), trace.warps["rank"].tolist(), strict=True)):
        key = (cta, trace.kernel.role(rank))
        if key not in best or lives[warp] > lives[best[key]]:
            best[key] = warp
    return {warp: role for (_, role), warp in best.items()}


def _lives(trace: Trace) -> np.ndarray:
    """Return the cycles from the start of its CTA to the exit of each warp: if no exit is traced to the CTA's end, and in a run
    that was stopped to the last cycle."""
    ctas, rows = trace.ctas, trace.warps["cta"]
    ends = intervals.cta_ends(trace)[rows].astype(np.int64)
    exits = trace.of(Event.EXITED)
    ends[exits["warp"]] = 0
    np.maximum.at(ends, exits["warp"], exits["time"])
    return np.maximum(ends - ctas["start"][rows], 0)


def _stall_cycles(trace: Trace) -> list[tuple[int, str, int]]:
    issued = trace.of(Event.ISSUED)
    issued = issued[(issued["a"] > 0) & (issued["b"] > 0)]
    found: list[tuple[int, str, int]] = []
    for cause in np.unique(issued["b"]):
        rows = issued[issued["b"] == cause]
        what = attribution.STALL_NAMES.get(Cause(int(cause)), Cause(int(cause)).name.lower())
        found.extend(zip(rows["warp"].tolist(), repeat(what), rows["a"].tolist(), strict=False))
    return found


def _totals(found: list[tuple[int, str, int]], role_of: dict[int, str]) -> dict[str, tuple[Waited, ...]]:
    """Return role -> what its representatives waited for, longest first."""
    roles = list(role_of.values())
    cycles: dict[str, dict[str, int]] = {name: defaultdict(int) for name in roles}
    times: dict[str, dict[str, int]] = {name: defaultdict(int) for name in roles}
    for warp, what, length in found:
        if warp in role_of:
            cycles[role_of[warp]][what] += length
            times[role_of[warp]][what] += 1
    return {
        role: tuple(
            Waited(what, total / roles.count(role), times[role][what] / roles.count(role))
            for what, total in sorted(by_what.items(), key=lambda item: (-item[1], item[0]))
        )
        for role, by_what in cycles.items()
    }


def _traffic(trace: Trace, kinds: Sequence[Copy]) -> Traffic:
    copies = intervals.copies(trace)
    rows = copies[np.isin(copies["copy"], [int(kind) for kind in kinds])]
    return Traffic(len(rows), int(rows["bytes"].sum()))


def tensor_cores(trace: Trace, sms: int) -> TensorCores:
    """Count wgmma operations against the peak.

    Spec: H100 whitepaper, "H100 SM Architecture": 4,096 dense bf16 operations per SM and cycle, that is N/2 cycles for
    an m64nNk16; every type has as many bytes of K per instruction and the same rate per byte.
    """
    operations = intervals.wgmmas(trace)
    opcodes, counts = np.unique(operations["pc"], return_counts=True)
    cycles = flop = 0
    for pc, count in zip(opcodes, counts, strict=True):
        n, k = _shape(trace.kernel, int(pc))
        cycles += int(count) * n // 2
        flop += int(count) * 2 * 64 * n * k
    capacity = max(1, int(trace.cycles) * max(1, sms))
    return TensorCores(len(operations), flop, cycles / capacity, _covered(trace, operations) / capacity)


def _issue_slots(trace: Trace) -> IssueSlots | None:
    """Count the cycles in which schedulers issued. Instructions that are folded into others of their warp share its cycle."""
    issued = trace.of(Event.ISSUED)
    if not len(issued):
        return None
    scheduler = trace.warps["sm"][issued["warp"]].astype(np.int64) * SCHEDULERS + trace.warps["scheduler"][issued["warp"]]
    slots = np.sort((scheduler << 38) + issued["time"])
    busy = 1 + int(np.count_nonzero(slots[1:] != slots[:-1]))
    alive, ends = 0, intervals.cta_ends(trace)
    for sm in np.unique(trace.ctas["sm"]):
        chosen = trace.ctas["sm"] == sm
        alive += _union(trace.ctas["start"][chosen], ends[chosen])
    return IssueSlots(SCHEDULERS * len(np.unique(trace.ctas["sm"])), SCHEDULERS * alive, busy)


def _union(starts: np.ndarray, ends: np.ndarray) -> int:
    """Return the cycles that intervals cover together."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    begins = np.maximum(starts[1:], reach[:-1])
    return int(reach[0] - starts[0]) + int(np.maximum(reach[1:] - begins, 0).sum())


def _shape(kernel: KernelInfo, pc: int) -> tuple[int, int]:
    match = re.search(r"\.m64n(\d+)k(\d+)", kernel.opcodes[pc])
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _covered(trace: Trace, operations: np.ndarray) -> int:
    """Return the cycles, summed over SMs, in which at least one operation was executing."""
    done = operations[(operations["started"] >= 0) & (operations["completed"] >= 0)]
    sm_of_cta = trace.ctas["sm"][done["cta"]]
    total = 0
    for sm in np.unique(sm_of_cta):
        rows = done[sm_of_cta == sm]
        total += _union(rows["started"], rows["completed"])
    return total


def as_dict(summary: Summary) -> dict[str, Any]:
    """Return the summary as plain JSON values."""
    return asdict(summary)


def as_text(summary: Summary, remark: str = "") -> str:
    """Return the summary as lines of plain text; ``remark``: what is to be said of its cycles."""
    grid, block = ("x".join(map(str, dims)) for dims in (summary.grid, summary.block))
    lines = [
        f"{summary.kernel} on {summary.device}: {summary.cycles:,} cycles "
        f"({remark or f'{summary.microseconds:,.2f} us at {summary.clock_mhz:,} MHz'}), grid {grid}, block {block}",
        f"  {summary.ctas:,} CTA{'s' * (summary.ctas != 1)} on {summary.sms} SM{'s' * (summary.sms != 1)}, "
        f"{summary.events:,} events",
    ]
    for name, traffic in (("loads", summary.loads), ("stores", summary.stores)):
        if traffic.copies:
            copies = "1 copy" if traffic.copies == 1 else f"{traffic.copies:,} copies"
            lines.append(f"  TMA {name}: {traffic.bytes:,} bytes in {copies}")
    tensor = summary.tensor_cores
    if tensor.operations:
        lines.append(
            f"  tensor cores: {tensor.operations:,} wgmma, {tensor.flop:,} FLOP, {tensor.of_peak:.1%} of the peak of "
            f"{summary.sms} SM{'s' * (summary.sms != 1)}, executing {tensor.in_flight:.1%} of the time"
        )
    slots = summary.issue_slots
    if slots and slots.cycles:
        share = slots.issued / slots.cycles
        lines.append(f"  schedulers: issue in {share:.1%} of their cycles; no warp is eligible in the other {1 - share:.1%}")
    lines += _shared_lines(summary.shared_memory)
    return "\n".join([*lines, *_role_lines(summary.roles)])


def _shared_lines(instructions: Sequence[SharedInstruction]) -> list[str]:
    """Return a line for all accesses to shared memory and one for each of the instructions that lose most to conflicts."""
    lines = []
    for unit, where, conflicts in (
        ("wavefronts", "shared memory", "bank conflicts"),
        ("packets", "shared memory of other CTAs", "not full or in each other's way"),
    ):
        rows = [x for x in instructions if x.unit == unit]
        if rows:
            accesses, taken, least = np.sum([(x.accesses, x.wavefronts, x.without_conflicts) for x in rows], axis=0).tolist()
            lost = f"{taken - least:,} of them {conflicts}" if taken > least else "no conflicts"
            lines.append(f"  {where}: {accesses:,} accesses of warps, {taken:,} {unit}, {lost}")
    worst = sorted(instructions, key=lambda x: x.without_conflicts - x.wavefronts)[:_CONFLICTS_SHOWN]
    for x in worst:
        if x.wavefronts > x.without_conflicts:
            each = f"{x.wavefronts / x.accesses:,.4g} {x.unit} instead of {x.without_conflicts / x.accesses:,.4g}"
            lines.append(f"    {x.place} {x.opcode}: {each}, {'once' if x.accesses == 1 else f'{x.accesses:,} times'}")
    return lines


def _role_lines(roles: Sequence[Role]) -> list[str]:
    """Return one line per role and per wait of at least 0.1 % of its life."""
    shown = {role.name: [item for item in role.spent or role.waits if item.cycles >= max(role.cycles, 1) / 1000] for role in roles}
    width = max((len(item.what) for items in shown.values() for item in items), default=0)
    every = any(role.spent for role in roles)
    title = "Where every cycle of each role went" if every else "What each role waited for"
    lines = ["", f"{title} (its longest-lived warp, mean over CTAs):"]
    for role in roles:
        lines.append(f"  {role.name}: {role.cycles:,.0f} cycles")
        for item in shown[role.name]:
            # A warp that an error stopped has no life to take a share of.
            share = f"{item.cycles / role.cycles:.1%}" if role.cycles else "-"
            times = "" if role.spent else f"  {_times(item)}"
            lines.append(f"    {item.what:<{width}} {item.cycles:>10,.0f} cycles {share:>6}{times}")
        if not shown[role.name]:
            lines.append("    nothing")
    return lines


def _times(item: Waited) -> str:
    return "once" if round(item.times) == 1 else f"{item.times:,.0f} times"
