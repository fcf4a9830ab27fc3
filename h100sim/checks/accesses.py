"""What accesses memory: loads, stores, atomics, cp.async, bulk copies and the operands of wgmma.

Each makes an entry and compares its bytes with the shadow. An asynchronous operation is a small thread of its own: it
starts with what the issuing warp knew, and is over when its counter is reached.
"""

from __future__ import annotations

import numpy as np

from ..trace import Access, Copy, Space
from . import tables as t
from .clocks import Clock
from .launch import (
    FOREIGN_WARPS_MAX,
    PC_CP_COMMIT,
    PC_CP_COPY,
    PC_CP_WAIT,
    PC_MULTICAST,
    PLACES_MAX,
    Cta,
    Happening,
    Launch,
    Operation,
    Warp,
)

_READ, _WRITE, _ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
_RELEASE, _ACQUIRE, _ASYNC = int(Access.RELEASE), int(Access.ACQUIRE), int(Access.ASYNC)
_ANY_STRONG = _ATOMIC | _RELEASE | _ACQUIRE | int(Access.VOLATILE)
#: What completes on an mbarrier; all else completes with its bulk group.
_LOADS = (
    Copy.TENSOR_LOAD, Copy.BULK_LOAD, Copy.BULK_CLUSTER, Copy.CLUSTER_REDUCE, Copy.ASYNC_STORE, Copy.ASYNC_REDUCE,
)  # fmt: skip
_REDUCTIONS = (Copy.TENSOR_REDUCE, Copy.BULK_REDUCE, Copy.CLUSTER_REDUCE, Copy.ASYNC_REDUCE)
#: What the generic proxy does: it needs no fence after loads and stores of the same proxy.
_GENERIC = (Copy.ASYNC_STORE, Copy.ASYNC_REDUCE)

#: Bulk stores that a warp never waits for in full are followed up to this many.
_BULK_FOLLOWED = 64


# --- generic accesses -------------------------------------------------------------------------------------------------


def memory(launch: Launch, e: Happening) -> None:
    """A load, store or atomic of a warp, or (with an operation) a tensor map that a copy reads."""
    if e.c not in (Space.GLOBAL, Space.SHARED):
        return
    warp = launch.warps[e.warp]
    flags = e.d & (_READ | _WRITE)
    if is_strong := bool(e.d & _ANY_STRONG):
        flags |= t.STRONG
    addresses = launch.lanes[e.a - launch.lanes_start]
    lanes = addresses[addresses >= 0]
    if not len(lanes):
        return
    if e.op >= 0:
        _tensor_map_read(launch, e, lanes)
        return
    if is_strong:
        _acquire(launch, e, warp, lanes)
    if e.c == Space.GLOBAL:
        entry = launch.entry(e, flags)
        spans = _spans(lanes, e.b)
    else:
        entry = launch.entry(e, flags | t.IN_SHARED)
        spans = _shared_spans(launch, warp, lanes, e.b, entry)
    if e.d & _ASYNC:
        _make_cp_async(launch, warp, entry)
    launch.touch(entry, spans, warp.clock)
    if is_strong:
        _release(launch, e, warp, lanes)


def _spans(lanes: np.ndarray, size: int) -> np.ndarray:
    """Return the spans of lanes' addresses, one for all if they follow each other."""
    if len(lanes) > 1 and (np.diff(lanes) == size).all():
        return np.array([[-1, lanes[0], size * len(lanes), -1]], np.int64)
    spans = np.full((len(lanes), 4), -1, np.int64)
    spans[:, 1], spans[:, 2] = lanes, size
    return spans


def _shared_spans(launch: Launch, warp: Warp, lanes: np.ndarray, size: int, entry: int) -> np.ndarray:
    """The same for shared addresses, with the slots of the CTAs that they lie in."""
    spans = _spans(lanes, size)
    ranks = spans[:, 1] >> 24
    spans[:, 1] &= 0xFFFFFF
    for rank in np.unique(ranks):
        cta = launch.cta_of(warp.cta, int(rank) << 24)
        launch.note_remote(warp, cta, entry)
        spans[ranks == rank, 0], spans[ranks == rank, 3] = cta.slot, cta.number
    return spans


def _make_cp_async(launch: Launch, warp: Warp, entry: int) -> None:
    """A cp.async is in the generic proxy, but over only when its group has been waited for."""
    if warp.cp_column < 0:
        warp.cp_column = warp.cta.cluster.new_column()
    x = launch.tables.entries[entry]
    x[t.FLAGS] |= t.CP_ASYNC
    x[t.COLUMN], x[t.VALUE] = warp.cp_column, warp.cp_issued + 1


def _place(e: Happening, warp: Warp, address: int) -> tuple[int, int]:
    """Return the key of a memory location: shared addresses are those of one cluster."""
    return (-1, address) if e.c == Space.GLOBAL else (warp.cta.cluster.number, address)


def _acquire(launch: Launch, e: Happening, warp: Warp, lanes: np.ndarray) -> None:
    """A strong load learns what was released at its address: now if it acquires, at the warp's next fence if not."""
    if not launch.places or not e.d & _READ:
        return
    for address in lanes.tolist():
        place = launch.places.get(_place(e, warp, address))
        if place is None:
            continue
        if e.d & _ACQUIRE:
            target = warp.clock
        else:
            target = warp.pending = warp.pending or Clock(warp.cta.cluster.columns)
        cluster = warp.cta.cluster
        target.acquire(place[0], place[1] == cluster.number, cluster.members)


def _release(launch: Launch, e: Happening, warp: Warp, lanes: np.ndarray) -> None:
    """A strong store publishes what the warp knows: all if it releases, what it knew at its last fence if not."""
    source = warp.clock if e.d & _RELEASE else warp.fenced
    if not e.d & _WRITE or (source is None and not launch.places):
        return
    cluster = warp.cta.cluster
    for address in lanes.tolist():
        key = _place(e, warp, address)
        place, owner = launch.places.get(key, (None, -1))
        if place is None and source is None:
            continue
        if place is None or not e.d & _ATOMIC:
            place = Clock(cluster.columns)
        if source is not None:
            owner = cluster.number
            if e.c == Space.GLOBAL and launch.warp_count > len(cluster.members):
                launch.is_foreign_unknown = launch.warp_count > FOREIGN_WARPS_MAX
            if e.c == Space.GLOBAL and not launch.is_foreign_unknown:
                place.publish(source, cluster.members, launch.warp_count)
            else:
                place.join(source)
        launch.places.pop(key, None)
        launch.places[key] = (place, owner)
    while len(launch.places) > PLACES_MAX:
        del launch.places[next(iter(launch.places))]
    if e.d & _RELEASE:
        warp.tick()


# --- bulk copies ------------------------------------------------------------------------------------------------------


def copy_issued(launch: Launch, e: Happening) -> None:
    """A bulk copy.

    A load writes shared memory and completes on an mbarrier, a store reads it and completes with its group.
    """
    if e.a == Copy.PREFETCH:
        return
    warp = launch.warps[e.warp]
    kind = "load" if e.a in _LOADS else "reduce" if e.a in _REDUCTIONS else "store"
    op = launch.operations[e.op] = Operation(kind, warp, e.mask, warp.clock.copy())
    cta = launch.cta_of(warp.cta, e.c)
    if kind == "load":
        op.mbarrier = e.d
        if not launch.flags[e.pc] & PC_MULTICAST:
            _write_destination(launch, e, op, cta)
    else:
        if warp.read_column < 0:
            warp.read_column, warp.write_column = warp.cta.cluster.new_column(), warp.cta.cluster.new_column()
        flags = t.READ | t.TMA | t.IN_SHARED | t.ASYNC_PROXY
        entry = launch.operation_entry(e, op, flags, warp.read_column, t.NEVER, -1)
        launch.touch(entry, launch.shared_span(cta, e.c, e.b), op.clock)
        warp.bulk.append(e.op)
    warp.tick()


def _write_destination(launch: Launch, e: Happening, op: Operation, cta: Cta) -> None:
    """Record what a load writes to the shared memory of one CTA, where it completes on mbarrier ``e.d``."""
    column = launch.mbarriers[e.d].column
    flags = t.WRITE | t.IN_SHARED | (0 if e.a in _GENERIC else t.TMA | t.ASYNC_PROXY) | (t.STRONG if e.a in _REDUCTIONS else 0)
    entry = launch.operation_entry(e, op, flags, column, t.NEVER, e.d)
    if cta.alive == 0:
        launch.find(t.LIFETIME_REMOTE, cta.number, -1, -1, -1, entry)
    launch.touch(entry, launch.shared_span(cta, e.c, e.b), op.clock)


def copy_global(launch: Launch, e: Happening) -> None:
    """The global bytes of a copy: read by a load, written by a store.

    a, b, c, d: first byte, bytes of a row, rows, stride.
    """
    op = launch.operations.get(e.op)
    if op is None or e.b == 0 or e.c == 0:
        return
    if op.global_entry < 0:
        if op.kind == "load":
            column, flags, object_ = launch.mbarriers[op.mbarrier].column, t.READ | t.TMA | t.ASYNC_PROXY, op.mbarrier
        else:
            column, flags, object_ = op.warp.write_column, t.WRITE | t.TMA | t.ASYNC_PROXY, -1
            flags |= t.STRONG if op.kind == "reduce" else 0
        op.global_entry = launch.operation_entry(e, op, flags, column, t.NEVER, object_)
    spans = np.full((e.c, 4), -1, np.int64)
    spans[:, 1], spans[:, 2] = e.a + e.d * np.arange(e.c), e.b
    launch.touch(op.global_entry, spans, op.clock)


def copy_source(launch: Launch, e: Happening) -> None:
    """The shared bytes that a copy between CTAs reads until it completes. a: shared address, b: bytes."""
    op = launch.operations.get(e.op)
    if op is None:
        return
    flags = t.READ | t.TMA | t.IN_SHARED | t.ASYNC_PROXY
    entry = launch.operation_entry(e, op, flags, launch.mbarriers[op.mbarrier].column, t.NEVER, op.mbarrier)
    launch.touch(entry, launch.shared_span(launch.cta_of(op.warp.cta, e.a), e.a, e.b), op.clock)


def _tensor_map_read(launch: Launch, e: Happening, lanes: np.ndarray) -> None:
    """A copy reads its tensor map through the tensormap proxy, until it is over."""
    op = launch.operations.get(e.op)
    if op is None or not op.entries:
        return
    like = launch.tables.entries[op.entries[0]]
    column, value, object_ = int(like[t.COLUMN]), int(like[t.VALUE]), int(like[t.OBJECT])
    entry = launch.operation_entry(e, op, t.READ | t.TENSORMAP | t.ASYNC_PROXY, column, value, object_)
    launch.touch(entry, _spans(lanes[:1], e.b), op.clock)


def copy_completed(launch: Launch, e: Happening) -> None:
    """A load has written one destination: those of a multicast are known only now."""
    op = launch.operations.get(e.op)
    if op is not None and op.kind == "load" and launch.flags[e.pc] & PC_MULTICAST:
        issued = e._replace(warp=op.warp.number)
        _write_destination(launch, issued, op, launch.ctas[e.cta])


def copy_counted(launch: Launch, e: Happening) -> None:
    """The bytes of a load were completed in a phase (d): whoever sees it complete knows that the load is over."""
    op = launch.operations.get(e.op)
    if op is None:
        return
    column = launch.mbarriers[e.a].column
    for entry in op.entries:
        x = launch.tables.entries[entry]
        if x[t.COLUMN] == column:
            x[t.VALUE] = e.d + 1
    if not launch.flags[e.pc] & PC_MULTICAST:
        launch.close(e.op)


def bulk_committed(launch: Launch, e: Happening) -> None:
    """The copies of the lanes since their last commit form a group."""
    for number in launch.warps[e.warp].bulk:
        op = launch.operations[number]
        if op.group < 0 and op.mask & e.mask:
            op.group = e.a
            for entry in op.entries:
                launch.tables.entries[entry, t.VALUE] = e.a + 1
                launch.tables.entries[entry, t.OBJECT] = e.a


def bulk_waited(launch: Launch, e: Happening) -> None:
    """All groups up to one have read their source (.read), or are done."""
    warp = launch.warps[e.warp]
    if warp.read_column < 0 or e.a < 0:
        return
    warp.clock.learn(warp.read_column, e.a + 1)
    if e.b == 0:
        warp.clock.learn(warp.write_column, e.a + 1)
    kept: list[int] = []
    for number in warp.bulk:
        op = launch.operations[number]
        is_done = e.b == 0 and 0 <= op.group <= e.a and op.mask & e.mask
        if is_done:
            for entry in op.entries:
                launch.tables.entries[entry, t.SEEN] = warp.now
            launch.close(number)
        else:
            kept.append(number)
    for number in kept[:-_BULK_FOLLOWED]:
        launch.close(number)
    warp.bulk = kept[-_BULK_FOLLOWED:]


# --- wgmma ------------------------------------------------------------------------------------------------------------


def wgmma_issued(launch: Launch, e: Happening) -> None:
    """One of the four warps issues a wgmma; its operands are read with what all four know.

    a, b: descriptors, c: sequence number in the warpgroup.
    """
    warp = launch.warps[e.warp]
    op = launch.operations.get(e.op)
    if op is None:
        op = launch.operations[e.op] = Operation("wgmma", warp, e.mask, warp.clock.copy())
    else:
        op.clock.meet(warp.clock)
    warp.tick()
    rank = e.warp % launch.warps_per_cta
    op.arrived |= 1 << rank % 4
    if op.arrived != 15:
        return
    op.warp = launch.warps[e.warp - rank % 4]
    column = wgmma_column(warp.cta, rank // 4)
    entry = launch.operation_entry(e, op, t.READ | t.WGMMA | t.IN_SHARED | t.ASYNC_PROXY, column, e.c + 1, e.c)
    spans = launch.footprints[e.pc, 1, e.b]
    if e.a != -1:
        spans = np.concatenate((launch.footprints[e.pc, 0, e.a], spans))
    spans = spans + np.array([warp.cta.slot + 1, 0, 0, warp.cta.number + 1])
    launch.touch(entry, spans, op.clock)
    launch.close(e.op)


def wgmma_column(cta: Cta, group: int) -> int:
    """Return the column that counts the completed wgmmas of a warpgroup."""
    if group not in cta.wgmma_columns:
        cta.wgmma_columns[group] = cta.cluster.new_column()
    return cta.wgmma_columns[group]


def wgmma_committed(launch: Launch, e: Happening) -> None:
    warp = launch.warps[e.warp]
    if e.c >= 0:
        warp.wgmma_end = e.c + 1
    warp.wgmma_ends[e.a] = warp.wgmma_end


def wgmma_waited(launch: Launch, e: Happening) -> None:
    warp = launch.warps[e.warp]
    if e.a in warp.wgmma_ends:
        column = wgmma_column(warp.cta, e.warp % launch.warps_per_cta // 4)
        warp.clock.learn(column, warp.wgmma_ends[e.a])
        warp.wgmma_ends = {group: end for group, end in warp.wgmma_ends.items() if group >= e.a}


# --- cp.async ---------------------------------------------------------------------------------------------------------


def cp_async(launch: Launch, e: Happening) -> None:
    """cp.async, its commit_group and wait_group, known by their instructions; wait_group lets the last N groups be
    open."""
    warp, flags = launch.warps[e.warp], launch.flags[e.pc]
    if flags & PC_CP_COPY:
        warp.cp_issued += 1
    elif flags & PC_CP_COMMIT:
        warp.cp_ends.append(warp.cp_issued)
    elif warp.cp_column >= 0:
        done = warp.cp_issued
        if flags & PC_CP_WAIT:
            group = len(warp.cp_ends) - 1 - launch.counts[e.pc]
            done = warp.cp_ends[group] if group >= 0 else 0
        warp.clock.learn(warp.cp_column, done)
