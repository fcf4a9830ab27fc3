"""What lasted from when to when: the waits, copies and wgmma operations of a trace, paired from its events.

An event is a point in time; people and exports want bars. The functions here pair the events of a :class:`Trace` into
structured arrays with one record per bar, in the order of their first event. Times are SM cycles; -1 marks what the
trace does not hold (a copy that never completed, a wait that never ended).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .trace import Event, KernelInfo, Trace

#: A blocked warp. ``wait`` is a Wait, ``object`` what it waits for, ``resumed`` -1 when the trace ends before it does.
#: ``first_event`` and ``last_event`` are rows of ``Trace.events`` (-1: none).
WAIT_INTERVAL = np.dtype(
    [
        ("cta", "i4"),
        ("warp", "i4"),
        ("pc", "i4"),
        ("mask", "u4"),
        ("wait", "i4"),
        ("object", "i8"),
        ("parity", "i8"),
        ("blocked", "i8"),
        ("resumed", "i8"),
        ("first_event", "i8"),
        ("last_event", "i8"),
    ],
    align=True,
)

#: A bulk copy. ``copy`` is a Copy; ``bytes`` and ``shared`` as the issuing instruction gave them. Between ``issued`` and ``started``
#: it is handed over, its tensor map is fetched where the SM has not used it before, and copies in front of it take the engine.
COPY_INTERVAL = np.dtype(
    [
        ("op", "i4"),
        ("cta", "i4"),
        ("warp", "i4"),
        ("pc", "i4"),
        ("copy", "i4"),
        ("bytes", "i8"),
        ("shared", "i8"),
        ("mbarrier", "i8"),
        ("issued", "i8"),
        ("started", "i8"),
        ("read", "i8"),
        ("completed", "i8"),
        ("issued_event", "i8"),
        ("completed_event", "i8"),
    ],
    align=True,
)

#: A wgmma of a warpgroup. ``warp`` is the first warp that issued it, ``a`` and ``b`` its matrix descriptors.
WGMMA_INTERVAL = np.dtype(
    [
        ("op", "i4"),
        ("cta", "i4"),
        ("warp", "i4"),
        ("pc", "i4"),
        ("a", "i8"),
        ("b", "i8"),
        ("issued", "i8"),
        ("started", "i8"),
        ("completed", "i8"),
        ("issued_event", "i8"),
        ("completed_event", "i8"),
    ],
    align=True,
)

#: An mbarrier: ``cta`` owns it, ``address`` is its offset in that CTA's shared window, ``event`` the row of its init.
MBARRIER_INFO = np.dtype([("identity", "i8"), ("cta", "i4"), ("address", "i8"), ("expected", "i8"), ("event", "i8")], align=True)

#: Shared addresses in events carry the cluster rank in bits 24 and up.
SHARED_OFFSET_MASK = (1 << 24) - 1


def waits(trace: Trace) -> np.ndarray:
    """Return the waits of all warps (WAIT_INTERVAL). A repeated BLOCKED without RESUMED continues the same wait."""
    rows = trace.rows_of(Event.BLOCKED, Event.RESUMED)
    e = trace.events[rows]
    keys = (e["a"], e["b"], e["pc"], e["mask"], e["warp"])
    order = np.lexsort((rows, *keys))
    rows, e = rows[order], e[order]
    group = _group_numbers(tuple(key[order] for key in keys))
    resumed = e["kind"] == Event.RESUMED
    opens = ~resumed
    opens[1:] &= (group[1:] != group[:-1]) | resumed[:-1]
    starts, ends = np.flatnonzero(opens), np.flatnonzero(resumed)
    result = np.zeros(len(starts), WAIT_INTERVAL)
    first = e[starts]
    for field, source in (("cta", "cta"), ("warp", "warp"), ("pc", "pc"), ("mask", "mask"), ("wait", "a")):
        result[field] = first[source]
    result["object"], result["parity"], result["blocked"] = first["b"], first["c"], first["time"]
    result["first_event"], result["resumed"], result["last_event"] = rows[starts], -1, -1
    if len(ends):
        after = np.minimum(np.searchsorted(ends, starts), len(ends) - 1)
        end = ends[after]
        closed = (end > starts) & (group[end] == group[starts])
        result["resumed"][closed] = e["time"][end[closed]]
        result["last_event"][closed] = rows[end[closed]]
    return result[np.argsort(result["first_event"], kind="stable")]


def copies(trace: Trace) -> np.ndarray:
    """Return the bulk copies (COPY_INTERVAL). A multicast copy is complete when its last destination is."""
    rows = _first_of_each_op(trace, Event.TMA_ISSUED)
    e = trace.events[rows]
    result = np.zeros(len(rows), COPY_INTERVAL)
    for field, source in (("op", "op"), ("cta", "cta"), ("warp", "warp"), ("pc", "pc"), ("copy", "a")):
        result[field] = e[source]
    result["bytes"], result["shared"], result["mbarrier"], result["issued"] = e["b"], e["c"], e["d"], e["time"]
    result["issued_event"] = rows
    result["started"] = _time_of(trace, Event.TMA_STARTED, e["op"])[0]
    result["read"] = _time_of(trace, Event.TMA_READ, e["op"])[0]
    result["completed"], result["completed_event"] = _time_of(trace, Event.TMA_COMPLETED, e["op"])
    return result


def wgmmas(trace: Trace) -> np.ndarray:
    """Return the wgmma operations (WGMMA_INTERVAL), each once although four warps issue it."""
    rows = _first_of_each_op(trace, Event.WGMMA_ISSUED)
    e = trace.events[rows]
    result = np.zeros(len(rows), WGMMA_INTERVAL)
    for field in ("op", "cta", "warp", "pc", "a", "b"):
        result[field] = e[field]
    result["issued"], result["issued_event"] = e["time"], rows
    result["started"] = _time_of(trace, Event.WGMMA_STARTED, e["op"])[0]
    result["completed"], result["completed_event"] = _time_of(trace, Event.WGMMA_COMPLETED, e["op"])
    return result


def mbarriers(trace: Trace) -> np.ndarray:
    """Return every mbarrier that was initialised (MBARRIER_INFO), in the order of their inits."""
    rows = trace.rows_of(Event.MBARRIER_INITIALISED)
    e = trace.events[rows]
    result = np.zeros(len(rows), MBARRIER_INFO)
    result["identity"], result["cta"], result["expected"], result["event"] = e["a"], e["b"], e["c"], rows
    result["address"] = e["d"] & SHARED_OFFSET_MASK
    return result


def cta_ends(trace: Trace) -> np.ndarray:
    """Return the last cycle of every CTA of ``trace.ctas``; one that never ended lasts as long as the trace."""
    ended = np.isin(trace.ctas["cta"], trace.of(Event.CTA_ENDED)["cta"])
    return np.where(ended, trace.ctas["end"], trace.cycles)


def mbarrier_name(kernel: KernelInfo, address: int) -> str:
    """Return what the DSL calls the mbarrier at an offset of the shared window, as "full[2]", else its address."""
    for semaphore in kernel.semaphores:
        index, rest = divmod(address - semaphore["offset"], 8)
        if rest == 0 and 0 <= index < semaphore["count"]:
            return f"{semaphore['name']}[{index}]" if semaphore["count"] > 1 else semaphore["name"]
    return f"mbarrier {address:#x}"


def pack(starts: Iterable[int], ends: Iterable[int]) -> np.ndarray:
    """Return a row number for each interval (sorted by start) so that intervals in a row do not overlap."""
    free: list[int] = []
    rows = []
    for start, end in zip(starts, ends, strict=True):
        row = next((r for r, time in enumerate(free) if time <= start), len(free))
        if row == len(free):
            free.append(end)
        free[row] = end
        rows.append(row)
    return np.array(rows, np.int64)


def _group_numbers(sorted_keys: tuple[np.ndarray, ...]) -> np.ndarray:
    changes = np.zeros(len(sorted_keys[0]), np.int64)
    for key in sorted_keys:
        changes[1:] |= key[1:] != key[:-1]
    return np.cumsum(changes)


def _first_of_each_op(trace: Trace, kind: Event) -> np.ndarray:
    rows = trace.rows_of(kind)
    _, first = np.unique(trace.events["op"][rows], return_index=True)
    return rows[np.sort(first)]


def _time_of(trace: Trace, kind: Event, ops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the time and row of the last event of a kind for each operation, -1 where there is none."""
    rows = trace.rows_of(kind)
    time, row = np.full(len(ops), -1, np.int64), np.full(len(ops), -1, np.int64)
    if len(rows) and len(ops):
        found = trace.events["op"][rows]
        order = np.argsort(found, kind="stable")
        found, rows = found[order], rows[order]
        at = np.searchsorted(found, ops, side="right") - 1
        hit = (at >= 0) & (found[at] == ops)
        row[hit] = rows[at[hit]]
        time[hit] = trace.events["time"][row[hit]]
    return time, row
