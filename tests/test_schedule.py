"""The list scheduler: latencies overlap, pipes are not oversubscribed, and what has an order keeps it."""

from __future__ import annotations

import itertools

import pytest

import h100sim
from h100sim import devices
from h100sim.outline import Step
from h100sim.program import set_latencies

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .f32 n)\n{"
DECLARATIONS = ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<4>; .reg .f32 %f<80>;"
START = "ld.param.u64 %d0, [out]; ld.param.f32 %f0, [n];"
N_START = 2


def placed(*body: str) -> list[Step]:
    """Return the scheduled steps of a kernel's body."""
    text = "\n".join((HEADER, DECLARATIONS, START, *body, "ret;\n}"))
    program = h100sim.RawModule(code=text).get_function("k").program
    set_latencies(program, devices.model("h100-sxm"))
    assert program.outline is not None
    return program.outline.steps[N_START:]


def cycles(*body: str, words: int = 32) -> int:
    """Return the simulated cycles between two clock reads around a body that leaves its result in %f1."""
    text = "\n".join(
        (
            HEADER, DECLARATIONS, START, ".reg .b32 %t<2>; .shared .b32 place;", "mov.u32 %t0, %clock;", *body,
            "st.volatile.shared.f32 [place], %f1;", "mov.u32 %t1, %clock;", "sub.u32 %t1, %t1, %t0;", "st.global.u32 [%d0], %t1;", "ret;\n}",
        )
    )  # fmt: skip
    import numpy as np

    out = np.zeros(words, np.uint32)
    h100sim.RawModule(code=text).get_function("k")((1,), (32,), (out, np.float32(1)), device="h200-sxm")
    return int(out[0])


def chain(opcode: str, count: int, register: int) -> list[str]:
    operands = f"%f{register}, %f{register}" + (", %f0" if opcode == "add.f32" else "")
    return [f"add.f32 %f{register}, %f0, %f0;", *[f"{opcode} {operands};"] * count]


def test_two_chains_in_a_row_take_as_long_as_one() -> None:
    one = cycles(*chain("add.f32", 40, 1))
    two = cycles(*chain("add.f32", 40, 1), *chain("add.f32", 40, 2), "add.f32 %f1, %f1, %f2;")
    assert one > 160
    assert two < one + 16


def test_a_pipe_takes_one_instruction_after_the_other() -> None:
    issue = devices.Issue()
    body = [line for k in range(1, 9) for line in chain("ex2.approx.ftz.f32", 1, k)]
    sums = [f"add.f32 %f1, %f1, %f{k};" for k in range(2, 9)]
    assert cycles(*body, *sums) >= 8 * issue.mufu_cycles


def test_no_instruction_issues_before_its_operands_are_there() -> None:
    steps = placed(*chain("add.f32", 5, 1), "st.global.f32 [%d0], %f1;")
    at = [step.at for step in steps[:6]]
    assert all(later - earlier >= devices.Issue().fma_latency for earlier, later in itertools.pairwise(at))


def test_stores_keep_their_order() -> None:
    late = chain("add.f32", 10, 1)
    steps = placed(*late, "st.global.f32 [%d0], %f1;", "st.global.f32 [%d0+4], %f0;")
    assert steps[len(late)].at < steps[len(late) + 1].at


def test_nothing_crosses_a_read_of_the_clock() -> None:
    steps = placed(
        "mov.u32 %r0, %clock;",
        *chain("add.f32", 5, 1),
        "mov.u32 %r1, %clock;",
        "st.global.v2.u32 [%d0], {%r0, %r1};",
        "st.global.f32 [%d0+8], %f1;",
    )
    assert steps[0].at < min(step.at for step in steps[1:7])
    assert steps[7].at >= max(step.at for step in steps[1:7])


def test_a_branch_waits_for_the_comparison_that_steers_it() -> None:
    steps = placed("setp.gt.f32 %p0, %f0, 0f00000000;", "@%p0 bra DONE;", "st.global.f32 [%d0], %f0;", "DONE:")
    assert steps[1].at - steps[0].at == devices.Issue().predicate_latency


def test_the_holds_of_a_block_add_up_to_its_schedule() -> None:
    body = chain("add.f32", 20, 1)
    steps = placed(*body, "st.global.f32 [%d0], %f1;")
    assert sum(step.hold for step in steps[: len(body)]) >= 20 * devices.Issue().fma_latency


def test_the_text_takes_every_pipe_of_the_schedule_once() -> None:
    body = [line for k in range(1, 5) for line in chain("ex2.approx.ftz.f32", 3, k)]
    loads = [f"ld.shared.f32 %f{k}, [place+{4 * k}]; add.f32 %f{k}, %f{k}, %f1;" for k in range(10, 14)]
    sums = [f"add.f32 %f1, %f1, %f{k};" for k in (2, 3, 4, 10, 11, 12, 13)]
    steps = placed(".shared .b32 place[64];", *body, *loads, *sums, "st.global.f32 [%d0], %f1;")
    taken = sorted(k - N_START for step in steps for k in step.books)
    ordered = [k for k, step in enumerate(steps) if step.count and step.kind in ("lane", "soft")]
    assert [k for k in taken if k >= 0] == ordered


def test_a_load_issues_when_the_schedule_has_it() -> None:
    steps = placed(
        ".shared .b32 place[64];",
        *chain("add.f32", 20, 1),
        "ld.shared.f32 %f2, [place];",
        *chain("add.f32", 1, 3),
        "add.f32 %f1, %f1, %f2;",
        "st.global.f32 [%d0], %f1;",
    )
    load = next(k for k, step in enumerate(steps) if step.space == "shared")
    assert steps[load].at < 10
    assert sum(step.hold for step in steps[:load]) <= steps[load].at


def test_a_chain_in_order_takes_a_pipe_when_the_schedule_does() -> None:
    """Two warps with the same work of one pipe share it; neither waits for what the other has not come to."""
    issue = devices.Issue()
    text = "\n".join(
        (
            HEADER, DECLARATIONS, START, ".reg .b32 %t<4>; .shared .b32 place[8];", "mov.u32 %t2, %tid.x; shr.u32 %t2, %t2, 7;",
            "mov.u32 %t3, place; mad.lo.u32 %t3, %t2, 4, %t3; mul.wide.u32 %d1, %t2, 4; add.s64 %d1, %d0, %d1; mov.u32 %t0, %clock;",
            *[line for k in range(1, 17) for line in chain("ex2.approx.ftz.f32", 2, k)],
            *[f"add.f32 %f1, %f1, %f{k};" for k in range(2, 17)],
            "st.volatile.shared.f32 [%t3], %f1;", "mov.u32 %t1, %clock;", "sub.u32 %t1, %t1, %t0;", "st.global.u32 [%d1], %t1;", "ret;\n}",
        )
    )  # fmt: skip
    import numpy as np

    def took(warpgroups: int) -> list[int]:
        out = np.zeros(2, np.uint32)
        h100sim.RawModule(code=text).get_function("k")((1,), (128 * warpgroups,), (out, np.float32(1)), device="h200-sxm")
        return [int(x) for x in out[:warpgroups]]

    (alone,) = took(1)
    both = took(2)
    assert 32 * issue.mufu_cycles <= alone
    assert max(both) == pytest.approx(alone + 32 * issue.mufu_cycles, rel=0.15)
    assert min(both) > 1.5 * alone


def test_global_loads_pass_stores_and_fences_of_shared_memory() -> None:
    body = []
    for k in range(4):
        body += [
            f"ld.global.f32 %f{k + 2}, [%d0+{128 * k + 128}];",
            f"st.shared.f32 [place], %f{k + 2};",
            "fence.proxy.async.shared::cta;",
        ]
    steps = placed(".shared .b32 place;", *body)
    loads, fences = (
        [step.at for step in steps if step.kind == kind and test(step)] for kind, test in (("soft", _loads), ("hard", _orders))
    )
    assert len(loads) == 4 and max(loads) < min(fences)
    everywhere = placed(".shared .b32 place;", *(line.replace(".shared::cta", "") for line in body))
    assert max(step.at for step in everywhere if _loads(step)) > min(step.at for step in everywhere if step.kind == "hard")


def _loads(step: Step) -> bool:
    return step.space == "global"


def _orders(step: Step) -> bool:
    return step.stores == "shared"


def test_loads_that_are_late_are_late_together() -> None:
    """Each first touch of a line takes longer than planned; the schedule has all four loads before the first use."""
    use = ["add.f32 %f1, %f2, 0f00000000;", *(f"add.f32 %f1, %f1, %f{k};" for k in range(3, 6))]
    one = cycles("ld.global.f32 %f1, [%d0+128];", words=4096)
    text = [f"ld.global.f32 %f{k + 2}, [%d0+{4096 * k + 128}]; st.shared.f32 [place], %f{k + 2};" for k in range(4)]
    four = cycles(*text, *use, words=4096)
    assert one < four < one + 250


def test_a_load_takes_as_long_as_it_takes_when_it_runs() -> None:
    """Its schedule plans a hit in L2; what L1 holds is back sooner."""
    load = "ld.global.f32 %f2, [%d0+128]; add.f32 %f3, %f2, %f0; st.volatile.shared.f32 [place], %f3;"
    once, twice = (cycles(*[load] * count, "add.f32 %f1, %f3, %f0;", words=64) for count in (1, 2))
    memory = devices.model("h200-sxm").memory
    assert memory.l2_latency < once < memory.l2_latency + 60
    assert memory.l1_latency <= twice - once < memory.l1_latency + 30


def wgmma(first: int, a: str = "%d1", b: str = "%d2") -> str:
    results = ", ".join(f"%f{first + k}" for k in range(4))
    return f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{results}}}, {a}, {b}, 1, 1, 1, 0, 0;"


COMMIT, FENCE = "wgmma.commit_group.sync.aligned;", "wgmma.fence.sync.aligned;"


def wait(groups: int) -> str:
    return f"wgmma.wait_group.sync.aligned {groups};"


def test_descriptors_are_made_by_the_uniform_datapath() -> None:
    body = ("mov.b64 %d1, %d0; add.s64 %d2, %d1, 2; add.s64 %d3, %d1, 4;", FENCE, wgmma(2, "%d1", "%d2"), COMMIT, wait(0))
    steps = placed(*body, "st.global.v2.f32 [%d3], {%f2, %f3};")
    assert [s.pipe for s in steps[1:3]] == ["uniform", "alu"]
    assert steps[1].count == 1
    product = next(s for s in steps if s.pipe == "tensor" and s.writes)
    multiplies = next(s for s in steps if s.kind == "hard" and s.count == 2)
    assert product.at <= multiplies.at
    assert multiplies.at - steps[1].at >= devices.Issue().uniform_latency


def test_a_block_takes_longer_beside_wgmma() -> None:
    issue = devices.Issue()
    body = [f"max.f32 %f{k}, %f{k}, %f0;" for k in range(1, 33)]
    steps = placed(*body, *[f"max.f32 %f1, %f1, %f{k};" for k in range(2, 33)], "st.global.f32 [%d0], %f1;")
    alone, beside = (sum(getattr(s, name) for s in steps[:-2]) for name in ("hold", "beside"))
    assert alone == pytest.approx(63 * issue.alu_cycles, abs=70)
    assert beside - alone == pytest.approx(63 * (issue.alu_beside_wgmma_cycles - issue.alu_cycles), abs=12)
