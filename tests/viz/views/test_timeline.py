"""The timeline's lanes and bars."""

import numpy as np

from viz.palette import Category
from viz.views import timeline


def rows_of(data, kind):
    first = 0
    for lane in data["lanes"]:
        if lane["kind"] == kind:
            yield lane, first
        first += len(lane["rows"])


def bars_of(data, row):
    b = data["bars"]
    chosen = slice(b["first"][row], b["first"][row + 1])
    return b["start"][chosen], b["end"][chosen], b["category"][chosen], [b["texts"][t] for t in b["text"][chosen]]


def test_a_lane_per_warpgroup_the_units_and_the_mbarriers(recording):
    data = timeline.data(recording)
    labels = [lane["label"] for lane in data["lanes"]]
    assert labels == ["producer", "consumer 0", "consumer 1", "TMA engine, SM 0", "tensor core, SM 0", "mbarriers"]
    assert [len(lane["rows"]) for lane in data["lanes"][:3]] == [4, 4, 4]


def test_bars_of_a_row_are_in_order_and_do_not_overlap(recording):
    data = timeline.data(recording)
    for row in range(len(data["bars"]["first"]) - 1):
        start, end, _, _ = bars_of(data, row)
        assert (end > start).all() and (start[1:] >= end[:-1]).all()


def test_a_warp_issues_or_waits_all_its_life(recording):
    data = timeline.data(recording)
    start, end, category, texts = bars_of(data, 4)
    assert (start[1:] == end[:-1]).all()
    waits = {t for t, c in zip(texts, category, strict=True) if c == Category.MBARRIER_WAIT}
    assert waits == {"full[0]"}
    assert (category == Category.WGMMA_WAIT).sum() == 8


def test_a_copy_is_queued_then_in_flight_until_it_completes(recording):
    data = timeline.data(recording)
    copies = recording.copies
    ((_, first),) = rows_of(data, "tma")
    start, end, category, texts = bars_of(data, first)
    assert (start[0], end[0], category[0]) == (copies["issued"][0], copies["started"][0], Category.TMA_QUEUED)
    assert (start[1], end[1], category[1]) == (copies["started"][0], copies["completed"][0], Category.TMA_LOAD)
    assert texts[0] == "load a[0] 16,384 B"


def test_stores_look_different_from_loads(recording):
    assert Category.TMA_STORE in timeline.data(recording)["bars"]["category"]


def test_a_wgmma_names_its_operands_and_role(recording):
    data = timeline.data(recording)
    ((_, first),) = rows_of(data, "tensor")
    assert bars_of(data, first)[3][0] == "a[0] · b[0], consumer 1"


def test_phases_of_an_mbarrier_follow_each_other_to_the_end(recording):
    data = timeline.data(recording)
    ((_, first),) = rows_of(data, "mbarrier")
    start, end, category, texts = bars_of(data, first)
    assert texts == ["phase 0", "phase 1", "phase 2"]
    assert list(category) == [Category.PHASE_EVEN, Category.PHASE_ODD, Category.PHASE_EVEN]
    assert (start[1:] == end[:-1]).all() and end[-1] == recording.end


def test_a_wait_that_never_ends_says_so(made, recording):
    import dataclasses

    waits = recording.waits.copy()
    waits["resumed"][-1] = -1
    data = timeline.data(dataclasses.replace(recording, waits=waits))
    assert any(text.endswith("never woken") for text in data["bars"]["texts"])


def test_operations_of_another_cta_of_the_sm_are_set_apart(recording):
    import dataclasses

    copies = np.concatenate([recording.copies, recording.copies[:1]])
    copies["cta"][-1] = 9
    data = timeline.data(dataclasses.replace(recording, copies=copies))
    assert Category.OTHER_CTA in data["bars"]["category"] and any("CTA 9" in t for t in data["bars"]["texts"])
