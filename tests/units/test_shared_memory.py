"""Accesses to shared memory take as many cycles here as on silicon, and what they lost is in the trace and the report."""

from __future__ import annotations

import json

import numpy as np
import pytest

import h100sim
from h100sim import report
from h100sim.trace import Event
from validate import probes
from validate.probes.shared_wavefronts import ACCESSES, wavefronts

CAPTURED = json.loads((probes.SILICON / "shared_wavefronts.json").read_text())["results"]


@pytest.mark.parametrize("name", ["ld.b32", "ld.b128", "st.b64", "ldmatrix.x2", "stmatrix.x4.trans"])
def test_the_probe_finds_here_what_it_found_on_silicon(name):
    launch, _ = probes._launcher("sim")
    here, there = wavefronts(launch, ACCESSES[name], repeats=1), CAPTURED[name]
    assert list(here) == list(there)
    # 16-byte loads take up to half a cycle more there.
    allowed = 0.5 if name == "ld.b128" else 0.25
    assert {p: (here[p], there[p]) for p in here if abs(here[p] - there[p]) > allowed} == {}


def test_stores_across_a_cluster_take_as_long_as_on_silicon():
    launch, _ = probes._launcher("sim")
    here, there = wavefronts(launch, ACCESSES["st.async.b64"], repeats=1), CAPTURED["st.async.b64"]
    error = np.abs([here[p] / there[p] - 1 for p in there])
    assert list(here) == list(there) and np.median(error) < 0.01 and error.max() < 0.2


def test_a_run_names_the_instruction_that_conflicts():
    text = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry column(.param .u64 out)
{
    .shared .align 1024 .b8 tile[4096];
    .reg .b32 %t, %row, %at;
    mov.u32 %t, %tid.x;
    mov.u32 %at, tile;
    shl.b32 %row, %t, 7;
    add.u32 %row, %row, %at;
    st.shared.b32 [%row], %t;
    shl.b32 %t, %t, 2;
    add.u32 %t, %t, %at;
    st.shared.b32 [%t], %row;
    ret;
}
"""
    run = h100sim.RawModule(code=text).get_function("column")((1,), (32,), (np.zeros(1, np.uint32),))
    (conflict,) = run.trace.of(Event.BANK_CONFLICT)
    assert (conflict["a"], conflict["b"]) == (32, 1)
    rows = [(x.place, x.wavefronts, x.without_conflicts) for x in report.summarise(run.trace).shared_memory]
    assert rows == [("line 12", 32, 1), ("line 15", 1, 1)]


@pytest.mark.parametrize(
    ("access", "result"),
    [
        ("ld.shared.b32 %at, [%at];", "%at"),
        ("ld.shared.v2.b32 {%at, %t}, [%at];", "%at"),
        ("atom.shared.add.u32 %at, [%at], 1;", "%at"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%row, %at, %t, %x}, [%at];", "%row"),
    ],
)
def test_a_load_into_the_register_of_its_address_is_seen_where_it_was(access, result):
    text = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry gather(.param .u64 out)
{{
    .shared .align 1024 .b8 tile[1024];
    .reg .b32 %t, %row, %at, %x;
    .reg .b64 %out, %mine;
    mov.u32 %t, %tid.x;
    mov.u32 %at, tile;
    shl.b32 %row, %t, 4;
    add.u32 %at, %at, %row;
    mul.lo.u32 %row, %t, 100000;
    st.shared.v4.b32 [%at], {{%row, %row, %row, %row}};
    bar.warp.sync 0xffffffff;
    {access}
    ld.param.u64 %out, [out];
    mul.wide.u32 %mine, %row, 0;
    mov.u32 %t, %tid.x;
    mul.wide.u32 %mine, %t, 4;
    add.u64 %out, %out, %mine;
    st.global.b32 [%out], {result};
    ret;
}}
"""
    out = np.zeros(32, np.uint32)
    run = h100sim.RawModule(code=text).get_function("gather")((1,), (32,), (out,))
    place = 1024 + 16 * np.arange(32)
    accesses = run.trace.of(Event.MEMORY)
    seen = [run.trace.lanes[int(e["a"])].tolist() for e in accesses if int(e["pc"]) == accesses["pc"][1]]
    assert seen == [place.tolist()] and run.hazards == []
    assert np.array_equal(out, (np.arange(32) if result == "%at" else np.arange(32) // 4) * 100_000)
