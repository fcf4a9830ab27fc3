"""Structured sparsity of ``wgmma.mma_async.sp``: which elements of a row the metadata keeps.

Sparse A stores half of its elements; metadata in registers says which. For 16- and 8-bit types each chunk of four
elements keeps two (2:4) and has a nibble of two 2-bit indices; for tf32 each chunk of two keeps one (1:2), nibble
0b0100 the first and 0b1110 the second. One step sums the K/2 kept products. Those left out are no terms: an infinity
in B that meets nothing has no effect. The two indices may fall as well as rise.

Spec: PTX ISA 9.1, "Sparse matrix storage" of wgmma. Measured: tests/data/wgmma_sparse.npz (f16, bf16, tf32, e4m3, s8,
both selectors, every nibble). The manual leaves equal indices and other tf32 nibbles undefined, and they are refused
here; silicon multiplies each stored element with the element of B that its index names, for tf32 with the two 16-bit
halves that the two indices name, and a test keeps that on record.
"""

from __future__ import annotations

import numpy as np

from h100sim.dtypes import element_type
from h100sim.errors import UsageError
from h100sim.native import jit

#: Threads of a warpgroup; each holds one 32-bit metadata register.
THREADS = 128
ROWS = 64

_TF32_FIRST = 0b0100
_TF32_SECOND = 0b1110


@jit
def nibble_of(bits, metadata, selector, row, chunk):
    """Return the metadata nibble of one chunk of one row.

    ``bits`` is the width of an element (8, 16, 32), ``metadata`` uint32 (128,) the registers of the warpgroup's
    threads, ``selector`` the sparsity selector: 0 or 1 picks the pair of contributing lanes of each quad (8-bit
    types: 0 only).
    """
    warp = row // 16
    if bits == 8:
        lane = 4 * (row % 8) + 2 * (chunk // 8) + (row % 16) // 8
        position = chunk % 8
    else:
        lane = 4 * (row % 8) + 2 * selector + chunk // 4
        position = 4 * ((row % 16) // 8) + chunk % 4
    return np.int64(metadata[32 * warp + lane] >> np.uint32(4 * position)) & 0xF


@jit
def expand_into(bits, packed, metadata, selector, a, present):
    """Spread packed elements over a dense row and mark the kept ones.

    ``packed`` uint32 (64, K/2), ``a`` uint32 (64, K), ``present`` uint8 (64, K). Other arguments as for
    :func:`nibble_of`. Returns -1, or row * chunks + chunk of the first nibble that the manual leaves undefined; that
    chunk and those after it are not written.
    """
    rows, kept = packed.shape
    a[:] = np.uint32(0)
    present[:] = np.uint8(0)
    chunks = kept if bits == 32 else kept // 2
    for row in range(rows):
        for chunk in range(chunks):
            nibble = nibble_of(bits, metadata, selector, row, chunk)
            if bits == 32:
                if nibble != _TF32_FIRST and nibble != _TF32_SECOND:
                    return row * chunks + chunk
                k = 2 * chunk + (1 if nibble == _TF32_SECOND else 0)
                a[row, k] = packed[row, chunk]
                present[row, k] = 1
            else:
                first, second = nibble & 3, nibble >> 2
                if first == second:
                    return row * chunks + chunk
                a[row, 4 * chunk + first] = packed[row, 2 * chunk]
                a[row, 4 * chunk + second] = packed[row, 2 * chunk + 1]
                present[row, 4 * chunk + first] = 1
                present[row, 4 * chunk + second] = 1
    return np.int64(-1)


def expand(
    type_name: str, packed: np.ndarray, metadata: np.ndarray, selector: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the dense A of a sparse one: element bits uint32 (..., 64, K) and ``present`` uint8 (..., 64, K).

    ``packed`` element bits (..., 64, K/2), ``metadata`` uint32 (..., 128), one register per thread of the warpgroup.
    UsageError for a wrong shape or selector and for a nibble that the manual leaves undefined.
    """
    element = element_type(type_name)
    kept = packed.shape[-1]
    legal = {8: 32, 16: 16, 32: 8}.get(element.bits)
    if packed.shape[-2:] != (ROWS, legal):
        raise UsageError(f"packed A of {element} must be ({ROWS}, {legal}), not {packed.shape[-2:]}")
    if metadata.shape != (*packed.shape[:-2], THREADS):
        raise UsageError(f"metadata must be {(*packed.shape[:-2], THREADS)}, not {metadata.shape}")
    if selector not in ((0,) if element.bits == 8 else (0, 1)):
        raise UsageError(
            f"sparsity selector of {element} must be 0{'' if element.bits == 8 else ' or 1'}, not {selector}"
        )
    words = np.ascontiguousarray(packed, np.uint32).reshape(-1, ROWS, kept)
    registers = np.ascontiguousarray(metadata, np.uint32).reshape(-1, THREADS)
    a = np.zeros((len(words), ROWS, 2 * kept), np.uint32)
    present = np.zeros(a.shape, np.uint8)
    for i in range(len(words)):
        wrong = int(expand_into(element.bits, words[i], registers[i], selector, a[i], present[i]))
        if wrong >= 0:
            chunks = kept if element.bits == 32 else kept // 2
            row, chunk = divmod(wrong, chunks)
            nibble = int(nibble_of(element.bits, registers[i], selector, row, chunk))
            rule = "0b0100 or 0b1110" if element.bits == 32 else "two different indices"
            raise UsageError(
                f"metadata of row {row}, chunk {chunk} must be {rule}, not 0b{nibble:04b}",
                rule='PTX ISA 9.1, "Sparse matrix storage" of wgmma',
            )
    shape = (*packed.shape[:-1], 2 * kept)
    return a.reshape(shape), present.reshape(shape)
