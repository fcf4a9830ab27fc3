"""When a warp issues the instructions of a kernel: a list scheduler that orders each basic block as an assembler would.

A program runs in the order of its text, but ``ptxas`` orders the instructions of a basic block so that latencies overlap.
Memory, barriers, tensor cores and copies keep their order and their own times; between two of them the instructions of the
block (:mod:`h100sim.outline`) take as long as the schedule says, whatever their order in the text. So the text stays what is
executed and shown, and time is that of the predicted machine code. Where a schedule does nothing but wait for a load, the warp waits
when it runs: longer than planned for a load that is late, shorter for one that L1 holds.

Beside wgmma the same instructions in the same order take longer, so each block has its times twice.

Approximated: register pressure is not modelled, code does not move between blocks other than out of loops, and the uniform
datapath counts as the ALU but where it makes descriptors of wgmma.

Measured: stall counts in machine code of ptxas 13.0 (validate/silicon/sass.json); validate/silicon/instruction_rate.json;
validate/silicon/alu_latency.json.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from . import state as S
from .devices import Issue
from .outline import BRANCH, HARD, LANE, LINE_BYTES, SOFT, Block, Outline, Step

#: Spaces whose loads are waited for when they run; the others' latencies are always the same.
WAITED = ("global", "shared", "local")


def latency_of(step: Step, issue: Issue, loads: Mapping[str, int]) -> int:
    """Return the cycles from the issue of a step until another may use its result."""
    if step.kind == SOFT:
        return loads[step.space] if step.space else max(step.latency, 1)
    if step.kind != LANE:
        return 1
    if step.special:
        return issue.special_latency
    return int(getattr(issue, f"{step.pipe}_latency")) + step.latency


def cycles_of(step: Step, issue: Issue) -> int:
    """Return the cycles that a step takes its pipe."""
    if step.kind == SOFT:
        return step.busy
    if step.kind != LANE:
        return 1
    return max(1, round(on_pipe(step) * int(getattr(issue, f"{step.pipe}_cycles"))))


def on_pipe(step: Step) -> float:
    """Return how many of a step's machine instructions go to its pipe: one of those around a special function."""
    return min(step.count, 1.0) if step.pipe == "mufu" else step.count


def pressed(step: Step, issue: Issue) -> float:
    """Return the cycles that a step takes its pipe while the tensor core works on wgmma."""
    if step.kind == LANE:
        return on_pipe(step) * float(getattr(issue, f"{step.pipe}_beside_wgmma_cycles"))
    is_shuffle = step.kind == SOFT and step.pipe == "memory" and not step.space
    return step.busy * (issue.shuffle_beside_wgmma if is_shuffle else 1.0)


def queue_of(pipe: str, issue: Issue) -> int:
    """Return for how many cycles of its pipe an instruction may wait while its warp goes on."""
    return int(getattr(issue, f"{pipe}_queue_cycles", 0))


def slower(step: Step, issue: Issue) -> int:
    """Return how much later the result of a step is there while the tensor core works on wgmma."""
    if step.kind == LANE and step.pipe == "mufu":
        return issue.mufu_later_beside_wgmma
    is_shuffle = step.kind == SOFT and step.pipe == "memory" and not step.space
    return issue.shuffle_later_beside_wgmma if is_shuffle else 0


def place(outlined: Outline, predicates: set[int], issue: Issue, loads: Mapping[str, int]) -> None:
    """Schedule every block for a device: set ``at``, ``hold``, ``beside`` and ``books`` of its steps.

    ``predicates``: the registers that are predicates, which take longer until they can guard or steer. ``loads``: the cycles
    of a load from each state space.
    """
    for block in outlined.blocks:
        _place_block(outlined.steps, block, predicates, issue, loads)


def _place_block(steps: list[Step], block: Block, predicates: set[int], issue: Issue, loads: Mapping[str, int]) -> None:
    ahead, behind = _dependencies(steps, block, predicates, issue, loads)
    height: dict[int, int] = {}
    for k in range(block.end - 1, block.first - 1, -1):
        height[k] = max((height[j] + latency for j, latency in ahead[k].items()), default=0) + (steps[k].count > 0)
    end = _list_schedule(steps, block, ahead, behind, height, issue)
    begins = _share_out(steps, block)
    at, idle = _without_loads(steps, ahead, issue)
    for k, hold in _charge(steps, block, begins, at, end - sum(idle.values())).items():
        steps[k].hold, steps[k].idle = hold, 0
    users = _users(steps, ahead, issue, loads)
    for load, cycles in idle.items():
        steps[min(users[load])].idle += cycles
    _hide(steps, ahead, users)
    at, end = _beside_wgmma(steps, ahead, issue)
    for k, hold in _charge(steps, block, begins, at, end).items():
        steps[k].beside = hold


def _in_order(steps: list[Step], ahead: Iterable[int]) -> list[int]:
    return sorted(ahead, key=lambda k: (steps[k].at, k))


def _without_loads(steps: list[Step], ahead: dict[int, dict[int, int]], issue: Issue) -> tuple[dict[int, int], dict[int, int]]:
    """Return when the instructions of a schedule issue without the cycles in which it issues nothing because the next one waits for
    a load, and load -> these cycles: they are waited for when it runs, for as long as the load takes then."""
    at: dict[int, int] = {}
    idle: dict[int, int] = defaultdict(int)
    ready, loaded = dict.fromkeys(ahead, 0), dict.fromkeys(ahead, (0, 0))
    free: dict[str, int] = defaultdict(int)
    time = total = 0
    for k in _in_order(steps, ahead):
        step = steps[k]
        pipe = step.pipe if step.kind in (LANE, SOFT) else step.kind
        there, load = loaded[k]
        cycles = max(0, min(there, step.at) - max(time, ready[k], free[pipe]))
        if cycles:
            idle[load] += cycles
            total += cycles
        at[k] = step.at - total
        for later, latency in ahead[k].items():
            if step.space in WAITED and latency > 1:
                loaded[later] = max(loaded[later], (step.at + latency, k))
            else:
                ready[later] = max(ready[later], step.at + latency)
        if step.count:
            free[pipe] = step.at + cycles_of(step, issue)
            time = step.at + (1 if step.kind != LANE else int(step.count) if step.count >= 1 else k & 1)
    return at, idle


def _users(steps: list[Step], ahead: dict[int, dict[int, int]], issue: Issue, loads: Mapping[str, int]) -> dict[int, list[int]]:
    """Return who needs the result of each instruction of the units, in the order of the text."""
    found = {}
    for k, later in ahead.items():
        if steps[k].kind == SOFT:
            latency = latency_of(steps[k], issue, loads)
            found[k] = sorted(u for u, cycles in later.items() if cycles >= max(latency, 2 if steps[k].space in WAITED else 0))
            if not found[k]:
                steps[k].hidden = latency
    return found


def _hide(steps: list[Step], ahead: Iterable[int], users: Mapping[int, list[int]]) -> None:
    """Set ``hidden`` of what has a latency of its own: how much closer to a user it is in the text than in the schedule."""
    text, time = {}, 0
    for k in sorted(ahead):
        time += steps[k].idle
        text[k] = time
        time += steps[k].hold + (steps[k].kind in (HARD, BRANCH))
    for k, found in users.items():
        if found:
            steps[k].hidden = max(steps[u].at - steps[k].at - (text[u] - text[k]) for u in found)


def _dependencies(
    steps: list[Step], block: Block, predicates: set[int], issue: Issue, loads: Mapping[str, int]
) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
    """Return instruction -> those that must come later with the cycles between them, and how many each waits for."""
    ahead: dict[int, dict[int, int]] = {k: {} for k in range(block.first, block.end)}
    written: dict[int, int] = {}
    chain, hard, settled, wall = -1, -1, block.first, -1
    last: dict[str, int] = {}
    reading: list[int] = []

    def follow(earlier: int, later: int, latency: int) -> None:
        ahead[earlier][later] = max(ahead[earlier].get(later, 0), latency)

    for k in range(block.first, block.end):
        step = steps[k]
        if wall >= 0:
            follow(wall, k, 1)
        for register in step.reads:
            if register in written:
                earlier = steps[written[register]]
                latency = latency_of(earlier, issue, loads) if earlier.count or earlier.kind == HARD else 0
                if register in predicates and earlier.kind in (LANE, SOFT) and step.kind != LANE:
                    latency = max(latency, issue.predicate_latency)
                follow(written[register], k, latency)
        # An assembler gives every value a register of its own: only values order instructions.
        written.update(dict.fromkeys(step.writes, k))
        if step.space:
            # Loads are brought forward, past arithmetic and past stores to other spaces.
            store = last.get(step.space, hard)
            if store >= 0:
                follow(store, k, 1)
            reading.append(k)
        elif step.kind in (HARD, BRANCH):
            if chain >= 0:
                both_wgmma = step.pipe == steps[chain].pipe == "tensor" and step.kind == HARD
                follow(chain, k, steps[chain].latency if both_wgmma else 1)
            for load in reading:
                if not step.stores or steps[load].space == step.stores:
                    follow(load, k, 0)
            for before in range(settled, k):
                if not steps[before].space:
                    follow(before, k, 0)
            chain = settled = k
            wall = k if step.wall else wall
            if step.stores:
                last[step.stores] = k
            else:
                hard, reading = k, []
                last.clear()
    behind = dict.fromkeys(ahead, 0)
    for later in ahead.values():
        for k in later:
            behind[k] += 1
    return ahead, behind


def _list_schedule(
    steps: list[Step],
    block: Block,
    ahead: dict[int, dict[int, int]],
    behind: dict[int, int],
    height: dict[int, int],
    issue: Issue,
) -> int:
    """Issue at most one instruction a cycle, the one first on which most depends; return the cycle behind the last."""
    ready_at = dict.fromkeys(ahead, 0)
    coming: list[tuple[int, int]] = []
    able: dict[str, list[tuple[int, int]]] = defaultdict(list)
    pipe_free: dict[str, int] = defaultdict(int)
    for k, count in behind.items():
        if not count:
            heapq.heappush(coming, (0, k))
    time, left = 0, len(ahead)
    while left:
        while coming and coming[0][0] <= time:
            _, k = heapq.heappop(coming)
            pipe = steps[k].pipe if steps[k].kind in (LANE, SOFT) else steps[k].kind
            heapq.heappush(able[pipe], (-height[k], k))
        best: tuple[int, int] | None = None
        for pipe, waiting in able.items():
            if waiting and pipe_free[pipe] <= time and (best is None or waiting[0] < best):
                best, best_pipe = waiting[0], pipe
        if best is None:
            times = [coming[0][0]] if coming else []
            times += [pipe_free[pipe] for pipe, waiting in able.items() if waiting]
            time = min(times)
            continue
        heapq.heappop(able[best_pipe])
        k = best[1]
        step = steps[k]
        step.at = time
        left -= 1
        for later, latency in ahead[k].items():
            ready_at[later] = max(ready_at[later], time + latency)
            behind[later] -= 1
            if not behind[later]:
                heapq.heappush(coming, (ready_at[later], later))
        if step.count:
            pipe_free[best_pipe] = time + cycles_of(step, issue)
            time += 1 if step.kind != LANE else int(step.count) if step.count >= 1 else k & 1
    return time


def _beside_wgmma(steps: list[Step], ahead: dict[int, dict[int, int]], issue: Issue) -> tuple[dict[int, int], int]:
    """Return when the instructions of a block issue in the order of its schedule while the tensor core works on wgmma, and the
    cycle behind the last, without the cycles that wait for loads."""
    at: dict[int, int] = {}
    ready, loaded = dict.fromkeys(ahead, 0), dict.fromkeys(ahead, 0)
    free: dict[str, float] = defaultdict(float)
    time = idle = 0
    for k in _in_order(steps, ahead):
        step = steps[k]
        if step.kind in (LANE, SOFT) and step.count:
            time = max(time, math.ceil(free[step.pipe]) - queue_of(step.pipe, issue))
        time = max(time, ready[k])
        idle += max(0, loaded[k] - time)
        time = max(time, loaded[k])
        at[k] = time - idle
        more = slower(step, issue) if step.count else 0
        for later, latency in ahead[k].items():
            there = loaded if step.space in WAITED and latency > 1 else ready
            there[later] = max(there[later], time + latency + (more if latency > 1 else 0))
        if step.count:
            free[step.pipe] = max(free[step.pipe], time) + pressed(step, issue)
            time += 1 if step.kind != LANE else int(step.count) if step.count >= 1 else k & 1
    return at, time - idle


def _charge(steps: list[Step], block: Block, begins: dict[int, int], at: dict[int, int], end: int) -> dict[int, int]:
    """Return the cycles that each instruction of the text holds its warp, when those of the schedule issue ``at`` their times.

    Between two instructions with times of their own the text takes the cycles that the schedule takes, whichever instructions
    the schedule has there: the n-th of the text issues when the n-th of the schedule does and takes its pipe. Loads issue no
    later than the schedule has them: what the text has in front of them shares the work of fewer, what follows that of more.
    """
    holds = dict.fromkeys(at, 0)
    since, pending, clock = -1, [], 0
    for k in range(block.first, block.end + 1):
        at_end = k == block.end
        if not at_end and steps[k].kind not in (HARD, BRANCH):
            pending += [k] if k in begins else []
            continue
        until = max(clock, end if at_end else at[k])
        edges = [min(max(at[begins[j]], clock), until) for j in pending[1:]]
        for j, start, stop in zip(pending, [clock, *edges], [*edges, until], strict=False):
            holds[j] = stop - start
        if not pending and since >= 0:
            holds[since] = until - clock
        if not at_end:
            # The instruction with a time of its own charges its first cycle itself.
            clock, since, pending = until + 1, k, []
    return holds


def _share_out(steps: list[Step], block: Block) -> dict[int, int]:
    """Set ``books`` of the instructions of the text; return the instruction of the schedule with which each of them begins.

    Loads and instructions with times of their own have their places in the schedule; what stands between two of them in the text
    shares what the schedule has between them evenly, in order.
    """
    text = [k for k in range(block.first, block.end) if steps[k].kind in (LANE, SOFT) and steps[k].count]
    machine = sorted(text, key=lambda k: (steps[k].at, k))
    times = [steps[k].at for k in machine]
    fixed, n = [(len(text), len(text))], len(text)
    for k in range(block.end - 1, block.first - 1, -1):
        is_text = steps[k].kind in (LANE, SOFT) and bool(steps[k].count)
        n -= is_text
        if steps[k].kind in (HARD, BRANCH) or (is_text and steps[k].space):
            fixed.append((n, min(fixed[-1][1], bisect.bisect_left(times, steps[k].at))))
    fixed.append((0, 0))
    begins: dict[int, int] = {}
    for (first, low), (last, high) in itertools.pairwise(reversed(fixed)):
        for n in range(first, last):
            start, stop = (low + (m - first) * (high - low) // (last - first) for m in (n, n + 1))
            steps[text[n]].books = tuple(machine[start:stop])
            begins[text[n]] = machine[min(start, len(machine) - 1)]
    return begins


# --- what the engine gets ---------------------------------------------------------------------------------------------


def fill(table: np.ndarray, outlined: Outline, issue: Issue) -> None:
    """Write a schedule into a program's instruction table."""
    steps = outlined.steps
    for number, block in enumerate(outlined.blocks):
        for k in range(block.first, block.end):
            # Places of later blocks are beyond those of earlier ones; what has an order of its own has none.
            if steps[k].kind in (LANE, SOFT) or steps[k].stores:
                table["at"][k] = number << 32 | steps[k].at
    for record, step in zip(table, steps, strict=False):
        record["hold"], record["beside"], record["line"] = step.hold, step.beside, step.address // LINE_BYTES
        record["idle"] = step.idle
        record["slots_taken"], record["pressed"] = int(step.count), round(pressed(step, issue) * S.PIPE_UNITS)
        if step.kind in (LANE, SOFT):
            record["slots_taken"] = sum(int(steps[k].count) for k in step.books)
            record["issue"], record["pressed"] = 0, 0
            taken: dict[str, list[Step]] = defaultdict(list)
            for k in step.books:
                taken[steps[k].pipe].append(steps[k])
            if taken:
                pipe, machine = max(taken.items(), key=lambda item: sum(cycles_of(m, issue) for m in item[1]))
                record["pipe"], record["issue"] = S.PIPES.index(pipe), sum(cycles_of(m, issue) for m in machine)
                record["pressed"] = round(sum(pressed(m, issue) for m in machine) * S.PIPE_UNITS)
                record["queued"] = queue_of(pipe, issue) * S.PIPE_UNITS
        if step.kind == LANE:
            record["latency"] = 0
        elif step.kind == SOFT:
            # Its handler charges a cycle of its own, and more where its unit is busy.
            record["hold"], record["beside"], record["hidden"] = step.hold - 1, step.beside - 1, step.hidden
