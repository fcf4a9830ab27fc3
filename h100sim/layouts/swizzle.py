"""Swizzles: how TMA and wgmma permute the 16-byte chunks of a row of shared memory.

A swizzle of span S (32, 64 or 128 bytes) XORs the chunk number inside an S-byte row, address bits 4 and up, with the
number of the 128-byte line, address bits 7 and up, modulo S/16. It works on absolute addresses in the CTA's shared
window, so the pattern repeats every 8*S bytes and a tile looks the same wherever it starts at a multiple of that.

Spec: PTX ISA 9.1, "Swizzling Modes". Measured: tests/data/wgmma_descriptors.npz, tests/data/tma_load.npz.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from h100sim.errors import UsageError
from h100sim.native import jit

#: Swizzle modes by name and their spans in bytes; a span of 16 is one chunk: nothing moves.
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}

Address = TypeVar("Address", int, np.ndarray)


def span_of(swizzle: str | int) -> int:
    """Return the span in bytes (16 for none) of a mode given by name or by its bytes (0 and 16 mean none)."""
    if isinstance(swizzle, str):
        if swizzle in SPANS:
            return SPANS[swizzle]
    elif swizzle in (0, *SPANS.values()):
        return max(int(swizzle), 16)
    raise UsageError(f"swizzle must be none, 32B, 64B or 128B, not {swizzle}")


def swizzle(address: Address, span: str | int) -> Address:
    """Return the address (int or int array, in bytes) where the swizzle puts what is written to ``address``.

    It is its own inverse. The span must be none, 32B, 64B or 128B, or its bytes.
    """
    return address ^ (((address >> 7) & (span_of(span) // 16 - 1)) << 4)


@jit
def swizzled(address, span_bytes):
    """Return one swizzled address; for compiled code. ``span_bytes``: 16 (none), 32, 64 or 128."""
    return address ^ (((address >> 7) & ((span_bytes >> 4) - 1)) << 4)


def panel_addresses(rows: int, columns: int, element_bytes: int, span: str | int, base: int = 0) -> np.ndarray:
    """Return int64 (rows, columns): the shared byte address of every element of a tile stored as column panels.

    A panel is ``span`` bytes wide and holds all rows; the next panel follows it. This is how ThunderKittens stores a
    shared tile and how consecutive TMA boxes of span-wide columns lie. Without a swizzle the tile is row-major.
    """
    bytes_wide = span_of(span)
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    if bytes_wide == 16:
        return base + element_bytes * (row * columns + column)
    per_panel = bytes_wide // element_bytes
    linear = (column // per_panel) * rows * per_panel + row * per_panel + column % per_panel
    return swizzle(base + element_bytes * linear, bytes_wide)
