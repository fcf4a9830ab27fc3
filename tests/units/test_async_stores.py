"""st.async and red.async: between the CTAs of a cluster, complete on an mbarrier of the CTA that they write to."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.shared_accesses import shared_instructions
from h100sim.trace import Copy, Event
from tests.kernels import STORE_THREAD, entry, launch, zeros

#: Rank 0 sends one value a lane to rank 1, which waits for all bytes on its mbarrier and hands them out.
EXCHANGE = """
    .shared .align 16 .b8 s[1024]; .shared .align 8 .b64 bar;
    .reg .b32 %r_value, %t, %rank, %at, %b, %n, %a1, %a2, %a3, %a4; .reg .b64 %wide, %state; .reg .pred %p, %done;
    .reg .b64 %far; .reg .b64 %far_bar; .reg .f32 %f;
    mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %at, s; mov.u32 %b, bar;
    mad.lo.u32 %at, %t, {stride}, %at;
    setp.ne.u32 %p, %t, 0;
    @!%p mbarrier.init.shared::cta.b64 [%b], 1;
    @!%p mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], {bytes};
    {before}
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    setp.eq.u32 %p, %rank, 1; @%p bra RECEIVE;
    mov.u32 %n, 1; mapa.shared::cluster.u32 %at, %at, %n; mapa.shared::cluster.u32 %b, %b, %n;
    {send}
    bra DONE;
RECEIVE:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0;
    @!%done bra RECEIVE;
DONE:
    mov.u32 %at, s; mad.lo.u32 %at, %t, {stride}, %at;
    ld.shared.u32 %r_value, [%at{offset}];
"""


def exchange(send: str, stride: int, bytes_: int, before: str = "st.shared.u32 [%at], %t;", offset: str = "", **options):
    body = EXCHANGE.format(send=send, stride=stride, bytes=bytes_, before=before, offset=offset) + STORE_THREAD
    out = zeros(64)
    run = launch(entry("u64 out", body), (out,), grid=2, block=32, cluster=(2, 1, 1), **options)
    return out[32:], run


TO = "shared::cluster.mbarrier::complete_tx::bytes"


def test_a_store_arrives_with_its_bytes():
    values, run = exchange(f"add.u32 %n, %t, 100; st.async.weak.{TO}.u32 [%at], %n, [%b];", 4, 128)
    assert values.tolist() == list(range(100, 132))
    assert not run.hazards
    issued = run.trace.of(Event.TMA_ISSUED)
    assert len(issued) == 32 and set(issued["a"]) == {int(Copy.ASYNC_STORE)} and set(issued["b"]) == {4}
    stores = [x for x in shared_instructions(run.trace) if x.unit == "packets"]
    assert [(x.opcode[:8], x.accesses, x.wavefronts, x.without_conflicts) for x in stores] == [("st.async", 1, 4, 4)]


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_cta_stores_to_itself_only_in_a_cluster(cluster):
    """Measured: validate/silicon/async_stores.json."""
    body = """
    .shared .align 16 .b8 s[128]; .shared .align 8 .b64 bar;
    .reg .b32 %t, %at, %b, %r_value; .reg .b64 %state; .reg .pred %p, %done;
    mov.u32 %t, %tid.x; mov.u32 %at, s; mov.u32 %b, bar; mad.lo.u32 %at, %t, 4, %at; setp.ne.u32 %p, %t, 0;
    @!%p mbarrier.init.shared::cta.b64 [%b], 1;
    @!%p mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], 128;
    bar.sync 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%at], %t, [%b];
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0;
    @!%done bra AGAIN;
    ld.shared.u32 %r_value, [%at];
"""
    out = zeros(64)
    given = {"grid": 2, "block": 32, "cluster": (cluster, 1, 1)}
    if cluster == 1:
        with pytest.raises(
            h100sim.IllegalInstruction, match=r"^st\.async\S* must be in a launch with clusters, not in one without"
        ):
            launch(entry("u64 out", body + STORE_THREAD), (out,), **given)
    else:
        launch(entry("u64 out", body + STORE_THREAD), (out,), **given)
        assert out.tolist() == [*range(32)] * 2


@pytest.mark.parametrize(("k", "offset"), [(0, ""), (3, "+12")])
def test_vectors_store_up_to_16_bytes(k, offset):
    send = "mov.u32 %a1, 1; mov.u32 %a2, 2; mov.u32 %a3, 3; add.u32 %a4, %t, 7; "
    send += f"st.async.{TO}.v4.b32 [%at], {{%a1, %a2, %a3, %a4}}, [%b];"
    values, _ = exchange(send, 16, 512, offset=offset)
    assert values.tolist() == ([1] * 32 if k == 0 else list(range(7, 39)))


def test_a_generic_address_names_the_other_cta_too():
    send = "cvt.u64.u32 %far, %at; cvta.shared::cluster.u64 %far, %far; cvt.u64.u32 %far_bar, %b; "
    send += "cvta.shared::cluster.u64 %far_bar, %far_bar; add.u32 %n, %t, 9; "
    values, _ = exchange(send + "st.async.mbarrier::complete_tx::bytes.b32 [%far], %n, [%far_bar];", 4, 128)
    assert values.tolist() == list(range(9, 41))


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ("add.u32", lambda old, new: old + new),
        ("min.s32", lambda old, new: min(old, new)),
        ("max.u32", lambda old, new: max(old, new)),
        ("and.b32", lambda old, new: old & new),
        ("or.b32", lambda old, new: old | new),
        ("xor.b32", lambda old, new: old ^ new),
        ("inc.u32", lambda old, new: 0 if old >= new else old + 1),
        ("dec.u32", lambda old, new: new if old == 0 or old > new else old - 1),
    ],
)
def test_reductions_reach_the_other_cta(operation, result):
    values, run = exchange(f"mov.u32 %n, 20; red.async.relaxed.cluster.{TO}.{operation} [%at], %n, [%b];", 4, 128)
    assert values.tolist() == [result(t, 20) for t in range(32)]
    assert not run.hazards


def test_64_bit_sums_carry():
    before = "mov.u64 %wide, 0xFFFFFFFF; st.shared.u64 [%at], %wide;"
    values, _ = exchange(f"mov.u64 %wide, 1; red.async.relaxed.cluster.{TO}.add.u64 [%at], %wide, [%b];", 8, 256, before, "+4")
    assert values.tolist() == [1] * 32


def test_reading_before_the_mbarrier_is_a_race():
    send = f"st.async.{TO}.u32 [%at], %t, [%b];"
    body = EXCHANGE.format(send=send, stride=4, bytes=128, before="st.shared.u32 [%at], %t;", offset="")
    body = body.replace("@!%done bra RECEIVE;", "")
    _ = body.replace("mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0;", "")
    out = zeros(64)
    early = (
        _
        + STORE_THREAD
        + "LAST: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; setp.eq.and.u32 %p, %rank, 1, !%done; @%p bra LAST;"
    )
    run = launch(entry("u64 out", early), (out,), grid=2, block=32, cluster=(2, 1, 1))
    assert [h.kind for h in run.hazards] == ["race"]


def test_the_mbarrier_is_the_one_beside_the_data():
    """Silicon takes the offset of the mbarrier alone: naming the own CTA's completes the other one's."""
    values, _ = exchange(f"mov.u32 %b, bar; add.u32 %n, %t, 3; st.async.{TO}.u32 [%at], %n, [%b];", 4, 128)
    assert values.tolist() == list(range(3, 35))


@pytest.mark.parametrize(
    ("opcode", "message"),
    [
        ("st.async.mmio.release.sys.global.b32 [%at], %t, [%b]", "must complete on an mbarrier on sm_90a"),
        (f"st.async.{TO}.b16 [%at], %t, [%b]", "must store up to 16 bytes"),
        (f"red.async.relaxed.cluster.{TO}.add.f32 [%at], %f, [%b]", "red.async add must be of u32, s32, u64, s64, not f32"),
        (f"red.async.relaxed.cluster.{TO}.min.u64 [%at], %wide, [%b]", "red.async min must be of u32, s32, not u64"),
    ],
)
def test_what_there_is_not_is_refused(opcode, message):
    with pytest.raises(h100sim.PtxError, match=message):
        exchange(opcode + ";", 4, 128)


def test_values_survive_a_full_table():
    """More stores in flight than the table holds at the start: it grows, and nothing is sent twice."""
    send = "".join(f"red.async.relaxed.cluster.{TO}.add.u32 [%at], {k}, [%b];\n" for k in range(1, 13))
    values, _ = exchange(send, 4, 128 * 12)
    assert values.tolist() == [t + 78 for t in range(32)]
    assert np.all(values >= 78)
