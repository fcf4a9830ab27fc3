"""Where every warp of a launch stands: for errors that say who waits for what, or who was still at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import state as S
from .checks.deadlock import WaitState
from .errors import CycleLimit
from .trace import Event, Wait

if TYPE_CHECKING:
    from .machine import Machine

#: Events of a warp among which a test of an mbarrier belongs to the loop that the warp is in.
_LOOP_EVENTS = 64


def cycle_limit(machine: Machine) -> CycleLimit:
    """Say which roles were still at work at the limit, and where."""
    warps, nodes = machine.tables["warps"], machine.tables["nodes"]
    running = [(w, int(nodes[w * S.NODES_PER_WARP + int(warps[w]["node"])]["pc"])) for w in _running(machine)]
    first: dict[str, int] = {}
    for w, pc in running:
        place = f"{machine.kernel.role(int(warps[w]['rank']))} at {machine.place(pc)}"
        first.setdefault(place, int(machine.tables["ctas"][warps[w]["cta"]]["id"]))
    places = [f"{place} in CTA {cta}" if machine.launch.ctas > 1 else place for place, cta in first.items()]
    more = f" and {len(places) - 4:,} more" if len(places) > 4 else ""
    still = f", but {', '.join(places[:4])}{more} had not ended" if places else ", but it had not ended"
    return CycleLimit(f"kernel must end within {machine.launch.max_cycles:,} cycles (max_cycles){still}")


def wait_states(machine: Machine, history: np.ndarray) -> list[WaitState]:
    """Return what every group of lanes that has not ended waits for: NOTHING where it goes round in a loop."""
    nodes, warps, ctas = machine.tables["nodes"], machine.tables["warps"], machine.tables["ctas"]
    mbarriers = {int(m["identity"]): m for m in machine.tables["mbarriers"] if m["live"]}
    barriers = machine.tables["barriers"]
    found = []
    for w, warp in enumerate(warps):
        if warp["state"] == S.W_UNUSED or ctas[warp["cta"]]["state"] == 0:
            continue
        for n in range(w * S.NODES_PER_WARP, (w + 1) * S.NODES_PER_WARP):
            node = nodes[n]
            extra: dict[str, int] = {}
            if node["state"] == S.READY:
                node = _looping(machine, node, int(warp["id"]), history)
            elif node["state"] != S.BLOCKED:
                continue
            thing = int(node["wait_object"])
            if node["wait"] == int(Wait.MBARRIER) and thing in mbarriers:
                m = mbarriers[thing]
                rank = int(ctas[m["cta"]]["cluster_rank"])
                extra = {
                    "pending": int(m["pending"]), "expected": int(m["expected"]), "tx": int(m["tx"]),
                    "phase": int(m["phase"]), "shared_address": (rank << 24) | int(m["offset"]),
                }  # fmt: skip
            elif node["wait"] == int(Wait.BARRIER):
                b = barriers[warp["cta"] * S.BARRIERS_PER_CTA + thing]
                alive = int(ctas[warp["cta"]]["alive"]) * 32
                extra = {"arrived": int(b["arrived"]), "expected": int(b["expected"]) if b["expected"] > 0 else alive}
            found.append(
                WaitState(
                    warp=int(warp["id"]), cta=int(ctas[warp["cta"]]["id"]), rank=int(warp["rank"]), pc=int(node["pc"]),
                    wait=Wait(int(node["wait"])), object=thing, parity=int(node["wait_parity"]),
                    since=int(node["since"]), **extra,
                )
            )  # fmt: skip
    return found


def _looping(machine: Machine, node: np.void, warp: int, history: np.ndarray) -> np.void:
    """Return a group of lanes that goes round in a loop as one that waits: for the mbarrier that the loop tests, if it does."""
    node = node.copy()
    node["wait"], node["wait_object"], node["since"] = int(Wait.NOTHING), 0, machine.context["now"]
    recent = history[history["warp"] == warp][-_LOOP_EVENTS:]
    tests = recent[recent["kind"] == int(Event.MBARRIER_WAITED)]
    if len(tests) and not tests[-1]["c"]:
        test = tests[-1]
        node["wait"], node["wait_object"], node["wait_parity"], node["pc"] = (
            int(Wait.MBARRIER),
            test["a"],
            test["b"],
            test["pc"],
        )
    return node


def _running(machine: Machine) -> list[int]:
    """Return the slots of the warps that have something to execute."""
    warps, ctas = machine.tables["warps"], machine.tables["ctas"]
    return [int(w) for w in np.flatnonzero(warps["state"] == S.W_RUNNING) if ctas[warps[w]["cta"]]["state"]]
