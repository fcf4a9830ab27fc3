"""``tk.group(n)``: what n warps do together, as ``warp`` (1) and ``warpgroup`` (4) do, for any other number.

In a scope of more warps, each n consecutive ones are a group, and all groups execute the code. ``tk.everyone()`` is the
group of all warps of the scope. Operations on registers are in ``warp``: each warp executes them on its own tiles.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from . import moves, shared_maps, shared_moves, warp
from .builder import current, usage
from .control import elect, lane, warp_rank, warp_rank_in
from .global_memory import GlobalTensor
from .scalars import Int, Scalar
from .semaphores import Barrier, Semaphore, arrive_at, sync_at
from .semaphores import arrive as arrive_one
from .tiles import SharedTile


@dataclass(frozen=True)
class Group:
    """``warps`` consecutive warps of the CTA."""

    warps: int

    def __str__(self) -> str:
        return f"group<{self.warps}>"

    def load(self, dst: Any, src: Any, coord: Any = None) -> None:
        """Read a shared tile or vector, or tile ``coord`` of a tensor, into the registers of the warps, which hold
        equal parts; or tile ``coord`` into a shared tile. PTX: ``ldmatrix`` (f32: ``ld.shared``) or ``ld.global``, and
        ``cvt`` between types; into a shared tile ``ld.global.v4``, ``st.shared.v4``, ``fence.proxy.async``.
        """
        moves.load(self._operation("load"), dst, src, coord, self.warps)

    def store(self, dst: Any, src: Any, coord: Any = None) -> None:
        """Write the registers of the warps to a shared tile or vector, or to tile ``coord`` of a tensor; or a shared
        tile. PTX: ``stmatrix`` (f32: ``st.shared``) and ``fence.proxy.async``, or ``st.global``, and ``cvt`` between
        types; from a shared tile ``ld.shared.v4``, ``st.global.v4``.
        """
        moves.store(self._operation("store"), dst, src, coord, self.warps)

    def load_async(self, dst: SharedTile, src: GlobalTensor, coord: tuple[Scalar, ...]) -> None:
        """Start to copy tile ``coord`` into a shared tile, as a group for ``tk.load_async_wait``. PTX: ``cp.async``,
        ``cp.async.commit_group``.
        """
        shared_moves.load_async(self._operation("load_async"), dst, src, coord, self.warps)

    def sync(self, at: Scalar | Barrier) -> None:
        """Wait at a named barrier for all its threads; an integer is a barrier of this group alone. PTX:
        ``bar.sync``.
        """
        self._operation("sync")
        sync_at(at, self.warps)

    def arrive(self, at: Semaphore | Barrier, count: int = 1) -> None:
        """Arrive at a semaphore ``count`` times, by one thread of each group; or at a named barrier, without waiting
        there. PTX: ``elect.sync``, ``mbarrier.arrive``; ``bar.arrive``.
        """
        scope = current().scope
        self._operation("arrive")
        if isinstance(at, Barrier):
            arrive_at(at)
            return
        if len(scope.warps) != self.warps:
            raise usage(f"{self}.arrive at a semaphore must be in a scope of one group, not of {len(scope.warps)} warps")
        with elect():
            arrive_one(at, count)

    def warpid(self) -> Int:
        """Return the warp's rank in its group. PTX: ``and`` or ``rem``."""
        self._operation("warpid")
        return warp_rank_in(self.warps)

    def laneid(self) -> Int:
        """Return the thread's rank in its group. PTX: ``and`` or ``rem``, ``shl``, ``add``."""
        return self.warpid() * 32 + Int(lane(), nonnegative=True, divergent=True)

    def groupid(self) -> Int:
        """Return the group's rank among those of the scope. PTX: ``shr`` or ``div``."""
        self._operation("groupid")
        return (Int(warp_rank(), nonnegative=True) - current().scope.warps[0]) // self.warps

    def _operation(self, name: str) -> str:
        """Return the name of an operation. Raises UsageError where the scope does not consist of such groups."""
        scope, operation = current().scope, f"{self}.{name}"
        first, last, count = scope.warps[0], scope.warps[-1], len(scope.warps)
        if scope.level not in ("cta", "warpgroup", "warp") or last - first + 1 != count or count % self.warps:
            raise usage(f"{operation} must be executed by a multiple of {self.warps} consecutive warps, not {scope}")
        return operation


def _shared_operation(name: str, what: str) -> Any:
    def method(self: Group, dst: Any, *operands: Any) -> None:
        operation = self._operation(name)
        wanted = 0 if name in shared_maps.FILLS else 1 if name in shared_maps.UNARY else 2
        if len(operands) != wanted:
            raise usage(f"{operation} must be given a destination and {wanted} operands, not {len(operands)}")
        shared_maps.apply(operation, name, dst, operands, self.warps)

    method.__name__, method.__qualname__ = name, f"Group.{name}"
    alike = inspect.getdoc(getattr(warp, name)) or ""
    loads = "" if name in shared_maps.FILLS else "``ld.shared``, "
    steps = alike[alike.rindex("PTX: ") + 5 :].split(";")[0].rstrip(".")
    method.__doc__ = (
        f"As ``warp.{name}``, on {what} in shared memory, shared out among the group's threads. "
        f"PTX: {loads}{steps}, ``st.shared``, ``fence.proxy.async``."
    )
    return method


for _name in (*shared_maps.FILLS, *shared_maps.UNARY, *shared_maps.BINARY):
    setattr(Group, _name, _shared_operation(_name, "a tile or vector" if _name in shared_maps.FILLS else "tiles or vectors"))


def group(warps: int) -> Group:
    """Return the group of ``warps`` consecutive warps that the executing warp belongs to."""
    if not isinstance(warps, int) or not 1 <= warps <= current().warps:
        raise usage(f"warps of a group must be from 1 to the CTA's {current().warps}, not {warps}")
    return Group(warps)


def everyone() -> Group:
    """Return the group of all warps of the scope."""
    return Group(len(current().scope.warps))
