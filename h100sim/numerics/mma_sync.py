"""The arithmetic of ``mma.sync`` and ``mma.sp`` on whole arrays: one step of the warp-level matrix product.

f16, bf16 and tf32 are the fused sum of :mod:`h100sim.numerics.tensor_core_float` over the K of the opcode (of the kept
products, if sparse); fp8 is emulated (:mod:`h100sim.numerics.tensor_core_fp8`), f64 a chain of fused multiply-adds,
integers and b1 as in ``wgmma``. Not supported, and refused: the m8n8k4 form of f16, for which ptxas 13.0 makes code that
exchanges nothing between lanes.

Measured: tests/data/mma_sync.npz, tests/data/mma_sparse.npz (mma.sp and 4-bit integers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from h100sim.dtypes import ElementType, element_type
from h100sim.errors import PtxError, UsageError
from h100sim.numerics import sparse
from h100sim.numerics.operands import as_words, multiply
from h100sim.numerics.tensor_core import MMA_TYPES, ROUNDINGS, code_of

_INTEGERS = ("s8", "u8", "s4", "u4")
_RULE = 'PTX ISA 9.1, "Multiply-and-Accumulate Instruction: mma"'
_OPCODE = re.compile(r"mma(\.sp|\.sp::ordered_metadata)?\.sync\.aligned\.m(\d+)n(\d+)k(\d+)\.row\.col((?:\.[a-z0-9]+)+)")

#: (M, K) of the shapes by type of A; N is 8. Spec: PTX ISA 9.1, "Matrix Shape" of mma.
_SHAPES = {
    "f16": ((16, 8), (16, 16)),
    "bf16": ((16, 8), (16, 16)),
    "tf32": ((16, 4), (16, 8)),
    "e4m3": ((16, 16), (16, 32)),
    "e5m2": ((16, 16), (16, 32)),
    "s8": ((8, 16), (16, 16), (16, 32)),
    "u8": ((8, 16), (16, 16), (16, 32)),
    "s4": ((8, 32), (16, 32), (16, 64)),
    "u4": ((8, 32), (16, 32), (16, 64)),
    "b1": ((8, 128), (16, 128), (16, 256)),
    "f64": ((8, 4), (16, 4), (16, 8), (16, 16)),
}

#: K of the sparse shapes; M is 16. Spec: PTX ISA 9.1, "Matrix Shape" of mma.sp.
_SPARSE_DEPTHS = {
    "f16": (16, 32),
    "bf16": (16, 32),
    "tf32": (8, 16),
    "e4m3": (64,),
    "e5m2": (64,),
    "s8": (32, 64),
    "u8": (32, 64),
    "s4": (64, 128),
    "u4": (64, 128),
}


@dataclass(frozen=True)
class MmaInstruction:
    """An ``mma.sync`` or ``mma.sp`` opcode: the types of D (and C), A and B, M and K of the shape (N is 8), modifiers."""

    opcode: str
    d: ElementType
    a: ElementType
    b: ElementType
    m: int
    k: int
    satfinite: bool
    xor: bool
    is_sparse: bool = False
    rounding: str = "rn"

    @property
    def stored_k(self) -> int:
        """Elements in a row of A as it is stored: half of K if it is sparse."""
        return self.k // 2 if self.is_sparse else self.k

    @property
    def selectors(self) -> int:
        """How many sparsity selectors there are."""
        return 16 // int(sparse.chunks_of.py_func(self.a.bits, self.stored_k))  # type: ignore[attr-defined]

    @property
    def code(self) -> int:
        by_hmma = self.a.name in ("e4m3", "e5m2")
        return code_of(self.d.name, self.a.name, self.b.name, xor=self.xor, by_hmma=by_hmma, rounding=self.rounding)


def parse_mma(opcode: str) -> MmaInstruction:
    """Parse an ``mma.sync`` or ``mma.sp`` opcode; PtxError names the part that is wrong or not supported."""

    def wrong(noun: str, rule: str, value: object) -> PtxError:
        return PtxError(f"{noun} must {rule}, not {value}", rule=_RULE)

    match = _OPCODE.fullmatch(opcode.strip())
    if not match:
        raise wrong("opcode", "be mma[.sp].sync.aligned.mMn8kK.row.col.dtype.atype.btype.ctype", opcode)
    is_sparse = match[1] is not None
    m, n, k = (int(text) for text in match.groups()[1:4])
    parts = match[5].split(".")[1:]
    satfinite = "satfinite" in parts
    rounding = [part for part in parts if part in ROUNDINGS] if "f64" in parts else []
    types = [part for part in parts if part != "satfinite" and part not in rounding[:1]]
    if len(types) < 4 or tuple(types[:3]) not in MMA_TYPES:
        legal = ", ".join(".".join((*triple, triple[0])) for triple in sorted(MMA_TYPES))
        raise wrong("mma.sync types of D, A, B and C", f"be one of {legal}", ".".join(types))
    if types[3] != types[0]:
        raise wrong("mma.sync type of C", f"be the type of D, {types[0]}", types[3])
    d, a, b = (element_type(name) for name in types[:3])
    operation = types[4:]
    legal_operations = (["and", "popc"], ["xor", "popc"]) if a.name == "b1" else ([],)
    if operation not in legal_operations:
        rule = "end in .and.popc or .xor.popc" if a.name == "b1" else "have no modifier but .satfinite"
        raise wrong(f"mma.sync of {a}", rule, ".".join(operation) or "nothing")
    if satfinite and a.name not in _INTEGERS:
        raise wrong(".satfinite", f"go with {', '.join(_INTEGERS)}", a)
    if is_sparse and a.name not in _SPARSE_DEPTHS:
        raise wrong("mma.sp type of A", f"be one of {', '.join(_SPARSE_DEPTHS)}", a)
    if is_sparse and a.name in ("e4m3", "e5m2") and d.name == "f16":
        raise wrong(f"mma.sp type of D for {a}", "be f32", d)
    shapes = tuple((16, depth) for depth in _SPARSE_DEPTHS[a.name]) if is_sparse else _SHAPES[a.name]
    if n != 8 or (m, k) not in shapes:
        legal = ", ".join(f"m{rows}n8k{depth}" for rows, depth in shapes)
        raise wrong(f"{'mma.sp' if is_sparse else 'mma.sync'} shape of {a}", f"be one of {legal}", f"m{m}n{n}k{k}")
    return MmaInstruction(opcode, d, a, b, m, k, satfinite, operation[:1] == ["xor"], is_sparse, *rounding[:1])


def mma_sync(instr: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Do what one ``mma.sync`` does: A * B + C, to the bit.

    ``instr``: the opcode, such as ``"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"``. ``a`` (..., M, K), ``b``
    (..., N, K), ``c`` (..., M, N) with any leading batch axes that broadcast: bits of the storage width (4-bit integers
    one a byte, b1 as (..., K/8) bytes, least significant bit first) or values of the natural type. K is the opcode's, M
    and N come from the arrays.

    Returns D (..., M, N), bits or values as ``c``. PtxError for the opcode, UsageError for shapes, TypeError for
    arrays of another type.
    """
    instruction = parse_mma(instr)
    if instruction.is_sparse:
        raise UsageError("mma_sync instruction must be dense (mma_sparse takes the metadata), not .sp")
    words_a = as_words(instruction.a, a, "A", instruction.k)
    words_b = as_words(instruction.b, b, "B", instruction.k)
    return multiply(instruction.code, instruction.d, words_a, words_b, c, {"satfinite": instruction.satfinite})


def mma_sparse(instr: str, a: np.ndarray, metadata: np.ndarray, b: np.ndarray, c: np.ndarray, *, selector: int = 0) -> np.ndarray:
    """Do what one ``mma.sp`` does: A * B + C, to the bit.

    As :func:`mma_sync`, with ``a`` packed to (..., 16, K/2) and ``metadata`` uint32 (..., 32), the register of each lane.
    ``selector`` is the sparsity selector.
    """
    instruction = parse_mma(instr)
    if not instruction.is_sparse:
        raise UsageError("mma_sparse instruction must be mma.sp, not a dense one")
    packed = as_words(instruction.a, a, "packed A", instruction.stored_k)
    dense, present = sparse.expand(instruction.a.name, packed, np.asarray(metadata), selector)
    words_b = as_words(instruction.b, b, "B", instruction.k)
    flags = {"satfinite": instruction.satfinite}
    return multiply(instruction.code, instruction.d, dense, words_b, c, flags, present)
