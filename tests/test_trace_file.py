"""Traces in files: what was saved comes back, and what is damaged is refused when it is read, not where somebody looks at it."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from h100sim import critical_path, report
from h100sim.cli.target import execute, program_job
from h100sim.errors import UsageError
from h100sim.trace import Trace

Members = dict[str, Any]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a saved trace of a GEMM."""
    path = tmp_path_factory.mktemp("whole") / "gemm.h1t"
    execute(program_job("gemm", {"k": 128}, 0, "h100-sxm"), values="none").run.trace.save(path)
    with zipfile.ZipFile(path) as archive:
        arrays = {name: np.load(io.BytesIO(archive.read(f"{name}.npy"))) for name in ("events", "lanes", "warps", "ctas")}
        return {**arrays, "manifest": json.loads(archive.read("manifest.json"))}


def written(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in members.items():
            if name == "manifest":
                archive.writestr("manifest.json", json.dumps(value))
                continue
            buffer = io.BytesIO()
            np.save(buffer, value)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    return path


def look(trace: Trace, folder: Path) -> None:
    """Do with a trace what those do who look at it."""
    report.as_text(report.summarise(trace))
    critical_path.as_text(critical_path.critical_path(trace))
    trace.to_perfetto(folder / "x.pftrace")


@pytest.mark.parametrize(
    ("program", "config", "options"),
    [
        ("gemm", {}, {}),
        ("gemm", {"out": "f32"}, {"max_cycles": 2000}),
        ("attention", {}, {"values": "none"}),
        ("gemm_6_multicast", {"m": 4096, "n": 2048, "k": 64}, {"values": "none", "sms": "representative"}),
        ("gemm", {"m": 4096, "n": 4096, "k": 64}, {"values": "none", "max_cycles": 3000}),
    ],
)
def test_what_was_saved_comes_back(program: str, config: dict[str, Any], options: dict[str, Any], tmp_path: Path) -> None:
    trace = execute(program_job(program, config, 0, "h100-sxm"), **options).run.trace
    trace.save(tmp_path / "x.h1t")
    loaded = Trace.load(tmp_path / "x.h1t")
    for name in ("events", "lanes", "warps", "ctas"):
        assert np.array_equal(getattr(trace, name), getattr(loaded, name)), name
    assert (loaded.cycles, loaded.texts, loaded.hazards) == (trace.cycles, trace.texts, trace.hazards)
    for of in fields(trace.kernel):
        # JSON knows lists only.
        here, there = (json.dumps(getattr(t.kernel, of.name), sort_keys=True) for t in (trace, loaded))
        assert here == there, of.name
    look(loaded, tmp_path)


def damaged(members: Members, seed: int) -> Members:
    """Return the members with one thing in them changed."""
    dice, found = random.Random(seed), dict(members)
    name = dice.choice(sorted(members))
    if name == "manifest":
        found[name] = json.loads(json.dumps(members[name]))
        where = dice.choice([found[name], found[name]["kernel"]])
        where[dice.choice(sorted(where))] = dice.choice([None, -1, 0, "x", [], {}, 1e300, [[]], True, [None]])
    elif name == "lanes" or dice.random() < 0.2:
        array = members[name]
        forms = [array[:0], array[: len(array) // 2], array.reshape(-1, 1), np.zeros(5), np.zeros(len(array), np.int64)]
        found[name] = dice.choice(forms)
    else:
        found[name] = members[name].copy()
        column = found[name][dice.choice(members[name].dtype.names)]
        column[dice.randrange(len(column))] = np.int64(dice.choice([-1, -1000, 10**6, 2**31 - 1, -(2**31)])).astype(column.dtype)
    return found


def test_damage_is_refused_or_harms_nobody(members: Members, tmp_path: Path) -> None:
    refused = 0
    for seed in range(150):
        try:
            trace = Trace.load(written(tmp_path / "x.h1t", damaged(members, seed)))
        except UsageError as error:
            assert error.message.startswith("trace file must be one that h100sim wrote, not ") and error.message.endswith(")")
            refused += 1
        else:
            look(trace, tmp_path)
    assert 75 < refused < 150


def changed(member: str, column: str, value: int) -> Callable[[Members], Any]:
    def change(members: Members) -> None:
        members[member][column][-1] = value

    return change


def of_kernel(name: str, value: Any) -> Callable[[Members], Any]:
    return lambda members: members["manifest"]["kernel"].update({name: value})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed("events", "kind", 99), "its events must be of kinds that there are"),
        (changed("events", "cta", 4), "cta in its events must be from -1 to 3, not 4"),
        (changed("warps", "rank", -1), "rank in its warps must be from 0 to 11, not -1"),
        (changed("ctas", "cta", 7), "its ctas must be numbered from 0 on"),
        (lambda m: m.update(lanes=m["lanes"].ravel()), "its lanes must be a table as h100sim writes it, not int64 ("),
        (lambda m: m.update(warps=m["warps"][:24]), "its warps must be 12 for each CTA, not 24 in all"),
        (lambda m: m.pop("events"), "there is no item named 'events.npy' in the archive"),
        (of_kernel("clock_mhz", 0), "its kernel must have a clock_mhz as h100sim writes it, not 0"),
        (of_kernel("grid", [1, 1]), "its kernel must have a grid as h100sim writes it, not (1, 1)"),
        (of_kernel("lines", [1]), "its kernel must have a line, an opcode and a source for each instruction"),
        (lambda m: m["manifest"].update(cycles=1.5), "its cycles must be an integer, not 1.5"),
        (lambda m: m["manifest"].update(format="other"), "its manifest must be that of a trace, not of something else"),
    ],
)
def test_what_is_wrong_is_said(change: Callable[[Members], Any], reason: str, members: Members, tmp_path: Path) -> None:
    copy = {name: json.loads(json.dumps(value)) if name == "manifest" else value.copy() for name, value in members.items()}
    change(copy)
    path = written(tmp_path / "x.h1t", copy)
    with pytest.raises(UsageError) as found:
        Trace.load(path)
    assert found.value.message.startswith(f"trace file must be one that h100sim wrote, not {path} ({reason}")


def test_files_that_are_no_traces_say_why(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no zip")
    for name, reason in (("none", "No such file or directory"), (".", "Is a directory"), ("text", "File is not a zip file")):
        with pytest.raises(UsageError) as found:
            Trace.load(tmp_path / name)
        assert found.value.message == f"trace file must be one that h100sim wrote, not {tmp_path / name} ({reason})"


def test_a_trace_of_a_newer_version_is_told_apart(members: Members, tmp_path: Path) -> None:
    newer = {**members, "manifest": {**members["manifest"], "version": 2}}
    with pytest.raises(UsageError, match=r"^trace format must be at most version 1, not 2$"):
        Trace.load(written(tmp_path / "x.h1t", newer))


def test_a_file_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    trace = execute(program_job("copy", {}, 0, "h100-sxm"), values="none").run.trace
    path = tmp_path / "none" / "x.h1t"
    with pytest.raises(UsageError) as found:
        trace.save(path)
    assert found.value.message == f"file must be one that can be written, not {path} (No such file or directory)"
    with pytest.raises(UsageError, match=r"^path must be a str or a Path, not 4$"):
        trace.save(4)  # type: ignore[arg-type]
