"""Every cycle of a warp has one cause, and the causes add up to its life."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import h100sim
from h100sim import attribution, devices, report, waiting
from h100sim.trace import Cause, Event, Wait
from tests.kernels import entry, launch
from tests.test_report import story
from tk_programs import gemm


def test_waits_stalls_and_costs_share_the_gaps() -> None:
    trace = story(
        (10, Event.ISSUED, 4, {"a": 4, "b": Cause.FETCH, "c": 1, "pc": 1}),
        (12, Event.BLOCKED, 4, {"a": Wait.BARRIER, "b": 3}),
        (40, Event.RESUMED, 4, {"a": Wait.BARRIER, "b": 3}),
        (50, Event.ISSUED, 4, {"a": 5, "b": Cause.PIPE, "c": 1, "pc": 0}),
        (60, Event.EXITED, 4, {}),
        (900, Event.EXITED, 0, {}),
        *((1, Event.EXITED, warp, {}) for warp in (1, 2, 3, 5, 6, 7)),
    )  # fmt: skip
    consumer = report.summarise(trace).roles[1]
    assert {item.what: item.cycles for item in consumer.spent} == {
        "its code": 4, "its first instruction": 6, "named barrier 3": 28, "issuing": 2, "a busy pipe": 5,
        "wgmma instructions": 6, "mbarrier instructions": 9,
    }  # fmt: skip
    assert sum(item.cycles for item in consumer.spent) == consumer.cycles == 60


def test_a_body_without_a_return_ends_all_the_same() -> None:
    run = launch(entry("", ".reg .b32 %r; mov.u32 %r, 1;"), ())
    (role,) = report.summarise(run.trace).roles
    assert sum(item.cycles for item in role.spent) == role.cycles > 0


def spent(ptx: str, *args: object, warp: int = 0, **options: object) -> dict[str, int]:
    """Return where the cycles of a warp of the first CTA went, in a launch of ``kernel``."""
    trace = launch(ptx, args, checks="off", **options).trace
    found = attribution.spent(trace, [warp], waiting.parts(trace))[warp]
    exits = trace.of(Event.EXITED)
    assert sum(found.values()) == exits[exits["warp"] == warp]["time"].max()
    return found


#: Every lane loads 16 bytes of shared memory, its own (stride 16) or such that all lanes meet in a bank, ``times`` in a row.
SHARED = """
    .shared .align 128 .b8 s[16384]; .reg .b32 %t, %s, %a, %b, %c, %d, %sum;
    mov.u32 %t, %tid.x; and.b32 %t, %t, 31; mov.u32 %s, s; mad.lo.u32 %s, %t, {stride}, %s; mov.u32 %sum, 0;
    {loads}
    st.shared.u32 [%s], %sum;
"""
WIDE = "ld.shared.v4.u32 {{%a, %b, %c, %d}}, [%s]; {use}"


def test_a_load_with_conflicts_loses_to_them_what_it_takes_longer() -> None:
    narrow = "ld.shared.u32 %a, [%s]; add.u32 %sum, %sum, %a; " * 8
    without, conflicting = (spent(entry("", SHARED.format(stride=stride, loads=narrow))) for stride in (4, 128))
    assert "bank conflicts" not in without
    longer = sum(conflicting.values()) - sum(without.values())
    assert conflicting["bank conflicts"] == pytest.approx(longer, rel=0.1) and longer > 8 * 20


def test_stores_with_conflicts_fill_the_queue_of_the_port_and_are_held_by_it() -> None:
    found = spent(entry("", SHARED.format(stride=128, loads="st.shared.u32 [%s], %sum; " * 32)))
    assert found["bank conflicts"] == pytest.approx(32 * 31, rel=0.15)


def test_warps_that_load_more_than_the_port_takes_wait_for_it() -> None:
    ptx = entry("", SHARED.format(stride=16, loads=WIDE.format(use="add.u32 %sum, %sum, %d; ") * 32))
    alone, *among_others = (spent(ptx, block=32 * warps, warp=w) for warps in (1, 16) for w in range(warps))
    assert "the shared-memory port" not in alone and not any("bank conflicts" in found for found in among_others)
    # 16 warps with one load of four wavefronts each in flight: each load is back 64 cycles later, not 29 + 3.
    of_the_port = sum(found["the shared-memory port"] for found in among_others) / 16
    assert of_the_port == pytest.approx(32 * (64 - 32), rel=0.1)


def test_what_needs_a_load_waits_for_the_memory_it_comes_from() -> None:
    body = ".reg .b64 %p; .reg .b32 %a; ld.param.u64 %p, [p]; ld.global.u32 %a, [%p]; st.global.u32 [%p+4], %a;"
    found = spent(entry("u64 p", body), np.zeros(64, np.uint32))
    assert found["dependency: global memory"] == pytest.approx(devices.model().memory.l2_latency, rel=0.2)
    body = ".shared .b32 s[64]; .reg .b32 %a; st.shared.u32 [s], 1; ld.shared.u32 %a, [s]; st.shared.u32 [s+4], %a;"
    assert spent(entry("", body))["dependency: shared memory"] == pytest.approx(devices.model().shared.load_latency, abs=4)


@pytest.mark.parametrize("latency", [250, 5000])
def test_the_example_of_the_readme_waits_for_its_load(latency: int) -> None:
    """Its schedule has nothing to do meanwhile; what is left is the same, however long memory takes."""
    device = devices.changed(devices.model("h100-sxm"), {"memory.l2_latency": latency})
    square = Path(__file__).parents[1] / "docs" / "square.ptx"
    x, y = np.ones(1024, np.float32), np.zeros(1024, np.float32)
    run = h100sim.RawModule(path=str(square)).get_function("square")(
        (8,), (128,), (x, y, np.int32(1024)), device=device, trace="full"
    )
    found = attribution.spent(run.trace, [0], [])[0]
    # The load's own issue is counted apart.
    assert latency - 8 < found["dependency: global memory"] < latency + 40
    assert sum(found.values()) - found["dependency: global memory"] < 100


def test_parameters_and_pauses_are_no_memory() -> None:
    body = ".reg .b64 %p; .reg .b32 %t; ld.param.u64 %p, [p]; cvt.u32.u64 %t, %p; and.b32 %t, %t, 63; add.u32 %t, %t, 100; nanosleep.u32 %t;"
    found = spent(entry("u64 p", body), np.zeros(64, np.uint32))
    assert "nanosleep" in found and not any("memory" in name for name in found)


def test_what_needs_the_result_of_arithmetic_has_a_dependency() -> None:
    chain = ".shared .b32 s[64]; .reg .f32 %f; mov.f32 %f, 0f3F800000;" + "lg2.approx.f32 %f, %f;" * 6 + "st.shared.f32 [s], %f;"
    assert spent(entry("", chain))["dependency: arithmetic"] > 6 * 30


def test_a_use_behind_a_branch_waits_for_its_operand() -> None:
    """The schedule of a block cannot hide what an earlier block left in flight."""
    body = """
    .reg .b64 %p; .reg .b32 %a, %b; .reg .pred %q; ld.param.u64 %p, [p]; ld.global.u32 %a, [%p]; setp.eq.u64 %q, %p, 0;
    @%q bra END; mov.u32 %b, 3; add.u32 %b, %a, %b; st.global.u32 [%p+4], %b;
END: ret;"""
    found = spent(entry("u64 p", body), np.zeros(64, np.uint32))
    assert found["dependency: global memory"] > 200


#: Thread 0 asks for loads of 8 KB and waits for all of them.
COPIES = """
    .shared .align 128 .b8 s[32768]; .shared .align 8 .b64 bar;
    .reg .b64 %from, %state; .reg .b32 %t, %s, %b; .reg .pred %p, %done;
    mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p ret;
    mov.u32 %s, s; mov.u32 %b, bar; ld.param.u64 %from, [from];
    mbarrier.init.shared::cta.b64 [%b], 1; fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], {bytes};
    {copies}
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s+{at}], [%from+{at}], 8192, [%b];"


@pytest.mark.parametrize("copies", [1, 4])
def test_a_wait_for_copies_is_the_engines_queue_and_the_latency(copies: int) -> None:
    text = COPIES.format(bytes=copies * 8192, copies="\n".join(COPY.format(at=k * 8192) for k in range(copies)))
    found = spent(entry("u64 from", text), np.zeros(8192, np.uint32))
    tma, memory = devices.model().tma, devices.model().memory
    waits = {name.split(": ")[1]: cycles for name, cycles in found.items() if ": " in name}
    # What was uploaded crosses between the halves of L2 the first time that it is used, behind the few others that do.
    least = tma.bulk_latency_cycles + 8192 / tma.bytes_per_cycle + memory.l2_cross_cycles
    assert least - 3 < waits["TMA latency"] < least + 50
    queued = (copies - 1) * (8192 / tma.bytes_per_cycle - tma.bulk_issue_cycles)
    assert waits.get("TMA engine's queue", 0) == pytest.approx(max(0, queued - tma.bulk_issue_cycles), abs=50)
    assert ("TMA engine's queue" in waits) == (copies > 1)


def test_a_wait_for_a_copy_that_nobody_has_issued_says_so() -> None:
    trace = story(
        (0, Event.CTA_STARTED, -1, {}),
        (0, Event.MBARRIER_INITIALISED, 0, {"a": 7, "c": 1, "d": 1024}),
        (10, Event.ISSUED, 4, {"c": 1}),
        (11, Event.BLOCKED, 4, {"a": Wait.MBARRIER, "b": 7}),
        (50, Event.TMA_ISSUED, 0, {"op": 1, "d": 7}),
        (95, Event.TMA_STARTED, -1, {"op": 1, "b": 44}),
        (340, Event.TMA_COMPLETED, -1, {"op": 1}),
        (340, Event.MBARRIER_COMPLETED_TX, -1, {"op": 1, "a": 7}),
        (340, Event.MBARRIER_FLIPPED, -1, {"a": 7}),
        (355, Event.RESUMED, 4, {"a": Wait.MBARRIER, "b": 7}),
        (360, Event.EXITED, 4, {}),
        (400, Event.CTA_ENDED, -1, {}),
    )  # fmt: skip
    parts = [(part.what, part.blocked, part.resumed) for part in waiting.parts(trace)]
    assert parts == [
        ("full: copy not issued yet", 11, 50), ("full: TMA engine's queue", 50, 95), ("full: TMA latency", 95, 340),
        ("full", 340, 355),
    ]  # fmt: skip
    assert [(wait.what, wait.blocked, wait.resumed) for wait in waiting.whole(trace)] == [("full", 11, 355)]


def products(count: int) -> str:
    """A kernel each warpgroup of which issues so many m64n256k16 of whatever shared memory holds, and waits for them."""
    acc = ", ".join(f"%f{k}" for k in range(128))
    product = f"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{acc}}}, %d, %d, 1, 1, 1, 0, 0;"
    lines = [
        ".shared .align 1024 .b8 s[16384]; .reg .b32 %s; .reg .b64 %d; .reg .f32 %f<128>;",
        "mov.u32 %s, s; shr.u32 %s, %s, 4; cvt.u64.u32 %d, %s;",
        "wgmma.fence.sync.aligned;",
        *[product] * count,
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
    ]
    return entry("", "\n".join(lines))


def test_more_products_than_the_tensor_core_queues_find_it_busy() -> None:
    tensor = devices.model().tensor
    few, many = (spent(products(count), block=128, values="none") for count in (tensor.queue_depth, tensor.queue_depth + 4))
    assert "tensor core busy" not in few
    assert sum(many.values()) - sum(few.values()) == pytest.approx(4 * 128, rel=0.1)
    # One takes 28 cycles to issue and 128 to execute: the eighth comes too late to wait, those behind it wait for the difference.
    assert many["tensor core busy"] == pytest.approx(3 * (128 - 28), rel=0.2)
    assert many["wgmma results"] == pytest.approx(few["wgmma results"], rel=0.2)


def test_while_products_of_another_warpgroup_execute_the_tensor_core_is_busy() -> None:
    alone = spent(products(3), block=128, values="none")
    shared = spent(products(3), block=256, values="none")
    assert "tensor core busy" not in alone
    assert shared["wgmma results"] <= alone["wgmma results"]
    assert 2 * 128 < shared["tensor core busy"] <= 3 * 128
    longer = sum(shared.values()) - sum(alone.values())
    assert shared["tensor core busy"] + shared["wgmma results"] - alone["wgmma results"] == pytest.approx(longer, abs=8)


def test_the_schedulers_of_a_warp_that_waits_have_no_eligible_warp() -> None:
    body = ".reg .b64 %p; .reg .b32 %a; ld.param.u64 %p, [p]; ld.global.u32 %a, [%p]; st.global.u32 [%p+4], %a;"
    run = launch(entry("u64 p", body), (np.zeros(64, np.uint32),))
    slots = report.summarise(run.trace).issue_slots
    assert (slots.schedulers, slots.cycles) == (4, 4 * run.cycles) and 1 <= slots.issued <= 6
    assert f"no warp is eligible in the other {1 - slots.issued / slots.cycles:.1%}" in report.as_text(report.summarise(run.trace))


@pytest.mark.parametrize("config", [{}, {"m": 128, "n": 128, "k": 64, "stages": 1}])
def test_the_causes_of_a_program_add_up_to_its_life(config: dict[str, int]) -> None:
    whole = {**gemm.CONFIG, **config}
    kernel = gemm.build(**whole)
    kernel.run(*gemm.inputs(0, **whole), trace="full", checks="off")
    for role in report.summarise(kernel.last_run.trace).roles:
        assert role.spent and sum(item.cycles for item in role.spent) == pytest.approx(role.cycles)
        assert all(0 < item.cycles <= role.cycles for item in role.spent)
