"""The clock: one event queue, and the loop that runs warps between events.

Queue order is (time, priority, sequence), so a run is deterministic to the byte. A warp stays inside :func:`run_warp` until its
next instruction could not issue before something else in the queue, until it blocks, or until its lanes diverge to another
place; a unit's event (a finished copy, a finished wgmma) is one call of that unit's handler.

Issue is in order, at most one instruction per scheduler and cycle. Arithmetic issues when :mod:`h100sim.schedule` says;
what touches memory, units or control waits for its operands (scoreboard), for what its scheduler and pipes have still to do for
other warps, and for the cycles that the instruction before it holds the warp. Code is fetched by lines of 128 bytes.

Control flow follows the rules of independent thread scheduling: see :mod:`h100sim.lanes`.
"""

from __future__ import annotations

import numpy as np

from . import state as S
from .ctas import end_warp
from .endless import VAIN_LOOKS, is_endless, is_vain, let_all_go
from .lanes import choose, jump, leave, let_go, part
from .native import call, entry, i64, inner, load_i32, load_i64, store_i64, u32
from .services import ITEM_WARP, PRIORITY_WARP, WARPS_DELAYED, emit, next_time, pop, push, take_warp, wake, warp_delay
from .trace import Cause, Event, Wait
from .units.clusters import end_of_lanes

#: What :func:`run_warps` returns where the queue decides what comes next, and the status of a branch of a loop that nothing ends.
_NEXT, _ENDLESS = -1, -1

_ISSUED = int(Event.ISSUED)
_WARPGROUP = int(Wait.WARPGROUP)
_DEPENDENCY, _SCHEDULER, _PIPE, _FETCH = int(Cause.DEPENDENCY), int(Cause.SCHEDULER), int(Cause.PIPE), int(Cause.FETCH)
_TENSOR_CORE = int(Cause.TENSOR_CORE)


@inner
def fetched(ctx, sm, line, time):
    """Return when a line of code is there that a warp enters at ``time``. The lines behind it follow as long as no other
    warp asks for code elsewhere, which the one stream of the SM then follows."""
    c, T = S.context(ctx), S.timing(ctx)
    there = i64(c.fetched + sm * c.code_lines * 8, c.code_lines)
    port = S.sms(ctx)[sm]
    if there[line] == 0:
        latency = T.fetch_line_cycles if line == port.fetch_next else T.fetch_latency_cycles
        there[line] = max(time, port.fetch_free) + latency
        port.fetch_free, port.fetch_next = there[line], line + 1
    for following in range(line + 1, min(line + 1 + T.fetch_lines_ahead, c.code_lines)):
        if there[following] == 0 and following == port.fetch_next:
            there[following] = max(time, port.fetch_free) + T.fetch_line_cycles
            port.fetch_free, port.fetch_next = there[following], following + 1
    return max(time, there[line])


# --- the loop ---------------------------------------------------------------------------------------------------------


@inner
def work_of(ctx, sm, ins, time):
    """Return for how long (in units of PIPE_UNITS to the cycle) an instruction takes its pipe, which is longer beside wgmma."""
    return ins.pressed if S.sms(ctx)[sm].tensor_free > time else ins.issue * S.PIPE_UNITS


@inner
def limit(ctx, time):
    """Return the reason not to go on at a time, -1 if there is none."""
    c = S.context(ctx)
    if time > c.until:
        return S.R_UNTIL
    if c.steps >= c.max_steps:
        return S.R_STEP
    if c.n_events > c.event_stop or c.n_lanes + 64 > c.lane_capacity:
        return S.R_TRACE_FULL
    return -1


@inner
def operands_there(ctx, w, pc, time):
    """Return from when on the operands of a warp's next instruction are there, at ``time`` at the earliest."""
    W, ins = S.warps(ctx)[w], S.instructions(ctx)[pc]
    if W.horizon > time:
        slots, ready = S.context(ctx).slots, W.ready
        for s in range(ins.slots, ins.slots + ins.inputs + ins.outputs):
            time = max(time, load_i64(ready, load_i32(slots, s)))
    return time


@inner
def admitted(ctx, w, pc, time, now):
    """Return when an instruction whose operands are there can issue, and why not at ``time`` (0: nothing holds it). ``now``: the time
    of the queue; arithmetic does not come to a busy pipe before others in the queue have had their turn."""
    W, ins = S.warps(ctx)[w], S.instructions(ctx)[pc]
    c = S.context(ctx)
    cause = 0
    # What an assembler removes takes neither a slot nor a pipe.
    if ins.slots_taken > 0:
        free = load_i64(c.scheduler_free, W.scheduler)
        if free > time:
            time, cause = free, _SCHEDULER
    if ins.issue > 0:
        pipe = W.scheduler * S.N_PIPES + ins.pipe
        free = load_i64(c.pipe_free, pipe)
        is_in_turn = time <= now or ins.kind != S.LANE or next_time(ctx) >= time
        if W.granted < 0 and free > time * S.PIPE_UNITS + ins.queued and is_in_turn:
            # Warps take a busy pipe in the order in which they came to it.
            W.granted = (free - ins.queued + S.PIPE_UNITS - 1) // S.PIPE_UNITS
            store_i64(c.pipe_free, pipe, free + work_of(ctx, W.sm, ins, time))
        if W.granted > time:
            time, cause = W.granted, _PIPE
    return time, cause


@inner
def active_lanes(ctx, w, n, pc):
    """Return the lanes of a group for which the guard of its instruction holds."""
    ins, mask = S.instructions(ctx)[pc], S.nodes(ctx)[w * S.NODES_PER_WARP + n].mask
    if ins.guard < 0:
        return mask
    bits = u32(S.warps(ctx)[w].regs + ins.guard, 1)[0]
    return mask & (~bits if ins.guard_negated else bits)


@inner
def branch(ctx, w, n, pc, mask):
    """Let the lanes ``mask`` of a group go where its instruction says; return a status, _ENDLESS for a loop that nothing ends."""
    c = S.context(ctx)
    W, ins, node = S.warps(ctx)[w], S.instructions(ctx)[pc], S.nodes(ctx)[w * S.NODES_PER_WARP + n]
    if mask == 0:
        return S.S_NEXT
    if mask != node.mask:
        c.warp, c.pc = w, pc
        return S.S_JUMPED if part(ctx, w, n, mask, ins.target, pc + 1, ins.reconverge) >= 0 else S.S_ERROR
    if jump(ctx, w, n, ins.target):
        if is_endless(ctx, w):
            return S.S_JUMPED if let_all_go(ctx) else _ENDLESS
        if W.loop_looks > VAIN_LOOKS:
            W.loop_looks = 1
            let_go(ctx, w)
    return S.S_JUMPED


@inner
def execute(ctx, w, n, pc, mask):
    """Execute an instruction for the lanes ``mask``; return a status, for how long it holds the warp, and the latency of its results."""
    c, T = S.context(ctx), S.timing(ctx)
    W, ins = S.warps(ctx)[w], S.instructions(ctx)[pc]
    hold, latency = np.int64(ins.hold), np.int64(ins.latency)
    if ins.beside != ins.hold and S.sms(ctx)[W.sm].tensor_free > c.now:
        hold = np.int64(ins.beside)
    if ins.kind == S.LANE:
        if mask != 0:
            call(ins.function, W.regs, mask, ins.ops, ctx)
        return S.S_NEXT, hold, latency
    if ins.kind == S.BRANCH:
        hold += T.branch_not_taken_cycles if mask == 0 else T.branch_cycles
        return branch(ctx, w, n, pc, mask), hold, latency
    if mask == 0:
        return S.S_NEXT, hold + 1, latency
    c.warp, c.node, c.pc, c.mask = w, n, pc, mask
    c.latency, c.issue = latency, 1
    status = call(ins.function, W.regs, mask, ins.ops, ctx)
    latency = c.latency - ins.hidden
    if ins.at >= 0 and ins.at <= W.waited_at:
        # The schedule has a load in front of what waited meanwhile.
        latency -= W.waited
    return status, hold + c.issue, latency


@inner
def put_back(ctx, w, time):
    """Queue a warp that has not come to its next instruction."""
    S.warps(ctx)[w].queued = 1
    push(ctx, time, PRIORITY_WARP, ITEM_WARP, w)


@inner
def sent_back(ctx, w, n, status, time):
    """Queue a warp whose instruction could not be executed; return the reason to go back to Python, or _NEXT. One that waits for room
    that only others of its warpgroup can make is suspended, not queued."""
    c, W, node = S.context(ctx), S.warps(ctx)[w], S.nodes(ctx)[w * S.NODES_PER_WARP + n]
    if status != S.S_RETRY:
        put_back(ctx, w, time)
        return S.R_ERROR if status == S.S_ERROR else S.R_GROW if status == S.S_GROW else S.R_HOST
    W.held += c.retry - time
    W.time = c.retry
    if is_vain(ctx):
        node.state, node.wait, node.wait_object = S.BLOCKED, _WARPGROUP, W.group
        node.since = time
        S.sms(ctx)[W.sm].wgmma_held += 1
    else:
        put_back(ctx, w, c.retry)
    return _NEXT


@inner
def account(ctx, w, pc, mask, status, start, cause, hold, latency):
    """Count an instruction that has issued now, and what it takes: its warp, a slot of its scheduler, its pipe, time for its results."""
    c = S.context(ctx)
    W, ins, time = S.warps(ctx)[w], S.instructions(ctx)[pc], c.now
    if W.fetching > 0:
        start -= W.fetching
        W.fetching, cause = 0, _FETCH
    if W.held > 0:
        start -= W.held
        W.held, cause = 0, _TENSOR_CORE
    if c.trace_level > 1 and status != S.S_BLOCK:
        emit(ctx, time, _ISSUED, S.ctas(ctx)[W.cta].id, W.id, pc, mask, -1, time - start, cause, hold, latency)
    c.steps += 1
    c.instructions_issued += 1
    if c.schedule & WARPS_DELAYED and ins.kind == S.MACHINE:
        hold += warp_delay(ctx, W.id)
    W.issued += 1
    W.time = time + hold
    store_i64(c.scheduler_free, W.scheduler, max(load_i64(c.scheduler_free, W.scheduler), time) + ins.slots_taken)
    if ins.issue > 0:
        if W.granted < 0:
            pipe = W.scheduler * S.N_PIPES + ins.pipe
            store_i64(c.pipe_free, pipe, max(load_i64(c.pipe_free, pipe), time * S.PIPE_UNITS) + work_of(ctx, W.sm, ins, time))
        W.granted = -1
    # What lanes compute can be read at once, which the table says already.
    if latency > 0:
        slots, ready = c.slots, W.ready
        W.horizon = max(W.horizon, time + latency)
        for s in range(ins.slots + ins.inputs, ins.slots + ins.inputs + ins.outputs):
            store_i64(ready, load_i32(slots, s), time + latency)


@inner
def has_code(ctx, w, pc, time):
    """Is a warp's next instruction there at a time? If not, the warp waits for its line."""
    W, line = S.warps(ctx)[w], S.instructions(ctx)[pc].line
    if line == W.line:
        return True
    W.line = line
    arrived = fetched(ctx, W.sm, line, time)
    if arrived <= time:
        return True
    W.fetching += arrived - time
    W.time = arrived
    return False


@inner
def run_warps(ctx, w, popped):
    """Run a warp from the queue until something else comes first, and warps that come then; return a reason to go back to Python,
    or _NEXT where none comes."""
    c = S.context(ctx)
    W = S.warps(ctx)[w]
    W.queued = 0
    first = True
    while True:
        n = W.node
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
        if node.state != S.READY:
            if not choose(ctx, w):
                W.state = S.W_BLOCKED if W.alive != 0 else S.W_EXITED
                return _NEXT
            continue
        pc = node.pc
        if pc == node.reconverge:
            leave(ctx, w, n, node.mask)
            continue
        start = W.time
        there = operands_there(ctx, w, pc, start)
        time, cause = admitted(ctx, w, pc, there, popped)
        if cause == 0 and there > start:
            cause = _DEPENDENCY
        if (not first or time > popped) and next_time(ctx) <= time:
            put_back(ctx, w, time)
            popped = c.ring_time
            if load_i64(c.heap_time, 0) <= popped or limit(ctx, popped) >= 0:
                return _NEXT
            w = take_warp(ctx)
            W = S.warps(ctx)[w]
            W.queued = 0
            first = True
            continue
        stop = limit(ctx, time)
        if stop >= 0:
            put_back(ctx, w, time)
            return stop
        if not has_code(ctx, w, pc, time):
            continue
        first = False
        c.now = time
        at, idle = S.instructions(ctx)[pc].at, S.instructions(ctx)[pc].idle
        if at < 0:
            W.waited = 0
        elif cause == _DEPENDENCY or idle > 0:
            W.waited, W.waited_at = W.waited + time - start - idle, at
        mask = active_lanes(ctx, w, n, pc)
        status, hold, latency = execute(ctx, w, n, pc, mask)
        if status >= S.S_ERROR:
            reason = sent_back(ctx, w, n, status, time)
            if reason >= 0 or W.queued != 0:
                return reason
            continue
        account(ctx, w, pc, mask, status, start, cause, hold, latency)
        if status == S.S_NEXT or (status == S.S_EXITED and node.mask != 0):
            node.pc = pc + 1
            node.woken = 0
            node.wait = 0
        elif status == S.S_EXITED:
            end_of_lanes(ctx, w)
            leave(ctx, w, n, 0)
            if W.alive == 0:
                end_warp(ctx, w)
                return _NEXT
        elif status == _ENDLESS:
            put_back(ctx, w, W.time)
            return S.R_ENDLESS


@entry("int64", unlocked=True)
def run(ctx):
    """Run until something needs Python: nothing left to do, endless loops, a limit, a full trace buffer, an error, a host service."""
    c = S.context(ctx)
    while True:
        time = next_time(ctx)
        if time == S.NEVER:
            return S.R_DONE if c.ctas_done == c.n_ctas else S.R_IDLE
        stop = limit(ctx, time)
        if stop >= 0:
            return stop
        item = pop(ctx)
        index = item & 0xFFFFFFFF
        if item >> 32 == ITEM_WARP:
            reason = run_warps(ctx, index, time)
            if reason >= 0:
                return reason
        else:
            c.now = time
            c.steps += 1
            status = call(S.asyncs(ctx)[index].completion, index, time, 0, ctx)
            if status >= S.S_ERROR:
                return S.R_ERROR if status == S.S_ERROR else S.R_GROW


@entry("int64", "int64", "int64")
def expire(ctx, n, time):
    """Let a suspended group of lanes (its number in the table) go on without what it waited for."""
    S.nodes(ctx)[n].expired = 1
    wake(ctx, n // S.NODES_PER_WARP, n % S.NODES_PER_WARP, time)
    return 0
