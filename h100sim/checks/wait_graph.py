"""Who waits for what, and who could supply it: the wait-for graph of a deadlock, and the ledgers of its barriers.

Both are pure functions of what the machine knows when it stops and of what happened before, as is
:func:`.deadlock.explain`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..errors import WaitEdge
from ..trace import Event, KernelInfo, Wait
from ..words import counted
from .deadlock import History, Waiting, WaitState, groups_of, name_of, representatives, supplying_parties, who_of

#: Completed phases that a ledger shows, and parties that a column names.
LEDGER_PHASES = 3
_NAMES = 4
_NOBODY = {Wait.MBARRIER: "nobody has ever supplied it", Wait.BARRIER: "nobody else has ever come to it"}


def wait_edges(kernel: KernelInfo, waits: list[WaitState], history: np.ndarray) -> tuple[WaitEdge, ...]:
    """Return the edges of the wait-for graph, of the first cluster that waits: one per waiting role and supplier."""
    past = History(kernel, history)
    groups = groups_of(past, waits)
    shown, _ = representatives(past, groups)
    edges: dict[tuple[str, str, str], WaitEdge] = {}
    for group in shown:
        waiter, thing = who_of(past, group.party), name_of(past, group.state)
        for supplier, state in _suppliers(past, group, groups):
            edges[waiter, thing, supplier] = WaitEdge(waiter, thing, supplier, state)
    return tuple(edges.values())


def _suppliers(past: History, group: Waiting, groups: list[Waiting]) -> list[tuple[str, str]]:
    """Return who has ever supplied what a role waits for, and what each does now."""
    waiting = {g.party: name_of(past, g.state) for g in groups}
    found = []
    for party in sorted(supplying_parties(past, group), key=lambda p: (p.cta, p.role)):
        if party in waiting:
            state = f"waits for {waiting[party]}"
        else:
            first = party.cta * past.warps_per_cta
            ended = all(past.has_exited(w) for w in range(first, first + past.warps_per_cta) if past.party(w) == party)
            state = "has ended" if ended else "runs elsewhere"
        found.append((who_of(past, party), state))
    return found or [("nobody", _NOBODY.get(group.state.wait, "nobody supplies it"))]


def ledgers(kernel: KernelInfo, waits: list[WaitState], history: np.ndarray) -> tuple[str, ...]:
    """Return, for every mbarrier that a role of the first cluster waits for, the lines of its ledger.

    A line per phase: who armed it with how many bytes, who arrived how often, what copies delivered, when it completed
    and who saw it.
    """
    past = History(kernel, history)
    shown, _ = representatives(past, groups_of(past, waits))
    lines: list[str] = []
    seen: set[int] = set()
    for group in shown:
        if group.state.wait == Wait.MBARRIER and group.state.object not in seen:
            seen.add(group.state.object)
            lines += _ledger(past, group.state)
    return tuple(lines)


def _ledger(past: History, state: WaitState) -> list[str]:
    found = {kind: past.of_mbarrier(kind, state.object) for kind in _KINDS}
    init = found[Event.MBARRIER_INITIALISED]
    if not len(init):
        return []
    where = past.kernel.place(int(init["pc"][0]))
    by = who_of(past, past.party(int(init["warp"][0])))
    lines = [f"{name_of(past, state)}: {counted(int(init['c'][0]), 'arrival')} a phase, initialised by {by} at {where}"]
    flips = {int(e["b"]): int(e["time"]) for e in found[Event.MBARRIER_FLIPPED]}
    first = max(state.phase - LEDGER_PHASES, 0)
    if first:
        lines.append(f"  {first:,} earlier {'phase' if first == 1 else 'phases'} complete")
    return lines + [_phase(past, found, phase, flips.get(phase, -1)) for phase in range(first, state.phase + 1)]


_KINDS = (
    Event.MBARRIER_INITIALISED,
    Event.MBARRIER_EXPECTED,
    Event.MBARRIER_ARRIVED,
    Event.MBARRIER_COMPLETED_TX,
    Event.MBARRIER_FLIPPED,
    Event.MBARRIER_WAITED,
)


def _phase(past: History, found: dict[Event, np.ndarray], phase: int, completed: int) -> str:
    """Return a phase in words. ``completed``: the cycle, -1 while it is open."""
    expected, arrived, delivered = (
        found[kind][found[kind]["d"] == phase]
        for kind in (Event.MBARRIER_EXPECTED, Event.MBARRIER_ARRIVED, Event.MBARRIER_COMPLETED_TX)
    )
    seen = found[Event.MBARRIER_WAITED]
    seen = seen[(seen["c"] == 1) & (seen["d"] == phase)]
    facts = [
        f"armed with {int(expected['b'].sum()):,} bytes by {_parties(past, expected)}" if len(expected) else "",
        f"arrived {_parties(past, arrived, counts=True)}" if len(arrived) else "nobody arrived",
        f"copies brought {int(delivered['b'].sum()):,} bytes" if len(delivered) else "",
        f"complete at cycle {completed:,}" if completed >= 0 else "open",
        f"seen by {_parties(past, seen)}" if len(seen) else "",
    ]
    return f"  phase {phase}: {'; '.join(fact for fact in facts if fact)}"


def _parties(past: History, events: np.ndarray, counts: bool = False) -> str:
    """Return the roles of events, each with how many arrivals (``b``) it made."""
    number: Counter = Counter()
    for event in events:
        who = who_of(past, past.party(int(event["warp"]))) if event["warp"] >= 0 else "copies"
        number[who] += int(event["b"])
    names = [f"{who} ({n:,})" if counts else who for who, n in sorted(number.items())]
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
