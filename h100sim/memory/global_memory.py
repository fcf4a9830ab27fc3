"""Global memory of a simulated device: one array of bytes that grows, and the allocations in it.

Virtual addresses start at a fixed base and never move; the array behind them may be replaced by a larger one when
memory grows, so a view does not survive the next ``allocate``. Between two allocations lie at least 512 bytes that
belong to nobody, so that an access just past the end of one never lands in the next. Memory that was freed is used
again as late as possible.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from h100sim.errors import OutOfRange, UsageError
from h100sim.integers import integer

from .cache import LINE_SHIFT, L2State

#: Virtual address of byte 0 of the arena. Assumed: any 47-bit user address would do; programs cannot rely on it.
BASE_ADDRESS = 0x7F0000000000
#: Alignment of an allocation in bytes. Measured: every cudaMalloc of the captures under tests/data is 512-byte aligned.
ALIGNMENT = 512
#: Least distance in bytes between two allocations. Assumed: large enough that small overruns are caught.
GAP = 512

_FIRST_CAPACITY = 1 << 20
_REMEMBERED_FREES = 4096


@dataclass(frozen=True)
class Allocation:
    """``size`` bytes of global memory at the virtual address ``start``, under a name for messages."""

    name: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size

    def __str__(self) -> str:
        return f"'{self.name}' ({self.size:,} bytes at {self.start:#x})"


class GlobalMemory:
    """Global memory: ``arena[address - base]`` is the byte at a virtual address.

    ``starts`` and ``ends`` (sorted int64 arrays) are the live allocations, for compiled code. New memory holds zeros.
    """

    def __init__(self, base: int = BASE_ADDRESS):
        self.base = base
        self.arena = np.zeros(_FIRST_CAPACITY, np.uint8)
        self.l2 = L2State(_FIRST_CAPACITY >> LINE_SHIFT)
        self.starts = np.zeros(0, np.int64)
        self.ends = np.zeros(0, np.int64)
        self._live: list[Allocation] = []
        self._freed: OrderedDict[int, Allocation] = OrderedDict()
        self._cursor = base

    @property
    def used_bytes(self) -> int:
        """The bytes of the live allocations."""
        return int((self.ends - self.starts).sum())

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The live allocations in order of address."""
        return tuple(self._live)

    def allocate(self, size_bytes: int, name: str = "buffer", fresh: bool = False) -> int:
        """Reserve ``size_bytes`` and return their address, a multiple of 512; ``fresh`` for one never used before."""
        size = int(size_bytes)
        if size < 1:
            raise UsageError(f"allocation '{name}' must be at least 1 byte, not {size}")
        try:
            start = self._room_for(size, fresh)
        except MemoryError:
            raise UsageError(f"allocation '{name}' must fit the memory of this machine, not {_bytes(size)}") from None
        self._cursor = _align(start + size + GAP)
        self._forget_frees(start, start + size)
        index = int(np.searchsorted(self.starts, start))
        self._live.insert(index, Allocation(name, start, size))
        self.starts, self.ends = np.insert(self.starts, index, start), np.insert(self.ends, index, start + size)
        self.view(start, size)[:] = 0
        return start

    def upload(self, array: np.ndarray | bytes, name: str = "buffer") -> int:
        """Copy an array (C order) or bytes into a new allocation and return its address."""
        data = _bytes_of(array)
        address = self.allocate(max(data.size, 1), name)
        self.write(address, data)
        return address

    def write(self, address: int, array: np.ndarray | bytes) -> None:
        """Copy an array (C order) or bytes from the host into an allocation."""
        data = _bytes_of(array)
        self.view(address, data.size)[:] = data
        self.l2.upload(int(address) - self.base, data.size)

    def download(self, address: int, like: np.ndarray) -> np.ndarray:
        """Return a new array with the shape and type of ``like`` that holds the bytes at ``address``."""
        like = np.asarray(like)
        if like.dtype.hasobject:
            raise UsageError(f"like must be an array of numbers, not {like.dtype}")
        result = np.empty(like.shape, like.dtype)
        if result.nbytes:
            result.reshape(-1).view(np.uint8)[:] = self.view(address, result.nbytes)
        return result

    def view(self, address: int, size: int) -> np.ndarray:
        """Return bytes of one allocation as a view, valid until memory grows; OutOfRange if not in one."""
        address = integer("address", address)
        found = self.find(address)
        if size and (found is None or address + size > found.end):
            raise OutOfRange(f"address must lie in an allocation, not {self.describe(address, size)}")
        offset = int(address) - self.base
        return self.arena[offset : offset + size]

    def free(self, address: int) -> None:
        """Give an allocation back. Its address must be the one that ``allocate`` returned."""
        found = self.find(address)
        if found is None or found.start != address:
            raise UsageError(f"address to free must be the start of a live allocation, not {self.describe(address, 1)}")
        index = int(np.searchsorted(self.starts, address))
        del self._live[index]
        self.starts, self.ends = np.delete(self.starts, index), np.delete(self.ends, index)
        self._freed[found.start] = found
        if len(self._freed) > _REMEMBERED_FREES:
            self._freed.popitem(last=False)

    def snapshot(self) -> tuple[list[Allocation], list[Allocation], int]:
        """Return which allocations there are; the bytes are not part of it."""
        return list(self._live), list(self._freed.values()), self._cursor

    def restore(self, kept: tuple[list[Allocation], list[Allocation], int]) -> None:
        """Go back to the allocations of a snapshot."""
        self._live, self._cursor = list(kept[0]), kept[2]
        self._freed = OrderedDict((f.start, f) for f in kept[1])
        self.starts = np.array([a.start for a in self._live], np.int64)
        self.ends = np.array([a.end for a in self._live], np.int64)

    def find(self, address: int) -> Allocation | None:
        """Return the live allocation that contains an address, or None."""
        index = int(np.searchsorted(self.starts, address, side="right")) - 1
        return self._live[index] if index >= 0 and address < self._live[index].end else None

    def describe(self, address: int, size: int) -> str:
        """Say where ``size`` bytes lie, as in "... 16 bytes past the end of 'C' (512 bytes at 0x...)"."""
        address = int(address)
        what = f"{address:#x} ({size:,} {'byte' if size == 1 else 'bytes'})"
        found = self.find(address)
        if found is not None and address + size <= found.end:
            return f"{what}, {address - found.start:,} bytes into {found}"
        if found is not None:
            return f"{what}, which ends {_bytes(address + size - found.end)} past the end of {found}"
        freed = next((f for f in reversed(self._freed.values()) if f.start <= address < f.end), None)
        if freed is not None:
            return f"{what}, {_bytes(address - freed.start)} into {freed}, which was freed"
        near = self._nearest(address)
        if near is None:
            return f"{what}, and there is no allocation"
        if address < near.start:
            return f"{what}, {_bytes(near.start - address)} before the start of {near}"
        distance = address - near.end
        return f"{what}, {_bytes(distance)} past the end of {near}" if distance else f"{what}, just past the end of {near}"

    def _nearest(self, address: int) -> Allocation | None:
        def distance(a: Allocation) -> int:
            return a.start - address if address < a.start else address - a.end

        return min(self._live, key=distance, default=None)

    def _room_for(self, size: int, fresh: bool) -> int:
        """Return the first free address from the cursor on that has room, else from the start on (unless it shall be
        ``fresh``), else past the end."""
        limit = self.base + len(self.arena)
        for low, high in ((self._cursor, limit), (self.base, self._cursor))[: 1 if fresh else 2]:
            start = self._hole(low, high, size)
            if start is not None:
                return start
        start = _align(max(self._cursor, int(self.ends[-1]) + GAP if len(self.ends) else self.base))
        self._grow(start + size + GAP - self.base)
        return start

    def _hole(self, low: int, high: int, size: int) -> int | None:
        """Return an aligned address in [low, high) with ``size`` free bytes and gaps around them."""
        start = _align(low)
        first = int(np.searchsorted(self.ends, low - GAP, side="right"))
        for allocation in self._live[first:]:
            if start + size + GAP <= min(allocation.start, high):
                return start
            start = max(start, _align(allocation.end + GAP))
            if start + size + GAP > high:
                return None
        return start if start + size + GAP <= high else None

    def _grow(self, size: int) -> None:
        arena = np.zeros(max(size, 2 * len(self.arena)), np.uint8)
        arena[: len(self.arena)] = self.arena
        self.arena = arena
        self.l2.grow(len(arena) >> LINE_SHIFT)

    def _forget_frees(self, start: int, end: int) -> None:
        for key in [k for k, f in self._freed.items() if f.start < end and start < f.end]:
            del self._freed[key]


def _align(address: int) -> int:
    return -(-address // ALIGNMENT) * ALIGNMENT


def _bytes(count: int) -> str:
    return f"{count:,} byte" if count == 1 else f"{count:,} bytes"


def _bytes_of(array: np.ndarray | bytes) -> np.ndarray:
    """Return the bytes of an array in C order (or of a bytes-like object) as uint8."""
    if isinstance(array, (bytes, bytearray, memoryview)):
        return np.frombuffer(array, np.uint8)
    array = np.ascontiguousarray(array)
    if array.dtype.hasobject:
        raise UsageError(f"array must have numbers, not {array.dtype}")
    return array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
