"""Why no warp can proceed: every waiting role, what it waits for, what is missing, and who could still supply it.

A pure function of what the machine knows when it stops (:class:`WaitState`) and of what happened before (events).
Liveness counts only roles that have not ended: a role that has exited supplies nothing any more. Roles of a warpgroup
that wait at the same place for the same thing are one line; CTAs in the same situation are counted, not repeated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from ..intervals import SHARED_OFFSET_MASK, mbarrier_name
from ..trace import Event, KernelInfo, Wait
from .meetings import lanes_reason, missing_at_cluster

#: Completed phases that the ledger of a barrier shows.
LEDGER_PHASES = 3


@dataclass(frozen=True)
class WaitState:
    """What one suspended group of lanes waits for when the launch is dead.

    ``object`` is the identity of an mbarrier or the id of a named barrier, ``since`` a cycle. For mbarriers:
    ``pending`` of ``expected`` arrivals are missing in ``phase``, the tx-count is ``tx``, ``shared_address`` has the
    cluster rank in bits 24 and up. For named barriers: ``arrived`` of ``expected`` threads. -1 where it does not
    apply.
    """

    warp: int
    cta: int
    rank: int
    pc: int
    wait: Wait
    object: int
    parity: int
    since: int
    pending: int = -1
    expected: int = -1
    tx: int = 0
    phase: int = -1
    shared_address: int = -1
    arrived: int = -1


@dataclass(frozen=True)
class Party:
    """A role of a CTA: the node of the wait-for graph."""

    cta: int
    role: str


@dataclass(frozen=True)
class Waiting:
    """Warps of one role that wait at one place for one thing."""

    party: Party
    state: WaitState
    warps: int


class History:
    """What the events say about barriers and warps, looked up by the explanation."""

    def __init__(self, kernel: KernelInfo, events: np.ndarray):
        self.kernel, self.events = kernel, events
        self.warps_per_cta = -(-int(np.prod(kernel.block)) // 32)
        self.lanes_alive: dict[int, int] = {}
        for event in self.of_kind(Event.EXITED):
            warp = int(event["warp"])
            alive = self.lanes_alive.get(warp, self._all_lanes(warp))
            self.lanes_alive[warp] = alive & ~int(event["mask"])

    def of_kind(self, *kinds: Event) -> np.ndarray:
        """Return the events of some kinds, in order."""
        return self.events[np.isin(self.events["kind"], [int(k) for k in kinds])]

    def _all_lanes(self, warp: int) -> int:
        threads = int(np.prod(self.kernel.block)) - 32 * (warp % self.warps_per_cta)
        return (1 << min(32, threads)) - 1

    def cluster_of(self, cta: int) -> tuple[int, ...]:
        """Return the place of a CTA's cluster in the grid."""
        (gx, gy, _), (cx, cy, cz) = self.kernel.grid, self.kernel.cluster
        return cta % gx // cx, cta // gx % gy // cy, cta // (gx * gy) // cz

    def has_exited(self, warp: int) -> bool:
        return self.lanes_alive.get(warp, 1) == 0

    def party(self, warp: int) -> Party:
        return Party(warp // self.warps_per_cta, self.kernel.role(warp % self.warps_per_cta))

    def of_mbarrier(self, kind: Event, identity: int) -> np.ndarray:
        found = self.of_kind(kind)
        return found[found["a"] == identity]

    def suppliers(self, identity: int) -> set[int]:
        """Return the warps that have ever arrived on an mbarrier, expected bytes on it or sent copies to it."""
        warps: set[int] = set()
        for kind in (Event.MBARRIER_ARRIVED, Event.MBARRIER_EXPECTED, Event.MBARRIER_DROPPED):
            warps.update(int(w) for w in self.of_mbarrier(kind, identity)["warp"] if w >= 0)
        return warps

    def barrier_users(self, cta: int, number: int) -> set[int]:
        """Return the warps of a CTA that have ever arrived at a named barrier."""
        found = self.of_kind(Event.BARRIER_ARRIVED)
        return {int(w) for w in found["warp"][(found["a"] == number) & (found["cta"] == cta)]}

    def arrived_now(self, cta: int, number: int) -> set[int]:
        """Return the warps that stand in the current generation of a named barrier."""
        found = self.of_kind(Event.BARRIER_ARRIVED, Event.BARRIER_RELEASED)
        found = found[(found["a"] == number) & (found["cta"] == cta)]
        released = np.flatnonzero(found["kind"] == Event.BARRIER_RELEASED)
        since = released[-1] + 1 if len(released) else 0
        return {int(w) for w in found["warp"][since:] if w >= 0}


def explain(kernel: KernelInfo, waits: list[WaitState], history: np.ndarray, rounds: int = 0) -> tuple[str, tuple[str, ...]]:
    """Return the message of a DeadlockError and its lines: one per waiting role, then why what it waits for cannot
    happen.

    ``history``: the events so far (EVENT), possibly empty; without them the lines say only what the machine's state
    says. ``rounds``: how often waits have given up in vain, where warps count that or read a clock (0: what they do repeats itself).
    """
    past = History(kernel, history)
    groups = groups_of(past, waits)
    now = max([int(history["time"].max(initial=0)), *(w.since for w in waits)], default=0)
    shown, others = representatives(past, groups)
    lines = _aligned([_waiting_columns(past, group) for group in shown])
    seen: set[tuple] = set()
    for group in shown:
        for line in _reasons(past, group, groups):
            if (group.state.cta, line) not in seen:
                seen.add((group.state.cta, line))
                lines.append(line)
    if cycle := _cycle(past, groups, shown):
        lines.append(cycle)
    if _is_start(past, shown):
        lines.append("all roles wait for parity 0 of fresh mbarriers: the role that fills a stage must start with parity 1")
    for group in shown:
        if group.state.wait == Wait.MBARRIER and (ledger := _ledger(past, group.state)) not in ("", *lines):
            lines.append(ledger)
    if others:
        lines.append(f"{others:,} other {'CTA waits' if others == 1 else 'CTAs wait'} for ever too")
    if rounds > 1:
        return f"no warp has got on by cycle {now:,}, although the waits have given up {rounds:,} times", tuple(lines)
    return f"no warp can proceed at cycle {now:,}", tuple(lines)


def groups_of(past: History, waits: list[WaitState]) -> list[Waiting]:
    found: dict[tuple, list[WaitState]] = defaultdict(list)
    for wait in waits:
        key = (wait.cta, past.kernel.role(wait.rank), wait.pc, wait.wait, wait.object, wait.parity)
        found[key].append(wait)
    return [Waiting(Party(key[0], key[1]), members[0], len({m.warp for m in members})) for key, members in found.items()]


def representatives(past: History, groups: list[Waiting]) -> tuple[list[Waiting], int]:
    """Return the groups of the first cluster that waits, and how many CTAs of other clusters wait too."""
    if not groups:
        return [], 0
    cluster = past.cluster_of(groups[0].party.cta)
    shown = [g for g in groups if past.cluster_of(g.party.cta) == cluster]
    return shown, len({g.party.cta for g in groups} - {g.party.cta for g in shown})


def _is_start(past: History, shown: list[Waiting]) -> bool:
    """Do at least two roles wait for parity 0 of mbarriers on which nothing has ever happened?"""
    waited = past.of_kind(Event.MBARRIER_WAITED)
    has_passed = bool((waited["c"] == 1).any())
    fresh = [g for g in shown if g.state.wait == Wait.MBARRIER and g.state.phase == 0 and g.state.parity == 0]
    return len(fresh) == len(shown) > 1 and not has_passed and not any(past.suppliers(g.state.object) for g in fresh)


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    who = max((len(r[0]) for r in rows), default=0)
    where = max((len(r[1]) for r in rows), default=0)
    return [f"{r[0]:<{who}}  {r[1]:<{where}}  {r[2]}" for r in rows]


def _waiting_columns(past: History, group: Waiting) -> tuple[str, str, str]:
    who = who_of(past, group.party) + (f" ({group.warps} warps)" if group.warps > 1 else "")
    return who, past.kernel.place(group.state.pc), f"waits for {what_of(past, group.state)}"


def who_of(past: History, party: Party) -> str:
    several = int(np.prod(past.kernel.grid)) > 1
    return f"{party.role} of CTA {party.cta}" if several else party.role


def name_of(past: History, state: WaitState) -> str:
    """Return the name of what is waited for, with the rank of its CTA when it lies in another one."""
    if state.wait == Wait.BARRIER:
        return f"barrier {state.object}"
    if state.wait != Wait.MBARRIER:
        return state.wait.name.lower()
    name = mbarrier_name(past.kernel, state.shared_address & SHARED_OFFSET_MASK)
    clustered = int(np.prod(past.kernel.cluster)) > 1
    return f"{name} of rank {state.shared_address >> 24}" if clustered else name


def what_of(past: History, state: WaitState) -> str:
    if state.wait == Wait.MBARRIER:
        arrived = f"{state.expected - state.pending:,} of {state.expected:,} arrivals"
        text = f"{name_of(past, state)} phase {state.phase}: {arrived}"
        expected, delivered = _bytes(past, state)
        return text + (f", {delivered:,} of {expected:,} bytes" if expected or delivered else "")
    if state.wait == Wait.BARRIER:
        return f"barrier {state.object}: {state.arrived:,} of {state.expected:,} threads"
    return {
        Wait.WGMMA: "its wgmma groups",
        Wait.BULK: "its bulk groups",
        Wait.REGISTERS: "registers that setmaxnreg.dec of other warps would free",
        Wait.CLUSTER: "the other CTAs of the cluster at barrier.cluster",
        Wait.RECONVERGENCE: "the other lanes of the warp",
        Wait.WARPGROUP: "the other warps of the warpgroup",
        Wait.CP_ASYNC: "its cp.async groups",
        Wait.NOTHING: "a change of what its loop reads",
    }.get(state.wait, state.wait.name.lower())


def _bytes(past: History, state: WaitState) -> tuple[int, int]:
    """Return (bytes expected, bytes delivered) in the phase waited for; from the tx-count alone without a history."""
    expected = past.of_mbarrier(Event.MBARRIER_EXPECTED, state.object)
    delivered = past.of_mbarrier(Event.MBARRIER_COMPLETED_TX, state.object)
    sums = [int(e["b"][e["d"] == state.phase].sum()) for e in (expected, delivered)]
    if sums[0] - sums[1] != state.tx:  # Bytes of an earlier phase are carried over.
        return max(state.tx, 0) + sums[1], sums[1] + max(-state.tx, 0)
    return sums[0], sums[1]


def _reasons(past: History, group: Waiting, groups: list[Waiting]) -> list[str]:
    if group.state.wait == Wait.MBARRIER:
        return _mbarrier_reasons(past, group, groups)
    if group.state.wait == Wait.BARRIER:
        return _barrier_reasons(past, group, groups)
    if group.state.wait == Wait.WGMMA:
        return _wgmma_reasons(past, group, groups)
    reason = ""
    if group.state.wait == Wait.RECONVERGENCE:
        reason = lanes_reason(past, group.state)
    elif group.state.wait == Wait.CLUSTER and (missing := missing_at_cluster(past, group.state.cta)):
        reason = (
            f"barrier.cluster.arrive must be executed by every live thread of the cluster, not left out by {_roles(past, missing)}"
        )
    return [reason] if reason else []


def _wgmma_reasons(past: History, group: Waiting, groups: list[Waiting]) -> list[str]:
    """A wgmma begins only when all four warps of the warpgroup have issued it."""
    first = group.state.warp - group.state.warp % past.warps_per_cta % 4
    issued = past.of_kind(Event.WGMMA_ISSUED)
    issued = issued[(issued["warp"] >= first) & (issued["warp"] < first + 4)]
    counts = {w: int((issued["warp"] == w).sum()) for w in range(first, first + 4)}
    behind = {w for w, count in counts.items() if count < max(counts.values())}
    if not behind:
        return []
    ranks = _listed([f"warp {w % past.warps_per_cta}" for w in sorted(behind)])
    fact = "has exited" if all(past.has_exited(w) for w in behind) else "is elsewhere"
    return [f"wgmma must be issued by all four warps of the warpgroup, but {ranks} {fact}"]


def _mbarrier_reasons(past: History, group: Waiting, groups: list[Waiting]) -> list[str]:
    state, name = group.state, name_of(past, group.state)
    lines = []
    arrivals = past.of_mbarrier(Event.MBARRIER_ARRIVED, state.object)
    if state.pending > 0:
        lines.append(_missing_arrivals(past, group, groups, arrivals))
        expects = past.of_mbarrier(Event.MBARRIER_EXPECTED, state.object)
        bare = expects[(expects["d"] == state.phase) & ~np.isin(expects["pc"], arrivals["pc"])]
        if len(bare):
            where = past.kernel.place(int(bare["pc"][0]))
            lines.append(
                f"{where} raises the byte count of {name} but does not arrive: expect_tx is not an arrival, "
                "use mbarrier.arrive.expect_tx or add an arrive"
            )
    if state.tx > 0:
        expected, delivered = _bytes(past, state)
        copies = past.of_kind(Event.TMA_ISSUED)
        sent = copies[copies["d"] == state.object]
        last = (
            f"the last copy to it was issued at {past.kernel.place(int(sent['pc'][-1]))}"
            if len(sent)
            else "no copy was ever sent to it"
        )
        lines.append(f"{name} expects {expected:,} bytes and has {delivered:,}; nothing is in flight, {last}")
    if state.tx < 0:
        lines.append(
            f"{name} was given {-state.tx:,} bytes that nobody expects: mbarrier.arrive.expect_tx must name all bytes "
            "of the whole box, in every CTA that receives it"
        )
    return lines


def _missing_arrivals(past: History, group: Waiting, groups: list[Waiting], arrivals: np.ndarray) -> str:
    state, name = group.state, name_of(past, group.state)
    suppliers = past.suppliers(state.object)
    if not suppliers:
        return f"nobody has ever arrived on {name}{_initialised(past, state)}"
    before = Counter(int(p) for p, b in zip(arrivals["d"], arrivals["b"], strict=True) for _ in range(int(b)))
    if state.phase == 0 and before[0] < state.expected and _all_are_past(past, suppliers, groups, state):
        where = past.kernel.place(int(arrivals["pc"][-1])) if len(arrivals) else "nowhere"
        counted = f"{name} counts {state.expected:,} arrivals{_initialised(past, state)}"
        return f"{counted}, but only {before[0]:,} came, from {where}"
    verb = "arrives" if len(_parties(past, suppliers)) == 1 else "arrive"
    return f"only {_roles(past, suppliers)} {verb} on {name}: {_whereabouts(past, suppliers, groups)}"


def _initialised(past: History, state: WaitState) -> str:
    init = past.of_mbarrier(Event.MBARRIER_INITIALISED, state.object)
    return f" (initialised at {past.kernel.place(int(init['pc'][0]))})" if len(init) else ""


def _all_are_past(past: History, suppliers: set[int], groups: list[Waiting], state: WaitState) -> bool:
    """Has every supplier already arrived in this phase?"""
    arrivals = past.of_mbarrier(Event.MBARRIER_ARRIVED, state.object)
    return suppliers <= {int(w) for w in arrivals["warp"][arrivals["d"] == state.phase]}


def _barrier_reasons(past: History, group: Waiting, groups: list[Waiting]) -> list[str]:
    state = group.state
    here = past.arrived_now(state.cta, state.object)
    if len(past.events) and state.warp not in here:
        return [
            f"warp {state.rank} has come to barrier {state.object} with some of its lanes only: "
            "a warp counts when all its lanes that have not ended are there"
        ]
    first = state.cta * past.warps_per_cta
    missing = set(range(first, first + past.warps_per_cta)) - here
    users = past.barrier_users(state.cta, state.object) - here
    candidates = users or missing
    if not candidates:
        return [
            f"barrier {state.object} waits for {state.expected:,} threads, "
            f"but all {past.warps_per_cta * 32:,} of the CTA have arrived"
        ]
    never = "" if users else ", which never came to it"
    return [f"barrier {state.object} lacks {_roles(past, candidates)}{never}: {_whereabouts(past, candidates, groups)}"]


def _parties(past: History, warps: set[int]) -> list[Party]:
    return sorted({past.party(w) for w in warps}, key=lambda p: (p.cta, p.role))


def _roles(past: History, warps: set[int]) -> str:
    names = [who_of(past, p) for p in _parties(past, warps)]
    return _listed(names)


def _listed(names: list[str]) -> str:
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _whereabouts(past: History, warps: set[int], groups: list[Waiting]) -> str:
    """Return what the given warps do now: waiting for something, or ended."""
    facts = []
    for party in _parties(past, warps):
        waiting = [g for g in groups if g.party == party]
        if waiting:
            facts.append(f"{who_of(past, party)} waits for {_listed(sorted({name_of(past, g.state) for g in waiting}))}")
        elif all(past.has_exited(w) for w in warps if past.party(w) == party):
            facts.append(f"{who_of(past, party)} has exited")
        else:
            facts.append(f"{who_of(past, party)} is elsewhere")
    return "; ".join(facts[:5])


def _cycle(past: History, groups: list[Waiting], shown: list[Waiting]) -> str:
    """Return the wait-for cycle as "cycle: producer -> empty[0] -> consumer -> full[0] -> producer", or "".

    Where nobody has ever supplied an object, any other waiting role of the CTA might have been meant to; such edges
    are used only if there is no cycle without them.
    """
    import networkx as nx  # takes long, and few runs end in a deadlock

    for guess in (False, True):
        graph: nx.DiGraph = nx.DiGraph()
        for group in shown:
            if group.state.wait == Wait.NOTHING:
                continue
            suppliers = supplying_parties(past, group)
            if not suppliers and guess:
                suppliers = {g.party for g in groups if g.party.cta == group.party.cta and g.party != group.party}
            waiting = suppliers & {g.party for g in groups}
            for other in sorted(waiting, key=lambda party: (party.cta, party.role)):
                graph.add_edge(group.party, other, label=name_of(past, group.state))
        graph.remove_edges_from([(n, n) for n in graph if graph.has_edge(n, n)])
        try:
            edges = nx.find_cycle(graph)
        except nx.NetworkXNoCycle:
            continue
        steps = [f"{who_of(past, a)} -> {graph.edges[a, b]['label']}" for a, b in edges]
        return f"cycle: {' -> '.join(steps)} -> {who_of(past, edges[0][0])}"
    return ""


def supplying_parties(past: History, group: Waiting) -> set[Party]:
    state = group.state
    if state.wait == Wait.MBARRIER:
        return {past.party(w) for w in past.suppliers(state.object)}
    if state.wait == Wait.BARRIER:
        here = past.arrived_now(state.cta, state.object)
        return {past.party(w) for w in past.barrier_users(state.cta, state.object) - here}
    if state.wait == Wait.CLUSTER:
        return {past.party(w) for w in missing_at_cluster(past, state.cta)}
    if state.wait == Wait.RECONVERGENCE:
        return {group.party}
    return set()


def _ledger(past: History, state: WaitState) -> str:
    """Return the last completed phases of an mbarrier with their arrivals and bytes."""
    flips = past.of_mbarrier(Event.MBARRIER_FLIPPED, state.object)
    if not len(flips):
        return ""
    arrivals = past.of_mbarrier(Event.MBARRIER_ARRIVED, state.object)
    delivered = past.of_mbarrier(Event.MBARRIER_COMPLETED_TX, state.object)
    parts = []
    for flip in flips[-LEDGER_PHASES:]:
        phase = int(flip["b"])
        count = int(arrivals["b"][arrivals["d"] == phase].sum())
        size = int(delivered["b"][delivered["d"] == phase].sum())
        parts.append(f"phase {phase} at cycle {int(flip['time']):,} ({count:,} arrivals{f', {size:,} bytes' if size else ''})")
    completed = f"{len(flips):,} {'phase' if len(flips) == 1 else 'phases'}"
    return f"{name_of(past, state)} has completed {completed}: {', '.join(parts)}"
