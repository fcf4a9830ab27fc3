"""Bulk groups: what a wait leaves pending, what .read promises, and that lanes have groups of their own."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.trace import Event, Wait
from tests.kernels import entry, launch, zeros

#: Lane 0 fills 4 KiB of shared memory and stores it in ``copies`` pieces of 1 KiB, each its own group.
START = """
    .shared .align 128 .b8 s[4096]; .reg .b64 %to; .reg .b32 %t, %s, %k, %w; .reg .pred %p, %q;
    mov.u32 %t, %tid.x; mov.u32 %s, s; ld.param.u64 %to, [to]; mov.u32 %k, %t;
FILL: mad.lo.u32 %w, %k, 4, %s; st.shared.u32 [%w], %k; add.u32 %k, %k, 32; setp.lt.u32 %p, %k, 1024; @%p bra FILL;
    fence.proxy.async.shared::cta; bar.warp.sync -1; setp.eq.u32 %q, %t, 0;
"""
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%to+{at}], [%s+{at}], 1024; cp.async.bulk.commit_group;\n"
FOUR = "".join("@%q " + STORE.format(at=1024 * k).replace("; cp", "; @%q cp") for k in range(4))


def run(text: str):
    to = zeros(1024)
    found = launch(entry("u64 to", START + text), (to,))
    assert np.array_equal(to, np.arange(1024, dtype=np.uint32))
    return found


def waited(found) -> list[tuple[int, int]]:
    """Return (last group that is done, whether reading was enough) of each wait."""
    events = found.trace.of(Event.BULK_WAITED)
    return [*zip(events["a"].tolist(), events["b"].tolist(), strict=True)]


def test_a_wait_leaves_as_many_groups_as_it_says():
    found = run(FOUR + "@%q cp.async.bulk.wait_group 3; @%q cp.async.bulk.wait_group 1; @%q cp.async.bulk.wait_group 0;")
    assert waited(found) == [(0, 0), (2, 0), (3, 0)]
    done = found.trace.of(Event.TMA_COMPLETED)["time"]
    seen = found.trace.of(Event.BULK_WAITED)["time"]
    assert all(seen[k] >= done[group] for k, group in enumerate((0, 2, 3)))
    assert not found.hazards


def test_read_is_over_before_the_data_has_arrived():
    found = run(FOUR + "@%q cp.async.bulk.wait_group.read 0; @%q cp.async.bulk.wait_group 0;")
    assert waited(found) == [(3, 1), (3, 0)]
    read, done = (found.trace.of(kind)["time"] for kind in (Event.TMA_READ, Event.TMA_COMPLETED))
    first, last = found.trace.of(Event.BULK_WAITED)["time"].tolist()
    assert (read < done).all() and read.max() <= first < last and last >= done.max()


def test_lanes_wait_for_their_own_groups():
    """Lane 1 has stored nothing: it goes on long before lane 0."""
    text = FOUR + "setp.eq.u32 %p, %t, 1; @%p cp.async.bulk.wait_group 0; @%q cp.async.bulk.wait_group 0;"
    found = run(text)
    events = found.trace.of(Event.BULK_WAITED)
    assert events["mask"].tolist() == [2, 1] and events["time"][0] < events["time"][1] - 100
    blocked = found.trace.of(Event.BLOCKED)
    assert blocked["mask"][blocked["a"] == Wait.BULK].tolist() == [1]


def test_an_empty_group_is_complete():
    found = run(FOUR + "@%q cp.async.bulk.wait_group 0; @%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;")
    assert waited(found) == [(3, 0), (4, 0)]


@pytest.mark.parametrize("missing", ["", ".read"])
def test_a_warp_that_ends_early_is_reported(missing):
    """Shared memory must live until it has been read: .read is enough, no wait is not."""
    wait = "@%q cp.async.bulk.wait_group.read 0;" if missing else ""
    found = run(FOUR + wait)
    assert bool(found.hazards) == (not missing)
