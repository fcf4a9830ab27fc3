"""The arithmetic of one ``wgmma.mma_async`` step on whole arrays: ``h100sim.wgmma`` and its sparse form."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from h100sim.dtypes import ElementType, element_type
from h100sim.errors import PtxError, UsageError
from h100sim.numerics import sparse
from h100sim.numerics.operands import as_words, multiply
from h100sim.numerics.tensor_core import WGMMA_TYPES, code_of

_RULE = 'PTX ISA 9.1, "wgmma.mma_async"'
_OPCODE = re.compile(r"wgmma\.mma_async(?P<sparse>\.sp)?(?P<rest>(\.[a-z0-9]+)+)")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


@dataclass(frozen=True)
class WgmmaInstruction:
    """A ``wgmma`` opcode: D, A and B types, N and K of the shape (M is 64), and its modifiers."""

    opcode: str
    d: ElementType
    a: ElementType
    b: ElementType
    n: int
    k: int
    is_sparse: bool
    satfinite: bool

    @property
    def code(self) -> int:
        return code_of(self.d.name, self.a.name, self.b.name)


def step_depth(a: ElementType) -> int:
    """Return K of a dense ``wgmma``: the elements that fill 32 bytes."""
    return 256 // a.bits


def legal_columns(a: ElementType) -> tuple[int, ...]:
    """Return the values of N that ``wgmma`` takes for a type of A.

    Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Shape".
    """
    if a.is_float:
        return tuple(range(8, 257, 8))
    return (8, 16, 24, *range(32, 257, 16))


def parse_wgmma(opcode: str) -> WgmmaInstruction:
    """Parse a ``wgmma.mma_async`` opcode; PtxError names the part that is wrong and what is legal."""

    def wrong(noun: str, rule: str, value: object) -> PtxError:
        return PtxError(f"{noun} must {rule}, not {value}", rule=_RULE)

    match = _OPCODE.fullmatch(opcode.strip()) if isinstance(opcode, str) else None
    if not match:
        raise wrong("opcode", "be wgmma.mma_async[.sp].sync.aligned.m64nNkK.dtype.atype.btype", opcode)
    parts = match["rest"].split(".")[1:]
    if parts[:2] != ["sync", "aligned"]:
        raise wrong("wgmma.mma_async", "be followed by .sync.aligned", opcode)
    parts = parts[2:]
    shape = _SHAPE.fullmatch(parts[0]) if parts else None
    if not shape:
        raise wrong("wgmma.mma_async shape", "have the form m64nNkK", parts[0] if parts else "nothing")
    satfinite = parts.count("satfinite")
    types = [part for part in parts[1:] if part != "satfinite"]
    is_popc = types[3:] == ["and", "popc"]
    if satfinite > 1 or (types[3:] and not is_popc) or len(types) < 3:
        raise wrong("wgmma.mma_async", "have three types and no modifiers but .satfinite and .and.popc", opcode)
    if tuple(types[:3]) not in WGMMA_TYPES:
        legal = ", ".join(".".join(triple) for triple in sorted(WGMMA_TYPES))
        raise wrong("wgmma.mma_async types of D, A and B", f"be one of {legal}", ".".join(types[:3]))
    d, a, b = (element_type(name) for name in types[:3])
    if (a.name == "b1") != is_popc:
        raise wrong(f"wgmma.mma_async of {a}", "end in .and.popc" if a.name == "b1" else "have no .and.popc", opcode)
    if satfinite and a.name not in ("s8", "u8"):
        raise wrong(".satfinite", "go with s8 and u8", a)
    is_sparse = match["sparse"] is not None
    if is_sparse and a.name == "b1":
        raise wrong("sparse wgmma.mma_async", "have float, s8 or u8 elements", "b1")
    m, n, k = (int(text) for text in shape.groups())
    depth = step_depth(a) * (2 if is_sparse else 1)
    if m != 64:
        raise wrong("wgmma.mma_async M", "be 64", m)
    if n not in legal_columns(a):
        steps = "a multiple of 8 from 8 to 256" if a.is_float else "8, 16, 24, 32 or a multiple of 16 up to 256"
        raise wrong(f"wgmma.mma_async N of {a}", f"be {steps}", n)
    if k != depth:
        raise wrong(f"wgmma.mma_async K of {a}", f"be {depth}", k)
    return WgmmaInstruction(opcode, d, a, b, n, k, is_sparse, bool(satfinite))


def wgmma(
    instr: str,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    scale_d: int = 1,
    scale_a: int = 1,
    scale_b: int = 1,
) -> np.ndarray:
    """Do what one ``wgmma.mma_async`` does to a D that holds ``c``, to the bit: A * B + C.

    ``instr``: the opcode, such as ``"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"``. Its K is one hardware
    step; M and N come from the arrays. ``a`` (..., M, K), ``b`` (..., N, K), ``c`` (..., M, N), with any leading
    batch axes that broadcast; bits of the storage width (tf32 in uint32, b1 as (..., K/8) bytes, least significant
    bit first) or arrays of the natural type (float16, ml_dtypes.bfloat16, float32 for tf32 and f32, float8_e4m3fn,
    float8_e5m2, int8, int32). ``scale_d`` 0: ``c`` is not read. ``scale_a``, ``scale_b`` -1: the operand is negated
    (float types).

    Returns D (..., M, N), bits or values as ``c``. PtxError for the opcode, UsageError for shapes and flags,
    ElementTypeError for arrays of another type.
    """
    instruction = parse_wgmma(instr)
    if instruction.is_sparse:
        raise UsageError("wgmma instruction must be dense (wgmma_sparse takes the metadata), not .sp")
    return multiply(
        instruction.code,
        instruction.d,
        as_words(instruction.a, a, "A", instruction.k),
        as_words(instruction.b, b, "B", instruction.k),
        c,
        _flags(instruction, scale_d, scale_a, scale_b),
    )


def wgmma_sparse(
    instr: str,
    a: np.ndarray,
    metadata: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    selector: int = 0,
    scale_d: int = 1,
    scale_a: int = 1,
    scale_b: int = 1,
) -> np.ndarray:
    """Do what one ``wgmma.mma_async.sp`` does to a D that holds ``c``.

    As :func:`wgmma`, with ``a`` packed to (..., 64, K/2), ``b`` (..., N, K) and ``metadata`` uint32 (..., 128), the
    register of each thread of the warpgroup. ``selector`` is the sparsity selector.
    """
    instruction = parse_wgmma(instr)
    if not instruction.is_sparse:
        raise UsageError("wgmma_sparse instruction must be wgmma.mma_async.sp, not a dense one")
    packed = as_words(instruction.a, a, "packed A", instruction.k // 2)
    dense, present = sparse.expand(instruction.a.name, packed, np.asarray(metadata), selector)
    return multiply(
        instruction.code,
        instruction.d,
        dense,
        as_words(instruction.b, b, "B", instruction.k),
        c,
        _flags(instruction, scale_d, scale_a, scale_b),
        present,
    )


def _flags(instruction: WgmmaInstruction, scale_d: int, scale_a: int, scale_b: int) -> dict[str, bool]:
    if scale_d not in (0, 1):
        raise UsageError(f"scale_d must be 0 or 1, not {scale_d}", rule=_RULE)
    for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        if value not in (-1, 1):
            raise UsageError(f"{name} must be -1 or 1, not {value}", rule=_RULE)
        if value == -1 and not instruction.a.is_float:
            raise UsageError(f"{name} of {instruction.a} must be 1, not -1", rule=_RULE)
    return {
        "scale_d": bool(scale_d),
        "negate_a": scale_a < 0,
        "negate_b": scale_b < 0,
        "satfinite": instruction.satfinite,
    }
