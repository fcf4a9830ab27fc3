"""Shared tiles from and to global memory by ordinary loads and stores, 16 bytes at a time: what there was before TMA.

The threads of the group take chunks of 16 bytes in turn, row after row. Rows and columns past the end of the tensor are
neither read nor written; they become zeros in the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .builder import current, usage
from .control import lane, warp_rank_in
from .global_memory import GlobalTensor, tile_origin
from .scalars import Int, Pred, all_of
from .tiles import SharedTile

_CHUNK_BYTES = 16


@dataclass(frozen=True)
class _Chunk:
    """What one thread moves at a time: its shared address, its global address and the guards of both accesses."""

    shared: str
    address: str
    in_tile: Pred | None
    in_tensor: Pred | None

    def guard(self) -> str:
        """Return the PTX guard of the global access."""
        both = all_of(self.in_tile, self.in_tensor)
        return "" if both is None else f"@{both.register} "


def load(operation: str, tile: SharedTile, tensor: GlobalTensor, coord: object, group_warps: int) -> None:
    """Copy tile ``coord`` of a tensor into a shared tile, then fence for asynchronous readers. A barrier must
    follow.
    """
    builder = current()
    words = tuple(builder.register() for _ in range(4))
    vector = "{" + ", ".join(words) + "}"
    tensor.is_read = True
    for chunk in _chunks(operation, tile, tensor, coord, group_warps):
        if chunk.in_tensor is not None:
            for word in words:
                builder.emit(f"mov.b32 {word}, 0")
        builder.emit(f"{chunk.guard()}ld.global.v4.b32 {vector}, {chunk.address}")
        inside = f"@{chunk.in_tile.register} " if chunk.in_tile is not None else ""
        builder.emit(f"{inside}st.shared.v4.b32 {chunk.shared}, {vector}")
    builder.emit("fence.proxy.async.shared::cta")


def load_async(operation: str, tile: SharedTile, tensor: GlobalTensor, coord: object, group_warps: int) -> None:
    """Start to copy tile ``coord`` of a tensor into a shared tile, and close the threads' groups of copies."""
    if not isinstance(tile, SharedTile) or not isinstance(tensor, GlobalTensor):
        raise usage(f"{operation} must be given a shared tile and a gl argument, not {type(tile).__name__}")
    builder = current()
    tensor.is_read = True
    for chunk in _chunks(operation, tile, tensor, coord, group_warps):
        inside = f"@{chunk.in_tile.register} " if chunk.in_tile is not None else ""
        size = ""
        if chunk.in_tensor is not None:
            size = f", {builder.register()}"
            builder.emit(f"selp.b32 {size[2:]}, {_CHUNK_BYTES}, 0, {chunk.in_tensor.register}")
        builder.emit(f"{inside}cp.async.cg.shared.global {chunk.shared}, {chunk.address}, {_CHUNK_BYTES}{size}")
    builder.emit("cp.async.commit_group")


def load_async_wait(pending: int = 0) -> None:
    """Wait in each thread until at most ``pending`` of its ``load_async`` are unfinished. For other threads a barrier
    must follow, for TMA and wgmma ``fence_proxy_async`` before it. PTX: ``cp.async.wait_group``.
    """
    if not isinstance(pending, int) or pending < 0:
        raise usage(f"pending groups of load_async_wait must be 0 or more, not {pending}")
    current().emit(f"cp.async.wait_group {pending}")


def store(operation: str, tensor: GlobalTensor, tile: SharedTile, coord: object, group_warps: int) -> None:
    """Copy a shared tile to tile ``coord`` of a tensor. A barrier must come before, if other threads wrote the tile."""
    builder = current()
    vector = "{" + ", ".join(builder.register() for _ in range(4)) + "}"
    tensor.is_written = True
    for chunk in _chunks(operation, tile, tensor, coord, group_warps):
        inside = f"@{chunk.in_tile.register} " if chunk.in_tile is not None else ""
        builder.emit(f"{inside}ld.shared.v4.b32 {vector}, {chunk.shared}")
        builder.emit(f"{chunk.guard()}st.global.v4.b32 {chunk.address}, {vector}")


def _chunks(operation: str, tile: SharedTile, tensor: GlobalTensor, coord: object, group_warps: int) -> Iterator[_Chunk]:
    """Yield the chunks of this thread, emitting their addresses."""
    _check(operation, tile, tensor)
    builder = current()
    size, g = tile.dtype.size_bytes, tensor.layout
    per_row = tile.cols * size // _CHUNK_BYTES
    count, threads = tile.rows * per_row, 32 * group_warps
    origin = tile_origin(operation, tensor, tile.rows, tile.cols, coord, _CHUNK_BYTES // size)
    thread = Int(lane(), nonnegative=True)
    if group_warps > 1:
        thread = thread + warp_rank_in(group_warps) * 32
    base, pointer = tile.address.in_register(), tensor.pointer_register()
    for first in range(0, count, threads):
        row, part = divmod(thread + first, per_row)
        shared = Int(base) + _swizzled(tile, row, part)
        wide, address = builder.register("rd"), builder.register("rd")
        builder.emit(f"mul.wide.s32 {wide}, {(row + origin.row + origin.rows_before).register}, {g.cols * size}")
        builder.emit(f"add.s64 {address}, {pointer}, {wide}")
        builder.emit(f"mul.wide.s32 {wide}, {(part * _CHUNK_BYTES + origin.col * size).register}, 1")
        builder.emit(f"add.s64 {address}, {address}, {wide}")
        in_tile = thread + first < count if first + threads > count else None
        in_tensor = row + origin.row < origin.limit if origin.limit is not None else None
        if origin.col_limit is not None:
            in_row = part * (_CHUNK_BYTES // size) + origin.col < origin.col_limit
            in_tensor = all_of(in_row, in_tensor)
        yield _Chunk(f"[{shared.register}]", f"[{address}]", in_tile, in_tensor)


def _swizzled(tile: SharedTile, row: Int, part: Int) -> Int:
    """Return the offset in the tile of chunk ``part`` of a row."""
    if not tile.swizzle:
        return row * (tile.cols * tile.dtype.size_bytes) + part * _CHUNK_BYTES
    panel, inside = divmod(part, tile.swizzle // _CHUNK_BYTES)
    line = row * tile.swizzle
    flipped = inside ^ ((line >> 7) & (tile.swizzle // _CHUNK_BYTES - 1))
    return line + panel * (tile.panel_rows * tile.swizzle) + flipped * _CHUNK_BYTES


def _check(operation: str, tile: SharedTile, tensor: GlobalTensor) -> None:
    g = tensor.layout
    if tile.count:
        raise usage(f"{operation} must be given one tile, not the array {tile.name}")
    if tile.first_col or (not tile.swizzle and not tile.is_contiguous):
        raise usage(f"{operation} view must begin at a panel of {tile.panel_cols} columns, not at column {tile.first_col} of one")
    if tile.dtype is not g.dtype:
        raise usage(f"{operation} element type of the tile must be that of {tensor}, not {tile.dtype}")
