"""The checker's picture of a launch: who runs, what each knows, what is in flight; and how an access is compared and
recorded.

Everything has an identity of its own and lives as long as it matters: a warp until its cluster ends, an asynchronous
operation until it is known to be over, so memory is bounded by what runs at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..native import data_address
from . import tables as t
from .clocks import WARPS, Clock
from .shadow import addresses_of, close_shared, drop, find, new_entry, touch_lanes, touch_operands, touch_rows
from .strands import CELLS, Lanes, Strand

if TYPE_CHECKING:
    from .reading import Reading

#: Foreign clocks (what CTAs know of other clusters) are kept in launches of up to this many warps.
FOREIGN_WARPS_MAX = 4096

#: Memory locations at which something was released are remembered up to this many; the oldest are forgotten first.
PLACES_MAX = 4096

# Flags of instructions: what the checks must know of them beyond their events. The scope (0 CTA, 1 cluster, 2 GPU) is
# in the bits from PC_SCOPE on.
(
    PC_RELAXED, PC_MULTICAST, PC_ALIGNED, PC_COUNT, PC_CP_COPY, PC_CP_COMMIT, PC_CP_WAIT, PC_CP_WAIT_ALL, PC_CP_ARRIVE,
    PC_SYNC, PC_UNTESTED, PC_COLLECTIVE,
) = (1 << k for k in range(12))  # fmt: skip
PC_SCOPE = 12
WHOLE_GPU = 2


_ALL_LANES = 0xFFFFFFFF


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
    global_entry: int = -1
    mbarrier: int = -1


@dataclass(slots=True, eq=False)
class Warp:
    """A warp: what its lanes know, and its groups. Columns are -1 until they are needed.

    ``recent`` are its accesses to shared memory since its lanes synchronised, ``epoch`` a number of that time (0: none);
    ``arrived`` is that number and how many there were when all its lanes arrived at the cluster barrier.
    ``arrivals`` is what it knew at its last cp.async.mbarrier.arrive, ``accessed`` the moment of its last generic access,
    ``taken`` the last snapshot of what its lanes knew: (mask, version, clock), ``met`` the generation of the cluster
    barrier that its lanes passed last and a mask of those that have.
    """

    number: int
    cta: Cta
    column: int
    lanes: Lanes
    bulk: list[int] = field(default_factory=list)
    read_column: int = -1
    write_column: int = -1
    wgmma_issued: int = 0
    wgmma_end: int = 0
    wgmma_ends: dict[int, int] = field(default_factory=dict)
    cp_column: int = -1
    cp_issued: int = 0
    cp_ends: list[int] = field(default_factory=list)
    arrivals: Clock | None = None
    group: Warpgroup | None = None
    place: int = 0
    accessed: int = 0
    taken: tuple[int, int, Clock] | None = None
    met: tuple[int, int] = (-1, 0)
    partial: dict[int, Happening] = field(default_factory=dict)
    epoch: int = 0
    arrived: tuple[int, int] = (-1, -1)
    recent: list[tuple[Happening, np.ndarray, int]] = field(default_factory=list)

    @property
    def alive(self) -> int:
        return self.lanes.alive

    @property
    def now(self) -> int:
        return self.lanes.now

    @property
    def clock(self) -> Clock:
        """What all lanes know."""
        return self.lanes.whole.clock

    def strand(self, mask: int) -> Strand:
        """Return the lanes that act, as one."""
        if mask == _ALL_LANES:
            return self.lanes.whole
        return self.lanes.acting(mask, self.cta.cluster.new_column)

    def tick(self) -> None:
        """What comes next is not known to those who learn of the warp now."""
        self.lanes.tick()

    def release_into(self, target: Clock, mask: int) -> None:
        """Let a clock know what lanes know that release now."""
        self.lanes.release_into(target, mask, self.cta.cluster.new_column)

    def snapshot(self, strand: Strand) -> Clock:
        """Return what lanes know now; it must not be changed."""
        clock = strand.clock
        if self.taken is None or self.taken[:2] != (strand.mask, clock.version) or self.accessed >= 0:
            self.taken = (strand.mask, clock.version, clock.copy())
            self.accessed = -1
        return self.taken[2]

    def sync_some(self, mask: int) -> None:
        """Some lanes synchronise; their accesses are no longer told apart from those of the others."""
        self.lanes.sync_some(self.strand(mask))
        self.epoch = 0
        self.recent.clear()

    def sync(self) -> None:
        """The lanes synchronise."""
        self.lanes.sync()
        if self.epoch:
            self.epoch = 0
            self.recent.clear()


class Moment(NamedTuple):
    """A moment of a warp, whichever of its lanes acted."""

    warp: Warp
    value: int

    def is_known_to(self, clock: Clock) -> bool:
        return clock.knows(self.warp.column, self.value, WARPS)


@dataclass(slots=True, eq=False)
class NamedBarrier:
    """A named barrier of a CTA; ``synced`` has the moment at which a warp (by column) passed the last generation."""

    accumulated: Clock
    released: Clock
    generation: int = 0
    warps: set[int] = field(default_factory=set)
    synced: dict[int, Moment] = field(default_factory=dict)
    counted: Happening | None = None


class Waited(NamedTuple):
    """A wait that returned True: its event, its moment, and the wgmma that its warp issues next (column, value)."""

    event: Happening
    moment: Moment
    column: int
    value: int


@dataclass(slots=True, eq=False)
class Mbarrier:
    """An mbarrier. ``waits`` has what a warp (by column) did when it saw the last phase complete, and at which moment."""

    identity: int
    cta: Cta
    address: int
    column: int
    init: Happening
    init_moment: Moment
    pending: int
    expected: int
    accumulated: Clock
    released: Clock
    waits: dict[int, Waited] = field(default_factory=dict)
    last: Happening | None = None
    tx: int = 0
    completed: Happening | None = None
    is_short: bool = False
    users: set[int] = field(default_factory=set)
    is_reported: bool = False
    is_warned_of: bool = False
    is_lapped: bool = False


@dataclass(slots=True, eq=False)
class Warpgroup:
    """Four warps that issue wgmmas: the column that counts those completed; what each warp knew when it last issued one
    (``versions`` of its clock), and what all four knew. ``started`` has, for wgmmas that not all four have issued, the
    warps that have, and the clocks of those that have learnt something since their last one."""

    column: int
    started: dict[int, list] = field(default_factory=dict)
    versions: list[int] = field(default_factory=lambda: [-1] * 4)
    clocks: list[Clock | None] = field(default_factory=lambda: [None] * 4)
    common: Clock | None = None


@dataclass(slots=True, eq=False)
class Cta:
    """A CTA that runs. ``remote``: the moment at which a warp of another CTA (by column) last used its memory."""

    number: int
    cluster: Cluster
    rank: int
    slot: int
    alive: int
    remote: dict[int, Moment] = field(default_factory=dict)
    barriers: dict[int, NamedBarrier] = field(default_factory=dict)
    warpgroups: dict[int, Warpgroup] = field(default_factory=dict)


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

    ``flags``, ``counts`` and ``members`` are of the instructions; ``lanes`` from ``lanes_start`` on come with each chunk.
    """

    def __init__(self, grid: int, cluster: int, threads: int, text: Reading, is_strict: bool):
        self.threads, self.cluster_ctas, self.is_strict = threads, cluster, is_strict
        self.warps_per_cta = -(-threads // 32)
        self.warp_count = grid * self.warps_per_cta
        self.flags, self.counts, self.members, self.footprints = text.flags, text.counts, text.members, text.footprints
        self.warps: dict[int, Warp] = {}
        self.ctas: dict[int, Cta] = {}
        self.clusters: dict[int, Cluster] = {}
        self.mbarriers: dict[int, Mbarrier] = {}
        self.mbarrier_addresses: dict[int, int] = {}
        self.operations: dict[int, Operation] = {}
        self.places: dict[tuple[int, int], dict[tuple[int, int], tuple[Clock, int]]] = {}
        #: Where the last release at a location was made: (instruction, CTA); releases that an acquire did not learn of
        #: because of the scopes of both: (CTA, CTA) to the instruction.
        self.released_at: dict[tuple[int, int], tuple[int, int]] = {}
        self.narrow: dict[tuple[int, int], int] = {}
        self.sees_instructions = True
        self.epochs = 0
        self.is_foreign_unknown = False
        #: Has a fence.sc of the whole GPU been executed?
        self.has_sc_fence = False
        self.free_slots: list[int] = []
        self.slots = 0
        self.lanes, self.lanes_start = np.zeros((0, 32), np.int64), 0
        self._knowledge = np.zeros(7, np.int64)
        self._knowledge_at = data_address(self._knowledge)
        self._knowledge[5:] = is_strict, text.uses_reserved
        self.cells = np.zeros((2, 1, CELLS), np.int32)
        self._set(t.build())

    def _set(self, tables: t.Tables) -> None:
        self.tables, self._addresses = tables, addresses_of(tables)
        #: Where the addresses of the tables are.
        self.at = data_address(self._addresses)

    def new_slot(self) -> int:
        """Return a free shadow of shared memory."""
        if not self.free_slots:
            self.free_slots = list(range(self.slots, max(2 * self.slots, 1)))
            self.slots = max(2 * self.slots, 1)
            self._set(t.with_slots(self.tables, self.slots))
            # What lanes did before is forgotten: CTAs start together, so that is next to nothing.
            self.cells = np.zeros((2, self.slots, CELLS), np.int32)
        return self.free_slots.pop()

    def entry(self, e: Happening, flags: int) -> int:
        """Return a new entry for an access that a warp, or some of its lanes, makes itself in an event."""
        warp = self.warps[e.warp]
        return self._new_entry(e, flags, warp, warp.strand(e.mask).column)

    def _new_entry(self, e: Happening, flags: int, warp: Warp, lanes: int) -> int:
        if self.tables.scalars[t.ENTRIES_FREE] < 4:
            self._set(t.with_room(self.tables, 0, 0))
        cta = warp.cta
        return new_entry(
            self.at, flags, warp.number, cta.cluster.number, warp.column, lanes, warp.now, e.row, e.pc, cta.number, e.time
        )

    def operation_entry(self, e: Happening, op: Operation, flags: int, column: int, value: int, object_: int) -> int:
        """Return a new entry for an access of an asynchronous operation, over when its counter has reached a value."""
        entry = self._new_entry(e, flags, op.warp, -1)
        x = self.tables.entries[entry]
        x[t.COLUMN], x[t.VALUE], x[t.OPERATION], x[t.SEEN] = column, value, e.op, t.NEVER
        x[t.OBJECT], x[t.KEPT] = object_, 1
        op.entries.append(entry)
        return entry

    def touch_operands(self, e: Happening, warp: Warp, group: Warpgroup) -> None:
        """Compare the reads of a wgmma, whose four warps have issued it, with what was before them."""
        a, b = self.footprints.get((e.pc, 0, e.a)), self.footprints[e.pc, 1, e.b]
        spans, count, size = (a.address, a.n, a.size) if a else (0, 0, 0)
        granules = (size + b.size) // t.GRANULE_BYTES + 2 * (count + b.n)
        scalars = self.tables.scalars
        if scalars[t.ENTRIES_FREE] < 4 or scalars[t.RECORDS_FREE] < granules:
            self._set(t.with_room(self.tables, granules, 0))
        cta = warp.cta
        assert group.common is not None, "four warps must have met"
        touch_operands(
            self.at, spans, count, b.address, b.n, cta.slot, cta.number, self.knowledge(group.common),
            warp.number - warp.place, cta.cluster.number, group.column, e.c + 1, e.op, e.row, e.pc, e.time,
        )  # fmt: skip

    def touch_shared(self, entry: int, cta: Cta, address: int, size: int, clock: Clock) -> None:
        """Compare an access to bytes of a CTA's shared memory with those before it."""
        self._make_room(size, 1, False)
        k = self.knowledge(clock)
        touch_rows(self.at, address & 0xFFFFFF, size, 1, 0, cta.slot, cta.number, entry, k)

    def touch_global(self, entry: int, first: int, size: int, rows: int, stride: int, clock: Clock) -> None:
        """The same for rows of bytes of global memory."""
        self._make_room(size * rows, rows, True)
        touch_rows(self.at, first, size, rows, stride, -1, -1, entry, self.knowledge(clock))

    def touch_lanes(self, entry: int, addresses: np.ndarray, size: int, rank: int, cta: Cta | None, clock: Clock) -> int:
        """The same for the addresses of lanes in one CTA (None: global memory); see :func:`.shadow.touch_lanes`."""
        self._make_room(size * len(addresses), len(addresses), cta is None)
        slot, number = (cta.slot, cta.number) if cta else (-1, -1)
        return touch_lanes(self.at, data_address(addresses), len(addresses), size, rank, slot, number, entry, self.knowledge(clock))

    def _make_room(self, size: int, spans: int, is_global: bool) -> None:
        """See to it that an access to so many bytes in so many spans finds room for its records."""
        granules = size // t.GRANULE_BYTES + 2 * spans
        pages = granules // t.PAGE_GRANULES + 2 * spans if is_global else 0
        scalars = self.tables.scalars
        if scalars[t.RECORDS_FREE] < granules or (pages and scalars[t.PAGES] + pages > len(self.tables.page_heads)):
            self._set(t.with_room(self.tables, granules, pages))

    def knowledge(self, clock: Clock) -> int:
        """Return the address of what compiled code needs of a clock; valid until the clock changes."""
        k = self._knowledge
        k[0], k[1] = clock.address, clock.columns.shape[1]
        k[2], k[3] = (0, 0) if clock.foreign is None else (data_address(clock.foreign), clock.foreign.shape[1])
        k[4] = self.is_foreign_unknown
        return self._knowledge_at

    def let_go(self, entry: int) -> None:
        """Refer to an entry once less."""
        drop(self.at, entry)

    def free(self, entry: int) -> None:
        """Free an entry that has served a finding only."""
        self.tables.entries[entry, t.KEPT] += 1
        drop(self.at, entry)

    def close(self, op_number: int) -> None:
        """Forget an operation; its entries live on while records refer to them."""
        op = self.operations.pop(op_number, None)
        for entry in op.entries if op else ():
            drop(self.at, entry)

    def find(self, code: int, cta: int, low: int, high: int, old: int, new: int, a: int = 0, b: int = 0) -> None:
        """Add a finding about entries (-1: none); see :func:`.shadow.find`."""
        find(self.at, code, 1, cta, low, high, old, new, a, b)

    def report(self, code: int, e: Happening, old: int = -1, mbarrier: Mbarrier | None = None, a: int = 0, b: int = 0) -> None:
        """Add a finding about what the warp of an event does itself, perhaps to an mbarrier."""
        low, high = (mbarrier.address, mbarrier.address + 8) if mbarrier else (-1, -1)
        entry = self.entry(e, 0)
        self.find(code, e.cta, low, high, old, entry, a, b)
        self.free(entry)

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
            other.remote[warp.column] = Moment(warp, warp.now)

    def close_shared(self, cta: Cta, clock: Clock) -> None:
        """Forget the shared memory of a CTA; ``clock``: all that its warps knew."""
        close_shared(self.at, cta.slot, cta.number, self.knowledge(clock))
        self.free_slots.append(cta.slot)
