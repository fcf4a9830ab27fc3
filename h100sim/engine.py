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

from . import state as S
from .ctas import end_warp
from .endless import VAIN_LOOKS, is_endless, is_vain, let_all_go
from .lanes import choose, jump, leave, let_go, part
from .native import call, entry, i64, inner, load_i32, load_i64, store_i64, u32
from .services import ITEM_WARP, PRIORITY_WARP, WARPS_DELAYED, emit, next_time, pop, push, take_warp, wake, warp_delay
from .trace import Cause, Event, Wait
from .units.clusters import end_of_lanes

#: What :func:`run_warps` returns where the queue decides what comes next.
_NEXT = -1

_ISSUED = int(Event.ISSUED)
_WARPGROUP = int(Wait.WARPGROUP)
_DEPENDENCY, _SCHEDULER, _PIPE, _FETCH = int(Cause.DEPENDENCY), int(Cause.SCHEDULER), int(Cause.PIPE), int(Cause.FETCH)
_TENSOR_CORE = int(Cause.TENSOR_CORE)

_FULL = 0xFFFFFFFF
_MANY = 1 << 40


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
def run_warps(ctx, w, popped):
    """Run a warp from the queue until something else comes first, and warps that come then; return a reason to go back to Python,
    or _NEXT where none comes."""
    c = S.context(ctx)
    nodes, program = S.nodes(ctx), S.instructions(ctx)
    scheduler_free, pipe_free = i64(c.scheduler_free, _MANY), i64(c.pipe_free, _MANY)
    slots = c.slots
    T = S.timing(ctx)
    W = S.warps(ctx)[w]
    ready = W.ready
    W.queued = 0
    first = True
    while True:
        n = W.node
        node = nodes[w * S.NODES_PER_WARP + n]
        if node.state != S.READY:
            if not choose(ctx, w):
                W.state = S.W_BLOCKED if W.alive != 0 else S.W_EXITED
                return _NEXT
            continue
        pc = node.pc
        if pc == node.reconverge:
            leave(ctx, w, n, node.mask)
            continue
        ins = program[pc]
        start = W.time
        t = start
        cause = 0
        if W.horizon > start:
            for s in range(ins.slots, ins.slots + ins.inputs + ins.outputs):
                there = load_i64(ready, load_i32(slots, s))
                if there > t:
                    t = there
                    cause = _DEPENDENCY
        pipe = W.scheduler * S.N_PIPES + ins.pipe
        # What an assembler removes takes neither a slot nor a pipe.
        if ins.slots_taken > 0 and scheduler_free[W.scheduler] > t:
            t = scheduler_free[W.scheduler]
            cause = _SCHEDULER
        if ins.issue > 0:
            if W.granted < 0 and pipe_free[pipe] > t * S.PIPE_UNITS:
                # Warps take a busy pipe in the order in which they came to it.
                W.granted = (pipe_free[pipe] + S.PIPE_UNITS - 1) // S.PIPE_UNITS
                pipe_free[pipe] += work_of(ctx, W.sm, ins, t)
            if W.granted > t:
                t = W.granted
                cause = _PIPE
        if (not first or t > popped) and next_time(ctx) <= t:
            W.queued = 1
            push(ctx, t, PRIORITY_WARP, ITEM_WARP, w)
            popped = c.ring_time
            if load_i64(c.heap_time, 0) <= popped or limit(ctx, popped) >= 0:
                return _NEXT
            w = take_warp(ctx)
            W = S.warps(ctx)[w]
            ready = W.ready
            W.queued = 0
            first = True
            continue
        stop = limit(ctx, t)
        if stop >= 0:
            W.queued = 1
            push(ctx, t, PRIORITY_WARP, ITEM_WARP, w)
            return stop
        if ins.line != W.line:
            W.line = ins.line
            arrived = fetched(ctx, W.sm, ins.line, t)
            if arrived > t:
                W.fetching += arrived - t
                W.time = arrived
                continue
        first = False
        c.now = t
        if ins.at < 0:
            W.waited = 0
        elif cause == _DEPENDENCY:
            W.waited, W.waited_at = W.waited + t - start, ins.at
        mask = node.mask
        if ins.guard >= 0:
            bits = u32(W.regs + ins.guard, 1)[0]
            mask = mask & (~bits if ins.guard_negated else bits)
        status = S.S_NEXT
        endless = False
        hold = ins.hold
        latency = ins.latency
        if ins.kind == S.LANE:
            if mask != 0:
                call(ins.function, W.regs, mask, ins.ops, ctx)
        elif ins.kind == S.BRANCH:
            hold += T.branch_not_taken_cycles if mask == 0 else T.branch_cycles
            if mask == node.mask:
                if jump(ctx, w, n, ins.target):
                    if is_endless(ctx, w):
                        endless = not let_all_go(ctx)
                    elif W.loop_looks > VAIN_LOOKS:
                        W.loop_looks = 1
                        let_go(ctx, w)
                status = S.S_JUMPED
            elif mask != 0:
                c.warp, c.pc = w, pc
                status = S.S_JUMPED if part(ctx, w, n, mask, ins.target, pc + 1, ins.reconverge) >= 0 else S.S_ERROR
        elif mask != 0:
            c.warp, c.node, c.pc, c.mask = w, n, pc, mask
            c.latency, c.issue = latency, 1
            status = call(ins.function, W.regs, mask, ins.ops, ctx)
            latency = c.latency - ins.hidden
            if ins.hidden > 0 and ins.at <= W.waited_at:
                # The schedule has a load in front of what waited meanwhile.
                latency -= W.waited
            hold += c.issue
        else:
            hold += 1
        if status >= S.S_ERROR:
            W.queued = 1
            if status == S.S_RETRY:
                W.held += c.retry - t
                W.time = c.retry
                if is_vain(ctx):
                    node.state, node.wait, node.wait_object = S.BLOCKED, _WARPGROUP, W.group
                    node.since, W.queued = t, 0
                    continue
                push(ctx, c.retry, PRIORITY_WARP, ITEM_WARP, w)
                return _NEXT
            push(ctx, t, PRIORITY_WARP, ITEM_WARP, w)
            return S.R_ERROR if status == S.S_ERROR else S.R_GROW if status == S.S_GROW else S.R_HOST
        if W.fetching > 0:
            start -= W.fetching
            W.fetching, cause = 0, _FETCH
        if W.held > 0:
            start -= W.held
            W.held, cause = 0, _TENSOR_CORE
        if c.trace_level > 1 and status != S.S_BLOCK:
            emit(ctx, t, _ISSUED, S.ctas(ctx)[W.cta].id, W.id, pc, mask, -1, t - start, cause, hold, latency)
        c.steps += 1
        c.instructions_issued += 1
        if c.schedule & WARPS_DELAYED and ins.kind == S.MACHINE:
            hold += warp_delay(ctx, W.id)
        W.issued += 1
        W.time = t + hold
        scheduler_free[W.scheduler] = max(scheduler_free[W.scheduler], t) + ins.slots_taken
        if ins.issue > 0:
            if W.granted < 0:
                pipe_free[pipe] = max(pipe_free[pipe], t * S.PIPE_UNITS) + work_of(ctx, W.sm, ins, t)
            W.granted = -1
        # What lanes compute can be read at once, which the table says already.
        if latency > 0:
            W.horizon = max(W.horizon, t + latency)
            for s in range(ins.slots + ins.inputs, ins.slots + ins.inputs + ins.outputs):
                store_i64(ready, load_i32(slots, s), t + latency)
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
        if endless:
            W.queued = 1
            push(ctx, W.time, PRIORITY_WARP, ITEM_WARP, w)
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
