"""The page of the report: complete, the same for the same data, and asking nobody for anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from h100sim.errors import UsageError
from validate import accuracy, capture, overlay, page, probes
from validate.accuracy import Case
from validate.commands import main
from validate.timeline import Timeline

SWEEP = [f"gemm_k1024_stages{stages}" for stages in range(1, 7)]


def case(name: str, error: float) -> Case:
    facts = capture.load(name).facts
    return Case(facts["program"], name, 1000 * (1 + error), 1000, name in accuracy.FITTED)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*(case(name, 0.01 * k) for k, name in enumerate(SWEEP)), case("attention_1", -0.25), case("copy_64", 0.5)]


@pytest.fixture(scope="module")
def measured() -> list[Case]:
    laws = []
    for name in ("wgmma_rate", "tma_load_latency", "barrier_round_trip"):
        silicon = probes.silicon_answer(name)
        assert silicon is not None
        laws += [Case(name, key, 1.01 * value, value) for key, value in accuracy._numbers(name, silicon["results"]) if value]
    return laws


@pytest.fixture(scope="module")
def text(cases: list[Case], measured: list[Case]) -> str:
    return page.document(cases, measured, [{"capture": "copy_64", "differences": [], "bits_compared": True}])


def test_the_page_states_errors_and_where_silicon_comes_from(text: str) -> None:
    facts = capture.load("copy_64").facts
    assert f"<td>{facts['card']}</td><td>{facts['driver']}</td><td>{facts['cuda']}</td><td>{facts['date']}</td>" in text
    assert "probe" in text and "wgmma_rate, tma_load_latency, barrier_round_trip" in text
    rows = dict(
        re.findall(r"<tr><td>(copy_64|attention_1|gemm_k1024_stages2)</td>.*?<td class=\"number\">([+-][\d.]+%)</td>", text)
    )
    assert rows == {"copy_64": "+50.0%", "attention_1": "-25.0%", "gemm_k1024_stages2": "+1.0%"}
    assert re.search(r"gemm_k1024_stages2</td>.*?<td>held out</td>", text) and re.search(r"copy_64</td>.*?<td>fitted</td>", text)
    assert "<td>copy_64</td><td>every bit the same</td>" in text


def test_text_and_page_say_where_they_are_wrong_and_why(text: str, cases: list[Case]) -> None:
    wrong = [*cases, case("attention_delta", -0.3)]
    assert [(c.name, why.split(",")[0]) for c, why in accuracy.far_off(wrong)] == [
        ("copy_64", "not understood"), ("attention_delta", "it does little but load lines that are new"),
        ("attention_1", "not understood"),
    ]  # fmt: skip
    assert "    attention_1 -25.0%: not understood" in accuracy.as_text(wrong, []).splitlines()
    assert '<td>attention_1</td><td class="number">-25.0%</td><td>not understood</td>' in text
    assert set(accuracy.WHY) <= set(capture.timed())


def test_the_summary_is_that_of_the_text(text: str, cases: list[Case]) -> None:
    for title, chosen in accuracy.groups(cases):
        s = accuracy.summarise(chosen)
        row = f'<td>{title}</td><td class="number">{s.cases}</td><td class="number">{s.mean:.1%}</td><td class="number">{s.largest:.1%}'
        assert row in text
        assert f"{title}: {s.cases} cases, mean error {s.mean:.1%}, largest {s.largest:.1%}" in accuracy.as_text(cases, [])


def test_stages_are_a_curve_and_so_are_laws_along_a_quantity(cases: list[Case], measured: list[Case]) -> None:
    ((name, (curve,)),) = page._sweeps(cases)
    assert name.startswith("gemm m=256 n=256 k=1024") and curve.x == [1, 2, 3, 4, 5, 6]
    assert curve.here == pytest.approx([1000 * (1 + 0.01 * k) for k in range(6)]) and curve.there == [1000] * 6
    curves, along = page._along("wgmma_rate", [c for c in measured if c.group == "wgmma_rate"])
    assert along == "N" and len(curves) == 8 and curves[0].x == [8, 16, 32, 64, 96, 128, 192, 256]
    curves, along = page._along("tma_load_latency", [c for c in measured if c.group == "tma_load_latency"])
    assert [c.name for c in curves] == ["1 at a time", "2 at a time", "4 at a time", "8 at a time"] and along == "bytes of a box"
    assert page._along("barrier_round_trip", measured) == ([], "")


def test_the_timelines_of_silicon_are_laid_over_ones_made_here_event_by_event() -> None:
    recorded = dict(page.recorded())
    assert {"gemm_256", "attention"} <= set(recorded)
    there = Timeline.load(recorded["gemm_256"])
    here = page.simulated(there)
    found = list(overlay.pairs(here, there))
    assert len(found) == sum(len(overlay.settled(there.of_warp(*key))) for key in {(e.cta, e.warp) for e in there.events})
    waits, marks = page._spans(there, 0, 4)
    assert len(waits) > 8 and all(begin <= end for _, begin, end in waits) and len(marks) > 1
    assert {site.rsplit(" ", 1)[0] for site, _, _ in waits} == {"barrier", "wait", "wgmma wait", "bulk wait"}


def test_a_timeline_that_fits_no_kernel_says_so(tmp_path: Path) -> None:
    odd = Timeline("NVIDIA H200", "gemm", {0: "start 1"}, (), {"driver": "1"})
    odd.save(tmp_path / "timeline_odd.json")
    (text,) = page._overlaid(tmp_path / "timeline_odd.json")
    assert "It cannot be laid over one made here: " in text


def test_the_page_names_no_other_resource_and_is_the_same_for_the_same_data(
    text: str, cases: list[Case], measured: list[Case]
) -> None:
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r"(src|href)=|https?://|@import|url\(", outside)
    assert not re.search(r"<script[^>]*src=", text)
    assert page.document(cases, measured[:8]) == page.document(cases, measured[:8])


def test_a_page_that_cannot_be_written_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"^file must be one that can be written, not "):
        page.write(tmp_path / "no" / "page.html", "")
    assert main(["report", "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert capsys.readouterr().err.startswith("h100sim: file must be one that can be written, not ")


@pytest.mark.browser
def test_the_page_draws_every_figure_without_a_network(text: str, tmp_path: Path, watch) -> None:
    (tmp_path / "page.html").write_text(text)
    watched = watch()
    watched.page.goto((tmp_path / "page.html").as_uri())
    watched.page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length > 0")
    drawn, plots = (
        watched.page.evaluate(f"document.querySelectorAll('{selector}').length")
        for selector in (".js-plotly-plot .cartesianlayer .subplot", ".plotly-graph-div")
    )
    assert drawn == plots == 2 + 3 + 2 * len(page.recorded())
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 1280
