"""What instructions and units may ask of the machine: queue something, record an event, fail, wait and wake.

Everything here works on the tables of :mod:`h100sim.state` and is called from compiled code. Queue order is (time, priority,
sequence), so a run is deterministic to the byte. Nearly all that is queued are warps that go on within some cycles: they stand in
a ring with a cell per cycle, one behind the other; units and what is far ahead are in a heap.
"""

from __future__ import annotations

import numpy as np

from . import state as S
from .native import inner, load_i32, load_i64, store_i32, store_i64, trailing_zeros
from .trace import Event, Wait

#: Kinds of queue item: a warp or an asynchronous operation of a unit.
ITEM_WARP, ITEM_ASYNC = 0, 1
PRIORITY_UNIT, PRIORITY_WARP = 0, 1

#: Bits of a launch's schedule: when units finish, and whether warps are held up. The rest is a number of its own per seed.
UNITS_EAGER, UNITS_LATE, UNITS_RANDOM, WARPS_DELAYED = 1, 2, 3, 4
#: Late: later than whatever warps can do without it. Assumed: no kernel computes longer than this between two waits.
LATE_CYCLES = 20_000

_BLOCKED, _RESUMED = int(Event.BLOCKED), int(Event.RESUMED)
_RECONVERGENCE = int(Wait.RECONVERGENCE)


@inner
def push(ctx, time, priority, kind, index):
    """Put an item into the queue: a warp that goes on soon into the ring, everything else into the heap."""
    c = S.context(ctx)
    if kind == ITEM_WARP and 0 <= time - c.ring_floor < S.RING_CYCLES:
        _append(ctx, time, index)
        return
    rise(ctx, c.heap_size, time, (priority << 56) | c.sequence, (kind << 32) | index)
    c.sequence += 1
    c.heap_size += 1


@inner
def next_time(ctx):
    """Return the time of the earliest item of the queue; NEVER if there is none."""
    c = S.context(ctx)
    return min(load_i64(c.heap_time, 0), c.ring_time)


@inner
def pop(ctx):
    """Remove the earliest item and return it; its time is :func:`next_time` before the call.

    What is in the heap for the same time as a warp in the ring was put there before it, while that time was too far ahead.
    """
    c = S.context(ctx)
    time = load_i64(c.heap_time, 0)
    if c.ring_time < time:
        return take_warp(ctx)
    c.ring_floor = max(c.ring_floor, time)
    result = load_i64(c.heap_item, 0)
    c.heap_size -= 1
    n = c.heap_size
    if n == 0:
        store_i64(c.heap_time, 0, S.NEVER)
        return result
    sink(ctx, n, load_i64(c.heap_time, n), load_i64(c.heap_key, n), load_i64(c.heap_item, n))
    return result


@inner
def _append(ctx, time, w):
    """Put a warp behind those that the ring has for a time. Its cells name the last of them; each names the next, the last the
    first."""
    c = S.context(ctx)
    cell = time & (S.RING_CYCLES - 1)
    last = load_i32(c.ring_last, cell)
    if last < 0:
        store_i32(c.ring_next, w, w)
        word = cell >> 6
        store_i64(c.ring_used, word, load_i64(c.ring_used, word) | (np.int64(1) << (cell & 63)))
        c.ring_time = min(c.ring_time, time)
    else:
        store_i32(c.ring_next, w, load_i32(c.ring_next, last))
        store_i32(c.ring_next, last, w)
    store_i32(c.ring_last, cell, w)


@inner
def take_warp(ctx):
    """Remove the earliest warp of the ring, which must have one, and return it."""
    c = S.context(ctx)
    time = c.ring_time
    c.ring_floor = max(c.ring_floor, time)
    cell = time & (S.RING_CYCLES - 1)
    last = load_i32(c.ring_last, cell)
    w = load_i32(c.ring_next, last)
    if w != last:
        store_i32(c.ring_next, last, load_i32(c.ring_next, w))
        return w
    store_i32(c.ring_last, cell, -1)
    word = cell >> 6
    used = load_i64(c.ring_used, word) & ~(np.int64(1) << (cell & 63))
    store_i64(c.ring_used, word, used)
    # Cells before this one are of times a round of the ring later.
    later = (used >> (cell & 63)) << (cell & 63)
    for _ in range(S.RING_WORDS):
        if later != 0:
            break
        word = (word + 1) & (S.RING_WORDS - 1)
        later = load_i64(c.ring_used, word)
    if later == 0:
        c.ring_time = S.NEVER
    else:
        found = word * 64 + trailing_zeros(later)
        c.ring_time = time + ((found - cell) & (S.RING_CYCLES - 1))
    return w


@inner
def sink(ctx, n, time, key, item):
    """Put an item where the earliest of ``n`` was, and in order with the others: down to a leaf along what is earliest, without
    branches that nobody could predict, and up from there, mostly not far."""
    c = S.context(ctx)
    times, keys = c.heap_time, c.heap_key
    i, child = 0, 1
    while child < n:
        other = child + (child + 1 < n)
        left, right = load_i64(times, child), load_i64(times, other)
        child += (right < left) | ((right == left) & (load_i64(keys, other) < load_i64(keys, child)))
        _move(ctx, child, i)
        i = child
        child = 2 * i + 1
    rise(ctx, i, time, key, item)


@inner
def rise(ctx, i, time, key, item):
    """Put an item into the free place ``i`` of the heap, or up from there where it comes before what is there."""
    c = S.context(ctx)
    while i > 0:
        up = (i - 1) >> 1
        before = load_i64(c.heap_time, up)
        if before < time or (before == time and load_i64(c.heap_key, up) < key):
            break
        _move(ctx, up, i)
        i = up
    store_i64(c.heap_time, i, time)
    store_i64(c.heap_key, i, key)
    store_i64(c.heap_item, i, item)


@inner
def _move(ctx, source, target):
    c = S.context(ctx)
    store_i64(c.heap_time, target, load_i64(c.heap_time, source))
    store_i64(c.heap_key, target, load_i64(c.heap_key, source))
    store_i64(c.heap_item, target, load_i64(c.heap_item, source))


@inner
def draw(ctx, bound):
    """Return the next number from 0 to ``bound`` - 1 of the launch's own random sequence."""
    c = S.context(ctx)
    c.seed = c.seed * 6364136223846793005 + 1442695040888963407
    return ((c.seed >> 33) & 0x7FFFFFFF) % bound


@inner
def unit_time(ctx, time):
    """Return when a unit finishes what it would finish at ``time``: then, or when the schedule of the launch says."""
    c = S.context(ctx)
    order = c.schedule & 3
    if order == UNITS_EAGER:
        return min(time, c.now + 1)
    if order == UNITS_LATE:
        return time + LATE_CYCLES
    if order == UNITS_RANDOM:
        return c.now + 1 + draw(ctx, 2 * (time - c.now) + (LATE_CYCLES if draw(ctx, 8) == 0 else 0) + 1)
    return time


@inner
def warp_delay(ctx, warp):
    """Return how long a warp is held up after a machine instruction by the schedule of the launch: some warps often, most
    rarely, for a time from a few cycles to thousands."""
    c = S.context(ctx)
    is_slow = ((warp + 1) * 2654435761 + c.schedule) >> 7 & 3 == 0
    if draw(ctx, 4 if is_slow else 32) != 0:
        return 0
    return draw(ctx, 4 << draw(ctx, 11))


@inner
def emit(ctx, time, kind, cta, warp, pc, mask, op, a, b, c_, d):
    """Append an event. The caller's loop has made sure that there is room."""
    c = S.context(ctx)
    if c.trace_level == 0:
        return
    e = S.events(ctx)[c.n_events]
    e.time, e.kind, e.cta, e.warp, e.pc = time, kind, cta, warp, pc
    e.mask, e.op, e.a, e.b, e.c, e.d = mask, op, a, b, c_, d
    c.n_events += 1


@inner
def emit_here(ctx, kind, op, a, b, c_, d):
    """Append an event of the instruction being executed."""
    c = S.context(ctx)
    if c.trace_level:
        w = S.warps(ctx)[c.warp]
        emit(ctx, c.now, kind, S.ctas(ctx)[w.cta].id, w.id, c.pc, c.mask, op, a, b, c_, d)


@inner
def fail(ctx, code, a, b, c_):
    """Record an error of the instruction being executed and return the status that stops the run."""
    c = S.context(ctx)
    c.error, c.error_a, c.error_b, c.error_c = code, a, b, c_
    c.error_warp, c.error_pc = c.warp, c.pc
    return S.S_ERROR


@inner
def enqueue(ctx, w, time):
    """Let a warp continue at ``time`` at the earliest."""
    W = S.warps(ctx)[w]
    if time > W.time:
        W.time = time
    W.state = S.W_RUNNING
    if W.queued == 0:
        W.queued = 1
        push(ctx, W.time, PRIORITY_WARP, ITEM_WARP, w)


@inner
def block(ctx, wait, thing, parity, value):
    """Suspend the lanes of the instruction being executed; it is executed again when they are woken."""
    c = S.context(ctx)
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    if node.wait != wait or node.wait_object != thing or node.woken == 0:
        node.since = c.now
        emit_here(ctx, _BLOCKED, -1, wait, thing, parity, value)
    node.state, node.wait, node.wait_object = S.BLOCKED, wait, thing
    node.wait_parity, node.wait_value = parity, value
    node.woken, node.expired = 0, 0
    return S.S_BLOCK


@inner
def wake(ctx, w, n, time):
    """Let suspended lanes try their instruction again at ``time``."""
    node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
    node.state, node.woken = S.READY, 1
    W = S.warps(ctx)[w]
    waited = time - node.since
    emit(ctx, time, _RESUMED, S.ctas(ctx)[W.cta].id, W.id, node.pc, node.mask, -1, node.wait, node.wait_object, waited, 0)
    if W.state == S.W_BLOCKED:
        W.node = n
        enqueue(ctx, w, time)


@inner
def is_whole(ctx, w, n):
    """Are the lanes of a node all that is left of their warp? Lanes that have branched to the end of the kernel count as gone: the
    assembler lets them end at the branch."""
    node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
    if S.warps(ctx)[w].alive & ~node.mask == 0:
        return True
    if node.parent < 0:
        return False
    meets = S.nodes(ctx)[w * S.NODES_PER_WARP + node.parent]
    others = meets.mask | node.mask == S.warps(ctx)[w].alive
    return others and meets.pc >= 0 and S.instructions(ctx)[meets.pc].ends_lanes == 1


@inner
def wake_waiters(ctx, cta, wait, thing, time, parted):
    """Wake every group of lanes of a CTA that waits for ``thing``; return how many there were. A group is ``parted``
    cycles later where other lanes of its warp go on."""
    warps, nodes = S.warps(ctx), S.nodes(ctx)
    c = S.context(ctx)
    count = 0
    for rank in range(c.warps_per_cta):
        w = cta * c.warps_per_cta + rank
        if warps[w].state == S.W_UNUSED or warps[w].state == S.W_EXITED:
            continue
        for n in range(S.NODES_PER_WARP):
            node = nodes[w * S.NODES_PER_WARP + n]
            if node.state == S.BLOCKED and node.wait == wait and node.wait_object == thing:
                wake(ctx, w, n, time if is_whole(ctx, w, n) else time + parted)
                count += 1
    return count


@inner
def lanes_at(ctx, w, wait, thing):
    """Return the lanes of a warp that are suspended for ``thing``, and those of the group being executed."""
    c = S.context(ctx)
    lanes = c.mask
    for n in range(S.NODES_PER_WARP):
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
        if node.state == S.BLOCKED and node.wait == wait and node.wait_object == thing:
            lanes |= node.mask
    return lanes


@inner
def gather(ctx, members):
    """Return the lanes that execute a ``.sync`` instruction together, once every lane of ``members`` that has not ended
    stands at it; the groups that waited go on behind it. Returns 0 after suspending the executing group."""
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    here = lanes_at(ctx, c.warp, _RECONVERGENCE, c.pc)
    if here & members != members & W.alive:
        block(ctx, _RECONVERGENCE, c.pc, 0, members)
        return 0
    if here != c.mask:
        for n in range(S.NODES_PER_WARP):
            node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + n]
            is_waiting = node.state == S.BLOCKED and node.wait == _RECONVERGENCE and node.wait_object == c.pc
            if is_waiting and node.mask & members:
                wake(ctx, c.warp, n, c.now + 1)
                node.pc += 1
    return here & members


@inner
def new_async(ctx, kind):
    """Start the record of an asynchronous operation of the executing warp; return its number, or -1 if the table is full
    (the handler then returns S_GROW before it has changed anything)."""
    c = S.context(ctx)
    if c.asyncs_open >= c.async_capacity:
        c.grow = 1
        return -1
    table = S.asyncs(ctx)
    n = c.async_free
    while table[n].state != S.A_FREE:
        n = (n + 1) % c.async_capacity
    c.async_free = (n + 1) % c.async_capacity
    c.asyncs_open += 1
    A = table[n]
    W = S.warps(ctx)[c.warp]
    A.completion = S.instructions(ctx)[c.pc].completion
    A.identity, A.kind, A.state = c.next_identity, kind, S.A_WAITING
    A.cta, A.warp, A.pc, A.lane, A.group = W.cta, c.warp, c.pc, 0, -1
    A.mbarrier, A.plan, A.peer, A.multicast, A.arrived = -1, -1, -1, 0, 0
    A.issued = c.now
    c.next_identity += 1
    c.progress += 1
    S.ctas(ctx)[W.cta].pending += 1
    return n


@inner
def free_async(ctx, n):
    """End the record of an asynchronous operation."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    A.state = S.A_FREE
    c.asyncs_open -= 1
    c.progress += 1
    S.ctas(ctx)[A.cta].pending -= 1
