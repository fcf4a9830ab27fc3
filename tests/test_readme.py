"""The README does what it says: its program runs, its commands exist, what it calls not done is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import h100sim
from h100sim.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def section(title: str) -> str:
    return re.split(r"\n## ", README.split(f"\n## {title}\n", 1)[1], maxsplit=1)[0]


def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DSL reads its source lines, so the program stands in a file of its own."""
    path = tmp_path / "readme_program.py"
    path.write_text(blocks("python")[0])
    space: dict = {"__name__": "readme_program"}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), space)
    assert np.array_equal(space["x"], space["y"])
    assert space["tile_copy"].last_run.hazards == []


def test_the_commands_exist() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = {line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("h100sim ")}
    assert named and named <= known


def test_the_files_exist() -> None:
    named = re.findall(r"`((?:docs|h100sim|viz|validate|tk_programs|tests)/[\w/]+(?:\.\w+)?)`", README)
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert [name for name in (*named, *images) if not (ROOT / name).exists()] == []


def not_done() -> list[str]:
    """Return the instructions that the section "Not done" names: code in backquotes that begins with a mnemonic."""
    return re.findall(r"`([a-z][\w.:]*)`", section("Not done"))


@pytest.mark.parametrize("opcode", not_done())
def test_what_is_not_done_is_refused_by_name(opcode: str) -> None:
    text = HEADER + f".visible .entry kernel()\n{{\n.reg .b32 %r<4>;\n{opcode} %r1, %r2;\n}}\n"
    with pytest.raises(h100sim.PtxError) as caught:
        _ = h100sim.RawModule(code=text).get_function("kernel").program
    assert opcode.split(".")[0] in caught.value.message
