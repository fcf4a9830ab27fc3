"""Semaphores (mbarriers in shared memory), the barriers of the CTA, and register counts.

A semaphore's phase ends when its arrivals and its expected bytes are all there. Spec: PTX ISA 9.1, "Parallel
Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from dataclasses import dataclass

from .builder import current, require_scope, usage
from .scalars import Scalar, text
from .tiles import SharedAddress, check_index, require_int, shared_base

#: Spec: PTX ISA 9.1, "mbarrier.init": the count is at most 2^20 - 1.
_MOST_ARRIVALS = (1 << 20) - 1


@dataclass(frozen=True, eq=False)
class Semaphore:
    """One mbarrier, or an array of ``count`` of them."""

    address: SharedAddress
    count: int = 1
    is_array: bool = False
    root: Semaphore | None = None

    @property
    def name(self) -> str:
        return current().name_of(self.root or self, "semaphore")

    def __getitem__(self, index: Scalar) -> Semaphore:
        if not self.is_array:
            raise usage(f"semaphore {self.name} must not be indexed: it is not an array")
        check_index(self.name, index, self.count)
        return Semaphore(self.address.plus(index, 8), root=self.root or self)


def semaphores(count: int, *, name: str | None = None) -> Semaphore:
    """Make an array of semaphores in shared memory. They hold nothing until ``init_semaphore``."""
    if not isinstance(count, int) or count < 1:
        raise usage(f"count of semaphores must be a positive integer, not {count}")
    return _make(count, True, name)


def semaphore(*, name: str | None = None) -> Semaphore:
    """Make one semaphore in shared memory."""
    return _make(1, False, name)


def _make(count: int, is_array: bool, name: str | None) -> Semaphore:
    builder = current()
    offset = builder.allocate(f"{count} semaphores", 8 * count, 8)
    result = Semaphore(SharedAddress(shared_base(), offset), count, is_array)
    builder.semaphores.append(result)
    builder.watch(result, name)
    return result


def one(operation: str, sem: Semaphore) -> SharedAddress:
    """Return the address of a single semaphore. Raises UsageError for an array or anything else."""
    if not isinstance(sem, Semaphore):
        raise usage(f"{operation} must be given a semaphore, not {type(sem).__name__}")
    if sem.is_array:
        raise usage(f"{operation} must be given one semaphore, not the {sem.count} of {sem.name}")
    return sem.address


def init_semaphore(sem: Semaphore, thread_count: int, transaction_count: int = 0) -> None:
    """Set up a semaphore, or each of an array, for ``thread_count + transaction_count`` arrivals a phase. One thread
    does it, then ``fence_mbarrier_init`` and ``sync`` before anyone else uses it.
    """
    require_scope("init_semaphore", "thread")
    arrivals = thread_count + transaction_count
    if not 1 <= arrivals <= _MOST_ARRIVALS:
        raise usage(f"arrivals of a semaphore must be from 1 to {_MOST_ARRIVALS:,}, not {arrivals}")
    for i in range(sem.count):
        address = SharedAddress(sem.address.register, sem.address.offset + 8 * i)
        current().emit(f"mbarrier.init.shared::cta.b64 {address}, {arrivals}")


def invalidate_semaphore(sem: Semaphore) -> None:
    """Give the memory of a semaphore back; one thread does it, when nobody can use it any more."""
    require_scope("invalidate_semaphore", "thread")
    current().emit(f"mbarrier.inval.shared::cta.b64 {one('invalidate_semaphore', sem)}")


def fence_mbarrier_init() -> None:
    """Make semaphores that this thread set up visible to the asynchronous copies of all threads (with a barrier after
    it).
    """
    current().emit("fence.mbarrier_init.release.cluster")


def fence_proxy_async() -> None:
    """Order this thread's ordinary accesses to shared memory against asynchronous ones (TMA, wgmma) after the next
    barrier.
    """
    current().emit("fence.proxy.async.shared::cta")


def arrive(sem: Semaphore, count: int = 1) -> None:
    """Arrive ``count`` times, by this one thread. For groups see ``warp.arrive`` and ``warpgroup.arrive``."""
    require_scope("arrive", "thread")
    address = one("arrive", sem)
    counted = f", {count}" if count != 1 else ""
    current().emit(f"mbarrier.arrive.release.cta.shared::cta.b64 _, {address}{counted}")


def wait(sem: Semaphore, phase: Scalar) -> None:
    """Wait in every thread of the scope until the phase of parity ``phase`` has ended."""
    wait_for(sem, phase)


def wait_for(sem: Semaphore, phase: Scalar, order: str = "") -> None:
    """Emit the loop of a wait; ``order`` is the memory order and scope of try_wait, "" for acquire in the CTA."""
    builder = current()
    address, parity = one("wait", sem), require_int(phase, "phase of a wait")
    if isinstance(parity, int) and parity not in (0, 1):
        raise usage(f"phase of a wait must be 0 or 1, not {parity}")
    done, again = builder.register("p"), builder.new_label("WAIT")
    builder.place(again)
    builder.emit(f"mbarrier.try_wait.parity{order}.shared::cta.b64 {done}, {address}, {text(parity)}")
    builder.emit(f"@!{done} bra {again}")


@dataclass(frozen=True, eq=False)
class Barrier:
    """A named barrier that ``warpgroups`` warpgroups of the CTA share: some wait there, others only arrive."""

    id: Scalar
    warpgroups: int


def barrier(number: Scalar, warpgroups: int) -> Barrier:
    """Name a barrier of the CTA, 1 to 15 (0 is ``tk.sync``). Spec: PTX ISA 9.1, "bar"."""
    if isinstance(require_int(number, "named barrier"), int) and not 1 <= number <= 15:  # type: ignore[operator]
        raise usage(f"named barrier must be from 1 to 15, not {number}")
    most = current().warps // 4
    if not isinstance(warpgroups, int) or not 1 <= warpgroups <= most:
        raise usage(f"warpgroups of a named barrier must be from 1 to the CTA's {most}, not {warpgroups}")
    return Barrier(number, warpgroups)


def sync() -> None:
    """Wait for all threads of the CTA (named barrier 0), as __syncthreads."""
    require_scope("tk.sync", "cta")
    current().emit("bar.sync 0")
