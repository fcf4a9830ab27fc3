"""``tma.*``: copies of whole tiles between global and shared memory by the TMA engine, started by one thread.

Destination first. Loads complete on a semaphore, which counts their bytes; stores complete in bulk groups, for which
the same thread must wait. ``tma.cluster`` has what several CTAs do together. Spec: PTX ISA 9.1,
"cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from . import tma_cluster as cluster  # noqa: F401 (this is tk.tma.cluster)
from .builder import current, require_scope, usage
from .copies import start_load, start_store
from .global_memory import GlobalTensor, require_tensor
from .scalars import Scalar
from .semaphores import Semaphore, one
from .tiles import SharedTile, SharedVector

#: Spec: PTX ISA 9.1, "Tracking asynchronous operations by the mbarrier object": tx-count is at most 2^20 - 1.
_MOST_BYTES = (1 << 20) - 1


def expect_bytes(sem: Semaphore, size_bytes: int) -> None:
    """Arrive once, and let the phase wait for ``size_bytes`` more."""
    require_scope("tma.expect_bytes", "thread")
    if not isinstance(size_bytes, int) or not 0 <= size_bytes <= _MOST_BYTES:
        raise usage(f"bytes that a semaphore expects must be from 0 to {_MOST_BYTES:,}, not {size_bytes}")
    current().emit(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {one('tma.expect_bytes', sem)}, {size_bytes}")


def expect(sem: Semaphore, *tiles: SharedTile | SharedVector) -> None:
    """Arrive once, and let the phase wait for the bytes of ``tiles`` (arrays count every tile)."""
    require_scope("tma.expect", "thread")
    expect_bytes(sem, sum(_total_bytes(tile) for tile in tiles))


def _total_bytes(tile: SharedTile | SharedVector) -> int:
    counts = tile.count if isinstance(tile, SharedTile) else ()
    total = tile.size_bytes
    for n in counts:
        total *= n
    return total


def load_async(dst: SharedTile | SharedVector, src: GlobalTensor, coord: tuple[Scalar, ...], sem: Semaphore) -> None:
    """Start to copy tile ``coord`` of ``src`` into ``dst``; its bytes count towards ``sem`` when they have arrived."""
    start_load("tma.load_async", dst, src, coord, sem)


def store_async(dst: GlobalTensor, src: SharedTile | SharedVector, coord: tuple[Scalar, ...]) -> None:
    """Start to copy ``src`` to tile ``coord`` of ``dst``, as a bulk group of its own. Threads that wrote ``src`` must
    have executed ``fence_proxy_async`` (which ``warpgroup.store`` does) before the barrier that precedes this.
    """
    start_store("tma.store_async", "cp.async.bulk.tensor.{rank}.global.shared::cta.tile.bulk_group", dst, src, coord)


def store_add_async(dst: GlobalTensor, src: SharedTile | SharedVector, coord: tuple[Scalar, ...]) -> None:
    """Start to add ``src`` to tile ``coord`` of ``dst``, element by element."""
    _store_reduce("add", dst, src, coord)


def store_min_async(dst: GlobalTensor, src: SharedTile | SharedVector, coord: tuple[Scalar, ...]) -> None:
    """Start to take the minimum of ``src`` and tile ``coord`` of ``dst``; not for f32."""
    _store_reduce("min", dst, src, coord)


def store_max_async(dst: GlobalTensor, src: SharedTile | SharedVector, coord: tuple[Scalar, ...]) -> None:
    """Start to take the maximum of ``src`` and tile ``coord`` of ``dst``; not for f32."""
    _store_reduce("max", dst, src, coord)


def _store_reduce(op: str, dst: GlobalTensor, src: SharedTile | SharedVector, coord: tuple[Scalar, ...]) -> None:
    operation = f"tma.store_{op}_async"
    legal = ("f32", "f16", "bf16") if op == "add" else ("f16", "bf16")
    if src.dtype.name not in legal:
        raise usage(
            f"element type of {operation} must be {' or '.join(legal)}, not {src.dtype}",
            'PTX ISA 9.1, "cp.reduce.async.bulk.tensor"',
        )
    start_store(operation, f"cp.reduce.async.bulk.tensor.{{rank}}.global.shared::cta.{op}.tile.bulk_group", dst, src, coord)
    dst.is_read = True


def store_commit_group() -> None:
    """Close the thread's bulk group. ``store_async`` does so itself; one more makes an empty group."""
    require_scope("tma.store_commit_group", "thread")
    current().emit("cp.async.bulk.commit_group")


def store_async_wait(pending: int = 0) -> None:
    """Wait until at most ``pending`` of this thread's stores are unfinished: the rest is in global memory."""
    _wait("tma.store_async_wait", "cp.async.bulk.wait_group", pending)


def store_async_read_wait(pending: int = 0) -> None:
    """Wait until at most ``pending`` of this thread's stores still read shared memory: the rest may be overwritten."""
    _wait("tma.store_async_read_wait", "cp.async.bulk.wait_group.read", pending)


def _wait(operation: str, opcode: str, pending: int) -> None:
    require_scope(operation, "thread")
    if not isinstance(pending, int) or pending < 0:
        raise usage(f"pending groups of {operation} must be 0 or more, not {pending}")
    current().emit(f"{opcode} {pending}")


def prefetch_map(src: GlobalTensor, tile: SharedTile | SharedVector) -> None:
    """Fetch the tensor map that copies of such tiles need, so that the first one does not wait for it."""
    require_scope("tma.prefetch_map", "thread")
    current().emit(f"prefetch.tensormap [{require_tensor(src, 'tma.prefetch_map').map_register(tile)}]")
