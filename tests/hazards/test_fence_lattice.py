"""Every subset of the synchronisation of a correct program, edge by edge.

Each edge is a program whose synchronising steps can be left out one by one, and the Boolean condition under which it is
still correct. A hazard must be found exactly when the condition is false, whatever the timing did.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import programs as p
import pytest
from programs import (
    arrive,
    arrive_tx,
    build,
    bulk_commit,
    bulk_wait,
    by_thread,
    fence_async,
    inits,
    load,
    read,
    role,
    run,
    sync,
    wait,
    write,
)

WARP_SYNC = "bar.warp.sync 0xffffffff;"
CLUSTER_SYNC = ["barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"]


def last_of_two(writes: list[str], reads: list[str], meeting: list[str]) -> str:
    """Two CTAs write; thread 0 takes a ticket for its CTA; the CTA that is last reads what warp 1 of the other has written."""
    steps = [
        "mov.u32 %r10, %ctaid.x;",
        "mad.lo.u32 %r11, %r10, 64, %tid;",
        "mul.wide.u32 %rd1, %r11, 4;",
        "add.u64 %rd1, %rd1, %target;",
        "st.global.u32 [%rd1+1024], %r11;",
        *writes,
        *meeting,
        "setp.eq.u32 %p4, %tid, 0;",
        "@%p4 atom.global.add.u32 %r9, [%target], 1;",
        "@%p4 st.shared.u32 [%smem], %r9;",
        sync(),
        "ld.shared.u32 %r12, [%smem];",
        "setp.ne.u32 %p3, %r12, 1;",
        "@%p3 bra END;",
        *reads,
        "xor.b32 %r11, %r11, 127;",
        "mul.wide.u32 %rd2, %r11, 4;",
        "add.u64 %rd2, %rd2, %target;",
        "ld.global.u32 %r13, [%rd2+1024];",
        "END:",
    ]
    return build(start=steps)


def ticket(given) -> str:
    return last_of_two(given("fence of writers", "membar.gl;"), given("fence of readers", "membar.gl;"), given("barrier", sync()))


@dataclass(frozen=True)
class Edge:
    """``steps`` name what may be left out; ``build`` makes the program of those that are there; ``is_correct`` judges."""

    name: str
    steps: tuple[str, ...]
    build: Callable[[Callable[[str, object], list]], str]
    is_correct: Callable[[set[str]], bool]
    threads: int = 128
    grid: int = 1
    cluster: int = 1
    checks: str = "on"


def generic_write_to_store(given) -> str:
    """128 threads write, thread 0 stores."""
    steps = [write(0), given("fence", fence_async()), given("barrier", sync())]
    return build(start=[*steps, *by_thread(0, p.store(0), bulk_commit(), bulk_wait())])


def store_to_rewrite(given) -> str:
    """The store's source is written again."""
    first = [write(0), fence_async(), sync()]
    # The wait for writes is there in any case, so that nothing is in flight at the end.
    store = by_thread(0, p.store(0), *given("commit", bulk_commit()), *given("wait", bulk_wait()))
    return build(start=[*first, *store, given("barrier", sync()), write(0), *by_thread(0, bulk_commit(), bulk_wait())])


def generic_write_to_wgmma(given) -> str:
    steps = [write(0), write(p.TILE), given("fence", fence_async()), given("barrier", sync(1, 128))]
    return build(role(0, 127, steps, p.wgmma_fence(), p.wgmma(0, p.TILE), p.commit(), p.wait_group()))


def wgmma_to_rewrite(given) -> str:
    fill = [write(0), write(p.TILE), fence_async(), sync(1, 128)]
    work = [
        p.wgmma_fence(),
        *p.wgmma(0, p.TILE),
        given("commit", p.commit()),
        given("wait", p.wait_group()),
        given("barrier", sync(1, 128)),
    ]
    return build(role(0, 127, fill, work, write(0), p.commit(), p.wait_group()))


def load_to_read(given) -> str:
    consume = [p.work(4000), given("wait", by_thread_0_waits()), given("barrier", sync(1, 128)), read(0), wait(0, 0)]
    return build(role(0, 0, arrive_tx(0), load(0, 0)), role(128, 255, consume), start=inits(1))


def by_thread_0_waits() -> list[str]:
    return ["setp.eq.u32 %p3, %in_role, 0;", "@!%p3 bra REST;", wait(0, 0), "REST:"]


def read_to_refill(given) -> str:
    """Reads of a stage, released to the thread that loads into it again. The fence between a read and a copy is contested."""
    produce = [arrive_tx(0), *load(0, 0), *given("empty.wait", wait(1, 0)), p.work(4000), arrive_tx(0), *load(0, 0), wait(0, 1)]
    consume = [wait(0, 0), read(0), *given("fence", fence_async()), *given("barrier", sync(1, 128)), *p.by_first(arrive(1))]
    start = [*p.init_by_thread_0(1, 1), "fence.mbarrier_init.release.cluster;", sync()]
    return build(role(0, 0, produce), role(128, 255, consume), start=start)


def init_to_remote_use(given) -> str:
    start = [*p.init_by_thread_0(1), *given("init fence", "fence.mbarrier_init.release.cluster;"), *given("meeting", CLUSTER_SYNC)]
    far = [f"add.u32 %r9, %smem, {p.BARRIERS};", "mapa.shared::cluster.u32 %r9, %r9, 0;"]
    peer = [p.work(3000), *far, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];"]
    return build(role(0, 0, wait(0, 0), rank=0), role(0, 0, peer, rank=1), start=start, end=CLUSTER_SYNC)


def cp_async_to_read(given) -> str:
    copy = "cp.async.cg.shared.global [%mine], [%mine_in], 16;"
    steps = [copy, *given("commit", "cp.async.commit_group;"), *given("wait", "cp.async.wait_group 0;"), *given("barrier", sync())]
    return build(start=[*steps, "xor.b32 %mine, %mine, 512;", read(0), "cp.async.wait_all;"])


def registers_to_wgmma(given) -> str:
    fill = [write(0), write(p.TILE), fence_async(), sync(1, 128)]
    clear = [f"mov.f32 %d{k}, 0f00000000;" for k in range(4)]
    work = [*given("fence", p.wgmma_fence()), *p.wgmma(0, p.TILE, scale_d=1), p.commit(), *given("wait", p.wait_group())]
    return build(role(0, 127, fill, clear, work, "add.f32 %d0, %d0, %d0;", p.wait_group()))


def lanes(given) -> str:
    store = by_thread(0, p.store(0, 512), bulk_commit(), bulk_wait())
    return build(start=[write(0), *given("fence", fence_async()), *given("warp sync", WARP_SYNC), *store])


def all_of(*needed: str) -> Callable[[set[str]], bool]:
    return lambda chosen: set(needed) <= chosen


EDGES = (
    Edge("generic write, bulk store", ("fence", "barrier"), generic_write_to_store, all_of("fence", "barrier")),
    Edge("bulk store, generic write", ("commit", "wait", "barrier"), store_to_rewrite, all_of("commit", "wait", "barrier")),
    Edge("generic write, wgmma", ("fence", "barrier"), generic_write_to_wgmma, all_of("fence", "barrier")),
    # All four warps wait for the wgmma that all four have issued: no barrier is needed.
    Edge("wgmma, generic write", ("commit", "wait", "barrier"), wgmma_to_rewrite, all_of("commit", "wait")),
    Edge("bulk load, generic read", ("wait", "barrier"), load_to_read, all_of("wait", "barrier"), 256),
    Edge(
        "generic read, bulk load", ("empty.wait", "fence", "barrier"), read_to_refill,
        all_of("empty.wait", "barrier"), 256,
    ),
    Edge(
        "generic read, bulk load, strictly", ("empty.wait", "fence", "barrier"), read_to_refill,
        all_of("empty.wait", "fence", "barrier"), 256, checks="strict",
    ),
    Edge("init, remote arrive", ("init fence", "meeting"), init_to_remote_use, lambda s: "meeting" in s, 32, 2, 2),
    Edge("cp.async, read by others", ("commit", "wait", "barrier"), cp_async_to_read, all_of("commit", "wait", "barrier")),
    Edge("registers, wgmma, registers", ("fence", "wait"), registers_to_wgmma, all_of("fence", "wait")),
    Edge("writes of lanes, store by one", ("fence", "warp sync"), lanes, all_of("fence", "warp sync"), 32),
    Edge(
        "writes of a CTA, a relaxed ticket, reads by another", ("fence of writers", "barrier", "fence of readers"), ticket,
        all_of("fence of writers", "barrier", "fence of readers"), 64, 2,
    ),
)  # fmt: skip

CASES = [
    pytest.param(edge, set(chosen), id=f"{edge.name}: {' + '.join(chosen) or 'nothing'}")
    for edge in EDGES
    for n in range(len(edge.steps) + 1)
    for chosen in itertools.combinations(edge.steps, n)
]


@pytest.mark.parametrize("edge, chosen", CASES)
def test_a_hazard_is_found_exactly_when_the_edge_is_incomplete(edge: Edge, chosen: set[str]) -> None:
    def given(step: str, what) -> list:
        assert step in edge.steps, "step must be one of the edge's"
        return [what] if step in chosen else []

    text = edge.build(given)
    outcome = run(text, edge.threads, grid=edge.grid, cluster=edge.cluster, checks=edge.checks)
    assert outcome.error is None
    assert (not outcome.hazards) == edge.is_correct(chosen), [str(h) for h in outcome.hazards]


@pytest.mark.parametrize(
    "writers, readers, is_correct",
    [
        ("fence.sc.gpu;", "fence.sc.sys;", True),
        ("membar.sys;", "membar.gl;", True),
        ("membar.cta;", "membar.gl;", False),
        ("membar.gl;", "membar.cta;", False),
        ("fence.acq_rel.gpu;", "membar.gl;", False),
        ("membar.gl;", "fence.acq_rel.gpu;", False),
    ],
)
@pytest.mark.parametrize("cluster", [1, 2])
def test_fences_on_both_sides_of_barriers_are_in_one_order_if_they_are_sc(writers, readers, is_correct, cluster) -> None:
    """A fence by each writer and each reader, a relaxed ticket taken by one thread between barriers: the idiom of sums in one launch."""
    outcome = run(last_of_two([writers], [readers], [sync()]), 64, grid=2, cluster=cluster)
    assert outcome.kinds == (set() if is_correct else {"race"})
