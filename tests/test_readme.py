"""The README does what it says: its programs run, its commands exist, what it calls refused is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import h100sim
from h100sim.cli import app, execute_command

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


def test_the_kernel_in_ptx_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What it writes lands in another folder; the kernel's text is found as from the root of the repository."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    exec(blocks("python")[1], space)
    shown = capsys.readouterr().out.splitlines()[0]
    assert shown == f"<Run of square on h100-sxm: {space['run'].cycles:,} cycles, 8 CTAs, no hazards> [] True"
    assert (tmp_path / "square.pftrace").stat().st_size > 1000
    assert space["stopped"].registers(0)["%i"].tolist() == list(range(32))


def test_the_lines_about_the_kernel_in_ptx_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    lines = [line.partition("#")[0].split() for block in blocks("sh") for line in block.splitlines()]
    ours = [words[1:] for words in lines if "docs/square.ptx" in words]
    assert [words[0] for words in ours] == ["run", "check"]
    assert [execute_command(words) for words in ours] == [0, 0]
    assert np.count_nonzero(np.load(tmp_path / "y.npy")) == 1024


def test_the_commands_exist() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = {line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("h100sim ")}
    assert named and named <= known


def test_the_files_exist() -> None:
    named = re.findall(r"`((?:docs|h100sim|viz|validate|tk_programs|tests)/[\w/]+(?:\.\w+)?)`", README)
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert [name for name in (*named, *images) if not (ROOT / name).exists()] == []


def refused() -> list[str]:
    """Return the instructions that the list of what is refused names: code in backquotes that begins with a mnemonic."""
    text = section("What is refused")
    return re.findall(r"`([a-z][\w.:]*)`", text[text.index("\n- ") : text.index("\n\nWhat is approximated")])


@pytest.mark.parametrize("opcode", refused())
def test_it_is_refused_by_name(opcode: str) -> None:
    operands = "[%d1], %d2, 0" if opcode == "st.bulk" else "%r1, %r2"
    text = HEADER + f".visible .entry kernel()\n{{\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n{opcode} {operands};\n}}\n"
    with pytest.raises(h100sim.PtxError) as caught:
        _ = h100sim.RawModule(code=text).get_function("kernel").program
    assert opcode.split(".")[0] in caught.value.message
    assert re.search(r"simulated|sm_90a has|must have \.sync|must be one of|C of the type of D", caught.value.message)
