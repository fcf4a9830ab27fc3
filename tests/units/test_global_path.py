"""The way of loads and stores out of an SM: L1, posted stores, the network of the cluster."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim import RawModule
from tests.kernels import entry, launch, zeros
from validate import probes
from validate.probes import cluster_memory, global_access

#: 64 loads by one warp, ``{step}`` bytes apart, twice.
LOADS = """
    .reg .b64 %p, %q; .reg .b32 %x, %k, %n; .reg .pred %more; .shared .align 4 .b8 s[4]; ld.param.u64 %p, [p];
    mov.u32 %n, 0;
AGAIN:
    mov.u64 %q, %p; mov.u32 %k, 0;
LOOP:
    ld{how}.u32 %x, [%q]; add.u64 %q, %q, {step}; st.volatile.shared.u32 [s], %x; add.u32 %k, %k, 1;
    setp.lt.u32 %more, %k, 64; @%more bra LOOP;
    add.u32 %n, %n, 1; setp.lt.u32 %more, %n, 2; @%more bra AGAIN;
"""


@pytest.mark.parametrize(
    ("how", "asks_again"), [(".global", False), (".global.ca", False), (".global.cg", True), (".volatile.global", True)]
)
def test_loads_that_may_find_lines_in_l1(how: str, asks_again: bool) -> None:
    kernel = RawModule(code=entry("u64 p", LOADS.format(how=how, step=512))).get_function("kernel")
    session = kernel.prepare(1, 1, (zeros(32768),), checks="off")
    session.machine.start()
    session.machine.run()
    sectors = session.machine.tables["l1_sectors"]
    assert bool((sectors["sector"] != 0).sum() == 64) != asks_again


def test_a_small_store_is_not_held_where_other_sms_saturate_l2() -> None:
    """One warp of each SM stores 4 bytes while all copy engines store: it goes on at once, as its store is posted."""
    body = """
    .shared .align 128 .b8 s[32768]; .reg .b64 %p, %q, %a, %b; .reg .b32 %c, %t; .reg .pred %z; ld.param.u64 %p, [p];
    mov.u32 %c, %ctaid.x; mul.wide.u32 %q, %c, 32768; add.u64 %q, %q, %p; mov.u32 %t, %tid.x; setp.ne.u32 %z, %t, 0; @%z ret;
    cp.async.bulk.global.shared::cta.bulk_group [%q], [s], 32768; cp.async.bulk.commit_group;
    mov.u64 %a, %clock64; st.global.u32 [%q], %t; mov.u64 %b, %clock64; cp.async.bulk.wait_group 0;
    sub.s64 %b, %b, %a; st.global.u64 [%q+8], %b;
    """
    data = zeros(132 * 8192)
    launch(entry("u64 p", body), (data,), grid=132, checks="off")
    assert data.view(np.uint64).reshape(132, -1)[:, 1].max() < 100


@pytest.mark.parametrize("cluster", [2, 8])
def test_accesses_to_another_cta_take_as_long_as_on_silicon(cluster: int) -> None:
    there = probes.silicon_results("cluster_memory")
    run, _ = probes._launcher("sim")
    out = np.zeros((cluster, 2 * cluster_memory.LOADS), np.uint32)
    threads = 32 * cluster_memory.WARPS
    arguments = [out, np.uint32(0)]
    run(cluster_memory.kernel(cluster, "latency"), "probe", (cluster, 1, 1), (threads, 1, 1), arguments, cluster=(cluster, 1, 1))
    own, other = (float(np.median(out[:, k * 16 + 1 : (k + 1) * 16])) for k in range(2))
    assert [own, other] == pytest.approx(there[f"cluster of {cluster}, load, own and other"], rel=0.12)


@pytest.mark.parametrize("pattern", ["8 rows of 16 bytes", "8 rows of 16 bytes, 256 apart"])
def test_each_line_of_a_load_takes_a_cycle_of_its_own(pattern: str) -> None:
    """64 loads more of four warps, whether L1 has their lines or L2."""
    there = probes.silicon_results("global_access")
    run, _ = probes._launcher("sim")
    few, many = (np.array(global_access.cycles(run, pattern, 16, warps, repeats=1)) for warps in (4, 8))
    steps = np.subtract(there[f"{pattern}, 16 x 8"], there[f"{pattern}, 16 x 4"])
    assert (many - few)[2] == pytest.approx(steps[2], rel=0.1)
    assert (many - few)[3] == pytest.approx(steps[3], rel=0.15)
