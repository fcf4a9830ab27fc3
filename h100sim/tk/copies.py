"""What all tensor copies share: one thread starts them, with the map, the coordinates and the shared address of a
tile.
"""

from __future__ import annotations

from .builder import current, require_scope, usage
from .global_memory import GlobalTensor, coordinates, rank, require_tensor
from .scalars import Int, Scalar
from .semaphores import Semaphore, one
from .tiles import SharedTile, SharedVector


def start_load(
    operation: str,
    dst: SharedTile | SharedVector,
    src: GlobalTensor,
    coord: tuple[Scalar, ...],
    sem: Semaphore,
    mask: Scalar | None = None,
) -> None:
    """Emit a copy of tile ``coord`` into shared memory: of this CTA, or with ``mask`` of several."""
    require_scope(operation, "thread")
    src = require_tensor(src, f"{operation} source")
    tile = _single(dst, f"{operation} destination")
    bar = one(operation, sem)
    where = coordinates(src, tile, coord)
    register = src.map_register(tile)
    src.is_read = True
    multicast, last = ("", "") if mask is None else (".multicast::cluster", f", {_mask_register(mask)}")
    current().emit(
        f"cp.async.bulk.tensor.{rank(tile)}.shared::cluster.global.tile.mbarrier::complete_tx::bytes{multicast}"
        f" {tile.address}, [{register}, {where}], {bar}{last}"
    )


def _mask_register(mask: Scalar) -> str:
    register = current().register("h")
    current().emit(f"cvt.u16.u32 {register}, {mask.register}" if isinstance(mask, Int) else f"mov.b16 {register}, {mask}")
    return register


def start_store(operation: str, opcode: str, dst: GlobalTensor, src: SharedTile | SharedVector, coord: tuple[Scalar, ...]) -> None:
    """Emit a copy or reduction of a tile into global memory and close its bulk group. ``opcode`` holds ``{rank}``."""
    require_scope(operation, "thread")
    dst = require_tensor(dst, f"{operation} destination")
    tile = _single(src, f"{operation} source")
    where = coordinates(dst, tile, coord)
    register = dst.map_register(tile)
    dst.is_written = True
    current().emit(f"{opcode.format(rank=rank(tile))} [{register}, {where}], {tile.address}")
    current().emit("cp.async.bulk.commit_group")


def _single(tile: SharedTile | SharedVector, what: str) -> SharedTile | SharedVector:
    if not isinstance(tile, (SharedTile, SharedVector)):
        raise usage(f"{what} must be a shared tile or vector, not {type(tile).__name__}")
    if (isinstance(tile, SharedTile) and tile.count) or (isinstance(tile, SharedVector) and tile.count > 1):
        raise usage(f"{what} must be one tile, not the array {tile.name}")
    return tile
