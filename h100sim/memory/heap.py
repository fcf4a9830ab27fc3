"""The device heap: what ``malloc`` and ``free`` of a kernel manage.

Every block is an allocation of its own in global memory, so an access past its end or after ``free`` is found like any other.
The heap belongs to the device: a block lives until a kernel frees it, as in CUDA.

Spec: CUDA C++ Programming Guide 13, "Dynamic Global Memory Allocation and Operations": 8 MB unless the program asks for more
(cudaLimitMallocHeapSize), blocks aligned to 16 bytes, NULL when the heap is full, ``free(NULL)`` does nothing.
"""

from __future__ import annotations

from ..errors import OutOfRange
from .global_memory import GlobalMemory

DEFAULT_HEAP_BYTES = 8 << 20
#: Assumed: what the allocator takes for a block beside its bytes.
_BLOCK_BYTES = 16
#: While memory is smaller than this, freed addresses are not used again, so that a stale pointer is seen.
_REUSE_ABOVE = 1 << 28
#: What new blocks hold: nobody may rely on it.
_POISON = 0xCD


class DeviceHeap:
    """The blocks of one device."""

    def __init__(self, memory: GlobalMemory, limit_bytes: int = DEFAULT_HEAP_BYTES):
        self.memory, self.limit_bytes = memory, limit_bytes
        self.blocks: dict[int, int] = {}
        self.used_bytes = 0

    def malloc(self, size: int, name: str) -> int:
        """Return the address of a new block, or 0 if the heap has no room for it. ``name`` is for messages."""
        need = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES + _BLOCK_BYTES
        if size < 0 or self.used_bytes + need > self.limit_bytes:
            return 0
        fresh = len(self.memory.arena) < _REUSE_ABOVE
        address = self.memory.allocate(max(size, 1), name, fresh=fresh)
        self.memory.view(address, size)[:] = _POISON
        self.blocks[address] = need
        self.used_bytes += need
        return address

    def free(self, address: int) -> None:
        """Give a block back. Raises OutOfRange for what ``malloc`` did not return or what is free already."""
        if address == 0:
            return
        if address not in self.blocks:
            raise OutOfRange(f"address to free must be that of a block of malloc, not {self.memory.describe(address, 1)}")
        self.used_bytes -= self.blocks.pop(address)
        self.memory.free(address)

    def snapshot(self) -> tuple[dict[int, int], int]:
        return dict(self.blocks), self.used_bytes

    def restore(self, kept: tuple[dict[int, int], int]) -> None:
        """Go back to a snapshot; the memory's own has to be restored beside it."""
        self.blocks, self.used_bytes = dict(kept[0]), kept[1]
