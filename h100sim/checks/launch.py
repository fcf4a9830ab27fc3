"""The checker's picture of a launch: who runs, what each knows, what is in flight; and how an access is compared and
recorded.

Everything has an identity of its own and lives as long as it matters: a warp until its cluster ends, an asynchronous
operation until it is known to be over, so memory is bounded by what runs at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from . import tables as t
from .clocks import Clock
from .shadow import addresses_of, close_shared, drop, find, touch_spans

#: Foreign clocks (what CTAs know of other clusters) are kept in launches of up to this many warps.
FOREIGN_WARPS_MAX = 4096

#: Memory locations at which something was released are remembered up to this many; the oldest are forgotten first.
PLACES_MAX = 4096

# Flags of instructions: what the checks must know of them beyond their events.
PC_RELAXED, PC_MULTICAST, PC_ALIGNED, PC_COUNT, PC_CP_COPY, PC_CP_COMMIT, PC_CP_WAIT, PC_CP_WAIT_ALL, PC_CP_ARRIVE = (
    1 << k for k in range(9)
)


class Happening(NamedTuple):
    """One event as the checks see it; ``row`` is its place in the trace."""

    time: int
    kind: int
    cta: int
    warp: int
    pc: int
    mask: int
    op: int
    a: int
    b: int
    c: int
    d: int
    row: int


@dataclass(slots=True, eq=False)
class Operation:
    """An asynchronous operation in flight: what it started with, and the entries of its accesses."""

    kind: str
    warp: Warp
    mask: int
    clock: Clock
    entries: list[int] = field(default_factory=list)
    group: int = -1
    arrived: int = 0
    global_entry: int = -1
    mbarrier: int = -1


@dataclass(slots=True, eq=False)
class Warp:
    """A warp: its clock, what its fences made known, and its groups. Columns are -1 until they are needed."""

    number: int
    cta: Cta
    column: int
    alive: int
    clock: Clock
    fenced: Clock | None = None
    pending: Clock | None = None
    bulk: list[int] = field(default_factory=list)
    read_column: int = -1
    write_column: int = -1
    wgmma_end: int = 0
    wgmma_ends: dict[int, int] = field(default_factory=dict)
    cp_column: int = -1
    cp_issued: int = 0
    cp_ends: list[int] = field(default_factory=list)
    partial: dict[int, Happening] = field(default_factory=dict)

    @property
    def now(self) -> int:
        return int(self.clock.columns[0, self.column])

    def tick(self) -> None:
        """What comes next is not known to those who learn of the warp now."""
        self.clock.columns[0, self.column] += 1


@dataclass(slots=True, eq=False)
class NamedBarrier:
    """A named barrier of a CTA; ``synced`` has the clock at which a warp (by column) passed the last generation."""

    accumulated: Clock
    released: Clock
    generation: int = 0
    warps: set[int] = field(default_factory=set)
    synced: dict[int, int] = field(default_factory=dict)
    counted: Happening | None = None


@dataclass(slots=True, eq=False)
class Mbarrier:
    """An mbarrier. ``waits`` has the clock at which a warp (by column) saw the last phase complete."""

    identity: int
    cta: Cta
    address: int
    column: int
    init: Happening
    init_column: int
    init_clock: int
    pending: int
    expected: int
    accumulated: Clock
    released: Clock
    waits: dict[int, int] = field(default_factory=dict)
    is_reported: bool = False


@dataclass(slots=True, eq=False)
class Cta:
    """A CTA that runs. ``remote``: the clock at which a warp of another CTA (by column) last used its memory."""

    number: int
    cluster: Cluster
    rank: int
    slot: int
    alive: int
    remote: dict[int, int] = field(default_factory=dict)
    barriers: dict[int, NamedBarrier] = field(default_factory=dict)
    wgmma_columns: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Cluster:
    """A cluster that runs. ``columns`` counts the columns of its clocks, ``members`` numbers its warps by column."""

    number: int
    columns: int
    members: np.ndarray
    ctas: dict[int, Cta] = field(default_factory=dict)
    arrived: Clock | None = None
    released: Clock | None = None
    generation: int = 0
    ended: int = 0

    def new_column(self) -> int:
        self.columns += 1
        return self.columns - 1


class Launch:
    """All of it.

    ``flags`` and ``counts`` are of the instructions; ``lanes`` from ``lanes_start`` on come with each chunk.
    """

    def __init__(self, grid: int, cluster: int, threads: int, flags: list[int], counts: list[int], is_strict: bool):
        self.threads, self.cluster_ctas, self.is_strict = threads, cluster, is_strict
        self.warps_per_cta = -(-threads // 32)
        self.warp_count = grid * self.warps_per_cta
        self.flags, self.counts = flags, counts
        self.warps: dict[int, Warp] = {}
        self.ctas: dict[int, Cta] = {}
        self.clusters: dict[int, Cluster] = {}
        self.mbarriers: dict[int, Mbarrier] = {}
        self.mbarrier_addresses: dict[int, int] = {}
        self.operations: dict[int, Operation] = {}
        self.places: dict[tuple[int, int], tuple[Clock, int]] = {}
        self.is_foreign_unknown = False
        self.free_slots: list[int] = []
        self.slots = 0
        self.lanes, self.lanes_start = np.zeros((0, 32), np.int64), 0
        self.footprints: dict[tuple[int, int, int], np.ndarray] = {}
        self._knowledge = np.zeros(5, np.int64)
        self._set(t.build(is_strict))

    def _set(self, tables: t.Tables) -> None:
        self.tables, self.addresses = tables, addresses_of(tables)

    def new_slot(self) -> int:
        """Return a free shadow of shared memory."""
        if not self.free_slots:
            self.free_slots = list(range(self.slots, max(2 * self.slots, 1)))
            self.slots = max(2 * self.slots, 1)
            self._set(t.with_slots(self.tables, self.slots))
        return self.free_slots.pop()

    def entry(self, e: Happening, flags: int, warp: Warp | None = None) -> int:
        """Return a new entry for an access that a warp makes itself in an event."""
        if self.tables.scalars[t.ENTRIES_FREE] < 4:
            self._set(t.with_room(self.tables, 0, 0))
        warp = warp or self.warps[e.warp]
        scalars, entries = self.tables.scalars, self.tables.entries
        entry = int(scalars[t.ENTRY_HEAD])
        scalars[t.ENTRY_HEAD] = entries[entry, t.NEXT]
        scalars[t.ENTRIES_FREE] -= 1
        now = warp.now
        entries[entry] = (
            flags, warp.number, warp.cta.cluster.number, warp.column, now, -1, e.row, e.pc, warp.cta.number, e.time,
            0, -1, now, -1,
        )  # fmt: skip
        return entry

    def operation_entry(self, e: Happening, op: Operation, flags: int, column: int, value: int, object_: int) -> int:
        """Return a new entry for an access of an asynchronous operation, over when its counter has reached a value."""
        entry = self.entry(e, flags, op.warp)
        x = self.tables.entries[entry]
        x[t.COLUMN], x[t.VALUE], x[t.OPERATION], x[t.SEEN], x[t.OBJECT], x[t.KEPT] = (
            column,
            value,
            e.op,
            t.NEVER,
            object_,
            1,
        )
        op.entries.append(entry)
        return entry

    def touch(self, entry: int, spans: np.ndarray, clock: Clock) -> None:
        """Compare an access with those before it; ``spans`` as in :func:`.shadow.touch_spans`."""
        granules = int((spans[:, 2] >> 4).sum()) + 2 * len(spans)
        is_global = spans[0, 0] < 0
        pages = granules // t.PAGE_GRANULES + 2 * len(spans) if is_global else 0
        scalars = self.tables.scalars
        if scalars[t.RECORDS_FREE] < granules or (pages and scalars[t.PAGES] + pages > len(self.tables.page_heads)):
            self._set(t.with_room(self.tables, granules, pages))
        touch_spans(self.addresses, spans, entry, self.knowledge(clock))

    def knowledge(self, clock: Clock) -> np.ndarray:
        """Return what compiled code needs of a clock; valid until the clock changes."""
        k = self._knowledge
        k[0], k[1] = clock.address, clock.columns.shape[1]
        k[2], k[3] = (0, 0) if clock.foreign is None else (clock.foreign.ctypes.data, clock.foreign.shape[1])
        k[4] = self.is_foreign_unknown
        return k

    def free(self, entry: int) -> None:
        """Free an entry that has served a finding only."""
        self.tables.entries[entry, t.KEPT] += 1
        drop(self.addresses, entry)

    def close(self, op_number: int) -> None:
        """Forget an operation; its entries live on while records refer to them."""
        op = self.operations.pop(op_number, None)
        for entry in op.entries if op else ():
            drop(self.addresses, entry)

    def find(self, code: int, cta: int, low: int, high: int, old: int, new: int, a: int = 0, b: int = 0) -> None:
        """Add a finding about entries (-1: none); see :func:`.shadow.find`."""
        find(self.addresses, code, 1, cta, low, high, old, new, a, b)

    def report(self, code: int, e: Happening, old: int = -1, mbarrier: Mbarrier | None = None, a: int = 0, b: int = 0) -> None:
        """Add a finding about what the warp of an event does itself, perhaps to an mbarrier."""
        low, high = (mbarrier.address, mbarrier.address + 8) if mbarrier else (-1, -1)
        entry = self.entry(e, 0)
        self.find(code, e.cta, low, high, old, entry, a, b)
        self.free(entry)

    def shared_span(self, cta: Cta, address: int, size: int) -> np.ndarray:
        """Return the span of shared bytes of a CTA."""
        return np.array([[cta.slot, address & 0xFFFFFF, size, cta.number]], np.int64)

    def cta_of(self, cta: Cta, address: int) -> Cta:
        """Return the CTA of the cluster that a shared address, with a rank in bits 24 and up, lies in."""
        return cta.cluster.ctas.get(address >> 24, cta)

    def note_remote(self, warp: Warp, other: Cta, entry: int) -> None:
        """Remember an access to the shared memory of another CTA, which must not have ended."""
        if other is warp.cta:
            return
        if other.alive == 0:
            self.find(t.LIFETIME_REMOTE, other.number, -1, -1, -1, entry)
        else:
            other.remote[warp.column] = warp.now

    def close_shared(self, cta: Cta, clock: Clock) -> None:
        """Forget the shared memory of a CTA; ``clock``: all that its warps knew."""
        close_shared(self.addresses, cta.slot, cta.number, self.knowledge(clock))
        self.free_slots.append(cta.slot)
