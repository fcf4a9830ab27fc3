"""The arithmetic of one ``wgmma.mma_async`` step on whole arrays: ``h100sim.wgmma`` and its sparse form."""

from __future__ import annotations

import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from h100sim.dtypes import ElementType, element_type, to_bits
from h100sim.errors import PtxError, UsageError
from h100sim.numerics import sparse
from h100sim.numerics.tensor_core import code_of, run_steps

_RULE = 'PTX ISA 9.1, "wgmma.mma_async"'
_OPCODE = re.compile(r"wgmma\.mma_async(?P<sparse>\.sp)?(?P<rest>(\.[a-z0-9]+)+)")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BATCH_MACS = 1 << 22  # below about a millisecond of work a second thread does not pay


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

    match = _OPCODE.fullmatch(opcode.strip())
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
    d, a, b = (element_type(name) for name in types[:3])
    code_of(d.name, a.name, b.name)
    if (a.name == "b1") != is_popc:
        raise wrong(f"wgmma.mma_async of {a}", "have .and.popc" if a.name == "b1" else "not have .and.popc", opcode)
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
    TypeError for arrays of another type.
    """
    instruction = parse_wgmma(instr)
    if instruction.is_sparse:
        raise UsageError("wgmma instruction must be dense (wgmma_sparse takes the metadata), not .sp")
    _check_scales(instruction, scale_d, scale_a, scale_b)
    c = np.asarray(c)
    depth = 32 if instruction.a.name == "b1" else instruction.k
    words = [
        _as_words(instruction.a, a, "A", depth),
        _as_words(instruction.b, b, "B", depth),
        to_bits(instruction.d, c).astype(np.uint32),
    ]
    batch = _check_shapes(*words)
    a3, b3, d3 = (np.broadcast_to(x, batch + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in words)
    d3 = d3.copy() if d3.base is not None else d3
    flags = (bool(scale_d), scale_a < 0, scale_b < 0, instruction.satfinite)
    run_batch(instruction.code, np.ascontiguousarray(a3), np.ascontiguousarray(b3), d3, None, flags)
    return _as_result(instruction.d, d3.reshape(batch + d3.shape[-2:]), c)


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
    _check_scales(instruction, scale_d, scale_a, scale_b)
    c = np.asarray(c)
    packed = _as_words(instruction.a, a, "packed A", instruction.k // 2)
    b = _as_words(instruction.b, b, "B", instruction.k)
    dense, present = sparse.expand(instruction.a.name, packed, np.asarray(metadata), selector)
    d = to_bits(instruction.d, c).astype(np.uint32)
    batch = _check_shapes(dense, b, d)
    a3, p3, b3, d3 = (
        np.broadcast_to(x, batch + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (dense, present, b, d)
    )
    d3 = d3.copy() if d3.base is not None else d3
    flags = (bool(scale_d), scale_a < 0, scale_b < 0, instruction.satfinite)
    a3, p3, b3 = (np.ascontiguousarray(x) for x in (a3, p3, b3))
    run_batch(instruction.code, a3, b3, d3, p3 if instruction.a.is_float else None, flags)
    return _as_result(instruction.d, d3.reshape(batch + d3.shape[-2:]), c)


def run_batch(
    code: int,
    a: np.ndarray,
    b: np.ndarray,
    d: np.ndarray,
    present: np.ndarray | None,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    """Do the steps of a batch in place of ``d``, spread over the cores.

    ``flags``: scale_d, negate_a, negate_b, satfinite. Arrays as for :func:`h100sim.numerics.tensor_core.run_steps`.
    """
    scale_d, negate_a, negate_b, satfinite = flags

    def run(part: slice) -> None:
        run_steps(
            *(code, a[part], b[part], d[part]),
            present=None if present is None else present[part],
            scale_d=scale_d,
            negate_a=negate_a,
            negate_b=negate_b,
            satfinite=satfinite,
        )

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    macs = math.prod(d.shape) * a.shape[-1]
    workers = min(cores, len(a), macs // _BATCH_MACS)
    if workers < 2:
        run(slice(None))
        return
    run(slice(0, 0))  # compiles before the threads start
    edges = np.linspace(0, len(a), workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, [slice(i, j) for i, j in pairwise(edges)]))


def _check_scales(instruction: WgmmaInstruction, scale_d: int, scale_a: int, scale_b: int) -> None:
    if scale_d not in (0, 1):
        raise UsageError(f"scale_d must be 0 or 1, not {scale_d}", rule=_RULE)
    for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        if value not in (-1, 1):
            raise UsageError(f"{name} must be -1 or 1, not {value}", rule=_RULE)
        if value == -1 and not instruction.a.is_float:
            raise UsageError(f"{name} of {instruction.a} must be 1, not -1", rule=_RULE)


def _as_words(element: ElementType, array: np.ndarray, name: str, depth: int) -> np.ndarray:
    """Return element bits as uint32 (..., rows, K), or for b1 words of 32 elements (..., rows, K/32)."""
    bits = to_bits(element, array)
    if bits.ndim < 2 or bits.shape[-1] != depth:
        unit = "bytes" if element.name == "b1" else "elements"
        raise UsageError(f"{name} must have rows of {depth} {unit} of {element}, not shape {bits.shape}")
    if element.name == "b1":
        return np.ascontiguousarray(bits).view(np.dtype("<u4"))
    return bits.astype(np.uint32)


def _check_shapes(a: np.ndarray, b: np.ndarray, d: np.ndarray) -> tuple[int, ...]:
    """Return the common batch shape of A (..., M, K), B (..., N, K) and C (..., M, N)."""
    if d.shape[-2:] != (a.shape[-2], b.shape[-2]):
        raise UsageError(f"C must be (..., {a.shape[-2]}, {b.shape[-2]}), rows of A by rows of B, not {d.shape}")
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2], d.shape[:-2])
    except ValueError:
        shapes = f"{a.shape[:-2]}, {b.shape[:-2]} and {d.shape[:-2]}"
        raise UsageError(f"batch axes of A, B and C must broadcast, not {shapes}") from None


def _as_result(element: ElementType, d: np.ndarray, c: np.ndarray) -> np.ndarray:
    return d.astype(element.storage).view(c.dtype)
