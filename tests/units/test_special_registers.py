"""Special registers: what every thread of a launch with clusters reads."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from tests.kernels import STORE_THREAD, entry, launch, zeros
from validate.probes import silicon_results

GRID, BLOCK, CLUSTER = (4, 2, 1), (8, 6, 1), (2, 1, 1)
THREADS = 48
CTAS = [(x, y) for y in range(2) for x in range(4)]


def read(register: str, type_: str = "u32", **options) -> np.ndarray:
    """Return what the threads of each CTA (CTAs, threads) read, counted by linear index."""
    body = f"""
    .reg .b32 %r_value, %x, %y, %n; .reg .b64 %d; .reg .pred %p; mov.{type_} {"%d" if type_ == "u64" else "%r_value"}, {register};
    {"cvt.u32.u64 %r_value, %d;" if type_ == "u64" else ""}
"""
    store = """
    .reg .b64 %rd_out, %rd_i; .reg .b32 %r_t, %r_b;
    ld.param.u64 %rd_out, [out]; mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mad.lo.u32 %r_t, %y, 8, %x;
    mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mad.lo.u32 %r_b, %y, 4, %x; mad.lo.u32 %r_t, %r_b, 48, %r_t;
    mul.wide.u32 %rd_i, %r_t, 4; add.s64 %rd_out, %rd_out, %rd_i; st.global.u32 [%rd_out], %r_value;
"""
    out = zeros(len(CTAS) * THREADS)
    launch(entry("u64 out", body + store), (out,), grid=GRID, block=BLOCK, cluster=CLUSTER, **options)
    return out.reshape(len(CTAS), THREADS)


THREAD = np.arange(THREADS)


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ("%tid.x", lambda x, y: THREAD % 8),
        ("%tid.y", lambda x, y: THREAD // 8),
        ("%tid.z", lambda x, y: 0),
        ("%ntid.x", lambda x, y: 8),
        ("%ntid.y", lambda x, y: 6),
        ("%ctaid.x", lambda x, y: x),
        ("%ctaid.y", lambda x, y: y),
        ("%nctaid.x", lambda x, y: 4),
        ("%nctaid.y", lambda x, y: 2),
        ("%laneid", lambda x, y: THREAD % 32),
        ("%warpid", lambda x, y: THREAD // 32),
        ("%lanemask_eq", lambda x, y: 1 << THREAD % 32),
        ("%lanemask_lt", lambda x, y: (1 << THREAD % 32) - 1),
        ("%lanemask_le", lambda x, y: (2 << THREAD % 32) - 1),
        ("%lanemask_ge", lambda x, y: 0xFFFFFFFF & ~((1 << THREAD % 32) - 1)),
        ("%lanemask_gt", lambda x, y: 0xFFFFFFFF & ~((2 << THREAD % 32) - 1)),
        ("%clusterid.x", lambda x, y: x // 2),
        ("%clusterid.y", lambda x, y: y),
        ("%nclusterid.x", lambda x, y: 2),
        ("%nclusterid.y", lambda x, y: 2),
        ("%cluster_ctaid.x", lambda x, y: x % 2),
        ("%cluster_ctaid.y", lambda x, y: 0),
        ("%cluster_nctaid.x", lambda x, y: 2),
        ("%cluster_ctarank", lambda x, y: x % 2),
        ("%cluster_nctarank", lambda x, y: 2),
        ("%envreg3", lambda x, y: 0),
        ("WARP_SZ", lambda x, y: 32),
    ],
)
def test_every_thread_reads_its_own(register, expected):
    found = read(register)
    for cta, (x, y) in enumerate(CTAS):
        assert np.array_equal(found[cta], np.broadcast_to(expected(x, y), THREADS).astype(np.uint32)), (x, y)


def test_sizes_of_shared_memory():
    assert (read("%dynamic_smem_size", shared_mem=4096) == 4096).all()
    assert (read("%total_smem_size", shared_mem=4096) == 4096).all()


def test_a_multiprocessor_has_a_number_below_their_count():
    smid, count = read("%smid"), read("%nsmid")
    assert (smid < count).all() and len({*smid[:, 0]}) == len(CTAS)
    assert (smid == smid[:, :1]).all()


@pytest.mark.parametrize(("cluster", "value"), [(1, 0), (2, 1)])
def test_a_predicate_says_whether_there_are_clusters(cluster, value):
    body = ".reg .b32 %r_value; .reg .pred %p; mov.pred %p, %is_explicit_cluster; selp.u32 %r_value, 1, 0, %p;"
    out = zeros(64)
    launch(entry("u64 out", body + STORE_THREAD), (out,), grid=2, block=32, cluster=(cluster, 1, 1))
    assert out.tolist() == [value] * 64


def test_clocks_run_on():
    body = ".reg .b32 %r_value; .reg .b64 %a, %b; mov.u64 %a, {clock}; nanosleep.u32 2000; mov.u64 %b, {clock}; sub.u64 %a, %b, %a;"
    body += "cvt.u32.u64 %r_value, %a;"
    for clock, least in (("%globaltimer", 1_500), ("%clock64", 2_000)):
        out = zeros(32)
        launch(entry("u64 out", body.format(clock=clock) + STORE_THREAD), (out,))
        assert (out >= least).all() and (out < 4 * least).all(), clock


def test_the_timer_runs_on_from_launch_to_launch():
    read = """
    .reg .b64 %p, %start, %end; mov.u64 %start, %globaltimer; ld.param.u64 %p, [out]; nanosleep.u32 3000; mov.u64 %end, %globaltimer;
    st.global.v2.u64 [%p], {%start, %end};
"""
    device, timer = h100sim.Device("h200-sxm"), []
    kernel = h100sim.RawModule(code=entry("u64 out", read)).get_function("kernel")
    for _ in range(3):
        out = zeros(2, np.uint64)
        kernel(1, 1, (out,), device=device)
        timer += out.tolist()
    assert timer == sorted(timer) and timer[0] < 100
    gaps = np.diff(timer)
    assert (gaps[0::2] >= 3_000).all()
    # Measured: validate/silicon/launch_gap.json, within the tail of the kernel.
    silicon = silicon_results("launch_gap")["132 CTAs of 12 warps, 160 KB, clusters of 1"]
    assert (silicon[0] <= gaps[1::2]).all() and (gaps[1::2] <= silicon[2] + 100).all(), gaps


def test_ranks_in_shared_addresses():
    body = """
    .shared .align 4 .b8 s[64]; .reg .b32 %r_value, %a, %b, %c; .reg .b64 %g, %h;
    mov.u32 %a, s; mov.u32 %b, 1; mapa.shared::cluster.u32 %a, %a, %b; getctarank.shared::cluster.u32 %r_value, %a;
    cvt.u64.u32 %g, %a; cvta.shared::cluster.u64 %g, %g; getctarank.u64 %c, %g; mad.lo.u32 %r_value, %c, 10, %r_value;
    mov.u32 %b, 0; mapa.u64 %h, %g, %b; getctarank.u64 %c, %h; mad.lo.u32 %r_value, %c, 100, %r_value;
"""
    out = zeros(64)
    launch(entry("u64 out", body + STORE_THREAD), (out,), grid=2, block=32, cluster=(2, 1, 1))
    assert out.tolist() == [11] * 64


@pytest.mark.parametrize("register", ["%pm0", "%nothing"])
def test_what_there_is_not_is_refused(register):
    with pytest.raises(h100sim.PtxError):
        read(register)


def test_the_reserved_start_of_shared_memory() -> None:
    """Measured: NVIDIA H200, driver 580.159, CUDA 13.0, 2026-11-30. Cooperative groups find zeros there and keep barriers there."""
    names = "begin", "end", "cap", "0", "1"
    moves = "\n".join(
        f"mov.u32 %r0, %reserved_smem_offset_{name}; st.global.u32 [%rd0+{4 * k}], %r0;" for k, name in enumerate(names)
    )
    body = f"""
        .reg .b32 %r<2>; .reg .b64 %rd0; ld.param.u64 %rd0, [out]; {moves}
        mov.u32 %r0, %reserved_smem_offset_1; ld.shared.u32 %r1, [%r0+4]; st.global.u32 [%rd0+20], %r1;
        bar.sync 0; st.shared.u32 [%r0+4], 7; ld.shared.u32 %r1, [%r0+4]; st.global.u32 [%rd0+24], %r1; ret;"""
    out = np.full(7, 99, np.uint32)
    found = launch(entry("u64 out", body), (out,), block=1)
    assert out.tolist() == [0, 288, 1024, 0, 0, 0, 7] and not found.hazards
