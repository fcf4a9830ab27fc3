"""Vector clocks: what a warp, a barrier or an asynchronous operation knows to have happened.

A clock has one column for each warp of its cluster, one for each group of lanes that has acted apart from its warp, and
one for each counter that asynchronous operations complete on (an mbarrier's phases, a thread's bulk groups, a
warpgroup's wgmmas, a warp's cp.asyncs), in five blocks: what happened before (:data:`KNOWN`), and the parts of it that
proxy fences have ordered for the async proxy (:data:`SHARED_FENCED`, :data:`GLOBAL_FENCED`), that a tensormap acquire
fence has (:data:`MAP_FENCED`), and the mbarrier inits that fence.mbarrier_init has made visible (:data:`INITS_FENCED`).
A sixth, :data:`WARPS`, has what happened before if a warp is one thread, whichever of its lanes act.

Two more serve fence.sc of the whole GPU, which are in one order: what such fences cover (:data:`SC_FENCED`), by whichever
thread, is known after any later one of them that has heard of the first, even by relaxed accesses and barriers
(:data:`SC_HEARD`: what the next fence.sc will make known).

Knowledge of CTAs in other clusters stands apart (``foreign``: a row for each of :data:`FOREIGN_BLOCKS`, a column for every
warp of the launch); it exists only once a kernel has released something in global memory, since before that nobody
can have any.
"""

from __future__ import annotations

import numpy as np

KNOWN, SHARED_FENCED, GLOBAL_FENCED, MAP_FENCED, INITS_FENCED, WARPS, SC_FENCED, SC_HEARD = range(8)
BLOCKS = 8
FOREIGN_BLOCKS = (KNOWN, GLOBAL_FENCED, MAP_FENCED, SC_FENCED, SC_HEARD)


class Clock:
    """One vector clock. ``columns`` int32 (BLOCKS, n), at ``address``, grows with the counters; missing ones are 0.

    ``version`` counts the times that the clock has learnt something.
    """

    __slots__ = ("address", "columns", "foreign", "version")

    def __init__(self, width: int):
        self._set(np.zeros((BLOCKS, width), np.int32))
        self.foreign: np.ndarray | None = None
        self.version = 0

    def _set(self, columns: np.ndarray) -> None:
        self.columns = columns
        self.address: int = columns.__array_interface__["data"][0]

    def copy(self) -> Clock:
        other = Clock.__new__(Clock)
        other._set(self.columns.copy())
        other.foreign = None if self.foreign is None else self.foreign.copy()
        other.version = self.version
        return other

    def clear(self) -> None:
        self.columns.fill(0)
        self.foreign = None
        self.version += 1

    def widen(self, width: int) -> None:
        """Make room for columns up to ``width``."""
        if (before := self.columns.shape[1]) < width:
            wider = np.zeros((BLOCKS, max(width, before + 16)), np.int32)
            wider[:, :before] = self.columns
            self._set(wider)

    def knows(self, column: int, value: int, block: int = KNOWN) -> bool:
        """Has a column of a block reached a value?"""
        return column < self.columns.shape[1] and self.columns[block, column] >= value

    def learn(self, column: int, value: int) -> None:
        """Let a counter have reached a value."""
        self.widen(column + 1)
        if self.columns[KNOWN, column] < value:
            self.columns[KNOWN, column] = value
            self.version += 1
        self.columns[WARPS, column] = max(self.columns[WARPS, column], value)

    def join(self, other: Clock) -> None:
        """Know all that ``other`` knows."""
        self.widen(width := other.columns.shape[1])
        mine = self.columns if self.columns.shape[1] == width else self.columns[:, :width]
        np.maximum(mine, other.columns, out=mine)
        self.version += 1
        if other.foreign is not None:
            self._join_foreign(other.foreign)

    def meet(self, other: Clock) -> None:
        """Know only what ``other`` knows too."""
        width = min(self.columns.shape[1], other.columns.shape[1])
        self.columns[:, width:] = 0
        mine = self.columns[:, :width]
        np.minimum(mine, other.columns[:, :width], out=mine)
        if self.foreign is not None:
            self.foreign = None if other.foreign is None else np.minimum(self.foreign, other.foreign)

    def fence(self, block: int) -> None:
        """Let a block know all that is known."""
        source = self.columns[WARPS if block in (INITS_FENCED, SC_FENCED) else KNOWN]
        np.maximum(self.columns[block], source, out=self.columns[block])
        self.version += 1
        if self.foreign is not None and block in FOREIGN_BLOCKS:
            at = FOREIGN_BLOCKS.index(block)
            np.maximum(self.foreign[at], self.foreign[0], out=self.foreign[at])

    def part(self, source: int, *targets: int) -> Clock:
        """Return a clock that knows nothing but a block of this one, as its blocks ``targets``."""
        other = Clock(self.columns.shape[1])
        if self.foreign is not None:
            other.foreign = np.zeros_like(self.foreign)
        for block in targets:
            other.columns[block] = self.columns[source]
            if other.foreign is not None and self.foreign is not None and block in FOREIGN_BLOCKS:
                other.foreign[FOREIGN_BLOCKS.index(block)] = self.foreign[FOREIGN_BLOCKS.index(source)]
        return other

    def publish(self, other: Clock, members: np.ndarray, warps: int) -> None:
        """Take what a warp of a cluster knows into the clock of a place that warps of any cluster may read.

        ``members``: the launch-wide numbers of the warps of that cluster, by column; ``warps``: warps of the launch.
        """
        self.join(other)
        if self.foreign is None:
            self.foreign = np.zeros((len(FOREIGN_BLOCKS), warps), np.int32)
        for at, block in enumerate(FOREIGN_BLOCKS):
            known = other.columns[block, : len(members)]
            if block == KNOWN:
                # Through global memory a warp speaks for all its lanes.
                known = np.maximum(known, other.columns[WARPS, : len(members)])
            self.foreign[at, members] = np.maximum(self.foreign[at, members], known)

    def acquire(self, place: Clock, is_same_cluster: bool, members: np.ndarray) -> None:
        """Learn what was published at a place; counters are known only within the cluster that published last."""
        if is_same_cluster:
            self.join(place)
        self.version += 1
        if place.foreign is None:
            return
        self._join_foreign(place.foreign)
        for at, block in enumerate(FOREIGN_BLOCKS):
            mine = self.columns[block, : len(members)]
            np.maximum(mine, place.foreign[at, members], out=mine)

    def _join_foreign(self, foreign: np.ndarray) -> None:
        if self.foreign is None:
            self.foreign = foreign.copy()
        else:
            np.maximum(self.foreign, foreign, out=self.foreign)
