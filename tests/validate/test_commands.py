"""``h100sim validate`` as somebody uses it who has no GPU: captures stand in, and everything else is told in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from h100sim.errors import UsageError
from validate import capture, gpu
from validate.commands import main


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def require() -> None:
        raise UsageError("a run on silicon must have a GPU")

    monkeypatch.setattr(gpu, "require", require)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_a_program_runs_beside_its_capture(capsys: pytest.CaptureFixture[str]) -> None:
    facts = capture.load("copy_64").facts
    status, found = answer(capsys, "run", "copy")
    assert (status, found["status"], found["capture"], found["differences"]) == (0, "same", "copy_64", [])
    silicon = float(np.mean(facts["cycles"]["cta_median"]))
    assert found["cycles"]["silicon"] == silicon
    assert found["cycles"]["error"] == pytest.approx(found["cycles"]["here"] / silicon - 1)
    assert main(["run", "copy"]) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "No GPU can be used here (a run on silicon must have a GPU)."
    assert text[1] == f"Silicon is the capture copy_64: {facts['card']}, driver {facts['driver']}, {facts['date']}."
    assert text[2] == "copy_64: every bit of the outputs is the same"
    assert text[3].startswith("Cycles of a CTA (mean of 1): ") and text[3].endswith("%)")


@pytest.mark.usefixtures("no_gpu")
def test_settings_that_were_not_captured_need_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "gemm", "--set", "m=384", "--set", "k=64"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("h100sim: gemm must be captured with these settings (captured: gemm_2048_f32, gemm_256, ")
    assert message.strip().endswith("where there is no GPU: a run on silicon must have a GPU")


@pytest.mark.usefixtures("no_gpu")
def test_a_wrong_bit_is_found_beside_a_capture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = capture.simulated

    def wrong(*given: Any, **options: Any) -> Any:
        outputs, run = right(*given, **options)
        next(iter(outputs.values())).reshape(-1).view(np.uint8)[5] ^= 1
        return outputs, run

    monkeypatch.setattr(capture, "simulated", wrong)
    status, found = answer(capsys, "run", "copy")
    assert (status, found["status"]) == (1, "different") and "differs from silicon" in found["differences"][0]


def test_with_a_gpu_bits_and_cycles_are_those_of_the_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is played by the simulator, its clock by a number."""

    def run(kernel: Any, arrays: list[np.ndarray]) -> Any:
        inputs = [x.copy() for x, a in zip(arrays, kernel.arguments, strict=True) if a.is_input]
        arrays[-1][...] = kernel.run(*inputs)
        return SimpleNamespace(card=SimpleNamespace(card="H"))

    monkeypatch.setattr(gpu, "require", lambda: (None, None))
    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(capture, "recorded_cycles", lambda *given: {"cta_median": [1000]})
    status, found = answer(capsys, "run", "copy")
    assert (status, found["status"], found["cycles"]["silicon"]) == (0, "same", 1000)
    assert found["cycles"]["here"] == float(np.mean(capture.simulated_cycles(capture.load("copy_64"))))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["probe", "nosuch"], "probe must be one of "),
        (["run", "gem"], "program must be one of "),
        (["run", "gemm", "--set", "foo=1"], "setting of gemm must be one of m, n, k, "),
        (["probe"], "validate: the following arguments are required: name"),
        (
            ["timeline", "copy", "--out", "/no/such/x.json"],
            "file must be one that can be written, not /no/such/x.json (there is no folder /no/such)",
        ),
        (
            ["probe", "barrier_round_trip", "--out", "/no/x"],
            "folder must be one that can be written, not /no/x (there is no folder /no)",
        ),
        (["probe", "all", "--out", "/dev/null"], "folder must be one that can be written, not /dev/null (it is a file)"),
        (["timeline", "copy", "--out", "/tmp"], "file must be one that can be written, not /tmp (it is a folder)"),
        (["run", "gemm", "--seed", "-1"], "--seed must be at least 0, not -1"),
        (["probe", "barrier_round_trip", "--out", "/proc/x"], "file must be one that can be used, not /proc/x (No such file or"),
        (
            ["overlay", "nothing.json", "x.json"],
            "timeline must be a readable JSON file, not nothing.json (No such file or directory)",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"h100sim: {message}") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "it has no traceEvents"),
        ('{"traceEvents": null}', "a value of it is of another type or too large"),
        ('{"sites": {}}', "it has no events"),
        (
            '[{"ph": "X", "pid": "CTA 0", "tid": "warp 1", "name": "a", "ts": 1e400, "dur": 1}]',
            "a value of it is of another type or too large",
        ),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"stringTable": [], "locationTable": [], "launches": []}', "it has no launch or names no place"),
        ('[{"ph": "X", "pid": "CTA 0", "tid": "warp 1", "name": "a", "ts": "q", "dur": 1}]', "a value of it cannot be read: "),
    ],
)
def test_a_trace_of_another_tool_that_is_damaged_says_how(
    text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.json").write_text(text)
    assert main(["overlay", str(tmp_path / "t.json"), str(tmp_path / "t.json")]) == 2
    assert f", not {tmp_path / 't.json'} ({reason}" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "message"), [(["--warp", "99"], "--warp"), (["--cta", "-1"], "--cta")])
def test_an_overlay_of_what_no_timeline_has_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    ranges = [{"ph": "X", "pid": "CTA 0", "tid": "warp 1", "name": "a", "ts": 1, "dur": 1}]
    path.write_text(json.dumps(ranges))
    assert main(["overlay", str(path), str(path), "--warp", "1"]) == 0
    capsys.readouterr()
    assert main(["overlay", str(path), str(path), *words]) == 2
    known = "1 to 1" if message == "--warp" else "0 to 0"
    assert capsys.readouterr().err == f"h100sim: {message} must be one that both timelines have ({known}), not {words[1]}\n"


def test_a_ptx_file_is_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", "docs/square.ptx"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("h100sim: program must be one of ") and message.endswith(", not docs/square.ptx\n")
    assert ".ptx file" not in message
