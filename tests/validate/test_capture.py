"""Captures: written by a stand-in for the GPU, read back, and held against right and wrong results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from h100sim.errors import UsageError
from validate import capture, gpu


@pytest.fixture
def captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with a capture of the copy program, whose kernel the stand-in performs."""
    card = gpu.Card("a card", 132, "580.0", "13.0", "14.2.0", "2026-11-29")

    def run(kernel: Any, arrays: list[np.ndarray]) -> gpu.GpuRun:
        assert (arrays[1].view(np.uint8) == gpu.POISON).all(), "outputs must be poisoned before a launch"
        arrays[1][...] = arrays[0]
        return gpu.GpuRun(card, 0.1)

    def cta_cycles(kernel: Any, arrays: list[np.ndarray], warm_ups: int, launches: int) -> list[np.ndarray]:
        assert (arrays[1].view(np.uint8) == gpu.POISON).all(), "outputs must be poisoned for launches that are timed, too"
        return [np.array([1400 + 200 * (k & 1)]) for k in range(launches)]

    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(gpu, "cta_cycles", cta_cycles)
    monkeypatch.setattr(gpu, "card", lambda: card)
    path = capture.capture("copy", {"rows": 128}, tmp_path, seed=3)
    assert path == tmp_path / "copy_128.json"
    return tmp_path


def outputs() -> dict[str, np.ndarray]:
    import tk_programs

    return {"Y": tk_programs.copy.inputs(3, rows=128, cols=64)[0]}


def test_a_capture_says_where_when_and_of_what(captured: Path) -> None:
    facts = json.loads((captured / "copy_128.json").read_text())
    assert (facts["card"], facts["driver"], facts["date"]) == ("a card", "580.0", "2026-11-29")
    assert facts["config"] == {"rows": 128, "cols": 64}
    assert facts["inputs_sha256"]["X"] == facts["outputs_sha256"]["Y"]
    assert facts["cycles"] == {"date": "2026-11-29", "launches": capture.RECORDED, "cta_median": [1500]}
    assert capture.names(captured) == ["copy_128"]


def test_the_right_bits_have_no_differences(captured: Path) -> None:
    assert capture.differences(capture.load("copy_128", captured), outputs()) == []


def test_one_wrong_bit_is_found_and_shown(captured: Path) -> None:
    wrong = outputs()
    wrong["Y"].view(np.uint32)[127, 63] ^= 1
    (text,) = capture.differences(capture.load("copy_128", captured), wrong)
    assert text.startswith("Y differs from silicon\nY_64_0: 1 of 4,096 elements differ; the first:\n  [63, 63]: 0x")


def test_an_unknown_capture_is_told(captured: Path) -> None:
    with pytest.raises(UsageError, match=r"^capture must be one of copy_128, not gemm_1$"):
        capture.load("gemm_1", captured)
