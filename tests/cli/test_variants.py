"""``whatif``: the launch as it is beside every combination of other values, by role, and what cannot be run says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from h100sim.cli import execute_command, variants
from h100sim.errors import UsageError


def whatif(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[dict[str, Any]]:
    assert execute_command(["whatif", *words, "--json"]) == status
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == "whatif"
    return found["variants"]


def test_every_combination_of_values_is_tried() -> None:
    assert variants.combinations(["stages=1,2", "out=bf16,f32"]) == [
        ("stages=1", "out=bf16"), ("stages=1", "out=f32"), ("stages=2", "out=bf16"), ("stages=2", "out=f32"),
    ]  # fmt: skip
    assert variants.combinations(["a=(1, 2),(3, 4)"]) == [("a=(1, 2)",), ("a=(3, 4)",)]


@pytest.mark.parametrize("texts", [["stages"], ["stages="], ["=1"], ["a=1", "a=2"], ["a=1,,2"]])
def test_what_to_vary_must_be_named_values(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^--vary must "):
        variants.combinations(texts)


def test_one_stage_waits_for_tma_and_a_slower_engine_for_its_latency(capsys: pytest.CaptureFixture[str]) -> None:
    first, one, slow = whatif(capsys, "gemm", "--set", "k=512", "--vary", "stages=1", "--vary", "tma.latency_cycles=244,800")
    assert first["settings"] == [] and first["change"] == 0
    assert one["settings"] == ["stages=1", "tma.latency_cycles=244"]
    assert one["cycles"] > 1.5 * first["cycles"] and one["change"] == pytest.approx(one["cycles"] / first["cycles"] - 1)
    waits = [of["changes_of_roles"]["consumer 0"]["full: TMA latency"] for of in (one, slow)]
    assert waits[1] - waits[0] == pytest.approx(8 * (800 - 244), rel=0.1)
    assert one["changes_of_roles"]["producer"]["empty"] > 0


def test_the_changes_of_a_role_add_up_to_how_much_longer_it_lives(capsys: pytest.CaptureFixture[str]) -> None:
    first, other = whatif(capsys, "gemm", "--set", "m=128", "--set", "n=128", "--vary", "stages=1")
    longer = {role: sum(changes.values()) for role, changes in other["changes_of_roles"].items()}
    assert any(cycles == pytest.approx(other["cycles"] - first["cycles"], abs=20) for cycles in longer.values())


def test_a_variant_that_cannot_be_run_says_why_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    _, fits, too_many = whatif(capsys, "gemm", "--vary", "stages=3,12")
    assert fits["status"] == "clean"
    assert too_many["status"] == "error" and too_many["error"]["message"].startswith("shared memory of a CTA must be at most")
    assert execute_command(["whatif", "gemm", "--vary", "stages=3,12"]) == 0
    text = capsys.readouterr().out
    assert "stages=12 cannot be run: shared memory of a CTA must be at most 232,448 bytes" in text
    assert text.count("fastest") == 1 and "      consumer 0: " in text


def test_a_variant_that_was_stopped_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    _, ran, stopped = whatif(capsys, "gemm", "--vary", "tma.latency_cycles=400,1000000000", status=1)
    assert ran["change"] > 0 and ran["changes_of_roles"]
    assert (stopped["status"], stopped["change"], stopped["changes_of_roles"]) == ("kernel-error", None, {})
    assert execute_command(["whatif", "gemm", "--vary", "tma.latency_cycles=400,1000000000"]) == 1
    row = capsys.readouterr().out.splitlines()[-3]
    assert "tma.latency_cycles=1000000000" in row and "%" not in row.partition("stopped: ")[0].rpartition("  ")[0]
    assert row.endswith("stopped: kernel must end within 134,217,728 cycles (max_cycles), but it had not ended")


def test_where_nothing_could_be_run_the_status_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    _, alone = whatif(capsys, "gemm", "--vary", "stages=99", status=2)
    assert alone["status"] == "error"
    whatif(capsys, "gemm", "--vary", "stages=99,2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gemm"], "whatif must be given what to try, such as --vary stages=1,2,4"),
        (["gemm", "--vary", "stags=1"], "setting of gemm must be one of m, n, k, "),
        (["gemm", "--vary", "tma.latency=1"], "number of the device must be one of "),
        (["gemm", "--set", "m=100", "--vary", "stages=1"], "m must be a multiple of 128, not 100"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["whatif", *words]) == 2
    assert capsys.readouterr().err.startswith(f"h100sim: {message}")
