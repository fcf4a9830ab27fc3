"""Which SMs clusters get: as an H200 gave them, and within GPCs whatever the model."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import h100sim
from h100sim.devices import MODELS, model
from h100sim.errors import LaunchError
from h100sim.placement import ctas_per_sm, places, sm_groups

SILICON = json.loads((Path(__file__).parent.parent / "validate" / "silicon" / "cta_placement.json").read_text())["results"]


def test_gpcs_and_their_numbers_are_those_of_an_h200():
    gpcs, alone = sm_groups(model("h200-sxm"))
    assert [*gpcs, *alone] == SILICON["groups"]


@pytest.mark.parametrize("case", [name for name in SILICON if name != "groups"])
def test_clusters_get_the_sms_that_an_h200_gives_them(case):
    cluster, residents = map(int, re.findall(r"\d+", case))
    flat = SILICON[case]["sms"]
    there = [tuple(flat[k : k + cluster]) for k in range(0, len(flat), cluster)]
    here = places(model("h200-sxm"), cluster, residents)
    assert sorted(here) == sorted(there)
    # Which GPC comes first is the GPU's choice; within each, clusters come in the same order.
    for group in SILICON["groups"]:
        assert [c for c in here if c[0] in group] == [c for c in there if c[0] in group]


@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from([None, 1, 2, 3, 7, 16, 40, 131, 150]),
    st.integers(1, 16),
    st.integers(1, 4),
)
def test_no_cluster_leaves_its_gpc_and_no_sm_holds_too_many(name, sms, cluster, residents):
    device = MODELS[name] if sms is None else replace(MODELS[name], sms=sms)
    gpcs, alone = sm_groups(device)
    assert sorted(sm for group in (*gpcs, *alone) for sm in group) == list(range(device.sms))
    if cluster > max(map(len, gpcs)):
        with pytest.raises(LaunchError, match="largest GPC"):
            places(device, cluster, residents)
        return
    found = places(device, cluster, residents)
    assert all(any(set(c) <= set(group) for group in (*gpcs, *alone)) and len(set(c)) == cluster for c in found)
    counts = Counter(sm for c in found for sm in c)
    assert max(counts.values()) <= residents
    # No GPC has room for one more.
    for group in (*gpcs, *alone):
        free = residents * len(group) - sum(counts[sm] for sm in group)
        assert free < cluster or len(group) < cluster


def test_registers_and_shared_memory_limit_the_ctas_of_an_sm():
    limits = model("h200-sxm").limits
    assert ctas_per_sm(limits, 384, 168, 200 * 1024) == 1
    assert ctas_per_sm(limits, 128, 32, 0) == 16
    assert ctas_per_sm(limits, 128, 32, 100 * 1024) == 2
    with pytest.raises(LaunchError, match="registers of a CTA must be at most 65,536"):
        ctas_per_sm(limits, 1024, 128, 0)


def test_clusters_of_sixteen_take_two_waves_where_not_all_find_a_gpc():
    text = """.version 8.0\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out) .maxntid 32, 1, 1 {
    .reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .pred %p;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %smid;
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r1;
    ret;
}"""
    kernel = h100sim.RawModule(code=text).get_function("k")
    kernel.max_dynamic_shared_size_bytes = 200 * 1024
    device = h100sim.Device("h200-sxm")
    sms = np.zeros(128, np.int32)
    run = kernel((128,), (32,), (sms,), cluster=(16, 1, 1), shared_mem=200 * 1024, device=device)
    clusters = [set(row) for row in sms.reshape(8, 16).tolist()]
    assert len(set.union(*clusters)) == 7 * 16
    starts = run.trace.ctas["start"]
    assert (starts[: 7 * 16] == starts[0]).all() and (starts[7 * 16 :] > starts[0]).all()


@pytest.mark.parametrize(
    ("directive", "registers"), [(".maxnreg 16", 24), (".maxnreg 168", 168), (".maxnreg 256", 128), (".maxntid 65535, 1, 1", 24)]
)
def test_registers_at_entry_are_those_that_ptxas_takes(directive: str, registers: int) -> None:
    text = f".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry kernel() {directive} {{ ret; }}\n"
    session = h100sim.RawModule(code=text).get_function("kernel").prepare(1, 128, ())
    assert session.machine.launch.registers == registers
