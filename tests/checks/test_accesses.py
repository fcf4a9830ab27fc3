"""Stories of memory accesses: what is ordered, what is not, and that the timing of the run does not matter."""

from __future__ import annotations

import numpy as np
import pytest
from story import GLOBAL, Story

from h100sim.checks import tables
from h100sim.trace import Access, Copy, Fence

A, B = 0x1000, 0x2000
WARPS = range(4)


def kinds(story: Story, mode: str = "on") -> list[str]:
    return [h.kind for h in story.hazards(mode)]


def test_bytes_are_told_apart_within_a_granule() -> None:
    s = Story(warps=2)
    s.write(0, A, size=1, lanes=range(2))
    s.write(1, A + 2, size=1, lanes=range(2))
    assert kinds(s) == []
    s = Story(warps=2)
    s.write(0, A, size=1, lanes=range(2))
    s.write(1, A + 1, size=1, lanes=range(2))
    (hazard,) = s.hazards()
    assert (hazard.kind, hazard.second.first_byte, hazard.second.last_byte) == ("race", A + 1, A + 1)


def test_reads_do_not_race_with_reads() -> None:
    s = Story()
    s.write(0, A)
    s.barrier(WARPS)
    for _ in range(2):
        s.read([0], A)
        s.read([1], A)
    assert kinds(s) == []


def test_a_later_read_does_not_hide_behind_an_ordered_one() -> None:
    s = Story()
    s.write(0, A)
    s.barrier(WARPS)
    s.read([1], A)
    s.barrier(WARPS, 1)
    s.read([1], A)
    s.write(0, A)
    assert kinds(s) == ["race"]


def test_a_hazard_names_both_accesses_the_edge_the_rule_and_a_fix() -> None:
    s = Story(warps=4, roles=(("producer", 0, 0), ("consumer", 1, 3)))
    s.write(0, A)
    s.read([1], A)
    (hazard,) = s.hazards()
    assert str(hazard).split("\n") == [
        "race: shared memory 0x1000 to 0x107f must be read after the write by producer, not without an order",
        "  first    write of shared 0x1000 to 0x107f, line 1, producer (warp 0 of CTA 0), cycle 2",
        "  second   read of shared 0x1000 to 0x107f, line 2, consumer (warp 1 of CTA 0), cycle 3",
        "  missing  an arrive or barrier by producer after its access, and a wait of consumer for it before its own",
        '  rule     PTX ISA 9.1, "Memory Consistency Model: Causality order"',
        "  fix      put a barrier between the two accesses, or an mbarrier arrive after the first and a wait before the second",
    ]
    assert hazard.to_json()["first"]["event"] == 1
    assert hazard.to_json()["second"]["op"] == "ld.shared.b32"


def load_story(order: str) -> Story:
    """Return a producer (warp 0) and a consumer (warp 1) of one stage; ``order`` says when the load lands."""
    s = Story(warps=2)
    s.init(0, 0, 1)
    s.init(0, 1, 1)
    s.barrier(range(2))
    s.arrive(0, 0, tx=128)
    op = s.load(0, A, 128, 0)
    if order == "read before it lands":
        s.read(1, A)
        s.land(op)
    else:
        s.land(op)
        if order == "waited":
            s.wait(1, 0, 0)
        s.read(1, A)
    s.wait(1, 0, 0)
    return s


@pytest.mark.parametrize("order, expected", [("read before it lands", ["race"]), ("lucky", ["race"]), ("waited", [])])
def test_a_load_is_known_only_through_its_mbarrier(order: str, expected: list[str]) -> None:
    assert kinds(load_story(order)) == expected


def test_a_reused_stage_has_a_fresh_identity() -> None:
    """The wait for the first load says nothing of the second into the same stage."""
    s = load_story("waited")
    s.arrive(1, 1)
    s.wait(0, 1, 0)
    s.arrive(0, 0, tx=128)
    s.land(s.load(0, A, 128, 0, key="second"))
    s.read(1, A, key="again")
    s.wait(1, 0, 1)
    (hazard,) = s.hazards()
    assert hazard.kind == "race"
    assert hazard.message.startswith("shared memory 0x1000 to 0x107f must be read after the copy that writes them has completed")


def test_a_load_over_a_tile_that_is_still_read() -> None:
    for releases in (False, True):
        s = load_story("waited")
        s.read(1, A, key="late")
        if releases:
            s.arrive(1, 1)
            s.wait(0, 1, 0)
        s.arrive(0, 0, tx=128)
        s.land(s.load(0, A, 128, 0, key="second"))
        s.wait(1, 0, 1)
        found = kinds(s)
        assert ("race" in found) is not releases
        assert releases is (found == [])


def test_cp_async_is_over_only_after_its_wait() -> None:
    def story(wait: str) -> Story:
        s = Story()
        s.cp_async([0], A)
        s.issue(0, "cp.async.commit_group")
        if wait:
            s.issue(0, wait)
        s.barrier(WARPS)
        s.read([1], A, size=16)
        return s

    assert kinds(story("")) == ["race"]
    assert kinds(story("cp.async.wait_all")) == []


def test_cp_async_mbarrier_arrive_carries_the_copies() -> None:
    def story(opcode: str) -> Story:
        s = Story()
        s.init(0, 0, 1)
        s.barrier(WARPS)
        s.cp_async([1], A)
        if opcode != "mbarrier.arrive":
            s.issue(1, opcode)
        s.arrive(1, 0, opcode=opcode)
        s.wait(2, 0, 0)
        s.read([2], A, size=16)
        return s

    assert kinds(story("mbarrier.arrive")) == ["race"]
    assert kinds(story("cp.async.mbarrier.arrive.noinc")) == []


@pytest.mark.parametrize("pending, expected", [(1, ["race"]), (0, [])])
def test_a_bulk_store_reads_until_its_group_is_waited_for(pending: int, expected: list[str]) -> None:
    s = Story()
    s.write(WARPS, A)
    s.fence(WARPS)
    s.barrier(WARPS)
    s.store(0, A, 512)
    s.bulk_commit(0)
    s.bulk_wait(0, pending)
    s.barrier(WARPS, 1)
    s.write([1], A, key="again")
    s.bulk_wait(0)
    assert kinds(s) == expected


def wgmma_story(waits: int, warps: range = WARPS) -> Story:
    s = Story()
    s.write(WARPS, A, size=16)
    s.write(WARPS, B, size=4)
    s.fence(WARPS)
    s.barrier(WARPS)
    s.wgmma_fence(WARPS)
    s.wgmma(WARPS, A, B)
    s.wgmma_commit(WARPS)
    for warp in list(warps)[:waits]:
        s.wgmma_wait([warp])
    s.barrier(WARPS, 1)
    s.write([3], A, key="again")
    s.wgmma_wait(WARPS)
    return s


def test_one_warp_that_waited_knows_of_the_whole_wgmma() -> None:
    assert kinds(wgmma_story(0)) == ["race"]
    assert kinds(wgmma_story(1)) == []


def test_a_proxy_fence_counts_on_the_reader_side_too() -> None:
    s = Story()
    s.write([1], A)
    s.barrier(WARPS)
    s.fence([0])
    s.store(0, A, 128)
    s.bulk_commit(0)
    s.bulk_wait(0)
    assert kinds(s) == []


def test_global_data_released_by_a_flag_and_read_by_a_copy() -> None:
    """One CTA writes and releases a flag, another acquires it and loads the data through the async proxy."""

    def story(release: bool, acquire: bool, fence: bool) -> Story:
        s = Story(warps=1, ctas=2)
        s.write_global(0, GLOBAL)
        s.warp_sync(0)
        s.write_global(0, GLOBAL + 4096, access=Access.WRITE | (Access.RELEASE if release else Access.VOLATILE), lanes=[0])
        s.read_global(1, GLOBAL + 4096, access=Access.READ | (Access.ACQUIRE if acquire else Access.VOLATILE), lanes=[0])
        s.warp_sync(1)
        if fence:
            s.fence(1, Fence.PROXY_ASYNC_GLOBAL)
        s.init(1, 0, 1)
        s.arrive(1, 0, tx=128)
        s.land(s.load(1, A, 128, 0, source=GLOBAL))
        s.wait(1, 0, 0)
        return s

    assert kinds(story(True, True, True)) == []
    assert kinds(story(True, True, False)) == ["proxy-race"]
    assert kinds(story(True, False, True)) == ["race"]
    assert kinds(story(False, True, True)) == ["race"]


def test_fences_make_relaxed_accesses_synchronise() -> None:
    def story(writer: bool, reader: bool) -> Story:
        s = Story(warps=1, ctas=2)
        s.write_global(0, GLOBAL)
        s.warp_sync(0)
        if writer:
            s.fence(0, Fence.ACQ_REL_GPU)
        s.write_global(0, GLOBAL + 4096, access=Access.READ | Access.WRITE | Access.ATOMIC, lanes=[0])
        s.read_global(1, GLOBAL + 4096, access=Access.READ | Access.VOLATILE, lanes=[0])
        s.warp_sync(1)
        if reader:
            s.fence(1, Fence.ACQ_REL_GPU)
        s.read_global(1, GLOBAL)
        return s

    assert kinds(story(True, True)) == []
    assert kinds(story(True, False)) == ["race"]
    assert kinds(story(False, True)) == ["race"]


def test_atomics_do_not_race_with_atomics_but_do_with_plain_writes() -> None:
    atomic = Access.READ | Access.WRITE | Access.ATOMIC
    s = Story(warps=1, ctas=2)
    s.write_global(0, GLOBAL, access=atomic)
    s.write_global(1, GLOBAL, access=atomic)
    assert kinds(s) == []
    s = Story(warps=1, ctas=2)
    s.write_global(0, GLOBAL)
    s.write_global(1, GLOBAL, access=atomic)
    assert kinds(s) == ["race"]


@pytest.mark.parametrize("kind, expected", [(Copy.TENSOR_STORE, ["race"]), (Copy.TENSOR_REDUCE, [])])
def test_reductions_of_two_ctas_may_meet_where_stores_may_not(kind: Copy, expected: list[str]) -> None:
    s = Story(warps=1, ctas=2)
    for warp in range(2):
        s.write(warp, A)
        s.fence(warp)
        s.warp_sync(warp)
        s.store(warp, A, 128, target=GLOBAL, kind=kind)
        s.bulk_commit(warp)
        s.bulk_wait(warp, read=False)
    assert kinds(s) == expected


def test_a_tensor_map_changed_while_a_copy_reads_it() -> None:
    def story(waits: bool, acquires: bool) -> Story:
        s = Story(warps=1)
        s.init(0, 0, 1)
        for turn in range(2):
            s.write_global(0, GLOBAL, size=128, lanes=[0], key=turn)
            s.warp_sync(0)
            if acquires:
                s.fence(0, Fence.PROXY_TENSORMAP_ACQUIRE)
            s.arrive(0, 0, tx=128)
            op = s.load(0, A + 4096 * turn, 128, 0, key=turn)
            s.lanes.append(np.r_[GLOBAL, np.full(31, -1)])
            s.emit(
                50, 0, 0, s.ops[op]["pc"], mask=1, op=op, a=len(s.lanes) - 1, b=128, c=0, d=int(Access.READ)
            )  # fmt: skip
            s.land(op)
            if waits or turn:
                s.wait(0, 0, turn)
        return s

    assert kinds(story(True, True)) == []
    assert set(kinds(story(True, False))) == {"proxy-race"}
    assert "race" in kinds(story(False, True))


def test_chunks_and_growing_tables_do_not_change_what_is_found() -> None:
    def story() -> Story:
        s = Story(warps=4)
        rng = np.random.default_rng(1)
        for _ in range(400):
            warp, address = int(rng.integers(4)), 0x1000 + 128 * int(rng.integers(64))
            (s.write if rng.random() < 0.5 else s.read)([warp], address, key=int(rng.integers(8)))
            s.write_global([warp], GLOBAL + 65_536 * int(rng.integers(500)))
            if rng.random() < 0.1:
                s.barrier(WARPS)
        return s

    whole = [str(h) for h in story().hazards()]
    assert whole
    assert [str(h) for h in story().hazards(chunk=37)] == whole


def test_global_memory_is_forgotten_when_its_tables_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is invented by it, and what comes later is found as before."""
    monkeypatch.setattr(tables, "PAGES_MAX", 128)
    monkeypatch.setattr(tables, "ENTRIES_MAX", 0)
    s = Story(warps=2, ctas=2)
    for page in range(300):
        s.write_global(0, GLOBAL + 8192 * page)
    s.write_global(2, GLOBAL)
    s.write_global(0, GLOBAL + 8192 * 300)
    s.write_global(2, GLOBAL + 8192 * 300)
    (hazard,) = s.hazards()
    assert hazard.kind == "race" and hazard.second.first_byte == GLOBAL + 8192 * 300


def test_free_records_and_entries_stay_whole_when_global_memory_is_forgotten() -> None:
    s = Story(warps=2)
    for page in range(50):
        s.write_global(page % 2, GLOBAL + 8192 * page, key=page)
        s.read_global(page % 2, GLOBAL + 8192 * page, key=page)
    checker = s.checker()
    s.feed(checker)
    t = checker.launch.tables
    before = int(t.scalars[tables.RECORDS_FREE]), int(t.scalars[tables.ENTRIES_FREE])
    tables.forget_global(t)
    assert t.scalars[tables.RECORDS_FREE] == len(t.records) > before[0]
    assert t.scalars[tables.ENTRIES_FREE] == len(t.entries) > before[1]
    chained, record = 0, int(t.scalars[tables.RECORD_HEAD])
    while record >= 0:
        chained, record = chained + 1, int(t.records[record, 2])
    assert chained == t.scalars[tables.RECORDS_USED]
