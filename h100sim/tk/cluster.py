"""``cluster.*``: the CTAs of a cluster: who they are, and the barrier of all their threads.

Spec: PTX ISA 9.1, "barrier.cluster", "Special Registers: %cluster_ctarank".
"""

from __future__ import annotations

from .builder import current, require_scope
from .control import special
from .scalars import Int


def ctarank() -> Int:
    """Return the CTA's rank in its cluster. PTX: ``mov`` of ``%cluster_ctarank``, once."""
    return Int(current().once("ctarank", "r", "mov.u32 {d}, %cluster_ctarank"), nonnegative=True)


def ctas() -> Int:
    """Return how many CTAs the cluster has. PTX: ``mov`` of ``%cluster_nctarank``, once."""
    return Int(current().once("cluster_ctas", "r", "mov.u32 {d}, %cluster_nctarank"), nonnegative=True)


def clusterIdx(axis: str = "x") -> Int:  # noqa: N802 (CUDA's word)
    """Return the cluster's coordinate in the grid of clusters along "x", "y" or "z". PTX: ``mov`` of ``%clusterid``, once."""
    return Int(special("clusterid", axis), nonnegative=True)


def arrive() -> None:
    """Arrive at the barrier of the cluster, releasing this thread's memory accesses; ``wait`` must follow. PTX:
    ``barrier.cluster.arrive``.
    """
    require_scope("cluster.arrive", "cta")
    current().emit("barrier.cluster.arrive.release.aligned")


def wait() -> None:
    """Wait until all threads of the cluster have arrived. PTX: ``barrier.cluster.wait``."""
    require_scope("cluster.wait", "cta")
    current().emit("barrier.cluster.wait.acquire.aligned")


def sync() -> None:
    """Arrive and wait: semaphores that other CTAs use need it after their set-up, and CTAs before they end. PTX:
    ``barrier.cluster.arrive``, ``barrier.cluster.wait``.
    """
    require_scope("cluster.sync", "cta")
    arrive()
    wait()
