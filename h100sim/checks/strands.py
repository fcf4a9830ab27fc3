"""What the lanes of a warp know when they do not act together.

As long as all lanes act together a warp is one thread: one clock, one column. Lanes that act apart, such as the elected
one that waits for a copy or arrives for its warp, become a *strand*: they learn for themselves, and what they release
covers what all lanes did before the warp last synchronised, and what they did themselves. ``bar.warp.sync`` and every
other instruction that the lanes execute together as ``.sync`` brings strands and warp together again; that control flow
converges does not.

What is contested is left to the strict reading: that one lane may not release what other lanes have only read. A release
or acquire through global memory counts for the whole warp, and so do the rules of use of barriers.

Accesses of two lanes of one warp to the same bytes of shared memory are compared cell by cell
(:func:`lanes_in_conflict`): a write and another lane's access must have a synchronisation of the warp between them.

Spec: PTX ISA 9.1, "Memory Consistency Model: Program order" (of a thread), "bar.warp.sync". Assumed: every ``.sync``
instruction orders what its lanes did before; strands of a warp beyond :data:`STRANDS_MAX` are taken to act with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..native import entry, i32, load_i64
from .clocks import KNOWN, WARPS, Clock

#: Groups of lanes of a warp with a column of their own, and strands at a time.
COLUMNS_MAX, STRANDS_MAX = 16, 8
#: Scopes of fences, releases and acquires: CTA, cluster, GPU (and system).
SCOPES = 3

#: Bytes of a cell in which lanes are told apart, and the cells of a CTA's shared memory.
CELL_BYTES = 2
CELLS = (0x400 + 232_448) // CELL_BYTES


@dataclass(slots=True, eq=False)
class Strand:
    """Lanes that know the same. ``fenced`` is what they knew at their last fence of each scope, ``pending`` what relaxed
    loads have read since, ``column`` counts what they do apart from their warp (-1: they are the warp)."""

    mask: int
    clock: Clock
    column: int = -1
    fenced: list[Clock | None] = field(default_factory=lambda: [None] * SCOPES)
    pending: list[Clock | None] = field(default_factory=lambda: [None] * SCOPES)


class Lanes:
    """The strands of a warp whose own column is ``column``.

    ``now`` is the warp's clock; ``synced`` what it was when its lanes last synchronised.
    """

    __slots__ = ("_is_stale", "_whole", "alive", "column", "columns", "is_split", "now", "strands", "synced")

    def __init__(self, alive: int, column: int, clock: Clock):
        self.alive, self.column = alive, column
        self._whole = Strand(alive, clock)
        self._is_stale = True
        self.strands: list[Strand] = []
        self.columns: dict[int, int] = {}
        self.now, self.synced = 1, 0
        #: False: lanes are never told apart (the trace does not show every instruction).
        self.is_split = True

    @property
    def whole(self) -> Strand:
        """All lanes, when they act together."""
        if self._is_stale:
            columns = self._whole.clock.columns
            columns[KNOWN, self.column] = columns[WARPS, self.column] = self.now
            self._is_stale = False
        return self._whole

    @property
    def version(self) -> int:
        """Changes when the warp learns something."""
        return self._whole.clock.version

    def tick(self) -> None:
        """What comes next is not known to those who learn of the warp now."""
        self.now += 1
        self._is_stale = True

    def acting(self, mask: int, new_column: Callable[[], int]) -> Strand:
        """Return the strand of lanes that act now. ``new_column`` makes a column of the clocks."""
        if not self.alive & ~mask or not self.is_split:
            return self.whole
        for strand in reversed(self.strands):
            if strand.mask == mask:
                self._stamp(strand)
                return strand
        if mask not in self.columns:
            if len(self.columns) >= COLUMNS_MAX:
                return self.whole
            self.columns[mask] = new_column()
        if len(self.strands) >= STRANDS_MAX:
            self._absorb(self.strands.pop(0))
        strand = self._split(mask)
        self._stamp(strand)
        self.strands.append(strand)
        return strand

    def _split(self, mask: int) -> Strand:
        """Return a new strand: it knows what its lanes knew, and of the warp what came before it last synchronised."""
        for larger in reversed(self.strands):
            if not mask & ~larger.mask:
                return Strand(mask, larger.clock.copy(), self.columns[mask], [*larger.fenced], [*larger.pending])
        clock = self.whole.clock.copy()
        own = clock.columns[:WARPS, self.column]
        np.minimum(own, self.synced, out=own)
        return Strand(mask, clock, self.columns[mask], [*self.whole.fenced], [*self.whole.pending])

    def _stamp(self, strand: Strand) -> None:
        ours = self.whole.clock.columns[WARPS]
        strand.clock.widen(max(strand.column + 1, len(ours)))
        columns = strand.clock.columns
        columns[KNOWN, strand.column] = self.now
        np.maximum(columns[WARPS, : len(ours)], ours, out=columns[WARPS, : len(ours)])

    def published(self, strand: Strand) -> Clock:
        """Return what lanes release together: what each of them knows."""
        apart = [s for s in self.strands if s is not strand and not s.mask & ~strand.mask]
        if not apart:
            return strand.clock
        clock = strand.clock.copy()
        for other in apart:
            clock.join(other.clock)
        return clock

    def release_into(self, target: Clock, mask: int, new_column: Callable[[], int]) -> None:
        """Let a clock know what the lanes that release now know. It spares the strand where there is none."""
        if self.strands or not self.alive & ~mask or not self.is_split or mask not in self.columns:
            target.join(self.published(self.acting(mask, new_column)))
            return
        whole = self.whole.clock
        own = whole.columns[:WARPS, self.column]
        np.minimum(own, self.synced, out=own)
        self._is_stale = True
        target.join(whole)
        column = self.columns[mask]
        target.widen(column + 1)
        target.columns[KNOWN, column] = self.now

    def everything(self) -> Clock:
        """Return all that any lane knows."""
        return self.published(Strand(self.alive | 0xFFFFFFFF, self.whole.clock))

    def learn(self, strand: Strand, clock: Clock) -> None:
        """Let the lanes of a strand know what a clock knows."""
        strand.clock.join(clock)
        if strand is self.whole:
            for other in self.strands:
                other.clock.join(clock)
            if self.column < clock.columns.shape[1]:
                self.synced = max(self.synced, int(clock.columns[KNOWN, self.column]))
        else:
            width = clock.columns.shape[1]
            self.whole.clock.widen(width)
            ours = self.whole.clock.columns[WARPS, :width]
            np.maximum(ours, clock.columns[WARPS], out=ours)

    def learn_counter(self, strand: Strand, column: int, value: int) -> None:
        """Let the lanes of a strand know that a counter has reached a value."""
        strand.clock.learn(column, value)
        if strand is self.whole:
            for other in self.strands:
                other.clock.learn(column, value)

    def fence(self, strand: Strand, blocks: tuple[int, ...]) -> None:
        """Let the lanes of a strand order what they know for other proxies."""
        for block in blocks:
            strand.clock.fence(block)
            if strand is self.whole:
                for other in self.strands:
                    other.clock.fence(block)

    def sync(self) -> None:
        """All lanes synchronise: what one knows all know."""
        if self.strands:
            for strand in self.strands:
                self._absorb(strand)
            self.strands.clear()
        self.synced = self.now
        self.now += 1
        self._is_stale = True

    def _absorb(self, strand: Strand) -> None:
        """Let the warp as a whole know what a strand knows, what its fences covered and what its relaxed loads have read."""
        whole = self.whole
        whole.clock.join(strand.clock)
        for ours, theirs in ((whole.fenced, strand.fenced), (whole.pending, strand.pending)):
            for scope, clock in enumerate(theirs):
                if clock is not None:
                    before, ours[scope] = ours[scope], clock
                    if before is not None and before is not clock:
                        clock.join(before)

    def sync_some(self, strand: Strand) -> None:
        """The lanes of a strand synchronise."""
        for other in self.strands:
            if other is not strand and not other.mask & ~strand.mask:
                strand.clock.join(other.clock)
        self.tick()

    def end(self, mask: int) -> None:
        """Lanes end; those that are left may be all of a strand."""
        self.alive &= ~mask
        for strand in [s for s in self.strands if not self.alive & ~s.mask]:
            self._absorb(strand)
            self.strands.remove(strand)


@entry(*["int64"] * 7)
def lanes_in_conflict(addresses, count, size, written, read, epoch, is_write):
    """Compare the accesses of lanes to shared memory with those of the warp's other lanes since it last synchronised.

    At ``addresses`` are ``count`` int64, -1: none; at ``written`` and ``read`` the cells of a CTA; ``epoch`` numbers the
    warp's synchronisations through the launch. Returns the first byte that another lane has written (or read, before a
    write), times 64, plus that lane (32: several), or -1. Lanes of one instruction are not compared with each other.
    """
    found = np.int64(-1)
    cells_written, cells_read = i32(written, CELLS), i32(read, CELLS)
    for lane in range(count):
        if load_i64(addresses, lane) < 0:
            continue
        first = load_i64(addresses, lane) & 0xFFFFFF
        for cell in range(first >> 1, (first + size) >> 1):
            before = cells_written[cell]
            if before >> 6 == epoch and before & 63 != lane:
                found = np.int64(cell) * 128 + (before & 63)
            if is_write:
                before = cells_read[cell]
                if before >> 6 == epoch and before & 63 != lane:
                    found = np.int64(cell) * 128 + (before & 63)
            if found >= 0:
                break
        if found >= 0:
            break
    for lane in range(count):
        if load_i64(addresses, lane) < 0:
            continue
        first = load_i64(addresses, lane) & 0xFFFFFF
        for cell in range(first >> 1, (first + size) >> 1):
            if is_write:
                cells_written[cell] = epoch << 6 | lane
            elif cells_read[cell] >> 6 == epoch and cells_read[cell] & 63 != lane:
                cells_read[cell] = epoch << 6 | 32
            else:
                cells_read[cell] = epoch << 6 | lane
    return found
