"""What all asynchronous copies share: one thread starts them, with the map, the coordinates and the shared address of a
tile, or with two addresses and a size.
"""

from __future__ import annotations

from collections.abc import Iterator

from .builder import current, require_scope, usage
from .complex_tiles import Complex
from .elements import address_of_element
from .global_memory import GlobalTensor, coordinates, rank, require_tensor, vector_piece
from .scalars import Int, Scalar
from .semaphores import Semaphore, one
from .tiles import SharedAddress, SharedTile, SharedVector

Tile = SharedTile | SharedVector
Coord = int | Int | tuple[int | Int, ...]

#: Priorities in L2 that all bytes of a copy can have. Spec: PTX ISA 9.1, "createpolicy".
POLICIES = ("evict_first", "evict_last")


def start_load(
    operation: str, dst: Tile, src: GlobalTensor, coord: Coord, sem: Semaphore, mask: Scalar | None = None,
    axis: str = "row", policy: str = "",
) -> None:  # fmt: skip
    """Emit a copy of tile ``coord`` into shared memory: of this CTA, or with ``mask`` of several."""
    require_scope(operation, "thread")
    src = require_tensor(src, f"{operation} source")
    tile = single(dst, f"{operation} destination")
    bar = one(operation, sem)
    pieces = list(_pieces(src, tile, coord, axis))
    src.is_read = True
    multicast, last = ("", "") if mask is None else (".multicast::cluster", f", {_mask_register(mask)}")
    hint, cache = _policy(operation, policy)
    for address, where in pieces:
        current().emit(
            f"cp.async.bulk.tensor.{rank(tile)}.shared::cluster.global.tile.mbarrier::complete_tx::bytes{multicast}{hint}"
            f" {address}, [{src.map_register(tile, axis)}, {where}], {bar}{last}{cache}"
        )


def _pieces(tensor: GlobalTensor, tile: Tile, coord: Coord, axis: str) -> Iterator[tuple[SharedAddress, str]]:
    """Yield shared address and coordinates of every copy that a tile needs: one, of a long vector several."""
    if isinstance(tile, SharedTile):
        where = coordinates(tensor, tile, coord, axis)
        tensor.map_register(tile, axis)
        yield tile.address, where
        return
    step = vector_piece(tile)
    for first in range(0, tile.length, step):
        yield tile.address.plus(first, tile.dtype.size_bytes), coordinates(tensor, tile, coord, axis, first)


def _policy(operation: str, policy: str) -> tuple[str, str]:
    """Return modifier and operand of a cache policy."""
    if not policy:
        return "", ""
    if policy not in POLICIES:
        raise usage(f"policy of {operation} must be {' or '.join(POLICIES)}, not {policy}")
    register = current().once(policy, "rd", f"createpolicy.fractional.L2::{policy}.b64 {{d}}, 1.0")
    return ".L2::cache_hint", f", {register}"


def _mask_register(mask: Scalar) -> str:
    register = current().register("h")
    current().emit(f"cvt.u16.u32 {register}, {mask.register}" if isinstance(mask, Int) else f"mov.b16 {register}, {mask}")
    return register


def start_store(
    operation: str, opcode: str, dst: GlobalTensor, src: Tile, coord: Coord, axis: str = "row", policy: str = ""
) -> None:
    """Emit a copy or reduction of a tile into global memory and close its bulk group. ``opcode`` holds ``{rank}``."""
    require_scope(operation, "thread")
    dst = require_tensor(dst, f"{operation} destination")
    tile = single(src, f"{operation} source")
    pieces = list(_pieces(dst, tile, coord, axis))
    dst.is_written = True
    hint, cache = _policy(operation, policy)
    for address, where in pieces:
        current().emit(f"{opcode.format(rank=rank(tile))}{hint} [{dst.map_register(tile, axis)}, {where}], {address}{cache}")
    current().emit("cp.async.bulk.commit_group")


def start_prefetch(operation: str, tile: Tile, src: GlobalTensor, coord: Coord, axis: str) -> None:
    """Emit a copy of tile ``coord`` into L2 alone."""
    require_scope(operation, "thread")
    src, shape = require_tensor(src, f"{operation} source"), single(tile, f"{operation} tile")
    src.is_read = True
    for _, where in list(_pieces(src, shape, coord, axis)):
        current().emit(f"cp.async.bulk.prefetch.tensor.{rank(shape)}.L2.global.tile [{src.map_register(shape, axis)}, {where}]")


def bulk_addresses(operation: str, shared: Tile, tensor: GlobalTensor, coord: Coord) -> tuple[str, str, int]:
    """Return shared address, global address and bytes of a copy of contiguous elements. Raises UsageError for elements that
    are not.
    """
    require_scope(operation, "thread")
    tile, g = single(shared, operation), require_tensor(tensor, operation).layout
    if tile.dtype is not g.dtype:
        raise usage(f"{operation} element type of the shared vector must be that of {tensor}, not {tile.dtype}")
    if isinstance(tile, SharedTile) and tile.swizzle:
        raise usage(f"{operation} tile must be row-major (swizzle=0), not {tile} with a swizzle of {tile.swizzle} bytes")
    if isinstance(tile, SharedTile) and tile.cols != g.cols:
        raise usage(f"{operation} rows of the tile must be whole rows of {tensor}, not {tile.cols} columns")
    return str(tile.address), f"[{address_of_element(tensor, coord)}]", tile.size_bytes


def single(tile: Tile, what: str) -> Tile:
    """Return a tile or vector that a copy can move as a whole. Raises UsageError for anything else."""
    if not isinstance(tile, (SharedTile, SharedVector)):
        raise usage(f"{what} must be a shared tile or vector, not {type(tile).__name__}")
    if (isinstance(tile, SharedTile) and tile.count) or (isinstance(tile, SharedVector) and tile.count > 1):
        raise usage(f"{what} must be one tile, not the array {tile.name}")
    if isinstance(tile, SharedTile) and not tile.is_contiguous:
        raise usage(f"{what} must be a whole tile or rows of one panel, not a view with {tile.panel_rows - tile.rows} other rows")
    if tile.address.offset % 128:
        raise usage(f"{what} must begin at a multiple of 128 bytes, not {tile.address.offset % 128} after one")
    return tile


def total_bytes(tile: Tile) -> int:
    """Return the bytes of a tile, or of all of an array; of a complex one both parts'."""
    if isinstance(tile, Complex):
        return total_bytes(tile.real) + total_bytes(tile.imag)
    if not isinstance(tile, (SharedTile, SharedVector)):
        raise usage(f"bytes to expect must be those of a shared tile or vector, not of {type(tile).__name__}")
    counts = tile.count if isinstance(tile, SharedTile) else (tile.count,)
    total = tile.size_bytes
    for n in counts:
        total *= n
    return total
