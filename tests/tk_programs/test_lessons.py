"""The lessons: their pages ask, their modules measure, and what they measure supports their answers."""

from __future__ import annotations

import json
import re

import pytest

from h100sim.cli import execute_command
from tk_programs import lessons
from tk_programs.lessons import gemm_in_ptx, ping_pong, stages, tables, tma_by_hand, toolchain, triton_and_tk, wgmma_layout

CATALOG = lessons.catalog()


@pytest.mark.parametrize("lesson", CATALOG, ids=lambda lesson: lesson.name)
def test_a_page_has_a_title_and_asks_a_question(lesson):
    assert re.match(r"# \w", lesson.page) and len(lesson.title) > 10
    assert lesson.question.endswith("?")
    assert all(len(line) <= 132 for line in lesson.page.splitlines())


def test_the_lessons_are_listed_in_order(capsys):
    assert execute_command(["lesson", "--list"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("1  What one line of a GEMM becomes") and len(printed) == 2 * len(CATALOG)
    assert execute_command(["lesson", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["lessons"]
    assert [x["number"] for x in listed] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("words", [["lesson", "7"], ["lesson", "0"]])
def test_there_are_six(words, capsys):
    assert execute_command(words) == 2
    assert f"lesson must be from 1 to 6, not {words[1]}" in capsys.readouterr().err


def test_a_lesson_prints_its_page_its_measurements_and_its_answer(capsys, tmp_path):
    assert execute_command(["lesson", "4", "--pictures", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    page, measured, answer = re.split(r"## Measured|## Answer", printed)
    assert page.strip() == CATALOG[3].page.strip()
    assert "inside the tensor" in measured and "arrives whole" in answer
    assert (tmp_path / "new" / "tma_box.svg").read_text().startswith("<svg")


def test_lesson_1_finds_the_ptx_of_one_line():
    figures = gemm_in_ptx.measure()
    text = gemm_in_ptx.report(figures) + gemm_in_ptx.answer(figures)
    assert figures["is_right"] and figures["hazards"] == 0
    assert figures["ptx_opcodes"]["wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"] == 4
    assert figures["ptx"][-1] == "wgmma.commit_group.sync.aligned;"
    assert "is 4 `wgmma.mma_async`, each 16 deep" in text
    assert figures["seconds_to_ptx"] < 2
    if figures["sass"] is not None:
        assert sum(line.startswith("HGMMA.64x128x16.F32.BF16") for line in figures["sass"]) == 4
    if figures["seconds_of_nvcc"] is not None:
        assert figures["seconds_of_nvcc"] > figures["seconds_to_ptx"]


def test_a_tool_that_is_nowhere_is_none():
    assert toolchain.tool("no-such-tool-of-nvidia") is None


def test_lesson_2_shows_where_the_curve_flattens():
    figures = stages.measure()
    points = {(p["stages"], p["in_flight"]): p for p in figures["curves"]}
    assert all(p["is_right"] and p["hazards"] == 0 for p in points.values())
    cycles = {key: p["cycles"] for key, p in points.items()}
    assert cycles[1, 0] > 1.5 * cycles[2, 0] > 1.5 * 1.1 * cycles[3, 0]
    assert cycles[2, 1] > cycles[2, 0], "a product left running holds a slot, which two slots cannot spare"
    drained, running = ([p for p in figures["curves"] if p["in_flight"] == i] for i in (0, 1))
    assert 3 <= stages.flat_from(drained) <= stages.flat_from(running) <= 5
    assert "flat from" in stages.answer(figures) and "####" in stages.report(figures)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"stages": 1, "in_flight": 1}, "stages must be more than the 1 in flight, not 1"),
        ({"in_flight": 2}, "in_flight must be 0 or 1, not 2"),
    ],
)
def test_stages_that_cannot_be_are_refused(settings, message):
    with pytest.raises(stages.UsageError) as error:
        stages.build(**settings)
    assert error.value.message == message


def test_lesson_3_knows_every_register_and_every_byte(tmp_path):
    figures = wgmma_layout.measure(tmp_path)
    assert figures["registers_as_the_rule_says"] == figures["registers_checked"] == 64 * 64
    assert figures["bytes_as_the_rule_says"] == figures["bytes_checked"] == 64 * 64 * 2
    owner = (figures["warp"], figures["lane"], figures["register"])
    assert wgmma_layout.element_of(*owner) == (wgmma_layout.ROW, wgmma_layout.COL)
    assert (figures["swizzled_wavefronts"], figures["plain_wavefronts"]) == (1, 8)
    assert len(figures["pictures"]) == 4 and all((tmp_path / p).exists() for p in figures["pictures"])


def test_lesson_4_tries_edges_and_wrong_counts():
    figures = tma_by_hand.measure()
    outcomes = [(trial["outcome"], trial["is_right"]) for trial in figures["trials"]]
    assert outcomes[:3] == [("clean", True)] * 3
    assert [o for o, _ in outcomes[3:]] == ["IllegalInstruction", "DeadlockError", "DeadlockError"]
    assert "2,048 of 2,176 bytes" in figures["trials"][4]["said"]


def test_lesson_5_measures_the_gain():
    figures = ping_pong.measure()
    plain, turns, _, both = figures["ways"]
    assert all(way["is_right"] and way["same_bits"] and way["hazards"] == 0 for way in figures["ways"])
    assert both["cycles_of_a_block"] < 0.95 * plain["cycles_of_a_block"]
    assert turns["cycles_of_a_block"] < plain["cycles_of_a_block"]
    assert both["silicon_cycles"] < 0.95 * plain["silicon_cycles"] and turns["silicon_cycles"] < plain["silicon_cycles"]
    assert both["softmax_beside_products"] > plain["softmax_beside_products"]
    first, second = both["timeline"]
    together = sum(a in "#+" and b == "=" for a, b in zip(first + second, second + first, strict=True))
    assert together >= 12, "softmax of one must be seen beside products of the other"


def test_lesson_6_puts_triton_beside_tk():
    figures = triton_and_tk.measure()
    triton, ours = figures["kernels"]
    assert figures["same_bits"] and figures["is_right"] == [True, True]
    assert triton["hazards"] == ours["hazards"] == 0
    assert triton["counts"]["cp.async.cg"] and not ours["counts"]["cp.async.cg"]
    assert ours["counts"]["cp.async.bulk.tensor"] and not triton["counts"]["cp.async.bulk.tensor"]
    assert triton["stages"] == ours["stages"] == 3
    assert "the same bits" in triton_and_tk.answer(figures)


def test_a_table_puts_numbers_on_the_right():
    assert tables.table(("a", "n"), [("x", 1000), ("yy", 5)]).splitlines() == [
        "| a  | n     |".replace("n    ", "    n"),
        "|----|------:|",
        "| x  | 1,000 |",
        "| yy |     5 |",
    ]
