"""The critical path of a recording: its links lead to steps, its marks lie in rows that the timeline has."""

import dataclasses

import numpy as np
import pytest

from viz.recording import Launch, record
from viz.views import critical_path, timeline
from viz.views.critical_path import Place


@pytest.fixture(scope="module")
def recording(replay):
    """The CTA that the launch ends with."""
    return record(Launch(replay), 1)


@pytest.fixture(scope="module")
def data(recording):
    return critical_path.data(recording)


def test_shares_and_links_cover_the_launch(recording, data):
    assert sum(cycles for _, cycles in data["shares"]) == data["cycles"] == recording.cycles
    links = data["links"]
    assert links["start"][0] == 0 and links["end"][-1] == recording.cycles
    assert (links["end"][:-1] == links["start"][1:]).all() and data["total"] == len(links["start"])
    assert all(links["reason"]) and all(len(links[name]) == data["total"] for name in ("unit", "what", "place", "step"))


def test_a_link_leads_to_the_step_at_which_it_ends(recording, data):
    links, steps = data["links"], recording.steps
    own = np.flatnonzero(links["step"] >= 0)
    assert len(own) > 10
    assert (steps["event"][links["step"][own]] == links["event"][own]).all()
    assert np.abs(steps["time"][links["step"][own]].astype(int) - links["end"][own]).max() <= 4


def test_marks_lie_in_rows_of_the_timeline_and_within_their_links(recording, data):
    marks, links, rows = data["marks"], data["links"], timeline.data(recording)
    keys = {
        Place.WARP: {warp.rank for warp in recording.warps}, Place.COPY: set(rows["copies"]["op"].tolist()),
        Place.WGMMA: set(rows["wgmmas"]["op"].tolist()), Place.MBARRIER: {m.identity for m in recording.mbarriers},
    }  # fmt: skip
    assert len(marks["start"]) > 10 and {Place.WARP, Place.COPY, Place.WGMMA} <= set(marks["place"].tolist())
    for start, end, place, key, link in zip(*(marks[n].tolist() for n in ("start", "end", "place", "key", "link")), strict=True):
        assert key in keys[Place(place)] and links["start"][link] <= start < end <= links["end"][link]


def test_the_path_of_a_launch_is_that_of_each_of_its_ctas(replay):
    launch = Launch(replay)
    first, second = (critical_path.data(record(launch, cta)) for cta in (0, 1))
    assert first["shares"] == second["shares"]
    assert (first["links"]["event"] == second["links"]["event"]).all()
    assert not ((first["links"]["step"] >= 0) & (second["links"]["step"] >= 0)).any()


def test_the_longest_links_stay_where_there_are_too_many(recording, data, monkeypatch):
    monkeypatch.setattr(critical_path, "LISTED_LINKS", 5)
    links = critical_path.data(recording)["links"]
    cycles = data["links"]["end"].astype(int) - data["links"]["start"]
    assert sorted(links["end"].astype(int) - links["start"]) == sorted(cycles)[-5:]
    assert (np.diff(links["number"].astype(int)) > 0).all()


def test_every_operation_that_was_done_has_its_slack(recording, data):
    slack = dict(zip(data["slack"]["op"].tolist(), data["slack"]["cycles"].tolist(), strict=True))
    done = [*recording.copies["op"].tolist(), *recording.wgmmas["op"].tolist()]
    assert set(slack) == set(done) and min(slack.values()) == 0 < max(slack.values())


def test_a_recording_without_a_path_has_an_empty_table(recording):
    empty = critical_path.data(dataclasses.replace(recording, path=None))
    assert empty["shares"] == [] and empty["links"] == {}
