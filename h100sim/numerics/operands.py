"""From NumPy arrays to tensor-core steps and back: element bits, batch axes, and the spread over cores."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from h100sim.dtypes import ElementType, to_bits
from h100sim.errors import UsageError
from h100sim.numerics.tensor_core import run_steps

_THREAD_MACS = 1 << 22  # about a millisecond of work; below that a second thread does not pay


def as_words(element: ElementType, array: np.ndarray, name: str, depth: int) -> np.ndarray:
    """Return element bits as words (..., rows, K) of uint32, of uint64 for f64; for b1 32 elements a word.

    ``depth`` is the K that the instruction takes; UsageError if the rows have another.
    """
    bits = to_bits(element, array)
    length = depth // 8 if element.name == "b1" else depth
    if bits.ndim < 2 or bits.shape[-1] != length:
        unit = "bytes" if element.name == "b1" else "elements"
        raise UsageError(f"{name} must have rows of {length} {unit} of {element}, not shape {bits.shape}")
    if element.name == "b1":
        return np.ascontiguousarray(bits).view(np.dtype("<u4"))
    return bits.astype(np.uint64 if element.bits == 64 else np.uint32)


def multiply(
    code: int,
    d_type: ElementType,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    flags: dict[str, bool],
    present: np.ndarray | None = None,
) -> np.ndarray:
    """Do one step for every item of the batch axes, which broadcast, and return D, bits or values as ``c``.

    ``a`` and ``b`` from :func:`as_words`, ``c`` bits or values of ``d_type``; ``flags`` (scale_d, negate_a, negate_b,
    satfinite) and ``present`` as for :func:`h100sim.numerics.tensor_core.run_steps`.
    """
    c = np.asarray(c)
    bits = to_bits(d_type, c)
    if bits.shape[-2:] != (a.shape[-2], b.shape[-2]):
        raise UsageError(f"C must be (..., {a.shape[-2]}, {b.shape[-2]}), rows of A by rows of B, not {bits.shape}")
    shapes = (a.shape[:-2], b.shape[:-2], bits.shape[:-2])
    try:
        batch = np.broadcast_shapes(*shapes)
    except ValueError:
        raise UsageError(f"batch axes of A, B and C must broadcast, not {shapes}") from None

    def flat(array: np.ndarray) -> np.ndarray:
        full = np.broadcast_to(array, batch + array.shape[-2:])
        return np.ascontiguousarray(full).reshape(math.prod(batch), *array.shape[-2:])

    d = np.array(flat(bits), dtype=np.uint64 if d_type.bits == 64 else np.uint32)
    spread_steps(code, flat(a), flat(b), d, None if present is None else flat(present), flags)
    return d.reshape(batch + d.shape[-2:]).astype(d_type.storage, copy=False).view(c.dtype)


def spread_steps(
    code: int, a: np.ndarray, b: np.ndarray, d: np.ndarray, present: np.ndarray | None, flags: dict[str, bool]
) -> None:
    """Do as :func:`h100sim.numerics.tensor_core.run_steps`, with the batch spread over the cores."""

    def run(part: slice) -> None:
        run_steps(code, a[part], b[part], d[part], present=None if present is None else present[part], **flags)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores, len(a), math.prod(d.shape) * a.shape[-1] // _THREAD_MACS)
    if workers < 2:
        run(slice(None))
        return
    run(slice(0, 0))  # compiles before the threads start
    edges = np.linspace(0, len(a), workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, [slice(i, j) for i, j in pairwise(edges)]))
