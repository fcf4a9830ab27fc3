"""Bulk copies without a tensor map, in every direction, and reductions of every type against what an H200 gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import h100sim
from h100sim.trace import Copy, Event
from tests.kernels import STORE_THREAD, entry, launch, zeros

CAPTURED = np.load(Path(__file__).parent.parent / "data" / "tma_reduction.npz")

#: Thread 0 brings ``bytes`` of source to shared memory, lets the engine do ``copy`` and waits for it.
STORE = """
    .shared .align 128 .b8 s[16384]; .shared .align 8 .b64 bar;
    .reg .b64 %to, %from, %state; .reg .b32 %t, %s, %b, %n; .reg .pred %p, %done;
    mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p ret;
    mov.u32 %s, s; mov.u32 %b, bar; ld.param.u64 %to, [to]; ld.param.u64 %from, [from]; ld.param.u32 %n, [bytes];
    mbarrier.init.shared::cta.b64 [%b], 1; fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], %n;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%from], %n, [%b];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
    {copy} [%to], [%s], %n;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
"""


def reduce(opcode: str, old: np.ndarray, new: np.ndarray, **options) -> tuple[np.ndarray, h100sim.Run]:
    """Return global memory after a bulk copy or reduction of ``new`` into ``old``."""
    to = np.resize(old, -(-old.nbytes // 16) * 16 // old.itemsize).copy()
    source = np.resize(new, to.size).copy()
    ptx = entry("u64 to, u64 from, u32 bytes", STORE.format(copy=opcode))
    run = launch(ptx, (to, source, to.nbytes), **options)
    return to[: old.size], run


TYPES = {
    "add": {"u32": "u32", "s32": "s32", "u64": "u64", "f64": "f64", "f16": "noftz.f16", "bf16": "noftz.bf16", "f32": "f32"},
    "min": {name: name for name in ("u32", "s32", "u64", "s64", "f16", "bf16")},
    "max": {name: name for name in ("u32", "s32", "u64", "s64", "f16", "bf16")},
    "inc": {"u32": "u32"},
    "dec": {"u32": "u32"},
    "and": {"u32": "b32", "u64": "b64"},
    "or": {"u32": "b32", "u64": "b64"},
    "xor": {"u32": "b32", "u64": "b64"},
}


@pytest.mark.parametrize(("op", "element"), [(op, e) for op, types in TYPES.items() for e in types if f"{op}.{e}" in CAPTURED])
def test_reductions_of_global_memory(op, element):
    """The same results as reductions through a tensor map, which were captured."""
    found, run = reduce(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{TYPES[op][element]}",
        CAPTURED[f"{element}.old"],
        CAPTURED[f"{element}.new"],
    )
    assert np.array_equal(found, CAPTURED[f"{op}.{element}"].astype(found.dtype))
    assert not run.hazards
    assert Copy.BULK_REDUCE in run.trace.of(Event.TMA_ISSUED)["a"]


def test_a_plain_store_and_its_cache_hint():
    data = np.arange(64, dtype=np.uint32)
    found, run = reduce("cp.async.bulk.global.shared::cta.bulk_group", zeros(64), data)
    assert np.array_equal(found, data) and not run.hazards


#: Rank 0 fills its shared memory and sends it to rank 1 with ``copy``, which waits and hands out what it has.
SEND = """
    .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar;
    .reg .b32 %r_value, %t, %rank, %own, %at, %b, %n, %own_b; .reg .b64 %state; .reg .pred %p, %q, %done;
    mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %own, s; mov.u32 %own_b, bar;
    mad.lo.u32 %at, %t, 4, %own; mad.lo.u32 %n, %rank, 1000, %t; st.shared.u32 [%at], %n;
    setp.eq.u32 %q, %t, 0;
    @%q mbarrier.init.shared::cta.b64 [%own_b], 1;
    @%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%own_b], 128;
    fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    setp.eq.u32 %p, %rank, 1; @%p bra RECEIVE;
    mov.u32 %n, 1; mapa.shared::cluster.u32 %at, %own, %n; mapa.shared::cluster.u32 %b, %own_b, %n;
    {send}
    bra DONE;
RECEIVE:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%own_b], 0; @!%done bra RECEIVE;
DONE:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mad.lo.u32 %at, %t, 4, %own; ld.shared.u32 %r_value, [%at];
"""
CLUSTER = "shared::cluster.shared::cta.mbarrier::complete_tx::bytes"


def send(text: str) -> tuple[np.ndarray, h100sim.Run]:
    out = zeros(64)
    run = launch(entry("u64 out", SEND.format(send=text) + STORE_THREAD), (out,), grid=2, block=32, cluster=(2, 1, 1))
    return out[32:], run


@pytest.mark.parametrize(
    ("opcode", "result"),
    [
        (f"cp.async.bulk.{CLUSTER}", lambda old, new: new),
        (f"cp.reduce.async.bulk.{CLUSTER}.add.u32", lambda old, new: old + new),
        (f"cp.reduce.async.bulk.{CLUSTER}.min.s32", lambda old, new: min(old, new)),
        (f"cp.reduce.async.bulk.{CLUSTER}.max.u32", lambda old, new: max(old, new)),
        (f"cp.reduce.async.bulk.{CLUSTER}.inc.u32", lambda old, new: 0 if old >= new else old + 1),
        (f"cp.reduce.async.bulk.{CLUSTER}.dec.u32", lambda old, new: new if old == 0 or old > new else old - 1),
        (f"cp.reduce.async.bulk.{CLUSTER}.xor.b32", lambda old, new: old ^ new),
    ],
)
def test_between_the_ctas_of_a_cluster(opcode, result):
    values, run = send(f"@%q {opcode} [%at], [%own], 128, [%b];")
    assert values.tolist() == [result(1000 + t, t) for t in range(32)]
    assert not run.hazards
    assert len(run.trace.of(Event.TMA_SOURCE)) == 1


def test_writing_the_source_of_a_copy_that_flies_is_a_race():
    _, run = send(f"@%q cp.async.bulk.{CLUSTER} [%at], [%own], 128, [%b]; st.shared.u32 [%own], %t;")
    assert "race" in [h.kind for h in run.hazards]


def test_a_multicast_reaches_every_cta_of_its_mask():
    text = SEND.replace("setp.eq.u32 %p, %rank, 1; @%p bra RECEIVE;", "setp.ne.u32 %p, %rank, 2; @%p bra RECEIVE;")
    copy = "ld.param.u64 %state, [from]; .reg .b16 %mask; mov.u16 %mask, 11; "
    opcode = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    copy += f"@%q {opcode} [%own], [%state], 128, [%own_b], %mask;"
    out, source = zeros(128), np.arange(32, dtype=np.uint32) + 5000
    run = launch(
        entry("u64 out, u64 from", text.format(send=copy) + STORE_THREAD), (out, source), grid=4, block=32, cluster=(4, 1, 1)
    )
    rows = out.reshape(4, 32)
    assert all(np.array_equal(rows[k], source) for k in (0, 1, 3)) and rows[2].tolist() == list(range(2000, 2032))
    assert not run.hazards


def test_a_prefetch_changes_nothing_and_waits_for_nothing():
    body = """
    .reg .b64 %a; ld.param.u64 %a, [from];
    cp.async.bulk.prefetch.L2.global [%a], 4096;
"""
    data = np.arange(1024, dtype=np.uint32)
    run = launch(entry("u64 from", body), (data,), block=1)
    assert run.cycles < 200 and not len(run.trace.of(Event.TMA_ISSUED))


@pytest.mark.parametrize(
    ("opcode", "message"),
    [
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s64", r"add in global memory must be of u32, .*, not s64"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16", r"must have \.noftz"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.noftz.f16", r"must not have \.noftz"),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask", r"must not have \.cp_mask on sm_90a"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.u32", r"must name one reduction of add, min"),
    ],
)
def test_what_there_is_not_is_refused(opcode, message):
    with pytest.raises(h100sim.PtxError, match=message):
        reduce(opcode, zeros(4), zeros(4))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("%to], [%s], %n", "%to], [%s], 24"), h100sim.IllegalInstruction, "size must be a multiple of 16, not 24"),
        (("%to], [%s]", "%to+8], [%s]"), h100sim.MisalignedAddress, "address must be a multiple of 16"),
        (("%to], [%s]", "%to+4096], [%s]"), h100sim.OutOfRange, "must lie in an allocation"),
    ],
)
def test_what_silicon_refuses_is_an_error(change, error, message):
    text = STORE.format(copy="cp.async.bulk.global.shared::cta.bulk_group").replace("[" + change[0], "[" + change[1])
    with pytest.raises(error, match=message):
        launch(entry("u64 to, u64 from, u32 bytes", text), (zeros(64), zeros(64), 256))
