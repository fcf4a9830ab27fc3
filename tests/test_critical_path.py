"""The critical path: it covers the launch without a hole, goes through what bound it, and the rest has the slack it shows."""

from __future__ import annotations

import pytest

from h100sim import critical_path, dependences
from h100sim.trace import Copy, Event, Trace, Wait
from tests.test_report import story
from tk_programs import attention, gemm_4_pipeline, gemm_6_multicast, gemm_7_persistent


def traced(program: object, **settings: int) -> Trace:
    config = {**program.CONFIG, **settings}
    kernel = program.build(**config)
    kernel.run(*program.inputs(0, **config), trace="full", checks="off", values="none")
    return kernel.last_run.trace


def test_a_wait_leads_to_the_copy_it_waited_for_and_to_who_issued_it() -> None:
    trace = story(
        (0, Event.CTA_STARTED, -1, {}),
        (20, Event.TMA_ISSUED, 0, {"op": 1, "a": Copy.TENSOR_LOAD, "d": 7, "pc": 0}),
        (30, Event.TMA_ISSUED, 0, {"op": 2, "a": Copy.TENSOR_LOAD, "d": 7, "pc": 0}),
        (50, Event.BLOCKED, 4, {"a": Wait.MBARRIER, "b": 7, "pc": 0}),
        (100, Event.TMA_COMPLETED, -1, {"op": 1, "a": Copy.TENSOR_LOAD, "pc": 0}),
        (100, Event.MBARRIER_COMPLETED_TX, -1, {"op": 1, "a": 7, "d": 0, "pc": 0}),
        (140, Event.TMA_COMPLETED, -1, {"op": 2, "a": Copy.TENSOR_LOAD, "pc": 0}),
        (140, Event.MBARRIER_COMPLETED_TX, -1, {"op": 2, "a": 7, "d": 0, "pc": 0}),
        (140, Event.MBARRIER_FLIPPED, -1, {"a": 7, "b": 0, "pc": -1}),
        (155, Event.RESUMED, 4, {"a": Wait.MBARRIER, "b": 7, "pc": 0}),
        (160, Event.EXITED, 0, {}),
        (200, Event.EXITED, 4, {}),
        (200, Event.CTA_ENDED, -1, {}),
        cycles=200,
    )  # fmt: skip
    path = critical_path.critical_path(trace)
    assert [(link.unit, link.start, link.end) for link in path.links] == [
        ("producer", 0, 30), ("TMA loads", 30, 140), ("mbarriers", 140, 155), ("consumer", 155, 200),
    ]  # fmt: skip
    assert path.slack == (critical_path.Slack("TMA loads", 2, 1, 40, 40, 40),)


def test_a_wait_that_its_time_limit_ended_says_so() -> None:
    trace = story(
        (0, Event.CTA_STARTED, -1, {}),
        (50, Event.BLOCKED, 4, {"a": Wait.MBARRIER, "b": 7, "pc": 0}),
        (850, Event.RESUMED, 4, {"a": Wait.MBARRIER, "b": 7, "pc": 0}),
        (900, Event.EXITED, 4, {}),
        (900, Event.CTA_ENDED, -1, {}),
        cycles=900,
    )  # fmt: skip
    first, wait, _ = critical_path.critical_path(trace).links
    assert (first.unit, first.what) == ("consumer", "warp 4")
    assert (wait.unit, wait.what, wait.cycles) == ("mbarriers", "consumer waits", 800)
    assert wait.reason.startswith("no event of the launch ended the wait: it has a time limit")


def test_a_copy_in_the_engines_queue_leads_to_the_one_in_front() -> None:
    load = {"a": Copy.TENSOR_LOAD, "pc": 0}
    trace = story(
        (0, Event.CTA_STARTED, -1, {}),
        (20, Event.TMA_ISSUED, 0, {"op": 1, "d": 7, **load}),
        (64, Event.TMA_STARTED, -1, {"op": 1, "b": 150, **load}),
        (64, Event.TMA_ISSUED, 0, {"op": 2, "d": 7, **load}),
        (214, Event.TMA_STARTED, -1, {"op": 2, "b": 150, "c": 106, **load}),
        (110, Event.EXITED, 0, {}),
        (400, Event.TMA_COMPLETED, -1, {"op": 1, **load}),
        (550, Event.TMA_COMPLETED, -1, {"op": 2, **load}),
        (550, Event.CTA_ENDED, -1, {}),
        cycles=550,
    )  # fmt: skip
    path = critical_path.critical_path(trace)
    assert [(link.unit, link.start, link.end) for link in path.links] == [
        ("producer", 0, 20), ("TMA engine takes copies", 20, 64), ("TMA engine's queue", 64, 214), ("TMA loads", 214, 550),
    ]  # fmt: skip
    assert [(slack.critical, slack.least) for slack in path.slack] == [(1, 150)]


def test_a_product_behind_another_one_leads_to_that_one() -> None:
    trace = story(
        (0, Event.CTA_STARTED, -1, {}),
        (10, Event.WGMMA_ISSUED, 4, {"op": 1, "c": 0, "pc": 1}),
        (14, Event.WGMMA_STARTED, 4, {"op": 1, "a": 64, "pc": 1}),
        (20, Event.WGMMA_ISSUED, 4, {"op": 2, "c": 1, "pc": 1}),
        (78, Event.WGMMA_STARTED, 4, {"op": 2, "a": 64, "pc": 1}),
        (21, Event.BLOCKED, 4, {"a": Wait.WGMMA, "pc": 1}),
        (132, Event.WGMMA_COMPLETED, 4, {"op": 1, "c": 0, "pc": 1}),
        (196, Event.WGMMA_COMPLETED, 4, {"op": 2, "c": 1, "pc": 1}),
        (204, Event.RESUMED, 4, {"a": Wait.WGMMA, "pc": 1}),
        (210, Event.EXITED, 4, {}),
        (210, Event.CTA_ENDED, -1, {}),
        cycles=210,
    )  # fmt: skip
    path = critical_path.critical_path(trace)
    assert [(link.unit, link.start, link.end, link.count) for link in path.links[:3]] == [
        ("consumer", 0, 10, 1), ("tensor core", 10, 196, 2), ("wgmma results", 196, 204, 1),
    ]  # fmt: skip
    assert path.slack[0].critical == 2


def test_one_stage_waits_for_tma_and_four_stages_for_the_tensor_core() -> None:
    shares = {}
    for stages in (1, 4):
        path = critical_path.critical_path(traced(gemm_4_pipeline, m=64, n=64, k=1024, stages=stages))
        shares[stages] = {share.what: share.cycles / path.cycles for share in path.shares}
        tma = next(slack for slack in path.slack if slack.unit == "TMA loads")
        shares[stages]["slack"] = tma.median
        shares[stages]["critical"] = tma.critical / tma.operations
    assert max(shares[1], key=lambda what: shares[1][what] if what not in ("slack", "critical") else 0) == "TMA loads"
    assert shares[4]["tensor core"] > 2 * shares[4]["TMA loads"]
    assert shares[1]["critical"] == 0.5 > shares[4]["critical"]
    assert shares[4]["slack"] > 100


@pytest.mark.parametrize(
    ("program", "settings"),
    [(gemm_6_multicast, {}), (gemm_7_persistent, {"m": 512, "n": 256, "ctas": 2}), (attention, {})],
)
def test_the_path_and_its_shares_add_up_to_the_launch(program: object, settings: dict[str, int]) -> None:
    trace = traced(program, **settings)
    path = critical_path.critical_path(trace)
    assert path.links[0].start == 0 and path.links[-1].end == path.cycles == trace.cycles
    assert all(a.end == b.start for a, b in zip(path.links[:-1], path.links[1:], strict=True))
    assert sum(share.cycles for share in path.shares) == path.cycles


def test_edges_lead_forward_and_the_path_has_no_slack() -> None:
    graph = dependences.graph(traced(gemm_6_multicast))
    assert (graph.source < graph.target).all()
    slack, node = dependences.slack(graph), len(graph.nodes) - 1
    assert slack.min() == 0
    while node > 0:
        assert slack[node] == 0
        node = int(graph.binding[node])


def test_a_launch_that_never_ends_has_a_path_to_its_last_event() -> None:
    trace = story((0, Event.CTA_STARTED, -1, {}), (50, Event.BLOCKED, 4, {"a": Wait.MBARRIER, "b": 7}), cycles=50)
    path = critical_path.critical_path(trace)
    assert [(link.unit, link.cycles) for link in path.links] == [("consumer", 50)]
    assert critical_path.critical_path(story(cycles=0)).links == ()


def test_the_report_shows_it() -> None:
    path = critical_path.critical_path(traced(gemm_4_pipeline, m=64, n=64, k=1024, stages=1))
    text, plain = critical_path.as_text(path), critical_path.as_dict(path)
    assert f"what the {path.cycles:,} cycles of the launch follow from" in text
    assert "TMA loads: 32 operations, 16 without slack" in text
    assert len(plain["longest_links"]) == 10
    assert [link["cycles"] for link in plain["longest_links"]] == sorted((link.cycles for link in path.links), reverse=True)[:10]
