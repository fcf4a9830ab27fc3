"""Shadow memory in compiled code: which accesses touched the bytes of a granule last, and what a new access runs
into.

A new access is compared with every record whose bytes it touches. An older access that happened before a write, or
before a later read of the same reader, is then forgotten for those bytes: whatever races with it also races with the
newer one.

Compiled functions take numbers only: the address of an array with the addresses of the tables (:func:`addresses_of`), and of
one with what is known.
"""

from __future__ import annotations

import numpy as np

from ..memory.windows import SHARED_START
from ..native import entry, i32, i64, inner, load_i64, u32
from . import tables as t
from .clocks import BLOCKS, FOREIGN_BLOCKS, GLOBAL_FENCED, KNOWN, MAP_FENCED, SHARED_FENCED, WARPS

# How an older access stands to a newer one.
_APART, _SUBSUMED, _ORDERED, _UNORDERED, _UNFENCED, _UNFENCED_READ, _ON_MBARRIER = range(7)

_BYTES = t.GRANULE_BYTES
_SHIFT, _ALL = 5, 0xFFFFFFFF
_PAGE_BITS = 8
_MANY = 1 << 40

# The knowledge that an access is made with: address and width of the clock's columns, address and width of foreign
# ones.
_COLUMNS, _WIDTH, _FOREIGN, _WARPS, _FOREIGN_UNKNOWN, _STRICT, _USES_RESERVED = range(7)
_FOREIGN_ROWS = len(FOREIGN_BLOCKS)


def addresses_of(tables: t.Tables) -> np.ndarray:
    """Return the addresses of all arrays and the number of page keys; valid as long as the tables are."""
    return np.array([*(array.ctypes.data for array in tables), len(tables.page_keys) // 2], np.int64)


@inner
def _scalars(T):
    return i64(load_i64(T, 0), t.SCALARS)


@inner
def _record(T, record):
    return i32(load_i64(T, 1) + record * 12, 3)


@inner
def _entry(T, entry):
    return i64(load_i64(T, 2) + entry * 8 * t.ENTRY_COLUMNS, t.ENTRY_COLUMNS)


@entry("int64", "int64")
def drop(T, entry):
    """Refer to an entry once less; it is freed with the last reference."""
    x, s = _entry(T, entry), _scalars(T)
    x[t.KEPT] -= 1
    if x[t.KEPT] == 0:
        x[t.NEXT] = s[t.ENTRY_HEAD]
        s[t.ENTRY_HEAD] = entry
        s[t.ENTRIES_FREE] += 1
    return 0


@entry(*["int64"] * 11)
def new_entry(T, flags, warp, cluster, column, lanes, value, event, pc, cta, time):
    """Return an entry for an access that a warp makes itself; there must be a free one."""
    s = _scalars(T)
    entry = s[t.ENTRY_HEAD]
    if entry >= 0:
        s[t.ENTRY_HEAD] = _entry(T, entry)[t.NEXT]
    else:
        entry = s[t.ENTRIES_USED]
        s[t.ENTRIES_USED] = entry + 1
    s[t.ENTRIES_FREE] -= 1
    x = _entry(T, entry)
    x[t.FLAGS], x[t.WARP], x[t.CLUSTER], x[t.COLUMN], x[t.VALUE] = flags, warp, cluster, column, value
    x[t.OPERATION], x[t.EVENT], x[t.PC], x[t.CTA], x[t.TIME] = -1, event, pc, cta, time
    x[t.KEPT], x[t.NEXT], x[t.SEEN], x[t.OBJECT], x[t.LANES] = 0, -1, value, -1, lanes
    return entry


@inner
def _free_record(T, record):
    s = _scalars(T)
    drop(T, np.int64(_record(T, record)[0]))
    _record(T, record)[2] = s[t.RECORD_HEAD]
    s[t.RECORD_HEAD] = record
    s[t.RECORDS_FREE] += 1


@entry(*["int64"] * 10)
def find(T, code, space, cta, low, high, old, new, a, b):
    """Add a finding, or widen the one of the same two instructions. ``old`` and ``new`` are entries, -1 for none."""
    s = _scalars(T)
    n = s[t.FINDS]
    first_pc = _entry(T, old)[t.PC] if old >= 0 else np.int64(-1)
    second_pc = _entry(T, new)[t.PC] if new >= 0 else np.int64(-1)
    event = _entry(T, new)[t.EVENT] if new >= 0 else np.int64(-1)
    for k in range(n):
        f = i64(load_i64(T, 7) + k * 8 * t.FINDING_COLUMNS, t.FINDING_COLUMNS)
        if f[t.F_CODE] == code and f[t.F_FIRST + 1] == first_pc and f[t.F_SECOND + 1] == second_pc and f[t.F_SPACE] == space:
            if f[t.F_LAST] != event:
                f[t.F_COUNT] += 1
                f[t.F_LAST] = event
            elif f[t.F_COUNT] == 1 and f[t.F_CTA] == cta:
                f[t.F_LOW] = min(f[t.F_LOW], low)
                f[t.F_HIGH] = max(f[t.F_HIGH], high)
            return 0
    if n >= t.FINDINGS_MAX:
        return 0
    s[t.FINDS] = n + 1
    f = i64(load_i64(T, 7) + n * 8 * t.FINDING_COLUMNS, t.FINDING_COLUMNS)
    f[t.F_CODE], f[t.F_SPACE], f[t.F_CTA], f[t.F_LOW], f[t.F_HIGH] = code, space, cta, low, high
    f[t.F_COUNT], f[t.F_LAST], f[t.F_A], f[t.F_B] = 1, event, a, b
    for k in range(2):
        entry = old if k == 0 else new
        at = t.F_FIRST + 7 * k
        for column in range(at, at + 7):
            f[column] = -1
        if entry >= 0:
            e = _entry(T, entry)
            f[at], f[at + 1], f[at + 2], f[at + 3] = e[t.WARP], e[t.PC], e[t.CTA], e[t.EVENT]
            f[at + 4], f[at + 5], f[at + 6] = e[t.TIME], e[t.FLAGS], e[t.OBJECT]
    return 0


@inner
def _knows(k, block, column, value):
    """Has a column of the clock reached a value?"""
    width = load_i64(k, _WIDTH)
    return column < width and i32(load_i64(k, _COLUMNS), BLOCKS * width)[block * width + column] >= value


@inner
def _is_over(x, k, block, needed):
    """Does a block of the clock know that access ``x`` is over?"""
    return _knows(k, block, x[t.COLUMN], needed) or (x[t.LANES] >= 0 and _knows(k, block, x[t.LANES], needed))


@inner
def _is_over_for_warp(x, k, needed):
    """Does the clock know that a read is over, if a lane may release what the other lanes of its warp have read? That is
    contested: the strict reading says no."""
    return not x[t.FLAGS] & t.WRITE and load_i64(k, _STRICT) == 0 and _knows(k, WARPS, x[t.COLUMN], needed)


@inner
def _relation(x, y, k):
    """Return how access ``x`` stands to a later access ``y`` of its bytes, made with knowledge ``k``."""
    before, after = x[t.FLAGS], y[t.FLAGS]
    if x[t.OPERATION] >= 0 and x[t.OPERATION] == y[t.OPERATION]:
        return _APART
    if before & t.MBARRIER_WORD and not after & t.MBARRIER_WORD:
        return _ON_MBARRIER
    both_strong = before & t.STRONG and after & t.STRONG
    if not (before | after) & t.WRITE or both_strong:
        same = x[t.WARP] == y[t.WARP] and before == after and x[t.COLUMN] == y[t.COLUMN] and x[t.LANES] == y[t.LANES]
        return _SUBSUMED if same else _APART
    if after & t.UNCHANGED and load_i64(k, _STRICT) == 0 and before & (t.READ | t.WRITE | t.ASYNC_PROXY | t.CP_ASYNC) == t.WRITE:
        return _APART  # two warps store the same value: whoever comes last, the bytes are the same
    needed = x[t.VALUE]
    crosses = after & t.ASYNC_PROXY and not before & t.ASYNC_PROXY
    is_fenced = True
    if x[t.CLUSTER] == y[t.CLUSTER]:
        # Lanes of a warp are compared lane by lane, see ``lanes_in_conflict``.
        is_plain = x[t.OPERATION] < 0 and y[t.OPERATION] < 0 and not (before | after) & t.CP_ASYNC
        own = x[t.WARP] == y[t.WARP] and is_plain
        if not own and not _is_over(x, k, KNOWN, needed) and not _is_over_for_warp(x, k, needed):
            return _UNORDERED
        if crosses:
            block = MAP_FENCED if after & t.TENSORMAP else SHARED_FENCED if after & t.IN_SHARED else GLOBAL_FENCED
            is_fenced = _is_over(x, k, block, needed)
    elif load_i64(k, _FOREIGN_UNKNOWN) == 0:
        if load_i64(k, _FOREIGN) == 0:
            return _UNORDERED
        # Which warp learned first that a load had read its source is not kept: any knowledge of its CTA will do.
        needed = np.int64(1) if (before & t.TMA and before & t.READ) or before & t.CP_ASYNC else x[t.SEEN]
        foreign = i32(load_i64(k, _FOREIGN), _FOREIGN_ROWS * load_i64(k, _WARPS))
        if foreign[x[t.WARP]] < needed:
            return _UNORDERED
        if crosses:
            is_fenced = foreign[(2 if after & t.TENSORMAP else 1) * load_i64(k, _WARPS) + x[t.WARP]] >= needed
    if not is_fenced:
        return _UNFENCED if before & t.WRITE else _UNFENCED_READ
    return _ON_MBARRIER if before & t.MBARRIER_WORD else _ORDERED


@inner
def _low_byte(mask):
    k = 0
    while k < _BYTES - 1 and not mask >> k & 1:
        k += 1
    return k


@inner
def _report(T, verdict, old, new, cta, granule, mask):
    before, after = _entry(T, old)[t.FLAGS], _entry(T, new)[t.FLAGS]
    code = t.RACE
    if verdict == _UNFENCED:
        code = t.PROXY_RACE
    elif verdict == _UNFENCED_READ:
        code = t.STRICT_WAR
    elif verdict == _ON_MBARRIER:
        code = t.MISUSE_WORD
    elif before & t.MBARRIER_WORD and after & t.MBARRIER_WORD:
        code = t.INIT_RACE
    high = _BYTES
    while high > 1 and not mask >> (high - 1) & 1:
        high -= 1
    space = 1 if after & t.IN_SHARED else 0
    find(T, code, space, cta, granule * _BYTES + _low_byte(mask), granule * _BYTES + high, old, new, 0, 0)


@inner
def _touch(T, heads, index, granule, mask, new, k, cta):
    """Compare an access with those before it in one granule, then record it; return how many it has found there.

    ``heads[index]`` is the granule's list. This is the innermost loop of the checks: it works on flat views.
    """
    s, y, records, entries = _scalars(T), _entry(T, new), i32(load_i64(T, 1), _MANY), i64(load_i64(T, 2), _MANY)
    writes = y[t.FLAGS] & t.WRITE
    previous, record = np.int64(-1), np.int64(heads[index])
    is_recorded = False
    length = 0
    while record >= 0:
        r = 3 * record
        old, covered, following = np.int64(records[r]), np.int64(records[r + 1]), np.int64(records[r + 2])
        overlap = covered & mask
        if old == new:
            records[r + 1] = np.int32(covered | mask)
            is_recorded = True
        elif overlap:
            known = t.VERDICTS + 2 * (old & (t.VERDICT_SLOTS - 1))
            if s[known] != old:
                s[known], s[known + 1] = old, _relation(_entry(T, old), y, k)
            verdict = s[known + 1]
            if verdict >= _UNORDERED:
                _report(T, verdict, old, new, cta, granule, overlap)
            if verdict != _ON_MBARRIER and (verdict == _SUBSUMED or (writes and verdict >= _ORDERED)):
                left = np.int32(covered & ~mask)
                if left == 0 and not is_recorded:
                    # The usual case, a stage used again: the new access takes the place of the old one.
                    kept = old * t.ENTRY_COLUMNS + t.KEPT
                    if entries[kept] > 1:
                        entries[kept] -= 1
                    else:
                        drop(T, old)
                    records[r], records[r + 1] = new, np.int32(mask)
                    y[t.KEPT] += 1
                    is_recorded = True
                elif left == 0:
                    if previous < 0:
                        heads[index] = following
                    else:
                        records[3 * previous + 2] = following
                    _free_record(T, record)
                    record = following
                    continue
                else:
                    records[r + 1] = left
        length += 1
        previous = record
        record = following
    if not is_recorded:
        record = s[t.RECORD_HEAD]
        if record >= 0:
            s[t.RECORD_HEAD] = records[3 * record + 2]
        else:
            record = s[t.RECORDS_USED]
            s[t.RECORDS_USED] = record + 1
        s[t.RECORDS_FREE] -= 1
        r = 3 * record
        records[r], records[r + 1], records[r + 2] = new, np.int32(mask), np.int64(heads[index])
        heads[index] = record
        y[t.KEPT] += 1
    return length


@inner
def _page_of(T, key):
    """Return the page of global granules with a number, new if need be."""
    slots = load_i64(T, 8)
    keys, s = i64(load_i64(T, 5), 2 * slots), _scalars(T)
    slot = key & (slots - 1)
    while keys[2 * slot] >= 0:
        if keys[2 * slot] == key:
            return keys[2 * slot + 1]
        slot = (slot + 1) & (slots - 1)
    page = s[t.PAGES]
    s[t.PAGES] = page + 1
    keys[2 * slot], keys[2 * slot + 1] = key, page
    return page


@inner
def _shorten(T, heads, index):
    """Forget the oldest read or strong access of a granule; a plain write is never forgotten here."""
    previous, before_victim, victim = np.int64(-1), np.int64(-1), np.int64(-1)
    record = np.int64(heads[index])
    while record >= 0:
        if _entry(T, np.int64(_record(T, record)[0]))[t.FLAGS] & (t.WRITE | t.STRONG) != t.WRITE:
            victim, before_victim = record, previous
        previous, record = record, np.int64(_record(T, record)[2])
    if victim >= 0 and before_victim >= 0:
        _record(T, before_victim)[2] = _record(T, victim)[2]
        _free_record(T, victim)


@inner
def _begin(T, new):
    """Start an access: no verdict is remembered, and its entry lives at least as long as the access."""
    s = _scalars(T)
    for slot in range(t.VERDICT_SLOTS):
        s[t.VERDICTS + 2 * slot] = -1
    _entry(T, new)[t.KEPT] += 1


@inner
def _touch_shared(T, slot, position, size, cta, new, k):
    flags = _entry(T, new)[t.FLAGS]
    heads = i32(load_i64(T, 3) + slot * 4 * t.GRANULES, t.GRANULES)
    written = u32(load_i64(T, 4) + slot * 4 * t.GRANULES, t.GRANULES)
    end = position + size
    while position < end:
        granule = position >> _SHIFT
        last = min(end, (granule + 1) << _SHIFT)
        mask = (_ALL >> (_BYTES - (last - position))) << (position & (_BYTES - 1))
        if granule >= t.GRANULES:
            break
        if position < SHARED_START and load_i64(k, _USES_RESERVED) == 0:
            find(T, t.RESERVED, 1, cta, position, last, -1, new, 0, 0)
        before = np.int64(written[granule])
        missing = mask & ~before
        if missing:
            if flags & t.READ and position >= SHARED_START:
                low = granule * _BYTES + _low_byte(missing)
                find(T, t.UNINITIALISED, 1, cta, low, last, -1, new, 0, 0)
            if flags & t.WRITE:
                written[granule] = np.uint32(before | mask)
        _touch(T, heads, granule, granule, mask, new, k, cta)
        position = last


@inner
def _touch_global(T, position, size, new, k):
    key, page = np.int64(-1), np.int64(-1)
    end = position + size
    while position < end:
        granule = position >> _SHIFT
        last = min(end, (granule + 1) << _SHIFT)
        mask = (_ALL >> (_BYTES - (last - position))) << (position & (_BYTES - 1))
        if granule >> _PAGE_BITS != key:
            key = granule >> _PAGE_BITS
            page = _page_of(T, key)
        index = granule & (t.PAGE_GRANULES - 1)
        heads = i32(load_i64(T, 6) + page * 4 * t.PAGE_GRANULES, t.PAGE_GRANULES)
        if _touch(T, heads, index, granule, mask, new, k, -1) > t.GLOBAL_READERS:
            _shorten(T, heads, index)
        position = last


@entry(*["int64"] * 16)
def touch_operands(T, spans_a, count_a, spans_b, count_b, slot, cta, k, warp, cluster, column, value, operation, event, pc, time):
    """Compare the reads of a wgmma with the accesses before them and record them.

    At ``spans_a`` and ``spans_b`` are int64 (count, 2): first byte, bytes, in the memory of the CTA at ``slot``. ``k``: its knowledge,
    see :meth:`.launch.Launch.knowledge`. It is over when its counter (``column``) has reached ``value``.
    """
    flags = t.READ | t.WGMMA | t.IN_SHARED | t.ASYNC_PROXY
    new = new_entry(T, flags, warp, cluster, column, np.int64(-1), value, event, pc, cta, time)
    x = _entry(T, new)
    x[t.OPERATION], x[t.SEEN], x[t.OBJECT] = operation, t.NEVER, value - 1
    _begin(T, new)
    for i in range(count_a):
        _touch_shared(T, slot, load_i64(spans_a, 2 * i), load_i64(spans_a, 2 * i + 1), cta, new, k)
    for i in range(count_b):
        _touch_shared(T, slot, load_i64(spans_b, 2 * i), load_i64(spans_b, 2 * i + 1), cta, new, k)
    drop(T, new)
    return 0


@entry(*["int64"] * 9)
def touch_rows(T, first, size, rows, stride, slot, cta, new, k):
    """Compare an access to rows of bytes with those before it and record it.

    In the shared memory of the CTA at ``slot``, or (-1) in global memory. ``new``: its entry, freed at the end if nothing
    refers to it. ``k``: its knowledge.
    """
    _begin(T, new)
    for i in range(rows):
        if slot >= 0:
            _touch_shared(T, slot, first + i * stride, size, cta, new, k)
        else:
            _touch_global(T, first + i * stride, size, new, k)
    drop(T, new)
    return 0


@entry(*["int64"] * 9)
def touch_lanes(T, addresses, count, size, rank, slot, cta, new, k):
    """The same for ``count`` addresses of lanes (-1: none), those in one CTA (``rank``, in bits 24 and up) or in global
    memory (``slot`` -1). Returns the rank of another lane that is still to do, -1 if there is none."""
    _begin(T, new)
    other = np.int64(-1)
    lane = 0
    while lane < count:
        first = load_i64(addresses, lane)
        lane += 1
        if first < 0:
            continue
        if slot >= 0 and first >> 24 != rank:
            if first >> 24 > rank and (other < 0 or first >> 24 < other):
                other = first >> 24
            continue
        length = size
        while lane < count and load_i64(addresses, lane) == first + length:
            length += size
            lane += 1
        if slot >= 0:
            _touch_shared(T, slot, first & 0xFFFFFF, length, cta, new, k)
        else:
            _touch_global(T, first, length, new, k)
    drop(T, new)
    return other


@entry(*["int64"] * 4)
def close_shared(T, slot, cta, k):
    """Forget the shared memory of a CTA that has ended. ``k``: all that its warps knew, bulk loads included."""
    heads = i32(load_i64(T, 3) + slot * 4 * t.GRANULES, t.GRANULES)
    written = u32(load_i64(T, 4) + slot * 4 * t.GRANULES, t.GRANULES)
    last = np.int64(-1)
    for granule in range(t.GRANULES):
        record = np.int64(heads[granule])
        while record >= 0:
            r = _record(T, record)
            entry, following = np.int64(r[0]), np.int64(r[2])
            x = _entry(T, entry)
            if entry != last and x[t.FLAGS] & (t.TMA | t.WRITE) == t.TMA | t.WRITE:
                last = entry
                if not _knows(k, KNOWN, x[t.COLUMN], x[t.VALUE]):
                    find(T, t.LIFETIME_LOAD, 1, cta, granule * _BYTES, (granule + 1) * _BYTES, -1, entry, 0, 0)
            _free_record(T, record)
            record = following
        heads[granule] = -1
        written[granule] = 0
    return 0
