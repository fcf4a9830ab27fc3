"""One SM for the whole GPU: how near the estimate comes, what it numbers, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from h100sim import RawModule, UsageError, representative
from h100sim.trace import Event
from tk_programs import gemm_5_two_consumers, gemm_6_multicast, gemm_8_tma_store, layernorm

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) {{
    .reg .b64 %a; .reg .b32 %x;
    ld.param.u64 %a, [p];
    {instruction}
    st.global.u32 [%a], %x;
    ret;
}}
"""


def run(program: Any, sms: str, **settings: int) -> Any:
    config = {**program.CONFIG, **settings}
    kernel = program.build(**config)
    kernel.run(*program.inputs(0, **config), values="none", checks="off", sms=sms)
    return kernel.last_run


@pytest.mark.parametrize(
    ("program", "settings"), [(gemm_5_two_consumers, {}), (gemm_6_multicast, {}), (gemm_8_tma_store, {"ctas": 132})]
)
def test_a_gemm_of_2048_is_estimated_within_five_percent(program: Any, settings: dict[str, int]) -> None:
    size = {"m": 2048, "n": 2048, "k": 2048, **settings}
    estimate, whole = run(program, "representative", **size), run(program, "all", **size)
    error = 100 * (estimate.cycles / whole.cycles - 1)
    assert abs(error) <= 5
    assert error == pytest.approx(representative.COMPARED[f"{program.__name__.rpartition('.')[2]} 2048^3"], abs=1)
    assert len(estimate.ctas) < len(whole.ctas) / 60


def test_one_sm_gets_every_wave_and_numbers_its_ctas_from_zero() -> None:
    run_of_one = run(gemm_5_two_consumers, "representative", m=4096, n=2048, k=128)
    trace = run_of_one.trace
    assert len(trace.ctas) == len(run_of_one.ctas) == 2  # 256 CTAs on 132 SMs
    assert trace.ctas["cta"].tolist() == [0, 1] and (trace.ctas["sm"] == 0).all()
    assert trace.ctas["start"][1] >= trace.ctas["end"][0] > 0
    assert trace.warps["cta"].tolist() == [0] * 12 + [1] * 12
    assert set(np.unique(trace.events["cta"])) <= {-1, 0, 1} and trace.events["warp"].max() == 23
    assert set(trace.of(Event.MBARRIER_INITIALISED)["b"].tolist()) == {0, 1}
    assert "2 of 256 CTAs ran, those of 1 SM" in representative.as_text(trace)


def test_how_far_off_an_estimate_may_be_is_what_launches_like_it_were() -> None:
    trace = run(gemm_5_two_consumers, "representative", m=2048, n=2048, k=2048).trace
    known = representative.accuracy(trace)
    assert known.is_compute and known.errors == representative.COMPARED
    assert 0.99 * trace.cycles < known.least <= trace.cycles <= known.most < 1.1 * trace.cycles
    text = representative.as_text(trace)
    assert f"All SMs (--sms all) take {known.least:,} to {known.most:,} cycles" in text and "busy at least 25% of the time" in text


def test_the_estimate_of_a_kernel_that_moves_data_says_how_wrong_it_is() -> None:
    estimate, whole = run(layernorm, "representative", rows=16384), run(layernorm, "all", rows=16384)
    known = representative.accuracy(estimate.trace)
    assert not known.is_compute and known.errors == representative.COMPARED_MEMORY
    error = 100 * (estimate.cycles / whole.cycles - 1)
    assert error == pytest.approx(representative.COMPARED_MEMORY["layernorm rows=16384"], abs=1)
    assert known.least <= whole.cycles <= 1.01 * known.most
    assert f"{known.least:,} to {known.most:,} cycles" in representative.as_text(estimate.trace)
    assert "-26.4 % (layernorm rows=16384) to -11.6 % (softmax rows=16384)" in representative.as_text(estimate.trace)


def test_a_cluster_runs_whole() -> None:
    trace = run(gemm_6_multicast, "representative", m=2048, n=2048, k=128).trace
    assert trace.ctas["sm"].tolist() == [0, 1] and trace.ctas["cluster_rank"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "instruction",
    ["atom.global.add.u32 %x, [%a], 1;", "ld.acquire.gpu.global.u32 %x, [%a];", "ld.volatile.global.u32 %x, [%a];"],
)
def test_ctas_that_may_wait_for_each_other_are_refused(instruction: str) -> None:
    kernel = RawModule(code=PTX.format(instruction=instruction)).get_function("k")
    with pytest.raises(UsageError, match="sms must be all for a kernel whose CTAs may wait for each other"):
        kernel((1,), (32,), (np.zeros(1, np.uint32),), values="none", sms="representative")


def test_ordinary_loads_are_not_and_values_must_be_none() -> None:
    kernel = RawModule(code=PTX.format(instruction="ld.global.u32 %x, [%a];")).get_function("k")
    assert kernel((300,), (32,), (np.zeros(1, np.uint32),), values="none", sms="representative").cycles > 0
    with pytest.raises(UsageError, match="values must be none"):
        kernel((1,), (32,), (np.zeros(1, np.uint32),), sms="representative")
    with pytest.raises(UsageError, match="sms must be one of all, representative, not 'some'"):
        kernel((1,), (32,), (np.zeros(1, np.uint32),), values="none", sms="some")
