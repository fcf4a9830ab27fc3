"""What happened, as a table: one record per event, in the order in which the machine made them.

The trace is the only thing that crosses from the machine to those who look at it: checks listen to it chunk by chunk while
the kernel runs, views and exports read it afterwards. An event never refers to machine internals: warps, CTAs, barriers
and asynchronous operations are numbered once and never reused (*fresh identities*), so a finished copy cannot be mistaken
for the next one that uses the same slot.

Time is in SM cycles since the launch. ``warp`` is a number unique within the launch (``Trace.warps`` says where it ran),
-1 for hardware units. ``pc`` is the index of the instruction in the entry function, -1 for hardware units.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from .hazard import Hazard
from .words import counted

FORMAT_VERSION = 1

#: One event. ``op`` is the identity of an asynchronous operation (-1: none); ``a`` to ``d`` depend on ``kind``.
EVENT = np.dtype(
    [
        ("time", "i8"),
        ("kind", "i4"),
        ("cta", "i4"),
        ("warp", "i4"),
        ("pc", "i4"),
        ("mask", "u4"),
        ("op", "i4"),
        ("a", "i8"),
        ("b", "i8"),
        ("c", "i8"),
        ("d", "i8"),
    ],
    align=True,
)

#: A warp of the launch: its CTA, its rank in the CTA, the SM and scheduler that ran it.
WARP_INFO = np.dtype([("cta", "i4"), ("rank", "i4"), ("sm", "i4"), ("scheduler", "i4")], align=True)

#: A CTA of the launch: SM, first and last cycle, cluster and rank in it.
CTA_INFO = np.dtype(
    [("cta", "i4"), ("sm", "i4"), ("start", "i8"), ("end", "i8"), ("cluster", "i4"), ("cluster_rank", "i4")],
    align=True,
)


class Event(IntEnum):
    """Kinds of event and the meaning of their fields ``a``, ``b``, ``c``, ``d``."""

    # Warps. ISSUED: a = cycles since the warp could have issued it at the earliest, b = cause of that delay (Cause).
    ISSUED = 1
    #: The warp cannot proceed: a = Wait, b = object (mbarrier identity, barrier id, ...), c = parity, count or phase waited for.
    BLOCKED = 2
    #: It can: a = Wait, b = object, c = cycles blocked.
    RESUMED = 3
    #: The lanes of ``mask`` ended.
    EXITED = 4
    CTA_STARTED = 5  # a = SM
    CTA_ENDED = 6

    # mbarriers. a = identity of the mbarrier (fresh for each init). d = the 32-bit shared address it lies at (with the
    # cluster rank of its CTA in bits 24 and up), in the CTA ``b`` for MBARRIER_INITIALISED only.
    MBARRIER_INITIALISED = 10  # b = CTA that owns it, c = expected arrivals, d = shared address
    MBARRIER_INVALIDATED = 11
    MBARRIER_ARRIVED = 12  # b = number of arrivals, c = pending count afterwards, d = phase (counted from 0) arrived at
    MBARRIER_EXPECTED = 13  # b = bytes expected, c = tx-count afterwards, d = phase
    MBARRIER_COMPLETED_TX = 14  # b = bytes completed, c = tx-count afterwards, d = phase; op = the copy that completed
    MBARRIER_FLIPPED = 15  # b = phase that just completed
    MBARRIER_WAITED = 16  # b = parity asked for (or -1), c = 1 returned True, 0 False, d = phase whose completion it saw (-1: none)
    MBARRIER_DROPPED = 17  # b = number of arrivals dropped, c = expected afterwards, d = phase
    MBARRIER_RAISED = 18  # b = arrivals added to the pending count, c = pending count afterwards, d = phase

    # Named barriers (a = id 0..15). A warp arrives with 32 threads.
    BARRIER_ARRIVED = 20  # b = threads arrived afterwards, c = threads expected, d = 1 for sync (waits), 0 for arrive
    BARRIER_RELEASED = 21  # b = generation (counted from 0) that completed; warp -1
    BARRIER_SYNCED = 22  # b = generation the warp has passed

    # Cluster barrier.
    CLUSTER_ARRIVED = 25  # b = generation, c = 1 release, 0 relaxed
    CLUSTER_WAITED = 26  # b = generation

    # Bulk copies. ISSUED by a warp; STARTED and COMPLETED by the TMA engine (warp -1). op = identity.
    # a = Copy, b = bytes of shared memory from first to last row, c = shared address, d = mbarrier identity or -1
    TMA_ISSUED = 30
    #: The engine begins with a copy: a = Copy, b = cycles until it can begin with another one, c = cycles that the copy
    #: waited in its queue behind others, d = 1 for a store. Older traces lack it.
    TMA_STARTED = 31
    TMA_READ = 32  # source read (stores): the shared memory may be reused
    TMA_COMPLETED = 33  # a = Copy, b = bytes, c = shared address, d = mbarrier identity or -1
    BULK_COMMITTED = 34  # a = group (counted per warp from 0), mask = issuing lanes
    BULK_WAITED = 35  # a = all groups up to this one are done (-1: none), b = 1 for .read
    #: The global bytes of a copy: a = first address, b = bytes of a row, c = rows, d = row stride. One event per outer row block.
    TMA_GLOBAL = 36
    #: The shared bytes that a copy between CTAs reads: a = shared address, b = bytes.
    TMA_SOURCE = 37
    #: How the box of a tensor load lies in shared memory: a = bytes of a row (0: interleaved), b = bytes from row to row, c = rows,
    #: d = span of the swizzle in bytes (16: none).
    TMA_BOX = 38

    # wgmma. op = identity; the four warps of a warpgroup issue the same operation.
    WGMMA_ISSUED = 40  # a = descriptor of A (-1: registers), b = descriptor of B, c = sequence number in the warpgroup, d = scale-d
    WGMMA_STARTED = 41  # warp = first warp of the warpgroup
    WGMMA_COMPLETED = 42  # warp = first warp of the warpgroup
    WGMMA_FENCED = 43
    WGMMA_COMMITTED = 44  # a = group (counted from 0), c = sequence number of its last wgmma (-1: empty)
    WGMMA_WAITED = 45  # a = all groups up to this one are done (-1: none)

    # Memory. a = row of ``Trace.lanes`` (32 addresses), b = bytes per lane, c = Space, d = Access (bit set).
    MEMORY = 50
    FENCED = 51  # a = Fence
    BANK_CONFLICT = 52  # a = wavefronts needed, b = wavefronts without conflict
    #: An access to shared memory stood behind others: a = cycles until the port took it, b = cycles that the port's full queue held
    #: the warp afterwards. Only in traces with every instruction.
    PORT_HELD = 53

    # Registers for setmaxnreg: a = registers per thread afterwards.
    REGISTERS_CHANGED = 60
    CLOCK_READ = 61
    PRINTED = 62  # a = row of ``Trace.texts``


class Wait(IntEnum):
    """What a blocked warp waits for."""

    NONE = 0
    MBARRIER = 1
    BARRIER = 2
    WGMMA = 3
    BULK = 4
    REGISTERS = 5
    CLUSTER = 6
    RECONVERGENCE = 7
    WARPGROUP = 8
    SLEEP = 9
    CP_ASYNC = 10
    NOTHING = 11  # a loop that reads what nobody will change


class Cause(IntEnum):
    """Why an instruction did not issue earlier."""

    NONE = 0
    DEPENDENCY = 1
    SCHEDULER = 2
    PIPE = 3
    MEMORY = 4
    TENSOR_CORE = 5
    TMA = 6
    BRANCH = 7
    FETCH = 8


class Copy(IntEnum):
    """Kinds of bulk copy."""

    TENSOR_LOAD = 0
    TENSOR_STORE = 1
    TENSOR_REDUCE = 2
    BULK_LOAD = 3
    BULK_STORE = 4
    BULK_REDUCE = 5
    BULK_CLUSTER = 6
    PREFETCH = 7
    CLUSTER_REDUCE = 8  # to the shared memory of another CTA, as BULK_CLUSTER
    ASYNC_STORE = 9  # st.async: no bulk copy, a store of one lane that completes on an mbarrier
    ASYNC_REDUCE = 10  # red.async


class Space(IntEnum):
    """State spaces of addresses in the trace."""

    GLOBAL = 0
    SHARED = 1
    LOCAL = 2
    CONST = 3
    PARAM = 4


class Access(IntEnum):
    """Bits of a memory access."""

    READ = 1
    WRITE = 2
    ATOMIC = 4
    RELEASE = 8
    ACQUIRE = 16
    VOLATILE = 32
    ASYNC = 64  # cp.async, st.async: performed later by an asynchronous agent of the generic proxy
    UNCHANGED = 128  # a store of the bytes that were there


class Fence(IntEnum):
    """Kinds of fence."""

    PROXY_ASYNC = 0
    PROXY_ASYNC_SHARED = 1
    PROXY_ASYNC_GLOBAL = 2
    MBARRIER_INIT = 3
    ACQ_REL_CTA = 4
    ACQ_REL_CLUSTER = 5
    ACQ_REL_GPU = 6
    ACQ_REL_SYS = 7
    SC = 8
    PROXY_TENSORMAP_RELEASE = 9
    PROXY_TENSORMAP_ACQUIRE = 10
    PROXY_ALIAS = 11


@dataclass(frozen=True)
class KernelInfo:
    """What a reader of a trace needs to know of the kernel. ``lines`` has the PTX line of every instruction, ``opcodes`` its
    opcode, ``sources`` its (file, line) in Python or CUDA or None; ``ptx`` the whole text; ``files`` the text of every source
    file that could be read; ``roles`` (name, first warp rank, last warp rank), ``tiles`` and ``semaphores`` as the DSL named
    them (see ``h100sim.tk.Kernel.debug``)."""

    name: str
    ptx: str
    lines: tuple[int, ...]
    opcodes: tuple[str, ...]
    sources: tuple[tuple[str, int] | None, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    device: str
    clock_mhz: int
    files: dict[str, str] = field(default_factory=dict)
    roles: tuple[tuple[str, int, int], ...] = ()
    tiles: tuple[dict[str, Any], ...] = ()
    semaphores: tuple[dict[str, Any], ...] = ()

    def role(self, warp_rank: int) -> str:
        """Return the name of the role that a warp of a CTA plays: the DSL's name, else "warpgroup N" or "warp N"."""
        for name, first, last in self.roles:
            if first <= warp_rank <= last:
                return name
        warps = (self.block[0] * self.block[1] * self.block[2] + 31) // 32
        return f"warpgroup {warp_rank // 4}" if warps % 4 == 0 else f"warp {warp_rank}"

    def place(self, pc: int) -> str:
        """Return where an instruction stands, as "gemm.py:41" or "line 120"."""
        if not 0 <= pc < len(self.lines):
            return ""
        source = self.sources[pc]
        return f"{Path(source[0]).name}:{source[1]}" if source else f"line {self.lines[pc]}"


class RowsByKind:
    """The rows of events by their kinds: millions are sorted once and not searched for every kind anew."""

    def __init__(self, kinds: np.ndarray):
        of = kinds.astype(np.uint8)
        self._order = np.argsort(of, kind="stable")
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(of, minlength=256))))

    def of(self, *kinds: Event) -> np.ndarray:
        """Return the rows of the given kinds, in order."""
        rows = [self._order[self._starts[kind] : self._starts[kind + 1]] for kind in kinds]
        return rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows))


@dataclass(repr=False)
class Trace:
    """The record of a run: ``events`` (dtype EVENT), which do not change, ``lanes`` (n, 32) addresses, ``warps`` (WARP_INFO),
    ``ctas`` (CTA_INFO)."""

    kernel: KernelInfo
    events: np.ndarray
    lanes: np.ndarray
    warps: np.ndarray
    ctas: np.ndarray
    cycles: int
    texts: tuple[str, ...] = ()
    #: What the checks found; None: nobody has checked.
    hazards: tuple[Hazard, ...] | None = None
    _by_kind: RowsByKind | None = field(default=None, init=False, compare=False)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Trace of {self.kernel.name}: {counted(len(self), 'event')} in {counted(self.cycles, 'cycle')}>"

    def of(self, *kinds: Event) -> np.ndarray:
        """Return the events of the given kinds, in order."""
        return self.events[self.rows_of(*kinds)]

    def rows_of(self, *kinds: Event) -> np.ndarray:
        """Return the rows of the events of the given kinds, in order."""
        if self._by_kind is None:
            self._by_kind = RowsByKind(self.events["kind"])
        return self._by_kind.of(*kinds)

    def save(self, path: str | Path) -> None:
        """Write the trace (:mod:`h100sim.trace_file`); the same one gives the same bytes. Raises UsageError."""
        from . import trace_file

        trace_file.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace that :meth:`save` wrote. Raises UsageError if it is not one, damaged, or of a newer version."""
        from . import trace_file

        return trace_file.load(path)

    def to_perfetto(self, path: str | Path) -> None:
        """Write a Perfetto protobuf trace that ui.perfetto.dev opens; times are shown in cycles as nanoseconds."""
        from .perfetto_export import write_perfetto

        write_perfetto(self, path)
