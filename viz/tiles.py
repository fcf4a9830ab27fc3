"""Shared tiles of a recording: where each element of a tile lies, and which steps change what the tile holds.

Convention (ThunderKittens): a swizzled tile is stored as column panels S bytes wide, all rows of a panel before the
next panel, and in the byte address bits 4 and up are XORed with bits 7 and up: three bits for S = 128, two for 64, one
for 32. Addresses are absolute offsets in the CTA's shared window, so a tile must start at a multiple of 8 S.
``swizzle`` 0 is plain row-major. Memory that no tile names but that a bulk copy used appears as a region of bytes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from h100sim.errors import UsageError
from h100sim.intervals import SHARED_OFFSET_MASK
from h100sim.trace import Access, Copy, Event, KernelInfo, Space

#: Element types that a picture can decode, and their sizes in bytes.
DTYPE_BYTES = {
    "bf16": 2, "f16": 2, "f32": 4, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4,
    "u32": 4, }  # fmt: skip

#: Names of element types that ThunderKittens and C write differently from PTX.
_DTYPE_NAMES = {
    "fl": "f32",
    "float": "f32",
    "float32": "f32",
    "hf": "f16",
    "half": "f16",
    "fp8e4m3": "e4m3",
    "fp8e5m2": "e5m2",
}

#: Accesses of lanes whose 32 addresses travel to the browser at most (128 bytes each).
SHOWN_ACCESSES = 20_000

#: Width of the address rows in which memory is drawn: all 32 banks of 4 bytes once.
ROW_BYTES = 128


@dataclass(frozen=True)
class Tile:
    """A tile (or plain region) of shared memory: ``offset`` in the CTA's window and ``swizzle`` (0: none) in bytes."""

    name: str
    offset: int
    rows: int
    cols: int
    dtype: str
    swizzle: int
    is_region: bool = False

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def size_bytes(self) -> int:
        return self.rows * self.cols * self.element_bytes


def tiles_of(kernel: KernelInfo, copies: np.ndarray) -> tuple[Tile, ...]:
    """Return the tiles that the kernel names, one per stage, else the regions that bulk copies wrote or read."""
    named = tuple(tile for entry in kernel.tiles if entry.get("space", "shared") == "shared" for tile in _stages(entry))
    return named or _regions(copies)


def _stages(entry: dict[str, Any]) -> list[Tile]:
    dtype = _DTYPE_NAMES.get(entry["dtype"], entry["dtype"])
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"tile {entry['name']} dtype must be one of {', '.join(DTYPE_BYTES)}, not {entry['dtype']}")
    rows, cols = entry["shape"]
    count = tuple(entry.get("count") or ())
    tiles = []
    for n, index in enumerate(itertools.product(*(range(c) for c in count))):
        name = entry["name"] + "".join(f"[{i}]" for i in index)
        offset = entry["offset"] + n * rows * cols * DTYPE_BYTES[dtype]
        tiles.append(Tile(name, offset, rows, cols, dtype, int(entry["swizzle"] or 0)))
    return tiles


def _regions(copies: np.ndarray) -> tuple[Tile, ...]:
    found = {(int(c["shared"]) & SHARED_OFFSET_MASK, int(c["bytes"])) for c in copies if c["bytes"] > 0}
    return tuple(
        Tile(f"{offset:#x}, {size:,} bytes", offset, -(-size // ROW_BYTES), ROW_BYTES, "u8", 0, is_region=True)
        for offset, size in sorted(found)
    )


def element_addresses(tile: Tile) -> np.ndarray:
    """Return int64 (rows, cols): the byte offset of every element in the CTA's shared window."""
    row, col = np.indices((tile.rows, tile.cols))
    if not tile.swizzle:
        return tile.offset + tile.element_bytes * (row * tile.cols + col)
    panel = tile.swizzle // tile.element_bytes
    linear = tile.offset + tile.element_bytes * ((col // panel) * tile.rows * panel + row * panel + col % panel)
    return linear ^ (((linear % (8 * tile.swizzle)) >> 7) << 4)


def versions(tile: Tile, steps: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return the steps (indices) after which the tile may hold something new: finished copies and stores into it."""
    address = steps["c"].astype(np.int64) & SHARED_OFFSET_MASK
    size = steps["b"].astype(np.int64)
    written = (steps["kind"] == Event.TMA_COMPLETED) & ~np.isin(steps["a"], _STORES)
    written &= (address < tile.offset + tile.size_bytes) & (address + size > tile.offset)
    stores = np.flatnonzero(_is_shared_write(steps))
    for first in range(0, len(stores), 4096):
        chosen = stores[first : first + 4096]
        at = lanes[steps["a"][chosen].astype(np.int64)] & SHARED_OFFSET_MASK
        width = steps["b"][chosen].astype(np.int64)[:, None]
        written[chosen] = ((at < tile.offset + tile.size_bytes) & (at + width > tile.offset)).any(axis=1)
    return np.flatnonzero(written)


#: Copies out of shared memory.
_STORES = (Copy.TENSOR_STORE, Copy.TENSOR_REDUCE, Copy.BULK_STORE, Copy.BULK_REDUCE)


def _is_shared_write(steps: np.ndarray) -> np.ndarray:
    return _is_shared_access(steps) & ((steps["d"].astype(np.int64) & (Access.WRITE | Access.ATOMIC)) != 0)


def _is_shared_access(steps: np.ndarray) -> np.ndarray:
    return (steps["kind"] == Event.MEMORY) & (steps["c"] == Space.SHARED)


def accesses(steps: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which lanes touch shared memory and (n, 32) their window offsets, -1 for inactive lanes."""
    chosen = np.flatnonzero(_is_shared_access(steps))[:SHOWN_ACCESSES]
    offsets = lanes[steps["a"][chosen].astype(np.int64)] & SHARED_OFFSET_MASK
    active = (steps["mask"][chosen, None] >> np.arange(32, dtype=np.uint32)) & 1
    return chosen, np.where(active == 1, offsets, -1)
