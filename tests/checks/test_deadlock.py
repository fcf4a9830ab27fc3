"""What a deadlock says, from hand-made states and histories."""

from __future__ import annotations

import numpy as np
from story import Story

from h100sim.checks import WaitState, explain
from h100sim.checks.wait_graph import ledgers, wait_edges
from h100sim.errors import DeadlockError
from h100sim.trace import EVENT, Event, Wait

ROLES = (("producer", 0, 0), ("consumer 0", 1, 1), ("consumer 1", 2, 2))
SEMAPHORES = ({"name": "full", "offset": 0x400, "count": 4}, {"name": "empty", "offset": 0x420, "count": 4})


def test_the_example_of_a_consumer_that_has_exited() -> None:
    s = Story(warps=3, roles=ROLES, semaphores=SEMAPHORES)
    s.init(0, 0, 1, at=0x410)
    s.init(0, 1, 2, at=0x430)
    for phase in range(3):
        s.arrive(0, 0, tx=32_768)
        s.land(s.load(0, 0x1000, 32_768, 0))
        s.wait([1, 2], 0, phase & 1)
        s.arrive([1, 2], 1)
        s.wait(0, 1, phase & 1)
    s.arrive(1, 1)
    s.exit(2)
    waits = [
        WaitState(0, 0, 0, 1, Wait.MBARRIER, 1, 1, 10_400, pending=1, expected=2, phase=3, shared_address=0x430),
        WaitState(1, 0, 1, 2, Wait.MBARRIER, 0, 1, 10_432, pending=1, expected=1, phase=3, shared_address=0x410),
    ]
    message, lines = explain(s.checker().kernel, waits, np.array(s.events, EVENT))
    assert message == "no warp can proceed at cycle 10,432"
    assert lines[:5] == (
        "producer    line 2  waits for empty[2] phase 3: 1 of 2 arrivals",
        "consumer 0  line 3  waits for full[2] phase 3: 0 of 1 arrivals",
        "only consumer 0 and consumer 1 arrive on empty[2]: consumer 0 waits for full[2]; consumer 1 has exited",
        "only producer arrives on full[2]: producer waits for empty[2]",
        "cycle: producer -> empty[2] -> consumer 0 -> full[2] -> producer",
    )
    assert lines[5].startswith("empty[2] has completed 3 phases: phase 0 at cycle ")


def test_without_a_history_the_state_speaks() -> None:
    s = Story(warps=3, roles=ROLES, semaphores=SEMAPHORES)
    waits = [
        WaitState(1, 0, 1, 0, Wait.MBARRIER, 0, 0, 9, pending=0, expected=1, tx=512, phase=0, shared_address=0x400),
        WaitState(2, 0, 2, 1, Wait.BARRIER, 3, 0, 7, arrived=32, expected=64),
        WaitState(0, 0, 0, 2, Wait.CLUSTER, 0, 0, 5),
    ]
    _, lines = explain(s.checker().kernel, waits, np.zeros(0, EVENT))
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "consumer 0 waits for full[0] phase 0: 1 of 1 arrivals, 0 of 512 bytes" in text
    assert "consumer 1 waits for barrier 3: 32 of 64 threads" in text
    assert "producer waits for the other CTAs of the cluster at barrier.cluster" in text


def test_other_clusters_are_counted() -> None:
    s = Story(warps=1, ctas=5)
    waits = [WaitState(c, c, 0, 0, Wait.BARRIER, 1, 0, 3, arrived=32, expected=64) for c in range(5)]
    _, lines = explain(s.checker().kernel, waits, np.zeros(0, EVENT))
    assert lines[0] == "warp 0 of CTA 0    waits for barrier 1: 32 of 64 threads"
    assert lines[-1] == "4 other CTAs wait for ever too"


def _ring_without_its_consumer() -> tuple:
    """Return (kernel, waits, history): the producer waits for a consumer that has ended after one step."""
    s = Story(warps=2, roles=(("producer", 0, 0), ("consumer", 1, 1)), semaphores=({"name": "full", "offset": 0x400, "count": 1},))
    s.init(0, 0, 1)
    s.init(0, 1, 1)
    s.barrier([0, 1])
    s.arrive(0, 0, tx=128)
    s.land(s.load(0, 0x1000, 128, 0))
    s.wait(1, 0, 0)
    s.arrive(1, 1)
    s.exit(1)
    s.wait(0, 1, 0)
    waits = [WaitState(0, 0, 0, 1, Wait.MBARRIER, 1, 1, 400, pending=1, expected=1, phase=1, shared_address=0x408)]
    return s.checker().kernel, waits, np.array(s.events, EVENT)


def test_the_graph_goes_from_a_role_over_what_it_waits_for_to_who_could_supply_it() -> None:
    edges = wait_edges(*_ring_without_its_consumer())
    assert [str(edge) for edge in edges] == ["producer --> mbarrier 0x408 --> consumer, which has ended"]
    graph = DeadlockError("", edges=edges).graph
    assert sorted(graph.edges) == [("mbarrier 0x408", "consumer"), ("producer", "mbarrier 0x408")]
    assert graph.nodes["producer"] == {"kind": "role"} and graph.nodes["mbarrier 0x408"] == {"kind": "thing"}


def test_a_thing_that_nobody_has_ever_supplied_ends_the_graph() -> None:
    kernel, waits, history = _ring_without_its_consumer()
    never = history[~((history["kind"] == Event.MBARRIER_ARRIVED) & (history["a"] == 1))]
    (edge,) = wait_edges(kernel, waits, never)
    assert str(edge) == "producer --> mbarrier 0x408 --> nobody has ever supplied it"
    assert sorted(DeadlockError("", edges=(edge,)).graph.edges) == [("producer", "mbarrier 0x408")]


def test_the_ledger_tells_every_phase_of_a_barrier() -> None:
    kernel, waits, history = _ring_without_its_consumer()
    lines = ledgers(kernel, waits, history)
    assert lines[0] == "mbarrier 0x408: 1 arrival a phase, initialised by producer at line 1"
    assert lines[1].startswith("  phase 0: arrived consumer (1); complete at cycle ")
    assert lines[1].endswith("; seen by producer")
    assert lines[2:] == ("  phase 1: nobody arrived; open",)
    full = [WaitState(0, 0, 0, 1, Wait.MBARRIER, 0, 1, 400, pending=1, expected=1, phase=1, shared_address=0x400)]
    lines = ledgers(kernel, full, history)
    assert lines[1].startswith(
        "  phase 0: armed with 128 bytes by producer; arrived producer (1); copies brought 128 bytes; complete"
    )


def test_the_error_prints_all_of_it() -> None:
    about = _ring_without_its_consumer()
    text = str(DeadlockError("no warp can proceed", ("a line",), edges=wait_edges(*about), ledger=ledgers(*about))).split("\n")
    assert text[:4] == [
        "no warp can proceed",
        "  a line",
        "  wait-for graph",
        "    producer --> mbarrier 0x408 --> consumer, which has ended",
    ]
    assert text[4] == "  ledger" and text[5].startswith("    mbarrier 0x408: 1 arrival a phase")
