"""Sparsity metadata: which nibble belongs to which row and chunk, and what it keeps."""

import numpy as np
import pytest

from h100sim.errors import UsageError
from h100sim.numerics.mma_sync import mma_sparse
from h100sim.numerics.sparse import expand, nibble_of
from h100sim.numerics.wgmma import wgmma_sparse


@pytest.mark.parametrize(
    "rows, bits, chunks, selector",
    [
        *((64, bits, 8, selector) for bits in (16, 32) for selector in (0, 1)),
        (64, 8, 16, 0),
        *((16, bits, chunks, selector) for bits in (16, 32) for chunks in (4, 8) for selector in range(16 // chunks)),
        *((16, bits, chunks, selector) for bits in (4, 8) for chunks in (8, 16) for selector in range(16 // chunks)),
    ],
)
def test_each_nibble_of_the_contributing_threads_has_one_place(rows, bits, chunks, selector):
    threads = 2 * rows
    place = np.zeros((rows, chunks), np.int64)  # thread * 8 + nibble, read one bit at a time
    for bit in range(10):
        is_set = (np.arange(8 * threads) >> bit & 1).reshape(threads, 8)
        metadata = (is_set * (15 << 4 * np.arange(8))).sum(axis=1).astype(np.uint32)
        for row in range(rows):
            for chunk in range(chunks):
                nibble = nibble_of(bits, chunks, metadata, selector, row, chunk)
                assert nibble in (0, 15)
                place[row, chunk] |= int(nibble == 15) << bit
    share = chunks // 4  # threads of each quad that contribute
    contributing = [t for t in range(threads) if t % 4 // share == selector]
    assert sorted(place.ravel()) == [8 * thread + position for thread in contributing for position in range(8)]
    assert (place // 8 // 32 == np.arange(rows)[:, None] // 16).all(), "a row's metadata is in the row's warp"


def metadata_with(nibble: int) -> np.ndarray:
    return np.full(128, int(f"{nibble:x}" * 8, 16), np.uint32)


@pytest.mark.parametrize("nibble, kept", [(0b0100, (0, 1)), (0b1000, (0, 2)), (0b1110, (2, 3)), (0b0001, (1, 0))])
def test_two_of_four(nibble, kept):
    packed = np.arange(1, 64 * 16 + 1, dtype=np.uint32).reshape(64, 16)
    a, present = expand("f16", packed, metadata_with(nibble))
    chunks = a.reshape(64, 8, 4)
    np.testing.assert_array_equal(chunks[:, :, kept[0]], packed[:, ::2])
    np.testing.assert_array_equal(chunks[:, :, kept[1]], packed[:, 1::2])
    assert (present.reshape(64, 8, 4).sum(-1) == 2).all() and ((a != 0) == present).all()


@pytest.mark.parametrize("nibble, kept", [(0b0100, 0), (0b1110, 1)])
def test_one_of_two(nibble, kept):
    packed = np.arange(1, 64 * 8 + 1, dtype=np.uint32).reshape(64, 8)
    a, present = expand("tf32", packed, metadata_with(nibble), selector=1)
    np.testing.assert_array_equal(a[:, kept::2], packed)
    assert present[:, kept::2].all() and not present[:, 1 - kept :: 2].any()


def test_undefined_nibbles_are_refused():
    packed = np.zeros((64, 16), np.uint32)
    with pytest.raises(UsageError, match=r"^metadata of row 0, chunk 0 must be two different indices, not 0b1010"):
        expand("bf16", packed, metadata_with(0b1010))
    with pytest.raises(UsageError, match=r"^metadata of row 0, chunk 0 must be 0b0100 or 0b1110, not 0b0001"):
        expand("tf32", packed[:, :8], metadata_with(1))


def test_wrong_shapes_and_selectors():
    with pytest.raises(UsageError, match=r"^packed A of e4m3 must be \(64, 32\) or \(16, 16\) or \(16, 32\), not \(64, 16\)$"):
        expand("e4m3", np.zeros((64, 16), np.uint32), metadata_with(4))
    with pytest.raises(UsageError, match=r"^sparsity selector of e4m3 must be 0, not 1$"):
        expand("e4m3", np.zeros((64, 32), np.uint32), metadata_with(4), selector=1)
    with pytest.raises(UsageError, match=r"^sparsity selector of f16 must be from 0 to 3, not 4$"):
        expand("f16", np.zeros((16, 8), np.uint32), metadata_with(4)[:32], selector=4)
    with pytest.raises(UsageError, match=r"^metadata must be \(128,\), not \(64,\)$"):
        expand("f16", np.zeros((64, 16), np.uint32), np.zeros(64, np.uint32))


def test_an_infinity_that_meets_nothing_has_no_effect():
    a = np.ones((64, 16), np.float16)
    b = np.ones((8, 32), np.float16)
    b[:, 2::4] = np.inf
    b[:, 3::4] = np.nan
    instr = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    assert (wgmma_sparse(instr, a, metadata_with(0b0100), b, np.zeros((64, 8), np.float32)) == 16.0).all()


def test_pairs_of_4_bit_elements_stay_together():
    packed = np.arange(16 * 32, dtype=np.uint32).reshape(16, 32) + 1
    a, present = expand("s4", packed, metadata_with(0b1001)[:32])
    chunks, stored = a.reshape(16, 8, 8), packed.reshape(16, 8, 4)
    np.testing.assert_array_equal(chunks[:, :, 2:6], stored)
    assert (present.reshape(16, 8, 8)[:, :, 2:6] == 1).all() and present.sum() == packed.size


def test_mma_sp_of_8_bit_floats_sums_even_and_odd_chunks_apart():
    """2^24 in an even chunk and eight times 1 in odd ones: each HMMA keeps 25 bits, the sum is exact."""
    a, b = np.zeros((16, 32), np.uint8), np.full((8, 64), 0x38, np.uint8)
    a[:, 0::4], a[:, 2::4] = 0x7E, 0x38  # 448 in even chunks, 1 in odd ones
    instr = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32"
    d = mma_sparse(instr, a, metadata_with(0b0100)[:32], b, np.zeros((16, 8), np.float32))
    assert (d == 8 * 448 + 8).all()
