"""The event queue against Python's heap."""

import heapq
import random

import numpy as np

from h100sim import services
from h100sim import state as S
from h100sim.native import jit

_WARPS = 256


@jit
def put(ctx, time, kind, index):
    services.push(ctx, time, services.PRIORITY_WARP if kind == services.ITEM_WARP else services.PRIORITY_UNIT, kind, index)


@jit
def first_time(ctx):
    return services.next_time(ctx)


@jit
def take(ctx):
    return services.pop(ctx)


def test_order_is_time_priority_sequence():
    """Warps and units that go on soon, a round of the ring later and much later, among them some before what was last taken."""
    draw = random.Random(1)
    context = np.zeros(1, S.CONTEXT)
    sizes = {"ring_last": (S.RING_CYCLES, np.int32), "ring_next": (_WARPS, np.int32), "ring_used": (S.RING_WORDS, np.int64)}
    sizes |= {name: (512, np.int64) for name in ("heap_time", "heap_key", "heap_item")}
    tables = {name: np.zeros(*size) for name, size in sizes.items()}
    tables["ring_last"][:] = -1
    tables["heap_time"][0] = context["ring_time"] = S.NEVER
    for name, table in tables.items():
        context[name] = table.ctypes.data
    ctx, peer, idle, now = context.ctypes.data, [], list(range(_WARPS)), 0
    for sequence in range(40_000):
        is_over = sequence > 20_000
        if peer and (draw.random() < 0.5 or not idle or is_over):
            time, priority, _, kind, index = heapq.heappop(peer)
            assert first_time(ctx) == time
            assert take(ctx) == kind << 32 | index
            now = max(now, time)
            if kind == services.ITEM_WARP:
                idle.append(index)
            continue
        if is_over:
            break
        kind = draw.choice((services.ITEM_WARP, services.ITEM_WARP, services.ITEM_ASYNC))
        if kind == services.ITEM_ASYNC and len(peer) > 200:
            continue
        reach = draw.choice((3, 3, 40, S.RING_CYCLES + 2, 5 * S.RING_CYCLES))
        time = max(0, now + draw.randrange(-1 if draw.random() < 0.1 else 0, reach))
        index = idle.pop(draw.randrange(len(idle))) if kind == services.ITEM_WARP else sequence
        put(ctx, time, kind, index)
        priority = services.PRIORITY_WARP if kind == services.ITEM_WARP else services.PRIORITY_UNIT
        heapq.heappush(peer, (time, priority, sequence, kind, index))
    assert first_time(ctx) == S.NEVER
