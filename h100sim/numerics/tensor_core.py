"""The tensor core's arithmetic as the machine sees it: type triples as integers, and one compiled function per family.

A *code* names the element types of A, B and D (and the operation of b1). :func:`function_of` gives the compiled
function that does one hardware step for a code; all have the signature ``accumulate(code, a, b, d, scale_d, negate_a,
negate_b, satfinite)`` and may be called from compiled code. A caller that would rather not compile that function into
itself calls it through :func:`address_of_step` with a block of arguments; this also runs without the interpreter
lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from h100sim import native
from h100sim.dtypes import ELEMENT_TYPES, ElementType, element_type
from h100sim.errors import PtxError
from h100sim.numerics.tensor_core_double import ROUNDING_SHIFT, accumulate_double
from h100sim.numerics.tensor_core_float import accumulate_float, fused_sum
from h100sim.numerics.tensor_core_fp8 import accumulate_fp8_by_hmma, add_sparse_fp8_by_hmma
from h100sim.numerics.tensor_core_integer import XOR, accumulate_bits, accumulate_integer

_FP8 = ("e4m3", "e5m2")
_BYTES = ("s8", "u8")
_NIBBLES = ("s4", "u4")

#: The type triples (D, A, B) of ``wgmma``. Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Shape".
WGMMA_TYPES = frozenset(
    [
        ("f32", "f16", "f16"),
        ("f16", "f16", "f16"),
        ("f32", "bf16", "bf16"),
        ("f32", "tf32", "tf32"),
        ("s32", "b1", "b1"),
    ]
    + [(d, a, b) for d in ("f32", "f16") for a in _FP8 for b in _FP8]
    + [("s32", a, b) for a in _BYTES for b in _BYTES]
)

#: The type triples (D, A, B) of ``mma.sync``. Spec: PTX ISA 9.1, "Matrix Shape".
MMA_TYPES = WGMMA_TYPES | {("f64", "f64", "f64")} | {("s32", a, b) for a in _NIBBLES for b in _NIBBLES}

#: Bit of a code: the fp8 product is done as ``mma.sync`` does it, with two HMMA instructions.
BY_HMMA = 1 << 25


#: Roundings of f64, in the order of their numbers in a code.
ROUNDINGS = ("rn", "rz", "rm", "rp")


def code_of(d: str, a: str, b: str, *, xor: bool = False, by_hmma: bool = False, rounding: str = "rn") -> int:
    """Return the code of a type triple, in the order of the opcode: ``code_of("f32", "bf16", "bf16")``.

    ``xor``: the operation of b1 is XOR. ``by_hmma``: fp8 as in ``mma.sync``. ``rounding``: of f64. PtxError if the tensor core has no such
    thing.
    """
    if (d, a, b) not in MMA_TYPES:
        legal = ", ".join(".".join(triple) for triple in sorted(MMA_TYPES))
        raise PtxError(f"types of D, A and B must be one of {legal}, not {d}.{a}.{b}")
    if xor and a != "b1":
        raise PtxError(f"operation of {a} must be a multiplication, not xor")
    if by_hmma and a not in _FP8:
        raise PtxError(f"emulated elements must be e4m3 or e5m2, not {a}")
    code = element_type(a).index | element_type(b).index << 8 | element_type(d).index << 16
    return code | (XOR if xor else 0) | (BY_HMMA if by_hmma else 0) | ROUNDINGS.index(rounding) << ROUNDING_SHIFT


def types_of(code: int) -> tuple[ElementType, ElementType, ElementType]:
    """Return the element types (D, A, B) of a code."""
    return ELEMENT_TYPES[code >> 16 & 0xFF], ELEMENT_TYPES[code & 0xFF], ELEMENT_TYPES[code >> 8 & 0xFF]


#: The int64 words of an argument block, in order. ``a``, ``b``, ``d`` and ``present`` are addresses of C-contiguous
#: arrays (batch, M, K), (batch, N, K), (batch, M, N) of uint32 (uint64 for f64) and (batch, M, K) of uint8;
#: ``present`` 0 means that A is dense. ``depth`` is the K of the arrays: elements, or words of 32 elements for b1.
STEP_ARGUMENTS = (
    "code", "batch", "rows", "columns", "depth", "a", "b", "d", "present",
    "scale_d", "negate_a", "negate_b", "satfinite",
)  # fmt: skip


@native.jit
def _operands(words):
    """Return A, B and D of an argument block as arrays of uint32."""
    batch, rows, columns, depth = words[1], words[2], words[3], words[4]
    a = native.array_at(words[5], (batch, rows, depth), np.uint32)
    b = native.array_at(words[6], (batch, columns, depth), np.uint32)
    d = native.array_at(words[7], (batch, rows, columns), np.uint32)
    return a, b, d


def _float_steps(arguments, mask, ops, ctx):
    words = native.i64(arguments, 13)
    a, b, d = _operands(words)
    depth = words[4] if words[8] != 0 else 0
    present = native.array_at(words[8], (words[1], words[2], depth), np.uint8)
    for i in range(words[1]):
        fused_sum(words[0], a[i], present[i], b[i], d[i], words[9] != 0, words[10] != words[11])
    return 0


def _integer_steps(arguments, mask, ops, ctx):
    words = native.i64(arguments, 13)
    a, b, d = _operands(words)
    for i in range(words[1]):
        accumulate_integer(words[0], a[i], b[i], d[i], words[9] != 0, False, False, words[12] != 0)
    return 0


def _bits_steps(arguments, mask, ops, ctx):
    words = native.i64(arguments, 13)
    a, b, d = _operands(words)
    for i in range(words[1]):
        accumulate_bits(words[0], a[i], b[i], d[i], words[9] != 0, False, False, False)
    return 0


def _fp8_by_hmma_steps(arguments, mask, ops, ctx):
    words = native.i64(arguments, 13)
    a, b, d = _operands(words)
    depth = words[4] if words[8] != 0 else 0
    present = native.array_at(words[8], (words[1], words[2], depth), np.uint8)
    for i in range(words[1]):
        if depth != 0:
            add_sparse_fp8_by_hmma(words[0], a[i], present[i], b[i], d[i])
        else:
            accumulate_fp8_by_hmma(words[0], a[i], b[i], d[i], True, False, False, False)
    return 0


def _double_steps(arguments, mask, ops, ctx):
    words = native.i64(arguments, 13)
    batch, rows, columns, depth = words[1], words[2], words[3], words[4]
    a = native.array_at(words[5], (batch, rows, depth), np.uint64)
    b = native.array_at(words[6], (batch, columns, depth), np.uint64)
    d = native.array_at(words[7], (batch, rows, columns), np.uint64)
    for i in range(batch):
        accumulate_double(words[0], a[i], b[i], d[i], True, False, False, False)
    return 0


#: Family of codes -> (the function of one step, the native function over an argument block).
_FAMILIES = {
    "float": (accumulate_float, _float_steps),
    "integer": (accumulate_integer, _integer_steps),
    "bits": (accumulate_bits, _bits_steps),
    "fp8_by_hmma": (accumulate_fp8_by_hmma, _fp8_by_hmma_steps),
    "double": (accumulate_double, _double_steps),
}


def family_of(code: int) -> str:
    """Return which of the five families of arithmetic a code belongs to."""
    a = types_of(code)[1]
    if code & BY_HMMA:
        return "fp8_by_hmma"
    if a.is_float:
        return "double" if a.name == "f64" else "float"
    return "bits" if a.name == "b1" else "integer"


def function_of(code: int) -> Callable[..., None]:
    """Return the compiled ``accumulate`` function of a code's family."""
    return _FAMILIES[family_of(code)][0]


def step_of(code: int) -> Callable[[int, int, int, int], int]:
    """Return the family's function over an argument block (:data:`STEP_ARGUMENTS`), not compiled."""
    return _FAMILIES[family_of(code)][1]


def address_of_step(code: int) -> int:
    """Return the address of the family's function over an argument block (:data:`STEP_ARGUMENTS`).

    It has the native call signature with the block's address as first argument: ``native.call(address, block, 0, 0,
    0)``. Compiled on first use and cached on disk.
    """
    return native.address_of(step_of(code))


@cache
def _foreign_function(address: int) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)(address)


def run_steps(
    code: int,
    a: np.ndarray,
    b: np.ndarray,
    d: np.ndarray,
    *,
    present: np.ndarray | None = None,
    scale_d: bool = True,
    negate_a: bool = False,
    negate_b: bool = False,
    satfinite: bool = False,
) -> None:
    """Do one step for every item of a batch, in place of ``d``; other Python threads run meanwhile.

    ``a`` (batch, M, K), ``b`` (batch, N, K) and ``d`` (batch, M, N) of uint32, for f64 of uint64; ``present`` uint8
    (batch, M, K); C-contiguous.
    """
    arrays = (a, b, d) if present is None else (a, b, d, present)
    assert all(x.flags.c_contiguous for x in arrays), "operands must be C-contiguous"
    word = np.uint64 if types_of(code)[0].bits == 64 else np.uint32
    assert all(x.dtype == word for x in (a, b, d)), "operands must be words of 32 bits, for f64 of 64"
    batch, rows, depth = a.shape
    block = np.array(
        [
            *(code, batch, rows, b.shape[1], depth, a.ctypes.data, b.ctypes.data, d.ctypes.data),
            *(0 if present is None else present.ctypes.data, scale_d, negate_a, negate_b, satfinite),
        ],
        np.int64,
    )
    _foreign_function(address_of_step(code))(block.ctypes.data, 0, 0, 0)
