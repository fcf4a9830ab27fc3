"""wgmma matrix descriptors: 64 bits that say where each element of an operand lies in shared memory.

One rule covers all modes. Elements come in 16-byte chunks. K-major: a row of M or N has its chunks along K; eight rows
make a core matrix, ``stride_byte_offset`` apart. MN-major (transposed, 16-bit types only): a row of K has its chunks
along M or N. The swizzle is applied last, to the absolute shared address minus ``base_offset`` lines.

Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "Matrix Descriptor Format".
Measured: tests/data/wgmma_descriptors.npz (every configuration, every element).
Assumed: sums of the fields do not wrap at 256 KiB (a CTA has less), and the unused bits do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from h100sim.dtypes import ElementType
from h100sim.errors import PtxError, UsageError
from h100sim.integers import integer
from h100sim.layouts.swizzle import SPANS
from h100sim.native import entry, jit, u64
from h100sim.numerics.wgmma import WgmmaInstruction, parse_wgmma

#: Swizzle mode of each value of bits 62 and 63. Spec: PTX ISA 9.1, "Matrix Descriptor Format".
MODES = ("none", "128B", "64B", "32B")
_RULE = 'PTX ISA 9.1, "Matrix Descriptor Format"'
_ADDRESS_MASK = 0x3FFFF


@dataclass(frozen=True)
class MatrixDescriptor:
    """The fields of a descriptor.

    Addresses and offsets are bytes (multiples of 16 below 256 KiB), ``base_offset`` is 0 to 7.
    """

    start_address: int
    leading_byte_offset: int = 0
    stride_byte_offset: int = 0
    swizzle: str = "none"
    base_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("start_address", "leading_byte_offset", "stride_byte_offset"):
            value = getattr(self, name)
            if value & 15 or not 0 <= value <= _ADDRESS_MASK:
                limit = f"a multiple of 16 from 0 to {_ADDRESS_MASK - 15:,}"
                raise UsageError(f"descriptor {name} must be {limit}, not {value}", rule=_RULE)
        if self.swizzle not in MODES:
            raise UsageError(f"descriptor swizzle must be one of {', '.join(MODES)}, not {self.swizzle}", rule=_RULE)
        if not 0 <= self.base_offset <= 7:
            raise UsageError(f"descriptor base_offset must be from 0 to 7, not {self.base_offset}", rule=_RULE)

    def encode(self) -> int:
        """Return the 64 bits."""
        return (
            self.start_address >> 4
            | self.leading_byte_offset >> 4 << 16
            | self.stride_byte_offset >> 4 << 32
            | self.base_offset << 49
            | MODES.index(self.swizzle) << 62
        )

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        """Return the fields of 64 bits; the unused bits are ignored."""
        bits = int(bits)
        return cls(
            (bits & 0x3FFF) << 4,
            (bits >> 16 & 0x3FFF) << 4,
            (bits >> 32 & 0x3FFF) << 4,
            MODES[bits >> 62 & 3],
            bits >> 49 & 7,
        )

    def _repr_svg_(self) -> str:
        """What it finds as a K-major operand of 64 rows and 16-bit elements."""
        from .pictures import draw_descriptor

        return draw_descriptor("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "b", self)

    @property
    def span_bytes(self) -> int:
        return SPANS[self.swizzle]


def operand_addresses(instr: str, which: str, descriptor: int | MatrixDescriptor, transpose: bool = False) -> np.ndarray:
    """Return int64 (rows, K): the shared byte address of every element of an operand of ``wgmma``.

    ``instr``: the opcode; ``which``: ``"a"`` (64 rows) or ``"b"`` (N rows); ``descriptor``: the 64 bits or a
    :class:`MatrixDescriptor`; ``transpose``: the value of imm-trans-a/b. For b1 eight elements share a byte address.
    K counts stored elements: for a sparse instruction A has half the K of B. PtxError for an opcode or transpose that
    sm_90a lacks.
    """
    instruction = parse_wgmma(instr)
    bits = descriptor.encode() if isinstance(descriptor, MatrixDescriptor) else integer("descriptor", descriptor, 0, 1 << 64)
    rows, element, depth = operand_shape(instruction, which)
    if transpose and element.bits != 16:
        name = f"wgmma operand {which.upper()} of {element}"
        raise PtxError(f"{name} must be K-major (imm-trans 0), not transposed", rule=_RULE)
    addresses = np.empty((rows, depth), np.int64)
    _fill_addresses(bits & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF, bool(transpose), element.bits, addresses)
    return addresses


def operand_shape(instruction: WgmmaInstruction, which: str) -> tuple[int, ElementType, int]:
    """Return (rows, element type, stored elements along K) of an operand of ``wgmma`` in shared memory."""
    if which not in ("a", "b"):
        raise UsageError(f"operand must be a or b, not {which}")
    if which == "a":
        return 64, instruction.a, instruction.k // 2 if instruction.is_sparse else instruction.k
    return instruction.n, instruction.b, instruction.k


def operand_bits(instr: str, which: str) -> int:
    """Return the bits of an element of an operand of ``wgmma``."""
    return operand_shape(parse_wgmma(instr), which)[1].bits


@jit
def chunk_address(low, high, is_transposed, row, column):
    """Return the swizzled shared address of a 16-byte chunk; for compiled code.

    ``low`` and ``high`` are the halves of the descriptor. K-major: ``row`` of M or N, ``column`` counts chunks along K.
    Transposed: ``row`` is k, ``column`` counts chunks along M or N.
    """
    start, leading, stride = (low & 0x3FFF) << 4, (low >> 16 & 0x3FFF) << 4, (high & 0x3FFF) << 4
    mode = high >> 30 & 3
    chunks = 1 if mode == 0 else 16 >> mode
    if not is_transposed:
        address = start + (row >> 3) * stride + (row & 7) * (chunks << 4) + column * (leading if mode == 0 else 16)
    elif mode == 0:
        address = start + column * stride + (row & 7) * 16 + (row >> 3) * leading
    else:
        address = start + (column % chunks) * 16 + (column // chunks) * leading + (row & 7) * (chunks << 4) + (row >> 3) * stride
    return address ^ ((((address >> 7) - (high >> 17 & 7)) & (chunks - 1)) << 4)


@entry("int64", "int64", "int64", "int64", "int64[:, :]")
def _fill_addresses(low, high, is_transposed, element_bits, out):
    """Write the address of every element of an operand to ``out`` int64 (rows, K)."""
    rows, depth = out.shape
    for r in range(rows):
        for k in range(depth):
            if is_transposed:
                out[r, k] = chunk_address(low, high, True, k, r >> 3) + (r & 7) * 2
            else:
                byte = k * element_bits >> 3
                out[r, k] = chunk_address(low, high, False, r, byte >> 4) + (byte & 15)
    return 0


@jit
def gather_operand(descriptor, is_transposed, element_bytes, smem, out):
    """Read an operand of ``wgmma`` from shared memory; for compiled code.

    ``descriptor``: int64, the 64 bits. ``element_bytes``: 1, 2 or 4; b1 is read as words of 32 elements (4). ``smem``:
    uint8, contiguous, aligned to 8 bytes, index = byte offset in the CTA's window. ``out``: uint32 (rows, K), filled
    with element bits. Returns -1, or the first address whose chunk does not lie in ``smem`` (``out`` is then
    incomplete).
    """
    low, high = descriptor & 0xFFFFFFFF, descriptor >> 32 & 0xFFFFFFFF
    rows, depth = out.shape
    bits = 8 * element_bytes
    ones = np.uint64((1 << bits) - 1)
    per_word = 8 // element_bytes
    # Chunks run along K, or along M or N in a transposed operand.
    lines, chunks = (depth, rows >> 3) if is_transposed else (rows, depth * element_bytes >> 4)
    for line in range(lines):
        for column in range(chunks):
            at = chunk_address(low, high, is_transposed, line, column)
            if at + 16 > smem.size:
                return at
            words = u64(smem.ctypes.data + at, 2)
            for w in range(2):
                word, first = words[w], (2 * column + w) * per_word
                for i in range(per_word):
                    value = np.uint32(word >> np.uint64(bits * i) & ones)
                    if is_transposed:
                        out[first + i, line] = value
                    else:
                        out[line, first + i] = value
    return -1
