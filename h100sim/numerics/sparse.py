"""Structured sparsity of ``wgmma.mma_async.sp`` and ``mma.sp``: which elements of a row the metadata keeps.

Sparse A stores half of its elements; metadata in registers says which. For 16- and 8-bit types each chunk of four
elements keeps two (2:4) and has a nibble of two 2-bit indices; for 4-bit types the same holds for pairs of elements (a
chunk of eight keeps two pairs); for tf32 each chunk of two keeps one (1:2), nibble 0b0100 the first and 0b1110 the second.
One step sums the K/2 kept products. Those left out are no terms: an infinity in B that meets nothing has no effect. The
two indices may fall as well as rise.

Where a nibble is. The metadata of row r is in the warp of the row, in the quad of lanes r mod 8. The sparsity selector
picks the lanes of each quad that contribute: one of four, a pair of two, or all, as the row has 4, 8 or 16 chunks.

Spec: PTX ISA 9.1, "Sparse matrix storage" of wgmma and of mma. Measured: tests/data/wgmma_sparse.npz (f16, bf16, tf32,
e4m3, s8, both selectors, every nibble), tests/data/mma_sparse.npz (every type, shape and selector of mma.sp). The manual
leaves equal indices and other tf32 nibbles undefined, and they are refused here; silicon multiplies each stored element
with the element of B that its index names, for tf32 with the two 16-bit halves that the two indices name, and a test
keeps that on record.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import element_type
from h100sim.errors import UsageError
from h100sim.native import jit

#: Threads and rows of a warp's part of A: a wgmma has four.
LANES = 32
WARP_ROWS = 16
#: Legal (rows, stored elements of a row) by width of an element. Spec: PTX ISA 9.1, "Matrix Shape" of wgmma and mma.sp.
_LEGAL = {
    4: ((16, 32), (16, 64)),
    8: ((64, 32), (16, 16), (16, 32)),
    16: ((64, 16), (16, 8), (16, 16)),
    32: ((64, 8), (16, 4), (16, 8)),
}

_TF32_FIRST = 0b0100
_TF32_SECOND = 0b1110


@jit
def chunks_of(bits, kept):
    """Return how many chunks, and nibbles of metadata, a row of ``kept`` stored elements has."""
    return kept if bits == 32 else kept // 4 if bits == 4 else kept // 2


@jit
def nibble_of(bits, chunks, metadata, selector, row, chunk):
    """Return the metadata nibble of one chunk of one row.

    ``bits`` is the width of an element (4, 8, 16, 32), ``chunks`` the number of chunks in a row (4, 8, 16), ``metadata``
    uint32 (128,) or (32,) the registers of the threads, ``selector`` the sparsity selector, less than 16 / chunks.
    """
    half = (row % 16) // 8
    if bits <= 8:
        place, position = 2 * (selector + chunk // 8) + half, chunk % 8
    else:
        place, position = (selector if chunks == 4 else 2 * selector + chunk // 4), 4 * half + chunk % 4
    return np.int64(metadata[32 * (row // 16) + 4 * (row % 8) + place] >> np.uint32(4 * position)) & 0xF


@jit
def _keep(bits, packed, row, chunk, nibble, a, present):
    """Put the stored elements of one chunk where its nibble says; False for a nibble that the manual leaves undefined."""
    if bits == 32:
        if nibble != _TF32_FIRST and nibble != _TF32_SECOND:
            return False
        k = 2 * chunk + (1 if nibble == _TF32_SECOND else 0)
        a[row, k] = packed[row, chunk]
        present[row, k] = 1
        return True
    if (nibble & 3) == nibble >> 2:
        return False
    size = 2 if bits == 4 else 1
    for j in range(2):
        index = nibble & 3 if j == 0 else nibble >> 2
        for i in range(size):
            k = size * (4 * chunk + index) + i
            a[row, k] = packed[row, size * (2 * chunk + j) + i]
            present[row, k] = 1
    return True


@jit
def expand_into(bits, packed, metadata, selector, a, present):
    """Spread packed elements over a dense row and mark the kept ones.

    ``packed`` uint32 (M, K/2), ``a`` uint32 (M, K), ``present`` uint8 (M, K), M 64 for wgmma and 16 for mma.sp. Other
    arguments as for :func:`nibble_of`. Returns -1, or row * chunks + chunk of the first nibble that the manual leaves
    undefined; that chunk and those after it are not written.
    """
    rows, kept = packed.shape
    a[:] = np.uint32(0)
    present[:] = np.uint8(0)
    chunks = chunks_of(bits, kept)
    for row in range(rows):
        for chunk in range(chunks):
            nibble = nibble_of(bits, chunks, metadata, selector, row, chunk)
            if not _keep(bits, packed, row, chunk, nibble, a, present):
                return row * chunks + chunk
    return np.int64(-1)


def expand(type_name: str, packed: np.ndarray, metadata: np.ndarray, selector: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the dense A of a sparse one: element bits uint32 (..., M, K) and ``present`` uint8 (..., M, K).

    ``packed`` element bits (..., M, K/2) with M 64 (wgmma) or 16 (mma.sp), ``metadata`` uint32 (..., 2 * M), one register
    per thread. UsageError for a wrong shape or selector and for a nibble that the manual leaves undefined.
    """
    element = element_type(type_name)
    rows, kept = packed.shape[-2:]
    legal = _LEGAL.get(element.bits, ())
    if (rows, kept) not in legal:
        shapes = " or ".join(map(str, legal))
        raise UsageError(f"packed A of {element} must be {shapes}, not {packed.shape[-2:]}")
    threads = rows // WARP_ROWS * LANES
    if metadata.shape != (*packed.shape[:-2], threads):
        raise UsageError(f"metadata must be {(*packed.shape[:-2], threads)}, not {metadata.shape}")
    chunks = int(chunks_of(element.bits, kept))
    if selector not in range(16 // chunks):
        choice = "0" if chunks == 16 else f"from 0 to {16 // chunks - 1}"
        raise UsageError(f"sparsity selector of {element} must be {choice}, not {selector}")
    words = np.ascontiguousarray(packed, np.uint32).reshape(-1, rows, kept)
    registers = np.ascontiguousarray(metadata, np.uint32).reshape(-1, threads)
    a = np.zeros((len(words), rows, 2 * kept), np.uint32)
    present = np.zeros(a.shape, np.uint8)
    for i in range(len(words)):
        wrong = int(expand_into(element.bits, words[i], registers[i], selector, a[i], present[i]))
        if wrong >= 0:
            row, chunk = divmod(wrong, chunks)
            nibble = int(nibble_of(element.bits, chunks, registers[i], selector, row, chunk))
            rule = "0b0100 or 0b1110" if element.bits == 32 else "two different indices"
            raise UsageError(
                f"metadata of row {row}, chunk {chunk} must be {rule}, not 0b{nibble:04b}",
                rule='PTX ISA 9.1, "Sparse matrix storage"',
            )
    shape = (*packed.shape[:-1], 2 * kept)
    return a.reshape(shape), present.reshape(shape)
