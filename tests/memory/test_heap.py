"""The device heap: limits, poison, blocks that were freed."""

from __future__ import annotations

import pytest

import h100sim
from h100sim.memory.heap import DeviceHeap


def test_blocks_are_separate_allocations_that_hold_poison():
    memory = h100sim.GlobalMemory()
    heap = DeviceHeap(memory)
    a, b = heap.malloc(100, "a"), heap.malloc(0, "b")
    assert a and b and a != b
    assert set(memory.view(a, 100).tolist()) == {0xCD}
    with pytest.raises(h100sim.OutOfRange, match="past the end of 'a'"):
        memory.view(a, 101)


def test_a_full_heap_gives_null_until_something_is_freed():
    heap = DeviceHeap(h100sim.GlobalMemory(), limit_bytes=1024)
    first = heap.malloc(600, "first")
    assert heap.malloc(600, "second") == 0
    heap.free(first)
    assert heap.malloc(600, "second") not in (0, first)


def test_free_of_null_does_nothing_and_of_anything_else_is_an_error():
    memory = h100sim.GlobalMemory()
    heap, buffer = DeviceHeap(memory), memory.allocate(64, "buffer")
    heap.free(0)
    block = heap.malloc(16, "block")
    heap.free(block)
    for address, what in ((block, "which was freed"), (buffer, "0 bytes into 'buffer'"), (block + 4, "freed")):
        with pytest.raises(h100sim.OutOfRange, match=what):
            heap.free(address)


def test_a_snapshot_brings_blocks_back():
    memory = h100sim.GlobalMemory()
    heap = DeviceHeap(memory)
    kept_block = heap.malloc(16, "kept")
    kept = heap.snapshot(), memory.snapshot()
    heap.free(kept_block)
    later = heap.malloc(16, "later")
    heap.restore(kept[0])
    memory.restore(kept[1])
    assert memory.find(kept_block) is not None and memory.find(later) is None
    assert heap.malloc(16, "again") == later
    heap.free(kept_block)
