"""Single elements of tensors, tiles and vectors in memory: what each thread reads and writes by itself.

Coordinates count elements here, as ThunderKittens' ``coord<>`` does. Floating-point elements become a
:class:`~h100sim.tk.Float`, whatever their type; integers an :class:`~h100sim.tk.Int`. Every thread of the scope
executes these; guard writes with ``tk.elect`` or ``tk.when``. Spec: PTX ISA 9.1, "ld", "st", "atom", "cvt".
"""

from __future__ import annotations

from typing import Any

from ..dtypes import ElementType
from .builder import current, usage
from .conversions import narrowed, widened
from .floats import Float, number
from .global_memory import GlobalTensor, tile_coordinates
from .scalars import Int, Scalar, is_divergent, text
from .tiles import SharedTile, SharedVector, check_index, fl, int32, require_int

_Place = GlobalTensor | SharedTile | SharedVector
_KINDS = {4: ("b32", "r"), 2: ("b16", "h"), 1: ("u8", "h")}
_ORDERS = {"": ("", ""), "acquire": ("ld", ".acquire.gpu"), "release": ("st", ".release.gpu")}


def read(place: _Place, coord: Scalar | tuple[Scalar, ...], order: str = "") -> Int | Float:
    """Return an element of a global tensor, a shared tile or a shared vector. ``order``: "acquire" to see what a
    "release" of another CTA published. PTX: ``ld``, ``cvt`` for types other than f32 and s32.
    """
    space, address, dtype, divergent = _address("tk.read", place, coord)
    builder = current()
    if isinstance(place, GlobalTensor):
        place.is_read = True
    kind, register = _KINDS[dtype.size_bytes]
    raw = builder.register("f" if dtype is fl else register)
    builder.emit(f"ld{_order('tk.read', 'ld', order)}.{space}.{'f32' if dtype is fl else kind} {raw}, [{address}]")
    return Int(raw, divergent=divergent) if dtype is int32 else Float(widened(raw, dtype), divergent)


def write(place: _Place, coord: Scalar | tuple[Scalar, ...], value: Any, order: str = "") -> None:
    """Set an element of a global tensor, a shared tile or a shared vector, rounding to its type. ``order``:
    "release" to publish what this thread wrote before. PTX: ``st``, ``cvt`` for types other than f32 and s32.
    """
    space, address, dtype, _ = _address("tk.write", place, coord)
    if isinstance(place, GlobalTensor):
        place.is_written = True
    kind, _ = _KINDS[dtype.size_bytes]
    source = text(value) if dtype is int32 else narrowed(number(value), dtype)
    suffix = "f32" if dtype is fl else kind
    current().emit(f"st{_order('tk.write', 'st', order)}.{space}.{suffix} [{address}], {source}")


def atomic_add(place: _Place, coord: Scalar | tuple[Scalar, ...], value: Any, order: str = "relaxed") -> Int | Float:
    """Add to an element of f32 or int32 and return what it was before. ``order``: "relaxed", "acquire", "release" or
    "acq_rel". PTX: ``atom``.
    """
    space, address, dtype, _ = _address("tk.atomic_add", place, coord)
    if dtype not in (fl, int32):
        raise usage(f"element type of tk.atomic_add must be f32 or s32, not {dtype}")
    if order not in ("relaxed", "acquire", "release", "acq_rel"):
        raise usage(f"order of tk.atomic_add must be relaxed, acquire, release or acq_rel, not {order}")
    if isinstance(place, GlobalTensor):
        place.is_read = place.is_written = True
    source = number(value) if dtype is fl else text(value)
    before = current().register("f" if dtype is fl else "r")
    kind = "f32" if dtype is fl else "u32"
    current().emit(f"atom.{order}.gpu.{space}.add.{kind} {before}, [{address}], {source}")
    return Float(before, True) if dtype is fl else Int(before, divergent=True)


def _order(operation: str, opcode: str, order: str) -> str:
    if order not in _ORDERS or _ORDERS[order][0] not in ("", opcode):
        legal = next(name for name, (own, _) in _ORDERS.items() if own == opcode)
        raise usage(f'order of {operation} must be "" or "{legal}", not "{order}"')
    return _ORDERS[order][1]


def _address(operation: str, place: _Place, coord: Any) -> tuple[str, str, ElementType, bool]:
    """Return state space, address register, element type, and whether lanes differ in the address."""
    given = coord if isinstance(coord, tuple) else (coord,)
    divergent = any(map(is_divergent, given))
    if isinstance(place, GlobalTensor):
        return "global", address_of_element(place, coord), place.layout.dtype, divergent
    if isinstance(place, SharedVector):
        return "shared", _of_vector(operation, place, given), place.dtype, divergent
    if isinstance(place, SharedTile):
        return "shared", _of_tile(operation, place, given), place.dtype, divergent
    raise usage(f"{operation} must be given a gl argument, a shared tile or a shared vector, not {type(place).__name__}")


def address_of_element(tensor: GlobalTensor, coord: Any) -> str:
    """Return the PTX address of an element of a tensor, without brackets."""
    g, builder = tensor.layout, current()
    b, d, r, c = tile_coordinates(tensor, 1, 1, coord)
    line = tensor.line(b, d, r)
    pointer, size = tensor.pointer_register(), g.dtype.size_bytes
    if isinstance(line, int) and isinstance(c, int):
        return f"{pointer}+{(line * g.cols + c) * size}"
    for value, pitch in ((line, g.cols * size), (c, size)):
        if isinstance(value, int) and value == 0:
            continue
        wide, address = builder.register("rd"), builder.register("rd")
        if isinstance(value, int):
            builder.emit(f"add.s64 {address}, {pointer}, {value * pitch}")
        else:
            builder.emit(f"mul.wide.s32 {wide}, {value.register}, {pitch}")
            builder.emit(f"add.s64 {address}, {pointer}, {wide}")
        pointer = address
    return pointer


def _of_vector(operation: str, vector: SharedVector, coord: tuple[Any, ...]) -> str:
    if len(coord) != 1 or vector.count > 1:
        raise usage(f"{operation} must be given one vector and one index, not {vector.count} and {len(coord)}")
    check_index(vector.name, require_int(coord[0], "index"), vector.length)
    return str(vector.address.plus(coord[0], vector.dtype.size_bytes))[1:-1]


def _of_tile(operation: str, tile: SharedTile, coord: tuple[Any, ...]) -> str:
    if len(coord) != 2 or tile.count:
        raise usage(f"{operation} must be given one tile, a row and a column, not {tile.name} and {len(coord)} indices")
    r, c = (require_int(x, "index") for x in coord)
    check_index(f"rows of {tile.name}", r, tile.rows)
    check_index(f"columns of {tile.name}", c, tile.cols)
    return str(tile.address.plus(tile.offset_of(r, c), 1))[1:-1]
