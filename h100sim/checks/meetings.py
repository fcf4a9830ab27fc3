"""Who has not come to a meeting of a cluster, or of the lanes of a warp: reasons of deadlocks without a barrier object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace import Event, Wait

if TYPE_CHECKING:
    from .deadlock import History, WaitState


def missing_at_cluster(past: History, cta: int) -> set[int]:
    """Return the warps of a cluster that live and have not arrived at the generation of barrier.cluster that is open."""
    ctas = {c for c in set(past.events["cta"].tolist()) if c >= 0 and past.cluster_of(c) == past.cluster_of(cta)}
    here = past.of_kind(Event.CLUSTER_ARRIVED, Event.CLUSTER_WAITED)
    here = here[[c in ctas for c in here["cta"].tolist()]]
    passed = here["b"][here["kind"] == Event.CLUSTER_WAITED]
    generation = int(passed.max()) + 1 if len(passed) else 0
    arrived = set(here["warp"][(here["kind"] == Event.CLUSTER_ARRIVED) & (here["b"] >= generation)].tolist())
    warps = {c * past.warps_per_cta + k for c in ctas for k in range(past.warps_per_cta)}
    return {w for w in warps - arrived if not past.has_exited(w)}


def lanes_reason(past: History, state: WaitState) -> str:
    """Return in a sentence which lanes a .sync instruction waits for, "" if the trace does not say."""
    blocked = past.of_kind(Event.BLOCKED)
    blocked = blocked[(blocked["warp"] == state.warp) & (blocked["a"] == Wait.RECONVERGENCE) & (blocked["pc"] == state.pc)]
    if not len(blocked):
        return ""
    last = blocked[-1]
    missing = int(last["d"]) & ~int(last["mask"]) & 0xFFFFFFFF
    if not missing:
        return ""
    opcode = past.kernel.opcodes[state.pc]
    return f"{opcode} names lanes {spans(missing)} of the warp, which are not at it: it must be executed by all lanes of its mask"


def spans(mask: int) -> str:
    """Return the lanes of a mask as "0 to 15, 17"."""
    lanes = [k for k in range(32) if mask >> k & 1]
    starts = [k for k in lanes if k - 1 not in lanes]
    ends = [k for k in lanes if k + 1 not in lanes]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))
