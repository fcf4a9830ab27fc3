"""The shadow of memory as flat arrays that compiled code works on, and how they grow.

*Entries* are accesses. *Records* say which bytes of a 32-byte granule an entry touched last; a granule has a list of
them. Memory is bounded: entries and records exist only while a record is the last access to its bytes (by its
reader), shared memory is forgotten when its cluster ends, global memory starts over when more than :data:`PAGES_MAX`
pages of 8 KiB, :data:`RECORDS_MAX` records (12 bytes each) or :data:`ENTRIES_MAX` entries (120 bytes each) are in use,
and a granule of global memory remembers at most :data:`GLOBAL_READERS` reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Scalars.
# Free ones are chained from the heads; those from RECORDS_USED and ENTRIES_USED on have never been used.
RECORD_HEAD, RECORDS_FREE, ENTRY_HEAD, ENTRIES_FREE, FINDS, PAGES, RECORDS_USED, ENTRIES_USED = range(8)
# The last verdicts of the current access: pairs of (older entry, verdict), found by the low bits of the entry.
VERDICTS, VERDICT_SLOTS = 9, 8
SCALARS = VERDICTS + 2 * VERDICT_SLOTS

# Columns of an entry. KEPT counts the records and operations that refer to it; NEXT chains free entries. The access
# is over for a clock whose column COLUMN (or LANES, if lanes acted apart from their warp) has reached VALUE: for a
# warp's own access its column and clock, for an asynchronous operation a counter. SEEN is the clock at which the issuing
# warp knew an operation to be over. OBJECT names what it completes on.
FLAGS, WARP, CLUSTER, COLUMN, VALUE, OPERATION, EVENT, PC, CTA, TIME, KEPT, NEXT, SEEN, OBJECT, LANES = range(15)
ENTRY_COLUMNS = 15

# Flags of an entry.
READ, WRITE, STRONG, ASYNC_PROXY, TENSORMAP, MBARRIER_WORD, WGMMA, TMA, CP_ASYNC, IN_SHARED, UNCHANGED = (1 << k for k in range(11))

# Columns of a finding: what, where, how often, then the two accesses (WARP, PC, CTA, EVENT, TIME, FLAGS, OBJECT
# each), then two integers that depend on what it is.
F_CODE, F_SPACE, F_CTA, F_LOW, F_HIGH, F_COUNT, F_LAST, F_FIRST = range(8)
F_SECOND = F_FIRST + 7
F_A, F_B = F_SECOND + 7, F_SECOND + 8
FINDING_COLUMNS = F_B + 1
FINDINGS_MAX = 256

# What was found.
RACE, PROXY_RACE, STRICT_WAR, MISUSE_WORD, UNINITIALISED, OVER_ARRIVAL, TX_UNDERFLOW, LIFETIME_REMOTE = range(1, 9)
LIFETIME_STORE, LIFETIME_LOAD, BARRIER_COUNTS, BARRIER_TWICE, BARRIER_AHEAD, DIVERGENT, INIT_RACE, STRICT_INIT = range(9, 17)
LANE_RACE, LAPPED, CLUSTER_AGAIN, RESERVED = range(17, 21)

#: The value of a counter that is never reached: the operation has not completed yet.
NEVER = 1 << 40

#: Spec: shared memory of a CTA is 227 KiB after 1 KiB that is reserved (CUDA Programming Guide 13, "Compute
#: Capabilities", compute capability 9.0); 32 bytes a granule.
GRANULE_BYTES = 32
GRANULES = (0x400 + 232_448) // GRANULE_BYTES + 8
PAGE_GRANULES = 256
PAGES_MAX = 1 << 14
RECORDS_MAX = 1 << 23
ENTRIES_MAX = 1 << 20
GLOBAL_READERS = 4

_ENTRIES_AT_ONCE = 16
#: Memory of large tables is taken when it is first used.
_RECORDS_AT_FIRST, _ENTRIES_AT_FIRST = 1 << 20, 1 << 16


class Tables(NamedTuple):
    """The arrays of the shadow; ``heads``, ``written`` have a row for each CTA that runs (its slot)."""

    scalars: np.ndarray
    records: np.ndarray
    entries: np.ndarray
    heads: np.ndarray
    written: np.ndarray
    page_keys: np.ndarray
    page_heads: np.ndarray
    findings: np.ndarray


def build() -> Tables:
    """Return an empty shadow."""
    pages = 64
    scalars = np.zeros(SCALARS, np.int64)
    scalars[[RECORD_HEAD, ENTRY_HEAD]] = -1
    scalars[RECORDS_FREE], scalars[ENTRIES_FREE] = _RECORDS_AT_FIRST, _ENTRIES_AT_FIRST
    return Tables(
        scalars=scalars,
        records=np.zeros((_RECORDS_AT_FIRST, 3), np.int32),
        entries=np.zeros((_ENTRIES_AT_FIRST, ENTRY_COLUMNS), np.int64),
        heads=np.full((1, GRANULES), -1, np.int32),
        written=np.zeros((1, GRANULES), np.uint32),
        page_keys=np.full(4 * pages, -1, np.int64),
        page_heads=np.full((pages, PAGE_GRANULES), -1, np.int32),
        findings=np.zeros((FINDINGS_MAX, FINDING_COLUMNS), np.int64),
    )


def with_room(t: Tables, records: int, pages: int) -> Tables:
    """Return the tables with room for as many new records and global pages, and for the entries of one event."""
    if t.scalars[ENTRIES_FREE] < _ENTRIES_AT_ONCE and len(t.entries) >= ENTRIES_MAX:
        forget_global(t)
    if t.scalars[ENTRIES_FREE] < _ENTRIES_AT_ONCE:
        t = _more_entries(t, len(t.entries))
    if (pages and t.scalars[PAGES] + pages > PAGES_MAX) or (t.scalars[RECORDS_FREE] < records and len(t.records) >= RECORDS_MAX):
        forget_global(t)
    while t.scalars[PAGES] + pages > len(t.page_heads):
        t = _more_pages(t)
    if t.scalars[RECORDS_FREE] < records:
        t = _more_records(t, max(len(t.records), records))
    return t


def with_slots(t: Tables, slots: int) -> Tables:
    """Return the tables with shadow memory for as many CTAs."""
    before = len(t.heads)
    if slots <= before:
        return t
    heads = np.full((max(slots, 2 * before), GRANULES), -1, np.int32)
    heads[:before] = t.heads
    return t._replace(heads=heads, written=_padded(t.written, len(heads) - before))


def forget_global(t: Tables) -> None:
    """Forget every access to global memory."""
    found = []
    following = t.page_heads[t.page_heads >= 0]
    while len(following):
        found.append(following)
        following = t.records[following, 2]
        following = following[following >= 0]
    if found:
        records = np.concatenate(found)
        entries, counts = np.unique(t.records[records, 0], return_counts=True)
        t.entries[entries, KEPT] -= counts
        unused = entries[t.entries[entries, KEPT] == 0]
        _chain(t.records[:, 2], records, t.scalars, RECORD_HEAD, RECORDS_FREE)
        _chain(t.entries[:, NEXT], unused, t.scalars, ENTRY_HEAD, ENTRIES_FREE)
    t.page_heads[:] = -1
    t.page_keys[:] = -1
    t.scalars[PAGES] = 0


def _chain(following: np.ndarray, members: np.ndarray, scalars: np.ndarray, head: int, free: int) -> None:
    """Put members in front of a list of free ones."""
    if len(members):
        following[members[:-1]] = members[1:]
        following[members[-1]] = scalars[head]
        scalars[head] = members[0]
        scalars[free] += len(members)


def _padded(array: np.ndarray, more: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])


def _more_records(t: Tables, more: int) -> Tables:
    t.scalars[RECORDS_FREE] += more
    return t._replace(records=_padded(t.records, more))


def _more_entries(t: Tables, more: int) -> Tables:
    t.scalars[ENTRIES_FREE] += more
    return t._replace(entries=_padded(t.entries, more))


def _more_pages(t: Tables) -> Tables:
    pages = len(t.page_heads)
    heads = np.full((2 * pages, PAGE_GRANULES), -1, np.int32)
    heads[:pages] = t.page_heads
    keys = np.full(8 * pages, -1, np.int64)
    for at in np.flatnonzero(t.page_keys[0::2] >= 0):
        key, page = t.page_keys[2 * at], t.page_keys[2 * at + 1]
        slot = int(key) % (4 * pages)
        while keys[2 * slot] >= 0:
            slot = (slot + 1) % (4 * pages)
        keys[2 * slot : 2 * slot + 2] = key, page
    return t._replace(page_heads=heads, page_keys=keys)
