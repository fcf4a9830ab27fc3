"""Tensor copies on arrays, from Python: what cp.async.bulk.tensor and cp.reduce.async.bulk.tensor do to memory.

Compiled code calls :func:`load_box` and :func:`store_box` directly; these functions add the checks and the words.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: Tensor copy".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from h100sim.errors import OutOfRange, UsageError
from h100sim.integers import integer, integers
from h100sim.memory.global_memory import GlobalMemory
from h100sim.native import jit
from h100sim.tma import faults
from h100sim.tma import plan as field
from h100sim.tma.load import load_box
from h100sim.tma.reductions import REDUCTIONS
from h100sim.tma.rows import first_spatial, next_pixel, row_start
from h100sim.tma.store import store_box
from h100sim.tma.tensor_map import TensorMap

__all__ = ["box_extent", "load_box", "store_box", "tma_load", "tma_store"]

_RULE = 'PTX ISA 9.1, "Tensor copy"'


def tma_load(
    m: TensorMap,
    coords: Sequence[int],
    mem: GlobalMemory,
    shared: np.ndarray,
    dst: int,
    offsets: Sequence[int] | None = None,
) -> int:
    """Copy the box at ``coords`` from global to shared memory; return the bytes that complete_tx counts.

    ``coords``: start coordinates, innermost first (for im2col the base pixel: c, w, (h, (d,)) n). ``shared``: uint8,
    the CTA's window, index = byte offset; ``dst``: where the box goes, a multiple of 128. ``offsets``: im2col offsets
    (w, (h, (d))), default 0. IllegalInstruction, MisalignedAddress and OutOfRange where silicon raises the like.
    """
    _require_map(m, mem)
    _require_offset(dst)
    start = _coordinates(m, coords)
    taps = _im2col_offsets(m, offsets)
    window = _window(shared)
    if not shared.flags.writeable:
        raise UsageError("shared memory must be an array that can be written, not a read-only one")
    arena = mem.arena
    status = load_box(*(m.plan, start, taps, arena.ctypes.data, mem.base, arena.size, window.ctypes.data, window.size, int(dst)))
    _check(m, status, coords, mem, box_extent(m.plan, start, taps), "load", f"{dst:#x}", "")
    if window is not shared:
        shared[...] = window
    return int(status)


def tma_store(
    m: TensorMap, coords: Sequence[int], mem: GlobalMemory, shared: np.ndarray, src: int, reduce: str | None = None
) -> None:
    """Copy the box at ``src`` of shared memory to ``coords`` of the tensor, or reduce into it.

    ``reduce``: None (copy), add, min, max, inc, dec, and, or, xor. Other arguments and errors as for :func:`tma_load`.
    """
    _require_map(m, mem)
    _require_offset(src)
    if (reduce or "") not in REDUCTIONS:
        raise UsageError(f"reduce must be one of {', '.join(REDUCTIONS[1:])}, not {reduce}")
    start = _coordinates(m, coords)
    window = _window(shared)
    arena = mem.arena
    extent = box_extent(m.plan, start, _im2col_offsets(m, None))
    _check(m, 0, coords, mem, extent, "store", f"{src:#x}", reduce or "")
    code = REDUCTIONS.index(reduce or "")
    status = store_box(*(m.plan, start, arena.ctypes.data, mem.base, arena.size, window.ctypes.data, window.size, int(src), code))
    _check(m, status, coords, mem, extent, f"{reduce} reduction" if reduce else "store", f"{src:#x}", reduce or "")


def _require_map(m: TensorMap, mem: GlobalMemory) -> None:
    if not isinstance(m, TensorMap):
        raise UsageError(f"tensor map must be a TensorMap, not {type(m).__name__}")
    if not isinstance(mem, GlobalMemory):
        raise UsageError(f"memory must be a GlobalMemory, not {type(mem).__name__}")


def _require_offset(offset: int) -> None:
    if integer("shared address", offset) < 0:
        raise OutOfRange(f"shared address must be at least 0, not {offset}", rule=_RULE)


def _coordinates(m: TensorMap, coords: Sequence[int]) -> np.ndarray:
    coords = integers("coordinates", coords)
    if len(coords) != m.rank:
        raise UsageError(f"coordinates must be {m.rank} numbers, the rank of the tensor map, not {len(coords)}")
    if not all(-(1 << 31) <= c < 1 << 31 for c in coords):
        raise UsageError(f"coordinates must fit 32 bits, not {tuple(coords)}", rule=_RULE)
    return np.array([*coords, *[0] * (5 - m.rank)], np.int64)


def _im2col_offsets(m: TensorMap, offsets: Sequence[int] | None) -> np.ndarray:
    result = np.zeros(3, np.int64)
    offsets = None if offsets is None else integers("im2col offsets", offsets)
    if offsets is None or (len(offsets) == 0 and not m.is_im2col):
        return result
    if not m.is_im2col:
        raise UsageError("offsets must go with an im2col tensor map, not a tiled one")
    if len(offsets) != m.rank - 2:
        raise UsageError(f"im2col offsets must be {m.rank - 2} numbers for rank {m.rank}, not {len(offsets)}")
    result[: m.rank - 2] = offsets
    return result & 0xFFFF


def _window(shared: np.ndarray) -> np.ndarray:
    """Return the window itself if compiled code can work on it, else a copy aligned for 8-byte moves."""
    if not isinstance(shared, np.ndarray):
        raise UsageError(f"shared memory must be a uint8 array of one dimension, not {type(shared).__name__}")
    if shared.dtype != np.uint8 or shared.ndim != 1:
        raise UsageError(f"shared memory must be a uint8 array of one dimension, not {shared.dtype} {shared.shape}")
    if shared.flags.c_contiguous and shared.ctypes.data % 16 == 0:
        return shared
    room = np.empty(shared.size + 16, np.uint8)
    first = -room.ctypes.data % 16
    aligned = room[first : first + shared.size]
    aligned[:] = shared
    return aligned


def _check(
    m: TensorMap,
    status: int,
    coords: Sequence[int],
    mem: GlobalMemory,
    extent: tuple[int, int],
    what: str,
    at: str,
    reduce: str,
) -> None:
    """Raise the error of a refused copy, with what was wrong; also if the box touches memory that is not allocated."""
    code = -int(status)
    low, end = int(extent[0]), int(extent[1])
    if code <= 0 or code == faults.GLOBAL_RANGE:
        found = mem.find(low) if end > low else None
        if end > low and (found is None or end > found.end):
            raise OutOfRange(
                f"tensor {what} {faults.fault_text(faults.GLOBAL_RANGE)}, not {mem.describe(low, end - low)}",
                rule=_RULE,
            )
    if code <= 0:
        return
    value = {
        faults.INNER_START: f"{coords[0] * m.format.size_bytes}",
        faults.REDUCTION_TYPE: f"{reduce} of {m.dtype}",
        faults.SHARED_RANGE: f"{int(m.plan[field.BOX_BYTES]):,} bytes at {at}",
        faults.SHARED_ALIGNMENT: at,
    }.get(code, str(tuple(int(c) for c in coords)))
    raise faults.fault_class(code)(f"tensor {what} {faults.fault_text(code)}, not {value}", rule=_RULE)


@jit
def box_extent(plan, coords, offsets):
    """Return (lowest address, end) of the elements of a box that lie in the tensor, or (0, 0) if there are none."""
    if plan[field.IS_IM2COL] == 0:
        return _tile_extent(plan, coords)
    left = coords[0] if first_spatial(plan) else 0
    right = min(left + plan[field.COUNTS], plan[field.DIMS]) if first_spatial(plan) else 1
    left = max(left, 0)
    low, end = np.int64(0), np.int64(0)
    base = coords.copy()
    for row in range(plan[field.ROWS] if left < right else 0):
        start, address, inside = row_start(plan, base, offsets, row)
        if first_spatial(plan) == 0:
            inside = inside and 0 <= start < plan[field.DIMS]
            address += start * plan[field.STRIDES]
        if inside:
            low = address + left * plan[field.STRIDES] if end == 0 else min(low, address + left * plan[field.STRIDES])
            end = max(end, address + right * plan[field.STRIDES])
        next_pixel(plan, base)
    return low, end


@jit
def _tile_extent(plan, coords):
    low, high = plan[field.ADDRESS], plan[field.ADDRESS]
    for k in range(plan[field.RANK]):
        step = plan[field.ELEMENT_STRIDES + k] if k > 0 or plan[field.INTERLEAVE] else 1
        first, last = coords[k], coords[k] + (plan[field.COUNTS + k] - 1) * step
        if first < 0:
            first += (step - 1 - first) // step * step
        if last >= plan[field.DIMS + k]:
            last -= (last - plan[field.DIMS + k]) // step * step + step
        if first > last:
            return np.int64(0), np.int64(0)
        low += first * plan[field.STRIDES + k]
        high += last * plan[field.STRIDES + k]
    return low, high + plan[field.STRIDES]
