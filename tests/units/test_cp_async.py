"""cp.async: sizes, zero fill, groups, and arrivals on mbarriers."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.trace import Event
from tests.kernels import STORE_THREAD, entry, launch, zeros

SETUP = """
    .shared .align 16 .b8 s[1024]; .shared .align 8 .b64 bar;
    .reg .b32 %r_value, %t, %o, %n, %x; .reg .b64 %a, %i; .reg .pred %p;
    mov.u32 %t, %tid.x; mov.u32 %n, s; ld.param.u64 %a, [src];
    shl.b32 %o, %t, 4; mul.wide.u32 %i, %t, 16; add.u32 %n, %n, %o; add.s64 %a, %a, %i;
"""
SOURCE = np.arange(1, 129, dtype=np.uint32)


def run(body: str) -> tuple[np.ndarray, h100sim.Run]:
    out = zeros(32)
    result = launch(entry("u64 src, u64 out", SETUP + body + STORE_THREAD), (SOURCE.copy(), out))
    return out, result


@pytest.mark.parametrize("opcode", ["ca.shared.global", "cg.shared::cta.global.L2::128B"])
def test_a_group_that_was_waited_for_has_arrived(opcode):
    body = f"cp.async.{opcode} [%n], [%a], 16; cp.async.commit_group;"
    body += "cp.async.wait_group 0; ld.shared.u32 %r_value, [%n+12];"
    out, result = run(body)
    assert out.tolist() == SOURCE[3::4].tolist()
    assert not result.hazards


def test_a_group_may_stay_open():
    body = """
    cp.async.ca.shared.global [%n], [%a], 4; cp.async.commit_group; cp.async.ca.shared.global [%n+8], [%a+8], 8;
    """
    opened, result = run(body + "cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r_value, [%n];")
    assert opened.tolist() == SOURCE[::4].tolist()
    assert not result.hazards
    out, _ = run(body + "cp.async.wait_all; ld.shared.u32 %r_value, [%n+12];")
    assert out.tolist() == SOURCE[3::4].tolist()


@pytest.mark.parametrize("how", ["and.b32 %x, %t, 8;", "and.b32 %x, %t, 8; setp.eq.u32 %p, %x, 0;"])
def test_what_the_source_lacks_is_zero(how):
    last = "%p" if "setp" in how else "%x"
    body = how + f"cp.async.ca.shared.global [%n], [%a], 8, {last}; cp.async.wait_all; ld.shared.u32 %r_value, [%n];"
    out, _ = run(body)
    assert out.tolist() == [int(SOURCE[4 * t]) if t & 8 else 0 for t in range(32)]


@pytest.mark.parametrize(("size", "kinds"), [(0, set()), (16, {"race"})])
def test_a_copy_of_no_bytes_reads_nothing(size, kinds):
    """Compilers switch the copies of a pipeline's last rounds off by a source size of 0."""
    body = f"mov.u32 %x, {size}; cp.async.cg.shared.global [%n], [%a], 16, %x; st.global.u32 [%a], %t; cp.async.wait_all;"
    out, result = run(body + "ld.shared.u32 %r_value, [%n+4];")
    assert {hazard.kind for hazard in result.hazards} == kinds
    assert size or not out.any()


@pytest.mark.parametrize(("noinc", "count"), [(".noinc", 32), ("", 1)])
def test_copies_arrive_on_an_mbarrier(noinc, count):
    body = f"""
    setp.eq.u32 %p, %t, 0; mov.u32 %x, bar; @%p mbarrier.init.shared::cta.b64 [%x], {count}; bar.sync 0;
    cp.async.ca.shared.global [%n], [%a], 16; cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%x];
    """ + ("" if noinc else "@%p mbarrier.arrive.shared::cta.b64 _, [%x];")
    body += "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%x], 0; @!%p bra W; ld.shared.u32 %r_value, [%n+4];"
    out, result = run(body)
    assert out.tolist() == SOURCE[1::4].tolist()
    assert not result.hazards


def test_only_whole_words_are_copied():
    with pytest.raises(h100sim.PtxError, match=r"^cp\.async\.cg\.shared\.global size must be one of \(16,\), not 8"):
        run("cp.async.cg.shared.global [%n], [%a], 8;")
    with pytest.raises(h100sim.IllegalInstruction, match="source size must be at most 8, not 12"):
        run("mov.u32 %x, 12; cp.async.ca.shared.global [%n], [%a], 8, %x;")


def test_an_arrival_to_come_raises_the_pending_count():
    """Without .noinc each thread adds an arrival at once and takes it when its copies are done: one of its own remains."""
    body = """
    setp.eq.u32 %p, %t, 0; mov.u32 %x, bar; @%p mbarrier.init.shared::cta.b64 [%x], 1; bar.sync 0;
    cp.async.ca.shared.global [%n], [%a], 16; cp.async.mbarrier.arrive.shared::cta.b64 [%x];
    @%p mbarrier.arrive.shared::cta.b64 _, [%x];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%x], 0; @!%p bra W; ld.shared.u32 %r_value, [%n+4];
"""
    _, result = run(body)
    raised = result.trace.of(Event.MBARRIER_RAISED)
    assert raised["b"].tolist() == [1] * 32 and raised["c"].tolist() == list(range(2, 34))
    arrived = result.trace.of(Event.MBARRIER_ARRIVED)
    assert arrived["c"].tolist() == list(range(32, -1, -1)) and not result.hazards
    assert len(result.trace.of(Event.MBARRIER_FLIPPED)) == 1
