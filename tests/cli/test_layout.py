"""Pictures from the command line: an SVG file each, and the numbers behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from h100sim.cli import execute_command

WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"


@pytest.mark.parametrize(
    "words",
    [
        ["swizzle", "128B"],
        ["swizzle", "none", "--rows", "8", "--columns", "16", "--element-bytes", "4"],
        ["fragment", WGMMA, "d"],
        ["descriptor", WGMMA, "b", "0x4000004000010040"],
        ["banks", "stride:8", "--width", "8"],
        ["algebra", "(8,8):(8,1)", "--divide", "(2,4)"],
        ["box", "map:zeros:bf16:256x256;box=64x64;swizzle=128B", "--at", "224,192"],
    ],
    ids=lambda words: words[0],
)
def test_each_picture_is_an_svg_file(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.svg"
    assert execute_command(["layout", *words, "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_text().startswith("<svg")


def test_the_numbers_behind_a_swizzle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["layout", "swizzle", "128B", "-o", str(tmp_path / "s.svg"), "--json"]) == 0
    addresses = json.loads(capsys.readouterr().out)["addresses"]
    # Row 1 begins at chunk 1 of its 128 bytes: 128 + (0 ^ 1) * 16.
    assert addresses[0][:9] == [0, 2, 4, 6, 8, 10, 12, 14, 16] and addresses[1][0] == 144


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["swizzle", "100B"], "swizzle must be none, 32B, 64B or 128B, not 100B"),
        (["descriptor", WGMMA, "b", "x"], "descriptor must be a 64-bit integer, not x"),
        (["banks", "0,y"], "addresses must be integers such as 0,4,8 or stride:128, not 0,y"),
        (["box", "zeros:f32:4x4"], "tensor must be a map such as map:zeros:bf16:256x256;box=64x64, not zeros:f32:4x4"),
        (["swizzle", "32B", "-o", "/nowhere/x.svg"], "--out must be a file that can be written, not /nowhere/x.svg"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["layout", *words]) == 2
    assert capsys.readouterr().err.startswith(f"h100sim: {message}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algebra", "(6,2):(8,2)", "--compose", "(4,3):(3,1)"], {"layout": "((2,2),3):((24,2),8)"}),
        (["algebra", "4:2", "--complement", "24"], {"layout": "(2,3):(1,8)", "offsets": [0, 1, 8, 9, 16, 17]}),
        (["algebra", "(4,8):(8,1)", "--inverse"], {"layout": "(8,4):(4,1)"}),
        (["banks", "stride:128", "--kind", "matrix"], {"wavefronts": 32, "without_conflicts": 4}),
        (["banks", "stride:128", "--kind", "matrix", "--swizzle", "128B"], {"wavefronts": 4, "without_conflicts": 4}),
    ],
)
def test_the_numbers_behind(words: list[str], expected: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["layout", *words, "-o", str(tmp_path / "s.svg"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {key: answer[key] for key in expected} == expected
