"""Semaphores (mbarriers in shared memory), the barriers of the CTA, and register counts.

A semaphore's phase ends when its arrivals and its expected bytes are all there. Spec: PTX ISA 9.1, "Parallel
Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError, Where
from .builder import current, here, require_scope, usage
from .scalars import Int, Pred, Scalar, Var, text
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


def check_initialised() -> None:
    """Raise UsageError if the kernel uses a semaphore that it does not set up anywhere."""
    builder = current()
    for key, (sem, operation, location) in builder.used_semaphores.items():
        if key not in builder.initialised:
            raise UsageError(
                f"semaphore {sem.name} of {operation} must be set up by tk.init_semaphore, which nobody calls for it",
                Where(source=str(location)),
                "in one thread, before tk.fence_mbarrier_init and tk.sync",
            )


def one(operation: str, sem: Semaphore) -> SharedAddress:
    """Return the address of a single semaphore. Raises UsageError for an array or anything else."""
    if not isinstance(sem, Semaphore):
        raise usage(f"{operation} must be given a semaphore, not {type(sem).__name__}")
    if sem.is_array:
        raise usage(f"{operation} must be given one semaphore, not the {sem.count} of {sem.name}")
    root = sem.root or sem
    current().used_semaphores.setdefault(id(root), (root, operation, here()))
    return sem.address


def init_semaphore(sem: Semaphore, thread_count: int, transaction_count: int = 0) -> None:
    """Set up a semaphore, or each of an array, for ``thread_count + transaction_count`` arrivals a phase. One thread
    does it, then ``fence_mbarrier_init`` and ``sync`` before anyone else uses it. PTX: ``mbarrier.init``.
    """
    require_scope("init_semaphore", "thread")
    arrivals = thread_count + transaction_count
    if not 1 <= arrivals <= _MOST_ARRIVALS:
        raise usage(f"arrivals of a semaphore must be from 1 to {_MOST_ARRIVALS:,}, not {arrivals}")
    if not isinstance(sem, Semaphore):
        raise usage(f"init_semaphore must be given a semaphore, not {type(sem).__name__}")
    current().initialised.add(id(sem.root or sem))
    for i in range(sem.count):
        address = SharedAddress(sem.address.register, sem.address.offset + 8 * i)
        current().emit(f"mbarrier.init.shared::cta.b64 {address}, {arrivals}")


def invalidate_semaphore(sem: Semaphore) -> None:
    """Give the memory of a semaphore back; one thread does it, when nobody can use it any more. PTX:
    ``mbarrier.inval``.
    """
    require_scope("invalidate_semaphore", "thread")
    current().emit(f"mbarrier.inval.shared::cta.b64 {one('invalidate_semaphore', sem)}")


def fence_mbarrier_init() -> None:
    """Make semaphores that this thread set up visible to the asynchronous copies of all threads (with a barrier after
    it). PTX: ``fence.mbarrier_init``.
    """
    current().emit("fence.mbarrier_init.release.cluster")


def fence_proxy_async() -> None:
    """Order this thread's ordinary accesses to shared memory against asynchronous ones (TMA, wgmma) after the next
    barrier. PTX: ``fence.proxy.async``.
    """
    current().emit("fence.proxy.async.shared::cta")


def arrive(sem: Semaphore, count: int = 1) -> None:
    """Arrive ``count`` times, by this one thread. For groups see ``warp.arrive`` and ``warpgroup.arrive``. PTX:
    ``mbarrier.arrive``.
    """
    require_scope("arrive", "thread")
    address = one("arrive", sem)
    counted = f", {count}" if count != 1 else ""
    current().emit(f"mbarrier.arrive.release.cta.shared::cta.b64 _, {address}{counted}")


def wait(sem: Semaphore, phase: Scalar) -> None:
    """Wait in every thread of the scope until the phase of parity ``phase`` has ended. PTX:
    ``mbarrier.try_wait.parity`` in a loop.
    """
    wait_for(sem, phase)


def wait_for(sem: Semaphore, phase: Scalar, order: str = "") -> None:
    """Emit the loop of a wait; ``order`` is the memory order and scope of try_wait, "" for acquire in the CTA."""
    builder = current()
    again = builder.new_label("WAIT")
    address, parity = one("wait", sem), _parity(phase)
    builder.place(again)
    done = _test(f"try_wait.parity{order}", address, parity)
    builder.emit(f"@!{done.register} bra {again}")


def try_wait(sem: Semaphore, phase: Scalar) -> Pred:
    """Return whether the phase of parity ``phase`` has ended, after waiting for it for a time that the hardware
    limits. PTX: ``mbarrier.try_wait.parity``.
    """
    return _test("try_wait.parity", one("try_wait", sem), _parity(phase))


def test_wait(sem: Semaphore, phase: Scalar) -> Pred:
    """Return whether the phase of parity ``phase`` has ended, without waiting. PTX: ``mbarrier.test_wait.parity``."""
    return _test("test_wait.parity", one("test_wait", sem), _parity(phase))


def arrive_and_wait(sem: Semaphore, phase: Scalar) -> None:
    """Arrive once, by this one thread, and wait for the phase. PTX: ``mbarrier.arrive``, ``mbarrier.try_wait.parity``."""
    arrive(sem)
    wait(sem, phase)


def _parity(phase: Scalar) -> Scalar:
    parity = require_int(phase, "phase of a wait")
    if isinstance(parity, int) and parity not in (0, 1):
        raise usage(f"phase of a wait must be 0 or 1, not {parity}")
    return parity


def _test(kind: str, address: SharedAddress, parity: Scalar) -> Pred:
    done = current().register("p")
    current().emit(f"mbarrier.{kind}.shared::cta.b64 {done}, {address}, {text(parity)}")
    # Lanes that ask at the same time may be answered differently.
    return Pred(done, divergent=True)


# --- phase bits -------------------------------------------------------------------------------------------------------


def phasebits() -> Var:
    """Make the phase bits of up to 16 stages: bit s is the parity to wait for next when stage s fills (half 0, from
    0), bit 16 + s when it empties (half 1, from 1, so that the first wait for an empty stage passes). PTX: ``mov``.
    """
    bits = Var(current().register())
    bits.set(0xFFFF0000)
    return bits


def get_phasebit(bits: Int, stage: Scalar, half: int = 0) -> Int:
    """Return the parity to wait for at a stage. PTX: ``shr``, ``and``."""
    return (bits >> (stage + _half(half))) & 1


def update_phasebit(bits: Var, stage: Scalar, half: int = 0) -> None:
    """Flip the parity of a stage after a wait. PTX: ``shl``, ``xor``."""
    mask = 1 << (stage + _half(half))
    bits ^= mask


def ring_advance(stage: Int, stages: int, distance: int = 1) -> Int:
    """Return the stage ``distance`` after this one. PTX: ``add``, then ``and``, ``rem`` or ``div``."""
    return (stage + distance) % stages


def ring_retreat(stage: Int, stages: int, distance: int = 1) -> Int:
    """Return the stage ``distance`` before this one. PTX: ``add``, then ``and``, ``rem`` or ``div``."""
    return (stage + (stages - distance % stages)) % stages


def _half(half: int) -> int:
    if half not in (0, 1):
        raise usage(f"half of the phase bits must be 0 (arrived) or 1 (finished), not {half}")
    return 16 * half


# --- named barriers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Barrier:
    """A named barrier that ``warps`` warps of the CTA share: some wait there, others only arrive."""

    id: Scalar
    warps: int

    @property
    def threads(self) -> int:
        return 32 * self.warps


def barrier(number: Scalar, warpgroups: int | None = None, *, warps: int | None = None) -> Barrier:
    """Name a barrier of the CTA, 1 to 15 (0 is ``tk.sync``), of so many ``warpgroups`` or ``warps``. Spec: PTX ISA
    9.1, "bar".
    """
    if isinstance(require_int(number, "named barrier"), int) and not 1 <= number <= 15:  # type: ignore[operator]
        raise usage(f"named barrier must be from 1 to 15, not {number}")
    if (warpgroups is None) == (warps is None):
        raise usage("named barrier must be given either warpgroups or warps")
    word, count, most = ("warps", warps, current().warps) if warps is not None else ("warpgroups", warpgroups, current().warps // 4)
    if not isinstance(count, int) or not 1 <= count <= most:
        raise usage(f"{word} of a named barrier must be from 1 to the CTA's {most}, not {count}")
    return Barrier(number, count if warps is not None else 4 * count)


def sync_at(at: Scalar | Barrier, warps: int) -> None:
    """Emit a wait at a named barrier; an integer is a barrier of these ``warps`` alone."""
    where = at if isinstance(at, Barrier) else barrier(at, warps=warps)
    current().emit(f"bar.sync {text(where.id)}, {where.threads}")


def arrive_at(at: Barrier) -> None:
    """Emit an arrival at a named barrier."""
    current().emit(f"bar.arrive {text(at.id)}, {at.threads}")


def sync(number: int = 0) -> None:
    """Wait for all threads of the CTA, at named barrier 0 as __syncthreads or at another. PTX: ``bar.sync``."""
    require_scope("tk.sync", "cta")
    if not isinstance(number, int) or not 0 <= number <= 15:
        raise usage(f"barrier of tk.sync must be from 0 to 15, not {number}")
    current().emit(f"bar.sync {number}")
