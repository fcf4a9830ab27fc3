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
from .lanes import choose, jump, leave, let_go, new_node, part
from .memory.windows import SHARED_START
from .native import call, copy_bytes, entry, fill_bytes, i32, i64, inner, load_i32, load_i64, store_i64, u32
from .services import ITEM_WARP, PRIORITY_WARP, WARPS_DELAYED, emit, enqueue, next_time, pop, push, take_warp, wake, warp_delay
from .trace import Cause, Event, Wait
from .units.clusters import end_of_lanes, end_of_warp
from .units.named_barriers import release_after_exit

#: Looks at a warp in a loop during which nothing but registers changed in the launch, after which lanes that wait for those in the
#: loop go on without them, although no state of the loop came back (it reads a clock, or counts).
VAIN_LOOKS = 4096
_HASHED_STACK_BYTES = 1024
#: Retries of instructions without any change in the launch after which a warp is taken to wait for ever.
VAIN_RETRIES = 4096
#: What :func:`run_warps` returns where the queue decides what comes next.
_NEXT = -1

# Fills: what a row of the register file holds when a CTA starts.
FILLS = (
    "tid.x", "tid.y", "tid.z", "laneid", "warpid", "ctaid.x", "ctaid.y", "ctaid.z", "smid",
    "cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z", "cluster_ctarank",
    "clusterid.x", "clusterid.y", "clusterid.z",
    "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
)  # fmt: skip
#: Fills of rows that hold the address of a shared variable (32 or 64 bits): the CTA's rank goes into bits 24 and up.
RANK, WIDE_RANK = len(FILLS), len(FILLS) + 1

_ISSUED = int(Event.ISSUED)
_WARPGROUP = int(Wait.WARPGROUP)
_CTA_STARTED, _CTA_ENDED = int(Event.CTA_STARTED), int(Event.CTA_ENDED)
_DEPENDENCY, _SCHEDULER, _PIPE, _FETCH = int(Cause.DEPENDENCY), int(Cause.SCHEDULER), int(Cause.PIPE), int(Cause.FETCH)
_TENSOR_CORE = int(Cause.TENSOR_CORE)

_FULL = 0xFFFFFFFF
_MANY = 1 << 40


# --- loops without end -----------------------------------------------------------------------------------------------


@inner
def state_hash(ctx, w):
    """Return a hash of all that decides what a warp does next, but for memory that others share: its registers, its groups of
    lanes and the first kilobyte of the lanes' stacks."""
    c = S.context(ctx)
    W = S.warps(ctx)[w]
    h = np.int64(W.node)
    for lane in range(32):
        for word in i64(c.local + (w * 32 + lane) * c.local_bytes, min(c.local_bytes, _HASHED_STACK_BYTES) // 8):
            h = (h ^ word) * 0x100000001B3
            h ^= (h >> 29) & 0x7FFFFFFFF
    for word in i64(W.regs, c.register_bytes // 8):
        h = (h ^ word) * 0x100000001B3
        h ^= (h >> 29) & 0x7FFFFFFFF
    for n in range(S.NODES_PER_WARP):
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
        if node.state != S.FREE:
            place = np.int64(node.pc) << 32 | np.int64(node.mask)
            h = (h ^ place ^ (n << 26) ^ (node.state << 24)) * 0x100000001B3
            h = (h ^ node.reconverge ^ (np.int64(node.parent) << 40)) * 0x100000001B3
            h ^= (h >> 29) & 0x7FFFFFFFF
    return h


@inner
def is_endless(ctx, w):
    """Look whether a warp that keeps branching backwards is in a state that it was in before, and whether that ends the launch.

    While nothing changes but registers and stacks (no byte of shared or global memory, no barrier, no copy: ``progress``), a warp
    that comes back to a state repeats itself for ever. When every warp that runs does so and no unit has work, nothing can happen
    any more. The state of comparison moves on at each power of two (Brent), so that a loop of any period is found.
    """
    c = S.context(ctx)
    warps = S.warps(ctx)
    W = warps[w]
    h = state_hash(ctx, w)
    if W.loop_progress != c.progress:
        W.loop_progress, W.loop_hash, W.loop_looks, W.loops = c.progress, h, 1, 0
        return False
    if h != W.loop_hash:
        W.loop_looks += 1
        if W.loop_looks & (W.loop_looks - 1) == 0:
            W.loop_hash = h
        return False
    W.loops = 1
    for other in range(c.n_slots * c.warps_per_cta):
        X = warps[other]
        if X.state == S.W_RUNNING and (X.loops == 0 or X.loop_progress != c.progress):
            return False
    items = i64(c.heap_item, _MANY)
    for k in range(c.heap_size):  # noqa: SIM110 (compiled)
        if items[k] >> 32 != ITEM_WARP:
            return False
    return True


@inner
def let_all_go(ctx):
    """Where only endless loops are left: let lanes that wait at meeting points go on without those in loops; return whether there
    were any."""
    c = S.context(ctx)
    found = False
    for w in range(c.n_slots * c.warps_per_cta):
        if S.warps(ctx)[w].state == S.W_RUNNING and let_go(ctx, w):
            found = True
    if found:
        c.progress += 1
    return found


# --- CTAs -------------------------------------------------------------------------------------------------------------


@inner
def _fill_value(ctx, kind, cta, rank, lane):
    """Return the value of a special register that is constant for a thread. ``kind`` is an index into FILLS."""
    c = S.context(ctx)
    C = S.ctas(ctx)[cta]
    thread = rank * 32 + lane
    if kind == 0:
        return thread % c.block_x
    if kind == 1:
        return (thread // c.block_x) % c.block_y
    if kind == 2:
        return thread // (c.block_x * c.block_y)
    if kind == 3:
        return lane
    if kind == 4:
        return rank
    x = C.id % c.grid_x
    y = (C.id // c.grid_x) % c.grid_y
    z = C.id // (c.grid_x * c.grid_y)
    if kind == 5:
        return x
    if kind == 6:
        return y
    if kind == 7:
        return z
    if kind == 8:
        return C.sm
    if kind == 9:
        return x % c.cluster_x
    if kind == 10:
        return y % c.cluster_y
    if kind == 11:
        return z % c.cluster_z
    if kind == 12:
        return C.cluster_rank
    if kind == 13:
        return x // c.cluster_x
    if kind == 14:
        return y // c.cluster_y
    if kind == 15:
        return z // c.cluster_z
    bit = 1 << lane
    if kind == 16:
        return bit
    if kind == 17:
        return bit * 2 - 1
    if kind == 18:
        return bit - 1
    if kind == 19:
        return _FULL & ~(bit - 1)
    return _FULL & ~(bit * 2 - 1)


@inner
def start_cta(ctx, slot, sm, cta_id, cluster, cluster_rank, cluster_slot, time, delay):
    """Put a CTA on an SM: clear its tables, fill the special registers, queue its warps for ``delay`` cycles later."""
    c = S.context(ctx)
    C = S.ctas(ctx)[slot]
    C.id, C.state, C.sm, C.start, C.end = cta_id, 1, sm, time, -1
    C.warps, C.alive, C.pending, C.mbarriers = c.warps_per_cta, c.warps_per_cta, 0, 0
    C.cluster, C.cluster_rank, C.cluster_size, C.cluster_slot = cluster, cluster_rank, c.cluster_size, cluster_slot
    C.shared = c.shared + slot * c.shared_stride
    fill_bytes(C.shared, 0, SHARED_START)
    C.register_pool = 0
    C.cluster_generation, C.cluster_arrived, C.cluster_ready, C.cluster_opens = 0, 0, 0, 0
    fill_bytes(c.mbarrier_index + slot * (c.shared_stride // 8) * 4, -1, c.shared_stride // 2)
    for b in range(S.BARRIERS_PER_CTA):
        B = S.barriers(ctx)[slot * S.BARRIERS_PER_CTA + b]
        B.expected, B.arrived, B.generation, B.active, B.waiters = 0, 0, 0, 0, 0
    for g in range((c.warps_per_cta + 3) // 4):
        G = S.groups(ctx)[slot * ((c.warps_per_cta + 3) // 4) + g]
        G.created, G.completed, G.last_done = 0, 0, 0
        for k in range(4):
            G.issued[k], G.committed[k] = 0, 0
    emit(ctx, time, _CTA_STARTED, cta_id, -1, -1, 0, -1, sm, slot, 0, 0)
    info = S.cta_info(ctx)[cta_id]
    info.cta, info.sm, info.start, info.cluster, info.cluster_rank = cta_id, sm, time, cluster, cluster_rank
    time += delay
    threads = c.block_x * c.block_y * c.block_z
    fills = i32(c.fills, 2 * c.n_fills)
    for rank in range(c.warps_per_cta):
        w = slot * c.warps_per_cta + rank
        W = S.warps(ctx)[w]
        W.id, W.cta, W.rank, W.sm = cta_id * c.warps_per_cta + rank, slot, rank, sm
        W.scheduler = sm * 4 + rank % 4
        W.state, W.node, W.queued, W.steps = S.W_RUNNING, 0, 0, 0
        W.group = slot * ((c.warps_per_cta + 3) // 4) + rank // 4
        W.registers, W.time, W.horizon, W.issued, W.line = c.registers_per_thread, time, time, 0, -1
        W.fetching, W.held, W.granted = 0, 0, -1
        W.loop_progress, W.loops = -1, 0
        W.regs = c.registers + w * c.register_bytes
        W.ready = c.ready + w * c.ready_slots * 8
        lanes = min(32, threads - rank * 32)
        W.alive = _FULL if lanes == 32 else (1 << lanes) - 1
        copy_bytes(W.regs, c.register_template, c.template_bytes)
        fill_bytes(W.regs + c.template_bytes, 0, c.register_bytes - c.template_bytes)
        ready = i64(W.ready, c.ready_slots)
        for k in range(c.ready_slots):
            ready[k] = time
        for f in range(c.n_fills):
            row = u32(W.regs + fills[2 * f + 1], 32)
            kind = fills[2 * f]
            if kind >= RANK:
                words = 2 if kind == WIDE_RANK else 1
                row = u32(W.regs + fills[2 * f + 1], 64)
                for lane in range(32):
                    row[words * lane] |= np.uint32(cluster_rank << 24)
                continue
            for lane in range(32):
                row[lane] = _fill_value(ctx, kind, slot, rank, lane)
        nodes = S.nodes(ctx)
        for n in range(S.NODES_PER_WARP):
            nodes[w * S.NODES_PER_WARP + n].state = S.FREE
        new_node(ctx, w, -1, 0, -1, W.alive)
        fill_bytes(c.lane_groups + w * 128, 0, 128)
        W.cluster_lanes, W.cluster_owed, W.cluster_generation = 0, 0, -1
        W.served = 0
        for lane in range(32):
            fill_bytes(c.local + (w * 32 + lane) * c.local_bytes, S.POISON, c.frame_bytes)
        for lane in range(32):
            W.cp_groups[lane] = 0
        record = S.warp_info(ctx)[W.id]
        record.cta, record.rank, record.sm, record.scheduler = cta_id, rank, sm, rank % 4
        enqueue(ctx, w, time)


@inner
def start_clusters(ctx, time, delay):
    """Give free slots to the next CTAs of the grid, a whole cluster at a time; their warps start after ``delay`` cycles."""
    c = S.context(ctx)
    ctas = S.ctas(ctx)
    size = c.cluster_size
    while c.next_cta < c.n_ctas:
        found = -1
        for first in range(0, c.n_slots - size + 1, size):
            free = True
            for k in range(size):
                if ctas[first + k].state != 0:
                    free = False
                    break
            # Slots stand in the order in which clusters take their SMs (h100sim.placement).
            if free:
                found = first
                break
        if found < 0:
            return
        cluster = c.next_cta // size * c.cluster_stride
        clusters_x = c.grid_x // c.cluster_x
        clusters_y = c.grid_y // c.cluster_y
        kx = cluster % clusters_x
        ky = (cluster // clusters_x) % clusters_y
        kz = cluster // (clusters_x * clusters_y)
        for k in range(size):
            x = kx * c.cluster_x + k % c.cluster_x
            y = ky * c.cluster_y + (k // c.cluster_x) % c.cluster_y
            z = kz * c.cluster_z + k // (c.cluster_x * c.cluster_y)
            cta_id = x + c.grid_x * (y + c.grid_y * z)
            slot = found + k
            start_cta(ctx, slot, load_i32(c.slot_sms, slot), cta_id, cluster, k, found, time, delay)
        c.next_cta += size


@entry("int64", "int64")
def start(ctx, time):
    """Start a launch: give slots to its first CTAs."""
    start_clusters(ctx, time, 0)
    return 0


@inner
def end_warp(ctx, w):
    """All lanes of a warp have ended."""
    c = S.context(ctx)
    W = S.warps(ctx)[w]
    W.state = S.W_EXITED
    C = S.ctas(ctx)[W.cta]
    C.alive -= 1
    c.progress += 1
    release_after_exit(ctx, W.cta)
    end_of_warp(ctx, w)
    end_cta_if_done(ctx, W.cta)


@inner
def end_cta_if_done(ctx, slot):
    """Free the slot of a CTA whose warps have ended and that has no copy or wgmma in flight."""
    c = S.context(ctx)
    size = c.cluster_size
    first = S.ctas(ctx)[slot].cluster_slot
    for k in range(size):
        C = S.ctas(ctx)[first + k]
        if C.alive > 0 or C.pending > 0:
            return
    for k in range(size):
        C = S.ctas(ctx)[first + k]
        if C.state == 1:
            C.state, C.end = 0, c.now
            S.cta_info(ctx)[C.id].end = c.now
            c.ctas_done += 1
            emit(ctx, c.now, _CTA_ENDED, C.id, -1, -1, 0, -1, C.sm, 0, 0, 0)
    start_clusters(ctx, c.now, S.timing(ctx).cta_cycles)


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
def is_vain(ctx):
    """Count retries since anything last changed; many of them mean that nothing will, and that the warp had better wait."""
    c = S.context(ctx)
    if c.progress != c.retry_progress:
        c.retry_progress, c.retries = c.progress, 0
    c.retries += 1
    # Every warp of the launch may find the tensor core's queue full for a while, again and again.
    return c.retries > (VAIN_RETRIES << 6 if c.schedule else VAIN_RETRIES) + 256 * c.n_slots * c.warps_per_cta


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
