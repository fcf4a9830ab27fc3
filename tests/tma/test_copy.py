"""Tensor copies against what an H200 did: every byte of shared and global memory, and every error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim.errors import IllegalInstruction, MisalignedAddress, OutOfRange, UsageError
from h100sim.memory.global_memory import GlobalMemory
from h100sim.strategies import tiled_maps
from h100sim.tma import TensorMap, tma_load, tma_store
from h100sim.tma.reductions import REDUCTIONS

SHARED_BYTES = 50_176
#: Bytes of shared memory that were read back; the mbarrier lay behind them.
KEPT_BYTES = 49_152
WORDS = np.arange(1 << 20, dtype=np.uint64) * 2654435761 & 0xFFFFFFFF
#: Low 13 bits that put tf32 rounding to the test: ties, and one below and above them.
LOW = np.array([0x1000, 0x0FFF, 0x1001, 0, 0x1FFF, 0x1000, 0x0001, 0x1000])[(WORDS >> 13) & 7]


@pytest.fixture(scope="module")
def patterns():
    """Global memory twice, as the captures had it: for tf32 maps and for all others."""
    memories = []
    for words in (WORDS, WORDS & 0xFFFFE000 | LOW.astype(np.uint64)):
        memory = GlobalMemory()
        memories.append((memory, memory.upload(words.astype(np.uint32), name="pattern")))
    return memories


def copy_of(row: dict, prefix: str, count: int) -> list[int]:
    return [row[f"{prefix}{i}"] for i in range(count)]


@pytest.mark.parametrize("name", ["tma_load.npz", "tma_interleave.npz", "tma_im2col.npz"])
def test_every_captured_load(name, captures, make_map, silicon_errors, patterns):
    capture, at, wrong = captures(name), 0, []
    for row, (low, high), counted in zip(capture.rows, capture["extent"].tolist(), capture["counted"].tolist(), strict=True):
        expected = np.full(SHARED_BYTES, 0xCD, np.uint8)
        expected[low:high] = capture["shared"][at : at + high - low]
        at += high - low
        is_im2col = row["pixels"] > 0
        memory, base = patterns[row["dtype"] >= 11]
        m = make_map(row, base, is_im2col)
        shared = np.full(SHARED_BYTES, 0xCD, np.uint8)
        offsets = copy_of(row, "tap", row["rank"] - 2) if is_im2col else None
        error, size = None, 0
        try:
            size = tma_load(m, copy_of(row, "coord", row["rank"]), memory, shared, row["shared_offset"], offsets)
        except (IllegalInstruction, MisalignedAddress, OutOfRange) as e:
            error = type(e)
        is_same = error is not None or np.array_equal(shared[:KEPT_BYTES], expected[:KEPT_BYTES])
        is_same &= counted in (0, size)
        if error is not silicon_errors[row["error"]] or not is_same:
            wrong.append(row)
    assert len(capture.rows) > 300 and not wrong


def test_every_captured_store_and_reduction(captures, make_map, silicon_errors):
    capture, at_global, at_shared, wrong = captures("tma_store.npz"), 0, 0, []
    memory = GlobalMemory()
    base = memory.allocate(1 << 18, name="target")
    for i, row in enumerate(capture.rows):
        low, high = capture["global_extent"][i].tolist()
        first, last = capture["shared_extent"][i].tolist()
        before = np.zeros(1 << 16, np.uint32)
        before[low:high] = capture["pre"][at_global : at_global + high - low]
        expected = before.copy()
        expected[low:high] ^= capture["change"][at_global : at_global + high - low]
        shared = np.zeros(SHARED_BYTES // 4, np.uint32)
        shared[first:last] = capture["src"][at_shared : at_shared + last - first]
        at_global, at_shared = at_global + high - low, at_shared + last - first
        memory.view(base, 1 << 18)[:] = before.view(np.uint8)
        m = make_map(row, base, bool(capture["is_im2col"][i]))
        error = None
        try:
            reduce = REDUCTIONS[row["reduction"]] or None
            coords = copy_of(row, "coord", row["rank"])
            tma_store(m, coords, memory, shared.view(np.uint8), row["shared_offset"], reduce)
        except (IllegalInstruction, MisalignedAddress) as e:
            error = type(e)
        after = memory.view(base, 1 << 18).view(np.uint32)
        if error is not silicon_errors[row["error"]] or (error is None and not np.array_equal(after, expected)):
            wrong.append(row)
    assert len(capture.rows) > 400 and not wrong


@given(tiled_maps(max_box_bytes=16384), st.integers(0, 3))
def test_a_load_and_a_store_return_the_tensor(m, line):
    """Load the box at the origin, clear the tensor, store it back: the box is as before and the rest is clear."""
    memory = GlobalMemory()
    size = sum((d - 1) * s for d, s in zip(m.dims[1:], m.strides, strict=True)) + m.dims[0] * m.format.size_bytes
    address = memory.upload(np.random.default_rng(7).integers(1, 256, size + 16, np.uint8), name="tensor")
    m = TensorMap.tiled("u8" if m.format.size_bytes == 1 else f"u{8 * m.format.size_bytes}", address, m.dims, m.strides,
                        m.box, m.element_strides, swizzle=m.swizzle)  # fmt: skip
    shared = np.zeros(1 << 17, np.uint8)
    origin = [0] * m.rank
    before = memory.view(address, size + 16).copy()
    tma_load(m, origin, memory, shared, 128 * line)
    memory.view(address, size + 16)[:] = 0
    tma_store(m, origin, memory, shared, 128 * line)
    after = memory.view(address, size + 16)
    element = np.arange(m.format.size_bytes)
    inside = np.zeros(size + 16, bool)
    positions = [
        np.arange(0, min(b, d), e if k else 1) for k, (b, d, e) in enumerate(zip(m.box, m.dims, m.element_strides, strict=True))
    ]
    offsets = sum(
        g.astype(object) * s for g, s in zip(np.meshgrid(*positions, indexing="ij"), (m.format.size_bytes, *m.strides), strict=True)
    )
    inside[(np.asarray(offsets, np.int64)[..., None] + element).ravel()] = True
    assert np.array_equal(after[inside], before[inside])


def bf16_map(memory: GlobalMemory, **options) -> TensorMap:
    address = memory.upload(np.arange(64 * 64, dtype=np.uint16), name="A")
    return TensorMap.tiled("bf16", address, [64, 64], [128], [32, 8], **options)


@pytest.mark.parametrize(
    ("coords", "dst", "error", "message"),
    [
        ((3, 0), 0, IllegalInstruction, "tensor load innermost start coordinate must be a multiple of 16 bytes, not 6"),
        ((0, 0), 64, MisalignedAddress, "tensor load shared address must be a multiple of 128, not 0x40"),
        ((0, 0), 3968, OutOfRange, "tensor load box must lie in the CTA's shared memory, not 512 bytes at 0xf80"),
    ],
)  # fmt: skip
def test_refused_loads_say_why(coords, dst, error, message):
    memory = GlobalMemory()
    with pytest.raises(error) as raised:
        tma_load(bf16_map(memory), coords, memory, np.zeros(4096, np.uint8), dst)
    assert raised.value.message == message


def test_refused_stores_say_why():
    memory, shared = GlobalMemory(), np.zeros(4096, np.uint8)
    m = bf16_map(memory)
    with pytest.raises(IllegalInstruction, match=r"^tensor store start coordinates .* at least 0, not \(0, -1\)"):
        tma_store(m, (0, -1), memory, shared, 0)
    with pytest.raises(IllegalInstruction, match=r"^tensor xor reduction operation must be one .*, not xor of bf16"):
        tma_store(m, (0, 0), memory, shared, 0, reduce="xor")
    with pytest.raises(UsageError, match=r"^reduce must be one of add, min, max, inc, dec, and, or, xor, not mul$"):
        tma_store(m, (0, 0), memory, shared, 0, reduce="mul")


def test_memory_that_is_not_allocated_is_named():
    memory = GlobalMemory()
    address = memory.upload(np.zeros(1000, np.uint8), name="short")
    m = TensorMap.tiled("u8", address, [64, 64], [64], [64, 64])
    with pytest.raises(OutOfRange, match=r"which ends 3,096 bytes past the end of 'short' \(1,000 bytes at"):
        tma_load(m, (0, 0), memory, np.zeros(8192, np.uint8), 0)
    memory.free(address)
    with pytest.raises(OutOfRange, match=r"into 'short' .*, which was freed"):
        tma_store(m, (0, 0), memory, np.zeros(8192, np.uint8), 0)


def test_a_window_that_is_not_aligned_on_the_host_works_the_same():
    memory = GlobalMemory()
    m = bf16_map(memory, swizzle="64B")
    aligned, room = np.zeros(4096, np.uint8), np.zeros(4097, np.uint8)
    tma_load(m, (0, 8), memory, aligned, 1024)
    tma_load(m, (0, 8), memory, room[1:], 1024)
    assert np.array_equal(aligned, room[1:]) and aligned.any()


def test_coordinates_and_offsets_must_fit_the_map():
    memory, shared = GlobalMemory(), np.zeros(4096, np.uint8)
    m = bf16_map(memory)
    with pytest.raises(UsageError, match=r"^coordinates must be 2 numbers, the rank of the tensor map, not 3$"):
        tma_load(m, (0, 0, 0), memory, shared, 0)
    with pytest.raises(UsageError, match=r"^coordinates must fit 32 bits, not \(2147483648, 0\)"):
        tma_load(m, (1 << 31, 0), memory, shared, 0)
    with pytest.raises(UsageError, match=r"^offsets must go with an im2col tensor map, not a tiled one$"):
        tma_load(m, (0, 0), memory, shared, 0, offsets=(1,))
    with pytest.raises(UsageError, match=r"^shared memory must be a uint8 array of one dimension, not float32 \(4,\)$"):
        tma_load(m, (0, 0), memory, np.zeros(4, np.float32), 0)


def test_a_box_outside_the_tensor_touches_no_global_memory():
    memory, shared = GlobalMemory(), np.ones(4096, np.uint8)
    m = TensorMap.tiled("f16", 0x10000, [64, 64], [128], [32, 8], oob_fill="nan")
    assert tma_load(m, (64, 0), memory, shared, 0) == 512
    assert (shared[:512].view(np.uint16) == 0x7FF7).all() and (shared[512:] == 1).all()
