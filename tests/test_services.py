"""The event queue against Python's heap."""

import heapq
import random

import numpy as np

from h100sim import services
from h100sim import state as S
from h100sim.native import jit


@jit
def put(ctx, time, priority, index):
    services.push(ctx, time, priority, 0, index)


@jit
def take(ctx):
    return services.pop(ctx)


@jit
def put_and_take(ctx, time, priority, index):
    return services.exchange(ctx, time, priority, 0, index)


def test_order_is_time_priority_sequence():
    draw = random.Random(1)
    context = np.zeros(1, S.CONTEXT)
    tables = {name: np.zeros(256, np.int64) for name in ("heap_time", "heap_key", "heap_item")}
    for name, table in tables.items():
        context[name] = table.ctypes.data
    ctx, peer = context.ctypes.data, []
    for index in range(5000):
        action = draw.choice(("put", "take", "both")) if 0 < len(peer) < 200 else "take" if peer else "put"
        item = (draw.randrange(20), draw.randrange(2), index)
        # exchange takes only what comes after the earliest item.
        if action == "both" and item > peer[0]:
            assert put_and_take(ctx, *item) == heapq.heapreplace(peer, item)[2]
        elif action == "take":
            assert take(ctx) == heapq.heappop(peer)[2]
        else:
            put(ctx, *item)
            heapq.heappush(peer, item)
        assert context["heap_size"][0] == len(peer)
