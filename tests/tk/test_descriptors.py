"""The descriptor and step offsets of a tile lead wgmma to the bytes where the tile keeps its elements."""

import re

import numpy as np
import pytest

from h100sim import tk
from h100sim.errors import UsageError
from h100sim.layouts.descriptor import operand_addresses
from h100sim.tk.builder import Builder, tracing
from h100sim.tk.descriptors import operand
from h100sim.tk.tiles import SHARED_START


def tile_addresses(tile, base):
    """Return the byte address of every element of a tile that begins at ``base``.

    Spec: ThunderKittens 2.0 ``st::idx``: column panels of the swizzle width, 16-byte chunks XORed with address bits 7
    to 9.
    """
    r, c = np.indices((tile.rows, tile.cols))
    size, panel = tile.dtype.size_bytes, tile.panel_cols
    linear = base + size * ((c // panel) * tile.rows * panel + r * panel + c % panel)
    return linear ^ (((linear % (8 * tile.swizzle)) >> 7) << 4)


def described(dtype, rows, cols, k_along_rows, swizzle):
    """Return a tile, its operand and the descriptor of step 0 for a tile at the start of shared memory."""
    with tracing(Builder("test", 4)) as builder:
        tile = tk.st(dtype, rows, cols, swizzle=swizzle)
        result = operand(tile, k_along_rows)
        (fields,) = re.findall(r"or\.b64 \S+, \S+, (0x\w+);", "\n".join(line.text for line in builder.lines))
    return tile, result, int(fields, 16) | SHARED_START >> 4


B_TILES = [
    (n, k, k_along_rows, swizzle)
    for n in (16, 32, 48, 64, 96, 128, 192, 256)
    for k in (16, 32, 48, 64, 128)
    for k_along_rows in (False, True)
    for swizzle in (None, 32, 64)
    if swizzle is None or (n if k_along_rows else k) * 2 % swizzle == 0
]


@pytest.mark.parametrize("n, k, k_along_rows, swizzle", B_TILES)
def test_b_operands_of_16_bit_types(n, k, k_along_rows, swizzle):
    rows, cols = (k, n) if k_along_rows else (n, k)
    tile, b, descriptor = described(tk.bf16, rows, cols, k_along_rows, swizzle)
    addresses = tile_addresses(tile, SHARED_START)
    instruction = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16"
    for step, offset in enumerate(b.step_offsets):
        found = operand_addresses(instruction, "b", descriptor + (offset >> 4), transpose=k_along_rows)
        part = slice(16 * step, 16 * step + 16)
        np.testing.assert_array_equal(found, addresses[part].T if k_along_rows else addresses[:, part])
    assert len(b.step_offsets) == k // 16


@pytest.mark.parametrize("k", [32, 64, 96, 128, 256])
def test_b_operands_of_fp8(k):
    tile, b, descriptor = described(tk.fp8e4m3, 96, k, False, None)
    addresses = tile_addresses(tile, SHARED_START)
    for step, offset in enumerate(b.step_offsets):
        found = operand_addresses("wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3", "b", descriptor + (offset >> 4))
        np.testing.assert_array_equal(found, addresses[:, 32 * step : 32 * step + 32])


@pytest.mark.parametrize("k_along_rows", [False, True])
def test_a_operands(k_along_rows):
    tile, a, descriptor = described(tk.half, 64, 64, k_along_rows, None)
    addresses = tile_addresses(tile, SHARED_START)
    for step, offset in enumerate(a.step_offsets):
        instruction = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        found = operand_addresses(instruction, "a", descriptor + (offset >> 4), transpose=k_along_rows)
        part = slice(16 * step, 16 * step + 16)
        np.testing.assert_array_equal(found, addresses[part].T if k_along_rows else addresses[:, part])


@pytest.mark.parametrize(
    "tile, k_along_rows, message",
    [
        (lambda: tk.st(tk.fp8e4m3, 64, 64), True,
         "mma operand of e4m3 must be K-major (mma_ABt), not a tile whose rows run along K"),
        (lambda: tk.st(tk.bf16, 64, 64, swizzle=0), False,
         "mma operand must be a swizzled tile, not the row-major st<bf16, 64, 64>"),
        (lambda: tk.st(tk.bf16, 64, 64, count=2, name="a"), False, "mma operand must be one tile, not the array a"),
    ],
)  # fmt: skip
def test_tiles_that_wgmma_cannot_read_are_refused(tile, k_along_rows, message):
    with tracing(Builder("test", 4)), pytest.raises(UsageError) as error:
        operand(tile(), k_along_rows)
    assert error.value.message == message
