"""``tma.*``: copies of whole tiles between global and shared memory by the TMA engine, started by one thread.

Destination first. Loads complete on a semaphore, which counts their bytes; stores complete in bulk groups, for which
the same thread must wait. ``tma.cluster`` has what several CTAs do together. Spec: PTX ISA 9.1,
"cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from . import tma_cluster as cluster  # noqa: F401 (this is tk.tma.cluster)
from .builder import current, require_scope, usage
from .complex_tiles import componentwise
from .copies import Coord, Tile, bulk_addresses, start_load, start_prefetch, start_store, total_bytes
from .global_memory import GlobalTensor, require_tensor
from .semaphores import Semaphore, one
from .tiles import SharedTile, SharedVector

#: Spec: PTX ISA 9.1, "Tracking asynchronous operations by the mbarrier object": tx-count is at most 2^20 - 1.
_MOST_BYTES = (1 << 20) - 1


def expect_bytes(sem: Semaphore, size_bytes: int) -> None:
    """Arrive once, and let the phase wait for ``size_bytes`` more. PTX: ``mbarrier.arrive.expect_tx``."""
    require_scope("tma.expect_bytes", "thread")
    if not isinstance(size_bytes, int) or not 0 <= size_bytes <= _MOST_BYTES:
        raise usage(f"bytes that a semaphore expects must be from 0 to {_MOST_BYTES:,}, not {size_bytes}")
    current().emit(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {one('tma.expect_bytes', sem)}, {size_bytes}")


def expect(sem: Semaphore, *tiles: SharedTile | SharedVector) -> None:
    """Arrive once, and let the phase wait for the bytes of ``tiles`` (arrays count every tile). PTX:
    ``mbarrier.arrive.expect_tx``.
    """
    require_scope("tma.expect", "thread")
    expect_bytes(sem, sum(total_bytes(tile) for tile in tiles))


@componentwise
def load_async(dst: Tile, src: GlobalTensor, coord: Coord, sem: Semaphore, *, axis: str = "row", policy: str = "") -> None:
    """Start to copy tile ``coord`` of ``src`` into ``dst``; its bytes count towards ``sem`` when they have arrived.

    ``axis``: the dimension of the tensor that the tile's rows run along, "row", "depth" or "batch"; ``policy``:
    "evict_first" or "evict_last" for L2. PTX: ``cp.async.bulk.tensor``, one for up to 256 elements of a vector.
    """
    start_load("tma.load_async", dst, src, coord, sem, axis=axis, policy=policy)


@componentwise
def store_async(dst: GlobalTensor, src: Tile, coord: Coord, *, axis: str = "row", policy: str = "") -> None:
    """Start to copy ``src`` to tile ``coord`` of ``dst``, as a bulk group of its own. Threads that wrote ``src`` must
    have executed ``fence_proxy_async`` (which ``warpgroup.store`` does) before the barrier that precedes this. ``axis``,
    ``policy``: as of ``load_async``. PTX: ``cp.async.bulk.tensor``, ``cp.async.bulk.commit_group``.
    """
    opcode = "cp.async.bulk.tensor.{rank}.global.shared::cta.tile.bulk_group"
    start_store("tma.store_async", opcode, dst, src, coord, axis, policy)


@componentwise
def store_add_async(dst: GlobalTensor, src: Tile, coord: Coord, *, axis: str = "row", policy: str = "") -> None:
    """Start to add ``src`` to tile ``coord`` of ``dst``, element by element. PTX: ``cp.reduce.async.bulk.tensor``,
    ``cp.async.bulk.commit_group``.
    """
    _store_reduce("add", dst, src, coord, axis, policy)


@componentwise
def store_min_async(dst: GlobalTensor, src: Tile, coord: Coord, *, axis: str = "row", policy: str = "") -> None:
    """Start to take the minimum of ``src`` and tile ``coord`` of ``dst``; not for f32. PTX:
    ``cp.reduce.async.bulk.tensor``, ``cp.async.bulk.commit_group``.
    """
    _store_reduce("min", dst, src, coord, axis, policy)


@componentwise
def store_max_async(dst: GlobalTensor, src: Tile, coord: Coord, *, axis: str = "row", policy: str = "") -> None:
    """Start to take the maximum of ``src`` and tile ``coord`` of ``dst``; not for f32. PTX:
    ``cp.reduce.async.bulk.tensor``, ``cp.async.bulk.commit_group``.
    """
    _store_reduce("max", dst, src, coord, axis, policy)


def _store_reduce(op: str, dst: GlobalTensor, src: Tile, coord: Coord, axis: str, policy: str) -> None:
    operation = f"tma.store_{op}_async"
    legal = ("f32", "f16", "bf16") if op == "add" else ("f16", "bf16")
    if isinstance(src, (SharedTile, SharedVector)) and src.dtype.name not in legal:
        raise usage(
            f"element type of {operation} must be {' or '.join(legal)}, not {src.dtype}",
            'PTX ISA 9.1, "cp.reduce.async.bulk.tensor"',
        )
    opcode = f"cp.reduce.async.bulk.tensor.{{rank}}.global.shared::cta.{op}.tile.bulk_group"
    start_store(operation, opcode, dst, src, coord, axis, policy)
    dst.is_read = True


@componentwise
def prefetch(tile: Tile, src: GlobalTensor, coord: Coord, *, axis: str = "row") -> None:
    """Start to bring tile ``coord`` of ``src``, of the shape of ``tile``, into L2. PTX: ``cp.async.bulk.prefetch.tensor``."""
    start_prefetch("tma.prefetch", tile, src, coord, axis)


def load_bulk_async(dst: Tile, src: GlobalTensor, coord: Coord, sem: Semaphore) -> None:
    """Start to copy contiguous elements of ``src``, from element ``coord`` on, into a vector or a row-major tile; without a
    tensor map nothing is checked against the bounds of the tensor. PTX: ``cp.async.bulk``.
    """
    shared, address, size = bulk_addresses("tma.load_bulk_async", dst, src, coord)
    bar = one("tma.load_bulk_async", sem)
    src.is_read = True
    current().emit(f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {shared}, {address}, {size}, {bar}")


def store_bulk_async(dst: GlobalTensor, src: Tile, coord: Coord) -> None:
    """Start to copy a vector or a row-major tile to contiguous elements of ``dst``, from element ``coord`` on, as a bulk group
    of its own. PTX: ``cp.async.bulk``, ``cp.async.bulk.commit_group``.
    """
    shared, address, size = bulk_addresses("tma.store_bulk_async", src, dst, coord)
    dst.is_written = True
    current().emit(f"cp.async.bulk.global.shared::cta.bulk_group {address}, {shared}, {size}")
    current().emit("cp.async.bulk.commit_group")


def store_commit_group() -> None:
    """Close the thread's bulk group. ``store_async`` does so itself; one more makes an empty group. PTX:
    ``cp.async.bulk.commit_group``.
    """
    require_scope("tma.store_commit_group", "thread")
    current().emit("cp.async.bulk.commit_group")


def store_async_wait(pending: int = 0) -> None:
    """Wait until at most ``pending`` of this thread's stores are unfinished: the rest is in global memory. PTX:
    ``cp.async.bulk.wait_group``.
    """
    _wait("tma.store_async_wait", "cp.async.bulk.wait_group", pending)


def store_async_read_wait(pending: int = 0) -> None:
    """Wait until at most ``pending`` of this thread's stores still read shared memory: the rest may be overwritten.
    PTX: ``cp.async.bulk.wait_group.read``.
    """
    _wait("tma.store_async_read_wait", "cp.async.bulk.wait_group.read", pending)


def _wait(operation: str, opcode: str, pending: int) -> None:
    require_scope(operation, "thread")
    if not isinstance(pending, int) or pending < 0:
        raise usage(f"pending groups of {operation} must be 0 or more, not {pending}")
    current().emit(f"{opcode} {pending}")


def prefetch_map(src: GlobalTensor, tile: Tile, *, axis: str = "row") -> None:
    """Fetch the tensor map that copies of such tiles need, so that the first one does not wait for it. PTX:
    ``prefetch.tensormap``.
    """
    require_scope("tma.prefetch_map", "thread")
    current().emit(f"prefetch.tensormap [{require_tensor(src, 'tma.prefetch_map').map_register(tile, axis)}]")
