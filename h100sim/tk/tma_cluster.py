"""``tma.cluster.*``: copies into several CTAs of a cluster at once, and semaphores of other CTAs.

A tile or semaphore means the one at the same shared offset in each CTA. Spec: PTX ISA 9.1, "cp.async.bulk.tensor" with
``.multicast::cluster``, "mapa", "mbarrier.arrive" on ``.shared::cluster``.
"""

from __future__ import annotations

from .builder import current, require_scope, usage
from .complex_tiles import componentwise
from .copies import Coord, Tile, single, start_load, total_bytes
from .global_memory import GlobalTensor
from .scalars import Scalar, text
from .semaphores import Semaphore, one, wait_for
from .tiles import require_int

#: Spec: PTX ISA 9.1, "cp.async.bulk.tensor": ctaMask has 16 bits, one for each CTA of the largest cluster.
_MASK_BITS = 16


@componentwise
def load_async(
    dst: Tile, src: GlobalTensor, coord: Coord, sem: Semaphore, mask: Scalar, *, axis: str = "row", policy: str = ""
) -> None:
    """Start to copy tile ``coord`` of ``src`` into ``dst`` of every CTA whose bit is set in ``mask``; the bytes count
    towards ``sem`` in each of them. PTX: ``cp.async.bulk.tensor`` with ``.multicast::cluster``.
    """
    require_scope("tma.cluster.load_async", "thread")
    if isinstance(require_int(mask, "mask"), int) and not 0 < mask < 1 << _MASK_BITS:  # type: ignore[operator]
        raise usage(f"mask of tma.cluster.load_async must be from 1 to {(1 << _MASK_BITS) - 1:#x}, not {mask}")
    start_load("tma.cluster.load_async", dst, src, coord, sem, mask, axis, policy)


def expect(sem: Semaphore, *tiles: Tile, cta: Scalar) -> None:
    """Arrive once at ``sem`` of CTA ``cta``, and let its phase wait for the bytes of ``tiles``. PTX: ``mapa``,
    ``mbarrier.arrive.expect_tx``.
    """
    expect_bytes(sem, sum(total_bytes(tile) for tile in tiles), cta)


def expect_bytes(sem: Semaphore, size_bytes: int, cta: Scalar) -> None:
    """Arrive once at ``sem`` of CTA ``cta``, and let its phase wait for ``size_bytes`` more. PTX: ``mapa``,
    ``mbarrier.arrive.expect_tx``.
    """
    require_scope("tma.cluster.expect_bytes", "thread")
    remote = _map(one("tma.cluster.expect_bytes", sem).in_register(), cta)
    current().emit(f"mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [{remote}], {size_bytes}")


def arrive(sem: Semaphore, cta: Scalar, count: int = 1, *, publish: bool = True) -> None:
    """Arrive ``count`` times at ``sem`` of CTA ``cta``, by this one thread.

    ``publish``: who waits there in the other CTA shall see what this thread wrote, for which it waits for its memory
    accesses on the whole GPU. To say that a slot has been read, ``publish=False`` is enough. PTX: ``mapa``,
    ``mbarrier.arrive``, with ``.release.cluster`` to publish.
    """
    require_scope("tma.cluster.arrive", "thread")
    remote = _map(one("tma.cluster.arrive", sem).in_register(), cta)
    counted = f", {count}" if count != 1 else ""
    order = ".release.cluster" if publish else ""
    current().emit(f"mbarrier.arrive{order}.shared::cluster.b64 _, [{remote}]{counted}")


def wait(sem: Semaphore, phase: Scalar) -> None:
    """Wait for a phase, acquiring what other CTAs released. PTX: ``mbarrier.try_wait.parity.acquire.cluster`` in a
    loop.
    """
    wait_for(sem, phase, ".acquire.cluster")


def store_async(dst: Tile, src: Tile, cta: Scalar, sem: Semaphore) -> None:
    """Start to copy ``src`` of this CTA into ``dst`` of CTA ``cta``, through distributed shared memory; the bytes count
    towards ``sem`` there. PTX: ``mapa``, ``cp.async.bulk``.
    """
    operation = "tma.cluster.store_async"
    require_scope(operation, "thread")
    source, target = single(src, f"{operation} source"), single(dst, f"{operation} destination")
    if (str(source), getattr(source, "swizzle", 0)) != (str(target), getattr(target, "swizzle", 0)):
        raise usage(f"{operation} source and destination must have one type, shape and swizzle, not {source} and {target}")
    remote, bar = _map(target.address.in_register(), cta), _map(one(operation, sem).in_register(), cta)
    current().emit(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        f"[{remote}], {source.address}, {source.size_bytes}, [{bar}]"
    )


def _map(address: str, cta: Scalar) -> str:
    register = current().register()
    current().emit(f"mapa.shared::cluster.u32 {register}, {address}, {text(require_int(cta, 'CTA rank'))}")
    return register
