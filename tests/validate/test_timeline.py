"""Timelines: the rewritten text computes the same, the assembler takes it, and two timelines can be laid over each other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import h100sim
from h100sim.errors import UsageError
from tests.validate.test_clocks import KERNEL
from validate import capture, commands, imports, overlay, timeline


@pytest.fixture(scope="module")
def copied() -> tuple[timeline.Timeline, np.ndarray, np.ndarray]:
    """Return the timeline of the copy program, and its two arrays afterwards."""
    kernel, arrays, _ = capture.build("copy", {}, seed=0)
    return timeline.record(kernel, arrays, on="sim"), *arrays


def test_a_warp_records_what_it_waits_for_and_issues(copied: tuple) -> None:
    found = copied[0]
    events = found.of_warp(0, 0)
    names = [found.sites[e.instruction].split()[0] for e in events]
    assert names[0] == "start" and names[-1] == "leave"
    assert {"init", "arrive", "copy", "wait"} <= set(names)
    assert [e.cycle for e in events] == sorted(e.cycle for e in events)


def test_the_end_of_a_wait_is_read_when_the_wait_is_over(copied: tuple) -> None:
    found = copied[0]
    waits = [e for e in found.of_warp(0, 0) if found.sites[e.instruction].startswith("wait")]
    assert waits[-1].side == "end" and waits[-1].cycle - waits[0].cycle > 100


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_the_assembler_accepts_it(tmp_path: Path) -> None:
    kernel = capture.build("gemm", {}, seed=0)[0]
    for k, (text, name) in enumerate(((kernel.ptx, kernel.name), (KERNEL, "leaves"))):
        path = tmp_path / f"{k}.ptx"
        path.write_text(timeline.add_records(text, name, ctas=4, warps=12))
        done = subprocess.run(["ptxas", "-arch=sm_90a", path, "-o", "/dev/null"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_records_do_not_change_what_a_kernel_computes() -> None:
    text = timeline.add_records(KERNEL, "leaves", ctas=2, warps=2, capacity=16)
    out = np.zeros(64, np.uint32)
    h100sim.RawModule(code=text).get_function("leaves")((2,), (64,), (out, np.uint32(40)))
    assert out.tolist() == [*range(40), *[0] * 24]


def test_lines_of_the_source_are_recorded_where_asked_for() -> None:
    kernel, arrays, _ = capture.build("copy", {}, seed=0)
    found = timeline.record(kernel, arrays, on="sim", names=(timeline.STATEMENT,))
    lines = [found.sites[e.instruction].split()[-1] for e in found.of_warp(0, 0)]
    assert len(set(lines)) > 4, "one record a line, not a record an event"
    assert not any(name.split()[0] == "copy" for name in (found.sites[e.instruction] for e in found.of_warp(0, 0)[:2]))


def test_only_the_events_that_are_asked_for_are_recorded() -> None:
    text = timeline.add_records(KERNEL, "leaves", ctas=1, warps=1, names=("copy",))
    assert text.count("st.global.v2.u32") == 3  # the start and both ways out


def test_a_timeline_is_written_and_read(copied: tuple, tmp_path: Path) -> None:
    copied[0].save(tmp_path / "t.json")
    assert timeline.Timeline.load(tmp_path / "t.json") == copied[0]
    (tmp_path / "u.json").write_text("[]")
    with pytest.raises(UsageError, match=r"^timeline must be a JSON file that validate timeline wrote, not "):
        timeline.Timeline.load(tmp_path / "u.json")


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(UsageError, match=r"^kernel must be an entry of the module with a body, not nowhere$"):
        timeline.add_records(KERNEL, "nowhere", ctas=1, warps=1)


def event(instruction: int, side: str, cycle: int) -> timeline.Event:
    return timeline.Event(0, 0, instruction, side, cycle)


def test_an_overlay_joins_the_tries_of_a_wait() -> None:
    sites = {1: "start 1", 2: "wait 5", 3: "leave 9"}
    once = (event(1, "end", 0), event(2, "begin", 10), event(2, "end", 90), event(3, "begin", 100))
    thrice = (
        event(1, "end", 0), event(2, "begin", 12), event(2, "end", 30), event(2, "begin", 32), event(2, "end", 50),
        event(2, "begin", 52), event(2, "end", 95), event(3, "begin", 99),
    )  # fmt: skip
    found = list(overlay.pairs(timeline.Timeline("a", "k", sites, once), timeline.Timeline("b", "k", sites, thrice)))
    assert [(p.name, p.side, p.here, p.there) for p in found] == [
        ("start 1", "end", 0, 0), ("wait 5", "begin", 10, 12), ("wait 5", "end", 90, 95), ("leave 9", "begin", 100, 99),
    ]  # fmt: skip
    assert [p.step_there for p in found] == [0, 12, 83, 4]
    assert overlay.by_name(found)[0][:2] == ("leave 9 begin", 1)


def test_timelines_of_different_kernels_are_not_laid_over_each_other() -> None:
    one, other = (timeline.Timeline("a", "k", {1: name}, ()) for name in ("start 1", "start 2"))
    with pytest.raises(UsageError, match=r"^timelines must have events in common, "):
        list(overlay.pairs(one, other))


def test_traces_of_other_tools_are_read(tmp_path: Path) -> None:
    iket = {
        "stringTable": ["load", "mma"],
        "locationTable": [{"smId": 3, "tpcId": 1, "gpcId": 0, "ctaId": 7, "warpId": 4}],
        "launches": [{"ranges": [
            {"rangeNameIdx": 1, "startTs": 1100, "endTs": 1400, "warpLocIdxs": [0]},
            {"rangeNameIdx": 0, "startTs": 1000, "endTs": 1090, "warpLocIdxs": [0]},
        ]}],
    }  # fmt: skip
    proton = {"traceEvents": [
        {"ph": "X", "name": "load", "pid": "gemm Core3 CTA7", "tid": "warp 4 (line 0)", "ts": 2.0, "dur": 0.1},
        {"ph": "X", "name": "mma", "pid": "gemm Core3 CTA7", "tid": "warp 4 (line 0)", "ts": 2.1, "dur": 0.32},
        {"ph": "M", "name": "process_name", "pid": 1},
    ]}  # fmt: skip
    for name, data in (("iket", iket), ("proton", proton)):
        (tmp_path / name).write_text(json.dumps(data))
    found = list(overlay.pairs(imports.load(tmp_path / "iket"), imports.load(tmp_path / "proton")))
    assert [(p.name, p.side, p.here, p.there) for p in found] == [
        ("load", "begin", 0, 0), ("load", "end", 90, 100), ("mma", "begin", 100, 100), ("mma", "end", 400, 420),
    ]  # fmt: skip


def test_a_file_that_is_no_timeline_is_refused(tmp_path: Path) -> None:
    for text, message in (
        ("{", "a readable JSON file"),
        ('{"a": 1}', "one of ours, an IKET JSON or a Chrome trace"),
        ("[]", "ranges of warps"),
    ):
        (tmp_path / "x").write_text(text)
        with pytest.raises(UsageError, match=f"^timeline must (be|have) {message}, not "):
            imports.load(tmp_path / "x")


def test_the_commands_write_and_compare_timelines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "copy.json"
    assert commands.main(["timeline", "copy", "--out", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"events of tile_copy on simulated h200-sxm, written to {path}\n")
    assert commands.main(["overlay", str(path), str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["exit_status"]) == ("clean", 0) and answer["events"] > 0


def test_timelines_with_different_records_are_told_apart() -> None:
    one = timeline.Timeline(
        "here", "k", {1: "wait 5", 2: "arrive 6"}, (timeline.Event(0, 0, 1, "begin", 1), timeline.Event(0, 0, 2, "end", 3))
    )
    other = timeline.Timeline("there", "k", {1: "wait 5"}, (timeline.Event(0, 0, 1, "begin", 1),))
    assert overlay.uneven_records(one, one) == ""
    assert overlay.uneven_records(one, other) == (
        "Records cost time, and these timelines have different ones (only here has arrive): make them anew with --event 'wait'."
    )
