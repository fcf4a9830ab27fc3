"""``load`` and ``store`` of warps and warpgroups: which move it is follows from where the data lies."""

from __future__ import annotations

from typing import Any

from . import global_moves, shared_moves, tile_moves, vector_moves
from .builder import usage
from .global_memory import GlobalTensor
from .register_vectors import RegisterVector
from .tiles import SharedTile


def load(operation: str, dst: Any, src: Any, coord: Any, group_warps: int) -> None:
    """Read shared memory, or tile ``coord`` of global memory, into the registers of ``group_warps`` warps; or global
    memory into shared memory.
    """
    if isinstance(dst, RegisterVector):
        vector_moves.load(operation, dst, src, coord, group_warps)
        return
    if isinstance(src, GlobalTensor):
        move = shared_moves.load if isinstance(dst, SharedTile) else global_moves.load
        move(operation, dst, src, coord, group_warps)
        return
    _check_no_coordinates(operation, coord)
    tile_moves.load(operation, dst, src, group_warps)


def store(operation: str, dst: Any, src: Any, coord: Any, group_warps: int) -> None:
    """Write the registers of ``group_warps`` warps to shared memory, or to tile ``coord`` of global memory; or shared
    memory to global memory.
    """
    if isinstance(src, RegisterVector):
        vector_moves.store(operation, dst, src, coord, group_warps)
        return
    if isinstance(dst, GlobalTensor):
        move = shared_moves.store if isinstance(src, SharedTile) else global_moves.store
        move(operation, dst, src, coord, group_warps)
        return
    _check_no_coordinates(operation, coord)
    tile_moves.store(operation, dst, src, group_warps)


def _check_no_coordinates(operation: str, coord: Any) -> None:
    if coord is not None:
        raise usage(f"{operation} coordinates must be given for global tensors only, not for shared memory")
