"""cp.async, flags in global memory, scopes, tests without an answer, waiters that are lapped. Each program has a control."""

from __future__ import annotations

import programs as p
import pytest
from programs import arrive, arrive_tx, build, bulk_commit, bulk_wait, by_first, inits, load, read, role, run, sync, wait

from h100sim.errors import DeadlockError, IllegalInstruction, OutOfRange


def cp_async(offset: int) -> str:
    """Every thread of the role copies its 16 bytes."""
    return f"cp.async.cg.shared.global [%mine+{offset}], [%mine_in], 16;"


@pytest.mark.parametrize(
    "landing, expected",
    [
        ([arrive(0)], {"race"}),
        (["cp.async.commit_group;", arrive(0)], {"race"}),
        (["cp.async.commit_group;", "cp.async.wait_group 1;", arrive(0)], {"race"}),
        (["cp.async.commit_group;", "cp.async.wait_group 0;", arrive(0)], set()),
        (["cp.async.wait_all;", arrive(0)], set()),
        ([f"cp.async.mbarrier.arrive.noinc.shared.b64 {p.at(0)};"], set()),
    ],
)
def test_a_full_barrier_signalled_before_cp_async_has_landed(landing: list[str], expected: set[str]) -> None:
    """C27."""
    consume = role(128, 255, p.work(4000), wait(0, 0), read(0))
    assert run(build(role(0, 127, cp_async(0), landing), consume, start=inits(128)), 256).kinds == expected


def test_the_last_of_two_groups_may_be_open() -> None:
    def program(used: int) -> str:
        steps = [
            cp_async(0),
            "cp.async.commit_group;",
            cp_async(p.TILE),
            "cp.async.commit_group;",
            "cp.async.wait_group 1;",
            sync(),
        ]
        return build(start=[*steps, "xor.b32 %mine, %mine, 512;", read(used), "cp.async.wait_all;"])

    assert run(program(0), 128).is_clean
    assert run(program(p.TILE), 128).kinds == {"race"}


@pytest.mark.parametrize("untested", ["try_wait", "test_wait"])
def test_an_answer_that_nobody_looks_at_orders_nothing(untested: str) -> None:
    """C29: the copy has long landed, so the answer was True; that is luck."""

    def program(first: list[str]) -> str:
        consume = role(128, 255, p.work(4000), first, read(0), wait(0, 0))
        return build(role(0, 0, arrive_tx(0), load(0, 0)), consume, start=inits(1))

    once = f"mbarrier.{untested}.parity.shared::cta.b64 %p2, {p.at(0)}, 0;"
    assert run(program([once]), 256).kinds == {"race"}
    assert run(program([once, "@!%p2 trap;"]), 256).is_clean
    assert run(program([f"AGAIN: {once}", "@!%p2 bra AGAIN;"]), 256).is_clean


def lapped(release: list[str], count: int = 1, steps: int = 4) -> str:
    produce = [s for i in range(steps) for s in (wait(1, i & 1 ^ 1), arrive_tx(0), *load(0, 0))]
    consume = [s for i in range(steps) for s in (wait(0, i & 1), *release)]
    return build(role(0, 0, produce), role(128, 255, consume), start=inits(1, count))


def test_a_waiter_that_a_faster_warp_can_lap() -> None:
    """C20: one warp releases for all four, right after its own wait."""
    outcome = run(lapped(by_first(arrive(1))), 256)
    assert outcome.error is None
    (hazard,) = outcome.hazards
    assert hazard.kind == "barrier-misuse"
    assert hazard.message == (
        "mbarrier 0x7c00 phase 1 must complete after warpgroup 1 (warp 5 of CTA 0) has seen phase 0, "
        "not while it may still be on its way"
    )
    assert hazard.first is not None and hazard.first.what == "last arrival of phase 1"
    assert run(lapped([sync(1, 128), *by_first(arrive(1))]), 256).is_clean
    assert run(lapped(p.by_lane_0(arrive(1)), count=4), 256).is_clean


def test_a_warpgroup_that_has_multiplied_is_not_lapped() -> None:
    """One thread may release for its warpgroup behind wgmma.wait_group: the wgmma needed all four warps."""
    assert run(lapped([*p.multiply(0), *by_first(arrive(1))]), 256).is_clean


def flag(order: str, access: str) -> list[str]:
    """Thread 0 of CTA 0 writes data and a flag, thread 0 of CTA 1 polls the flag."""
    return [
        "setp.ne.u32 %p3, %tid, 0;",
        "@%p3 bra END;",
        "mov.u32 %r9, %ctaid.x;",
        "setp.ne.u32 %p4, %r9, 0;",
        "@%p4 bra READER;",
        "st.global.u32 [%target+64], %r9;",
        "mov.u32 %r10, 1;",
        f"st.release.{order}.global.u32 [%target], %r10;",
        "bra END;",
        f"READER: ld.acquire.{order}.global.u32 %r10, [%target];",
        "setp.eq.u32 %p5, %r10, 0;",
        "@%p5 bra READER;",
        access,
        "END:",
    ]


@pytest.mark.parametrize(
    "scope, cluster, expected",
    [
        ("cta", 1, {"race"}),
        ("gpu", 1, set()),
        ("sys", 1, set()),
        ("cta", 2, {"race"}),
        ("cluster", 2, set()),
        ("cluster", 1, {"race"}),
    ],
)
def test_a_release_reaches_as_far_as_its_scope(scope: str, cluster: int, expected: set[str]) -> None:
    outcome = run(build(start=flag(scope, "ld.global.u32 %r11, [%target+64];")), 32, grid=2, cluster=cluster)
    assert outcome.kinds == expected
    if expected:
        release, fix = f"st.release.{scope}.global.u32", outcome.hazards[0].fix
        assert fix.startswith(f"give {release} at line ") and fix.endswith("a scope that holds both CTAs")


@pytest.mark.parametrize(
    ("writer", "reader", "fix"),
    [
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu;", ""),
        ("fence.acq_rel.cta;", "fence.acq_rel.gpu;", "give the fences before st.relaxed.gpu.global.u32 at line "),
        ("fence.acq_rel.gpu;", "fence.acq_rel.cta;", "release after the first access (st.release.gpu, or fence.acq_rel.gpu"),
        ("", "fence.acq_rel.gpu;", "release after the first access (st.release.gpu, or fence.acq_rel.gpu"),
    ],
)
def test_a_relaxed_flag_between_ctas_needs_fences_of_the_gpu(writer: str, reader: str, fix: str) -> None:
    steps = [step.replace("st.release", "st.relaxed").replace("ld.acquire", "ld.relaxed") for step in flag("gpu", reader)]
    at = next(k for k, step in enumerate(steps) if "st.relaxed" in step)
    steps[at:at] = [writer] if writer else []
    steps.insert(-1, "ld.global.u32 %r11, [%target+64];")
    outcome = run(build(start=steps), 32, grid=2)
    assert outcome.is_clean == (not fix)
    if fix:
        assert outcome.hazards[0].fix.startswith(fix)
        assert outcome.hazards[0].missing.startswith(
            "a release by warp 0 of CTA 0 after its access and an acquire by warp 0 of CTA 1 "
        )


def test_a_flag_orders_generic_reads_but_a_copy_needs_a_fence() -> None:
    """C44."""
    copy = [arrive_tx(0, 64), "add.u64 %source, %target, 64;", *load(0, 0, 64), wait(0, 0)]

    def program(*fence: str) -> str:
        steps = flag("gpu", "\n    ".join([*fence, *(s.replace("LABEL", "W") for s in copy)]))
        return build(start=[*inits(1), *steps])

    assert run(program(), 32, grid=2).kinds == {"proxy-race"}
    assert run(program("fence.proxy.async.global;"), 32, grid=2).is_clean
    assert run(program("fence.proxy.async;"), 32, grid=2).is_clean


def test_a_tile_that_nobody_waits_for() -> None:
    """C21 (b): the producer loads for every tile, the consumer skips one and then uses data of the wrong tile."""

    def program(used: tuple[int, ...]) -> str:
        produce = [s for i in range(3) for s in (wait(1, i & 1 ^ 1), arrive_tx(0), *load(0, 0))]
        consume = [s for i, _ in enumerate(used) for s in (wait(0, i & 1), read(0), sync(1, 128), *by_first(arrive(1)))]
        return build(role(0, 0, produce), role(128, 255, consume), start=inits(1, 1))

    assert run(program((0, 2)), 256).kinds == {"lifetime"}
    assert run(program((0, 1, 2)), 256).is_clean


def test_an_mbarrier_outside_of_shared_memory() -> None:
    """C16 (a)."""
    outside = f"mbarrier.init.shared::cta.b64 [%smem+{p.SMEM_BYTES}], 1;"
    assert isinstance(run(build(role(0, 0, outside)), 32).error, OutOfRange)


def test_an_mbarrier_invalidated_while_others_still_use_it() -> None:
    def program(*between: str) -> str:
        inval = f"mbarrier.inval.shared::cta.b64 {p.at(0)};"
        return build(role(0, 31, arrive(0), *between, *by_first(inval)), role(32, 63, wait(0, 0), *between), start=inits(32))

    assert run(program(sync(1, 64)), 64).is_clean
    assert run(build(role(0, 0, p.init(0, 1), f"mbarrier.inval.shared::cta.b64 {p.at(0)};", arrive(0))), 32).error is not None


def test_an_mbarrier_initialised_twice() -> None:
    again = build(role(0, 0, p.init(0, 1)), start=inits(1))
    assert run(again, 32).found == [
        ("barrier-misuse", "mbarrier 0x7c00 must be invalidated before its bytes are initialised again, not while it is live")
    ]
    inval = f"mbarrier.inval.shared::cta.b64 {p.at(0)};"
    assert run(build(role(0, 0, inval, p.init(0, 1)), start=inits(1)), 32).is_clean


def test_wgmma_by_warps_that_are_no_warpgroup() -> None:
    """C39 (a): warps 1 to 4 of a CTA of five."""
    steps = [p.wgmma_fence(), *p.wgmma(0, p.TILE), p.commit(), p.wait_group()]
    assert isinstance(run(build(role(32, 159, steps)), 160).error, IllegalInstruction | DeadlockError)


def test_registers_that_no_warp_gives_back() -> None:
    """C99: setmaxnreg.inc waits for registers that setmaxnreg.dec of other warpgroups would free."""

    def program(first: int) -> str:
        down, up = f"setmaxnreg.dec.sync.aligned.u32 {first};", "setmaxnreg.inc.sync.aligned.u32 232;"
        text = build(role(0, 127, down), role(128, 255, up), role(256, 383, up))
        return text.replace("\n{\n", "\n.maxntid 384, 1, 1\n{\n", 1)

    error = run(program(160), 384).error
    assert isinstance(error, DeadlockError)
    assert any("registers that setmaxnreg.dec of other warps would free" in line for line in error.waits)
    assert run(program(24), 384).is_clean


def test_a_store_source_overwritten_by_a_copy() -> None:
    """The next load into a stage whose store still reads it."""

    def program(*between: str) -> str:
        steps = [arrive_tx(0), *load(0, 0), wait(0, 0), *p.store(0), bulk_commit(), *between, arrive_tx(0), *load(0, 0), wait(0, 1)]
        return build(role(0, 0, steps, bulk_wait()), start=inits(1))

    assert run(program(), 32).kinds == {"race"}
    assert run(program(bulk_wait()), 32).is_clean
    assert run(program(bulk_wait(1)), 32).kinds == {"race"}
