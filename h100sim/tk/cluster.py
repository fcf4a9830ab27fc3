"""``cluster.*``: the CTAs of a cluster: who they are, and the barrier of all their threads.

Spec: PTX ISA 9.1, "barrier.cluster", "Special Registers: %cluster_ctarank".
"""

from __future__ import annotations

from .builder import current, require_scope
from .scalars import Int


def ctarank() -> Int:
    """Return the CTA's rank in its cluster."""
    return Int(current().once("ctarank", "r", "mov.u32 {d}, %cluster_ctarank"), nonnegative=True)


def arrive() -> None:
    """Arrive at the barrier of the cluster, releasing this thread's memory accesses; ``wait`` must follow."""
    require_scope("cluster.arrive", "cta")
    current().emit("barrier.cluster.arrive.release.aligned")


def wait() -> None:
    """Wait until all threads of the cluster have arrived."""
    require_scope("cluster.wait", "cta")
    current().emit("barrier.cluster.wait.acquire.aligned")


def sync() -> None:
    """Arrive and wait: semaphores that other CTAs use need it after their set-up, and CTAs before they end."""
    require_scope("cluster.sync", "cta")
    arrive()
    wait()
