"""Vectors between registers and shared or global memory, and from one register layout to another.

Of a group of warps each moves its own part, as of tiles. Elements past the end of a tensor's row are neither read nor
written; they read as zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import ElementType
from .builder import current, usage
from .control import lane, slot_in
from .conversions import convert_element
from .global_memory import GlobalTensor, require_tensor, tile_coordinates
from .register_vectors import RegisterVector
from .scalars import Int, Pred, all_of
from .tiles import SharedAddress, SharedVector, fl

_SUFFIX = {2: "b16", 4: "f32"}


@dataclass(frozen=True)
class _Places:
    """Where the registers of a vector lie in memory: state space, type, an address for each register and the
    condition (or None) under which this lane has an element there.
    """

    space: str
    dtype: ElementType
    addresses: tuple[str, ...]
    exists: tuple[Pred | None, ...]


def load(operation: str, vector: RegisterVector, src: SharedVector | GlobalTensor, coord: object, warps: int) -> None:
    """Read a vector, or tile ``coord`` of a tensor in units of vectors, converting; every lane gets its copies."""
    places = _places(operation, vector, src, coord, warps)
    builder, suffix = current(), _SUFFIX[places.dtype.size_bytes]
    if isinstance(src, GlobalTensor):
        src.is_read = True
    raw = vector.registers
    if places.dtype is not vector.dtype:
        raw = tuple(builder.register("f" if places.dtype is fl else "h") for _ in raw)
    for register, address, exists in zip(raw, places.addresses, places.exists, strict=True):
        if exists is not None:
            builder.emit(f"mov.{suffix} {register}, {'0f00000000' if places.dtype is fl else 0}")
        builder.emit(f"{_guard(exists)}ld.{places.space}.{suffix} {register}, {address}")
    if places.dtype is not vector.dtype:
        for register, d in zip(raw, vector.registers, strict=True):
            convert_element(register, places.dtype, vector.dtype, d)


def store(operation: str, dst: SharedVector | GlobalTensor, vector: RegisterVector, coord: object, warps: int) -> None:
    """Write a vector from the first lanes that hold it, converting; fence for asynchronous readers of shared
    memory.
    """
    places = _places(operation, vector, dst, coord, warps)
    builder = current()
    if isinstance(dst, GlobalTensor):
        dst.is_written = True
    l = Int(lane(), nonnegative=True)  # noqa: E741
    first = {"ortho": lambda: (l & 3) == 0, "align": lambda: l < 4, "naive": lambda: None}[vector.layout]()
    for register, address, exists in zip(vector.registers, places.addresses, places.exists, strict=True):
        both = all_of(first, exists)
        source = convert_element(register, vector.dtype, places.dtype)
        builder.emit(f"{_guard(both)}st.{places.space}.{_SUFFIX[places.dtype.size_bytes]} {address}, {source}")
    if places.space == "shared":
        builder.emit("fence.proxy.async.shared::cta")


def _guard(condition: Pred | None) -> str:
    return "" if condition is None else f"@{condition.register} "


def _places(operation: str, vector: RegisterVector, memory: object, coord: object, warps: int) -> _Places:
    if not isinstance(vector, RegisterVector):
        raise usage(f"{operation} must be given a register vector, not {type(vector).__name__}")
    first: Int = vector.lane_element()
    if warps > 1:
        first = first + slot_in(warps) * vector.length
    if isinstance(memory, SharedVector):
        if coord is not None:
            raise usage(f"{operation} coordinates must be given for global tensors only, not for shared memory")
        return _in_shared(operation, vector, memory, first, warps)
    return _in_global(operation, vector, require_tensor(memory, operation), coord, first, warps)


def _in_shared(operation: str, vector: RegisterVector, shared: SharedVector, first: Int, warps: int) -> _Places:
    if shared.count > 1:
        raise usage(f"{operation} must be given one vector, not the array {shared.name}")
    size = _size(operation, shared.dtype)
    if shared.length != warps * vector.length:
        part = f" ({vector.length} of each of {warps} warps)" if warps > 1 else ""
        raise usage(f"{operation} shared vector must have {warps * vector.length} elements{part}, not {shared.length}")
    start = (first * size + Int(shared.address.in_register())).register
    count = range(len(vector.registers))
    addresses = tuple(str(SharedAddress(start, vector.constant_of(n) * size)) for n in count)
    return _Places("shared", shared.dtype, addresses, tuple(_exists(vector, n, None, first) for n in count))


def _in_global(operation: str, vector: RegisterVector, tensor: GlobalTensor, coord: object, first: Int, warps: int) -> _Places:
    g, builder = tensor.layout, current()
    size = _size(operation, g.dtype)
    total = warps * vector.length
    b, d, r, c = tile_coordinates(tensor, 1, total, coord)
    line = tensor.line(b, d, r)
    element = first + c * total
    pointer = tensor.pointer_register()
    for value, pitch in ((line, g.cols * size), (element, size)):
        if isinstance(value, int):
            shift = str(value * pitch)
        else:
            shift = builder.register("rd")
            builder.emit(f"mul.wide.s32 {shift}, {value.register}, {pitch}")
        address = builder.register("rd")
        builder.emit(f"add.s64 {address}, {pointer}, {shift}")
        pointer = address
    count = range(len(vector.registers))
    limit = g.cols if g.cols % total else None
    exists = tuple(_exists(vector, n, limit, element) for n in count)
    return _Places("global", g.dtype, tuple(f"[{pointer}+{vector.constant_of(n) * size}]" for n in count), exists)


def _exists(vector: RegisterVector, n: int, limit: int | None, element: Int) -> Pred | None:
    """Return whether this lane's element of register n is in the vector and, with ``limit``, in the row."""
    in_row = element < limit - vector.constant_of(n) if limit is not None else None
    if vector.layout != "naive" or vector.length - 32 * n >= 32:
        return in_row
    in_vector = Int(lane(), nonnegative=True) < vector.length - 32 * n
    return all_of(in_vector, in_row)


def _size(operation: str, dtype: ElementType) -> int:
    if dtype.size_bytes == 1 or not dtype.is_float:
        raise usage(f"{operation} element type in memory must be f32, bf16 or f16, not {dtype}")
    return dtype.size_bytes


# --- between layouts --------------------------------------------------------------------------------------------------


def relayout(dst: RegisterVector, src: RegisterVector) -> None:
    """Copy a vector into one of another layout, converting. Element E is in register E / 8 of lane 4 (E % 8) (ortho),
    2 (E / 8) + E % 2 of lane E % 8 / 2 (align), or E / 32 of lane E % 32 (naive): one shuffle for each register that
    may hold a lane's element, and a selection among them.
    """
    builder = current()
    words = []
    for register in src.registers:
        words.append(builder.register())
        builder.emit(f"mov.b32 {words[-1]}, {convert_element(register, src.dtype, fl)}")
    lanes: dict[int, str] = {}
    which = _which(dst, src)
    for n, d in enumerate(dst.registers):
        shift = {"ortho": 4 * (dst.constant_of(n) % 8), "align": 0, "naive": dst.constant_of(n) % 32}[src.layout]
        if shift not in lanes:
            lanes[shift] = (_source_lane(dst, src) + shift).register
        found = [_shuffled(words[m], lanes[shift]) for m in _candidates(dst, src, n)]
        value = found[0]
        for i, other in enumerate(found[1:], 1):
            assert which is not None, "several candidates need a selector"
            chosen, is_it = builder.register(), which == i
            builder.emit(f"selp.b32 {chosen}, {other}, {value}, {is_it.register}")
            value = chosen
        wide = builder.register("f")
        builder.emit(f"mov.b32 {wide}, {value}")
        convert_element(wide, fl, dst.dtype, d)


def _shuffled(word: str, source: str) -> str:
    register = current().register()
    current().emit(f"shfl.sync.idx.b32 {register}, {word}, {source}, 31, 0xffffffff")
    return register


def _source_lane(dst: RegisterVector, src: RegisterVector) -> Int:
    """Return the first lane that holds this lane's element, but for a constant."""
    within = dst.lane_element() & 7
    return {"ortho": lambda: within << 2, "align": lambda: within >> 1, "naive": lambda: within}[src.layout]()


def _candidates(dst: RegisterVector, src: RegisterVector, n: int) -> list[int]:
    """Return the registers of ``src`` that hold an element of register ``n`` in some lane."""
    first = dst.constant_of(n)
    blocks = range(first // 8, first // 8 + (4 if dst.layout == "naive" else 1))
    if src.layout == "naive":
        return [first // 32]
    found = list(blocks) if src.layout == "ortho" else [2 * block + e for block in blocks for e in range(2)]
    return [m for m in found if m < len(src.registers)]


def _which(dst: RegisterVector, src: RegisterVector) -> Int | None:
    """Return which of the candidates holds this lane's element, None if there is only one."""
    l = Int(lane(), nonnegative=True)  # noqa: E741
    if src.layout == "naive":
        return None
    if src.layout == "ortho":
        return l >> 3 if dst.layout == "naive" else None
    return (l >> 2) & 1 if dst.layout == "ortho" else ((l >> 3) << 1) | (l & 1)
