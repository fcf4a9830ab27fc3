"""The command line from words to exit status: what it prints, as text and as JSON, and what it says of wrong usage."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from h100sim.cli import execute_command, output, target
from h100sim.trace import Trace

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"

#: y[i] = 2 * x[i]
DOUBLE = (
    HEADER
    + """.visible .entry twice(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %i, %n, %cta, %size, %v;
    .reg .b64 %x, %y, %offset;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.u32 %n, [n];
    mov.u32 %i, %tid.x;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mad.lo.u32 %i, %cta, %size, %i;
    setp.ge.u32 %p, %i, %n;
    @%p bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.s64 %x, %x, %offset;
    add.s64 %y, %y, %offset;
    ld.global.u32 %v, [%x];
    add.u32 %v, %v, %v;
    st.global.u32 [%y], %v;
DONE:
    ret;
}
"""
)

#: One thread waits for a phase that nobody completes.
DEADLOCK = (
    HEADER
    + """.visible .entry forever()
{
    .shared .align 8 .b64 barrier;
    .reg .pred %p;
    .reg .b32 %b;
    mov.u32 %b, barrier;
    mbarrier.init.shared::cta.b64 [%b], 1;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra WAIT;
    ret;
}
"""
)


def ptx_file(folder: Path, text: str) -> str:
    path = folder / "kernel.ptx"
    path.write_text(text)
    return str(path)


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Run a command with --json and return its exit status and its one JSON object."""
    status = execute_command([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


# --- wrong usage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "gem"], "program must be one of "),
        (["run", "gemm", "--set", "rows=1"], "setting of gemm must be one of m, n, k, "),
        (["run", "gemm", "--set", "m=100"], "m must be a multiple of 128, not 100"),
        (["run", "gemm", "--set", "stages=12"], "shared memory of a CTA must be at most 232,448 bytes"),
        (["run", "gemm", "--set", "out=f16"], "out must be bf16 or f32, not f16"),
        (["run", "gemm", "--grid", "4"], "--grid must be used with a PTX file, not with the program gemm"),
        (["run", "gemm", "--device", "h100"], "device must be one of h100-sxm, h100-pcie, h200-sxm, not h100"),
        (["run", "gemm", "--values", "some"], "values must be one of exact, none, not 'some'"),
        (["run", "nowhere.ptx", "--grid", "1", "--block", "32"], "PTX file must be a readable text, not nowhere.ptx"),
        (["serve", "nowhere.h1t"], "trace must be a file that h100sim wrote, not nowhere.h1t (there is none)"),
        (["run"], "Missing argument"),
        (["run", "gemm", "--nonsense"], "No such option"),
        (["sing"], "No such command 'sing'"),
        (["run", "gemm", "--cluster", "2"], "--cluster must be used with a PTX file, not with the program gemm"),
        (["run", "gemm", "--seed", "-1"], "Invalid value for '--seed'"),
        (["run", "gemm", "--trace", "/no/such/folder/x.h1t"], "file must be one that can be written, not /no/such"),
        (["run", "copy", "--trace", "/dev/full"], "file must be one that can be written, not /dev/full"),
        (["run", "copy", "--max-cycles", "99999999999999999999"], "max_cycles must be from 1 to "),
        (["run", "gemm", "--set", "clock_mhz=0"], "clock_mhz must be a number from 1 to 100,000, not 0"),
        (
            ["run", "gemm", "--set", "k=100000000000"],
            "arrays of gemm must have at most 85,899,345,920 bytes in all, as an H100 has ",
        ),
        (
            ["run", "gemm", "--set", "m=1048576", "--set", "n=1048576"],
            "arrays of gemm must have at most 85,899,345,920 bytes in all",
        ),
        (
            ["run", "gemm", "--save", "0=c.npy", "--values", "none"],
            "--save must be used where every result is computed, not with --v",
        ),
        (
            ["run", "gemm", "--save", "0=c.npy", "--sms", "representative"],
            "--save must be used where every result is computed, not w",
        ),
        (["run", "x/g.h1t"], "PTX file must be a text, not the trace x/g.h1t (h100sim serve shows it)"),
        (["check", "a\0.ptx"], "PTX file must be a readable text"),
    ],
)
def test_wrong_usage_is_one_clear_sentence_and_status_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"h100sim: {message}")
    assert "Traceback" not in captured.err and captured.out == ""


def test_wrong_usage_with_json_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(["run", "gem"], capsys)
    assert (status, found["status"], found["exit_status"], found["command"]) == (2, "error", 2, "run")
    assert found["error"]["kind"] == "UsageError"


def test_a_ptx_error_has_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ptx_file(tmp_path, DOUBLE.replace("add.u32 %v", "add.u33 %v"))
    status, found = answer(["check", path], capsys)
    assert (status, found["error"]["kind"], found["error"]["line"]) == (2, "PtxError", 22)


def test_a_type_error_of_an_operand_names_the_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ptx_file(tmp_path, DOUBLE.replace("add.u32 %v", "add.u32 %x"))
    assert execute_command(["check", path]) == 2
    assert f"{path}:22:5" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("h100sim 0.")


def test_a_saved_trace_keeps_what_the_checks_found(tmp_path: Path) -> None:
    racing = DOUBLE.replace("mov.u32 %i, %tid.x", "mov.u32 %i, 0").replace("mov.u32 %cta, %ctaid.x", "mov.u32 %cta, 0")
    words = ["--grid", "1", "--block", "64", "--arg", "arange:u32:64", "--arg", "zeros:u32:64", "--arg", "i32:64"]
    saved = tmp_path / "racing.h1t"
    assert execute_command(["run", ptx_file(tmp_path, racing), *words, "--checks", "strict", "--trace", str(saved)]) == 1
    hazards = Trace.load(saved).hazards
    assert hazards and hazards[0].kind == "race" and hazards[0].first is not None
    assert execute_command(["run", ptx_file(tmp_path, racing), *words, "--trace", str(saved), "--checks", "off"]) == 0
    assert Trace.load(saved).hazards is None


# --- what starts quickly ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["list"], ["run", "gemm", "--set", "m=1"], ["validate", "--help"]])
def test_help_lists_and_usage_errors_load_no_compiler(words: list[str]) -> None:
    code = (
        f"import sys; from h100sim.cli import execute_command\n"
        f"try: execute_command({words!r})\nexcept SystemExit: pass\n"
        "assert not {'numba', 'dash', 'networkx'} & sys.modules.keys(), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_list_as_json_names_programs_and_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(["list"], capsys)
    programs = {program["name"]: program for program in found["programs"]}
    assert status == 0 and programs["gemm"]["config"]["m"] == 256 and programs["gemm"]["teaches"]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_ptx_file_runs_and_its_arrays_are_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ptx_file(tmp_path, DOUBLE)
    words = ["--grid", "2", "--block", "64", "--arg", "arange:u32:100", "--arg", "zeros:u32:100", "--arg", "i32:100"]
    status, found = answer(["run", path, *words, "--save", f"1={tmp_path}/y.npy"], capsys)
    assert (status, found["status"], found["kernel"], found["grid"]) == (0, "clean", "twice", [2, 1, 1])
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2 * np.arange(100))
    assert found["cycles"] == found["report"]["cycles"] > 0


def test_a_file_needs_its_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["run", ptx_file(tmp_path, DOUBLE)]) == 2
    assert capsys.readouterr().err == "h100sim: a PTX file must be given --grid and --block\n"


def test_check_of_a_file_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["check", ptx_file(tmp_path, DOUBLE)]) == 0
    assert "1 kernel (twice), valid for sm_90a" in capsys.readouterr().out


def test_numbers_of_the_whole_device_are_settings_too(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(["run", "gemm", "--set", "clock_mhz=1000", "--set", "sms=1"], capsys)
    assert (status, found["report"]["clock_mhz"], found["report"]["sms"]) == (0, 1000, 1)
    assert found["what_if"]["changes"] == {"clock_mhz": 1000, "sms": 1}
    assert found["what_if"]["change"] == pytest.approx(found["cycles"] / found["what_if"]["cycles_before"] - 1) != 0


@pytest.mark.parametrize("array", [np.array(["one", "two"]), np.array(["2026-01-01"], "M8[D]")])
def test_a_file_must_hold_numbers(array: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", array)
    words = ["--grid", "1", "--block", "32", "--arg", f"file:{tmp_path}/x.npy"]
    assert execute_command(["run", ptx_file(tmp_path, DOUBLE), *words]) == 2
    expected = f"h100sim: argument file must hold numbers, not {tmp_path}/x.npy of {array.dtype}\n"
    assert capsys.readouterr().err == expected


def test_a_saved_bf16_array_says_how_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.npy"
    words = ["run", "gemm", "--set", "k=64", "--save", f"0={path}"]
    assert execute_command(words) == 0
    said = f"Saved {path}: bfloat16 256x256; numpy.load gives |V2, so add .view(ml_dtypes.bfloat16)"
    assert said in capsys.readouterr().out.splitlines()
    assert np.load(path).view(ml_dtypes.bfloat16).astype(np.float32).std() > 1
    assert answer(words, capsys)[1]["saved"] == [{"path": str(path), "dtype": "bfloat16", "file_dtype": "|V2"}]


def test_every_type_of_a_saved_array_can_be_loaded() -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "int64"):
        array = np.arange(6).astype(name).reshape(2, 3)
        buffer = io.BytesIO()
        np.save(buffer, output.for_file(array))
        buffer.seek(0)
        assert np.array_equal(np.load(buffer).view(name).astype(np.float64), array.astype(np.float64)), name


def test_the_report_of_a_stopped_run_adds_up_and_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "gemm", "--set", "tma.latency_cycles=1000000000"]
    status, found = answer(words, capsys)
    assert (status, found["what_if"]["change"], found["critical_path"]) == (1, None, None)
    for role in found["report"]["roles"]:
        assert sum(spent["cycles"] for spent in role["spent"]) == pytest.approx(role["cycles"]), role["name"]
    assert execute_command(words) == 1
    out = capsys.readouterr().out
    cycles = f"{found['cycles']:,}"
    assert out.splitlines()[0].startswith(f"gemm on h100-sxm: {cycles} cycles (until CycleLimit stopped it), grid ")
    assert out.endswith(
        f"What if tma.latency_cycles=1000000000: not compared, because CycleLimit stopped the run with them at cycle {cycles}\n"
    )
    assert "Critical path" not in out


def test_what_an_error_stopped_has_its_cycles_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--grid", "1", "--block", "32", "--arg", "u64:8", "--arg", "u64:8", "--arg", "i32:32"]
    status, found = answer(["run", ptx_file(tmp_path, DOUBLE), *words], capsys)
    (role,) = found["report"]["roles"]
    assert status == 1 and role["cycles"] > 0
    assert sum(spent["cycles"] for spent in role["spent"]) == pytest.approx(role["cycles"])


def test_cycles_in_another_order_are_no_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["run", "copy", "--schedule", "2"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "cycles (in the order of seed 2, which is no silicon's: no measure of speed), grid " in first and " us" not in first


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_deadlock_is_status_1_and_explained(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ptx_file(tmp_path, DEADLOCK)
    status, found = answer([command, path, "--grid", "1", "--block", "1"], capsys)
    assert (status, found["status"], found["error"]["kind"]) == (1, "deadlock", "DeadlockError")
    assert found["error"]["waits"]


def test_an_access_outside_memory_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--grid", "1", "--block", "32", "--arg", "u64:8", "--arg", "u64:8", "--arg", "i32:32"]
    status, found = answer(["run", ptx_file(tmp_path, DOUBLE), *words], capsys)
    assert (status, found["status"], found["error"]["kind"]) == (1, "kernel-error", "OutOfRange")


def test_a_limit_on_cycles_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ptx_file(tmp_path, HEADER + ".visible .entry spin()\n{\nL: bra L;\n}\n")
    status, found = answer(["run", path, "--grid", "1", "--block", "1", "--max-cycles", "1000"], capsys)
    assert (status, found["error"]["kind"]) == (1, "CycleLimit")


def test_the_copy_program_reports_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["run", "copy"]) == 0
    text = capsys.readouterr().out
    assert "Where every cycle of each role went" in text
    assert "Largest error against the float64 reference: 0" in text
    assert text.rstrip().endswith("no hazards")


def test_the_gemm_is_accurate_and_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "m=128", "--set", "n=128", "--set", "k=128", "--trace", f"{tmp_path}/gemm.h1t"]
    status, found = answer(["run", "gemm", *words], capsys)
    assert (status, found["status"], found["hazards"], found["error"]) == (0, "clean", [], None)
    assert found["accuracy"]["is_met"] and 0 < found["accuracy"]["of_allowed"] <= 1
    assert {role["name"] for role in found["report"]["roles"]} >= {"producer"}
    assert Trace.load(tmp_path / "gemm.h1t").cycles == found["cycles"]


def test_values_none_keeps_the_time_and_gives_up_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "gemm", "--set", "m=128", "--set", "n=128", "--set", "k=128"]
    exact, quick = answer(words, capsys)[1], answer([*words, "--values", "none", "--checks", "off"], capsys)[1]
    assert quick["accuracy"] is None and quick["cycles"] == exact["cycles"]


#: Warp 1 writes, warp 0 reads: nothing orders them, and the usual order has the write first.
UNORDERED = (
    HEADER
    + """.visible .entry unordered(.param .u64 y)
{
    .shared .align 8 .b64 cell;
    .reg .pred %p;
    .reg .b32 %c, %v, %warp;
    .reg .b64 %y;
    mov.u32 %c, cell;
    ld.param.u64 %y, [y];
    mov.u32 %v, 0;
    mov.u32 %warp, %tid.x;
    setp.ge.u32 %p, %warp, 32;
    @%p bra WRITE;
    st.volatile.shared.u32 [%c], %v;
    bar.arrive 1, 64;
    nanosleep.u32 500;
    ld.volatile.shared.u32 %v, [%c];
    st.global.u32 [%y], %v;
    ret;
WRITE:
    bar.sync 1, 64;
    mov.u32 %v, 7;
    st.volatile.shared.u32 [%c], %v;
    ret;
}
"""
)


def test_one_sm_for_all_says_that_it_is_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "gemm_5_two_consumers", "--set", "m=4096", "--set", "n=2048", "--set", "k=64", "--sms", "representative"]
    assert execute_command(words) == 0
    assert "An estimate: 2 of 256 CTAs ran, those of 1 SM." in capsys.readouterr().out
    status, found = answer(words, capsys)
    assert status == 0 and found["estimate"]["ctas"] == 2 and found["accuracy"] is None
    assert sum(share["cycles"] for share in found["critical_path"]["shares"]) == found["cycles"]


def test_check_schedules_names_the_smallest_seed_that_goes_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = ["check", ptx_file(tmp_path, UNORDERED), "--grid", "1", "--block", "64", "--arg", "zeros:i32:1"]
    assert answer(launch, capsys)[0] == 0
    status, found = answer([*launch, "--schedules", "60"], capsys)
    assert status == 1
    seed = found["schedules"]["seed"]
    assert seed >= 3 and found["schedules"]["tried"] == seed + 1
    assert found["schedules"]["wrong"] == "output 0 must not depend on the order, but 1 of 1 elements differ"
    status, found = answer([*launch, "--schedules", str(seed - 1)], capsys)
    assert (status, found["schedules"]["seed"]) == (0, None)


def test_check_schedules_of_a_clean_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["check", "copy", "--schedules", "6"]) == 0
    assert "7 schedules, identical results" in capsys.readouterr().out


def test_run_shows_what_a_kernel_prints(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(Path(__file__).parents[1] / "kernels/runtime.ptx")
    words = ["run", path, "--kernel", "print", "--grid", "2", "--block", "2", "--arg", "i32:4", "--arg", "f64:0.5"]
    assert execute_command(words) == 0
    assert "block (1, 0, 0), thread (1, 0, 0): plain\n" in capsys.readouterr().out
    status, found = answer(words, capsys)
    assert (status, found["texts"][-1]) == (0, {"block": [1, 0, 0], "thread": [1, 0, 0], "text": "plain\n"})


#: Four warps add 2^27, 1, -2^27 and 1 up in memory: the sum depends on who comes first.
SUM_IN_MEMORY = (
    HEADER
    + """.visible .entry sum(.param .u64 y)
{
    .reg .pred %p;
    .reg .b32 %t, %w, %r;
    .reg .f32 %v;
    .reg .b64 %y;
    ld.param.u64 %y, [y];
    mov.u32 %t, %tid.x;
    and.b32 %r, %t, 31;
    setp.ne.u32 %p, %r, 0;
    @%p ret;
    shr.u32 %w, %t, 5;
    mov.f32 %v, 0f3F800000;
    setp.eq.u32 %p, %w, 0;
    @%p mov.f32 %v, 0f4D000000;
    setp.eq.u32 %p, %w, 2;
    @%p mov.f32 %v, 0fCD000000;
    nanosleep.u32 10;
    red.global.add.f32 [%y], %v;
    ret;
}
"""
)


def test_check_schedules_says_that_sums_in_memory_depend_on_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = ["check", ptx_file(tmp_path, SUM_IN_MEMORY), "--grid", "1", "--block", "128", "--arg", "zeros:f32:1"]
    status, found = answer([*launch, "--schedules", "60"], capsys)
    assert status == 1
    assert found["schedules"]["wrong"].endswith("(it adds floating-point numbers up in memory: their order changes the sum)")


def test_a_long_run_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_SLICE", 500)
    told: list[tuple[int, int, int]] = []
    job = target.program_job("gemm", {}, 0, "h100-sxm")
    outcome = target.execute(job, lambda *of: told.append(of), values="none", checks="off")
    assert len(told) > 3 and [cycle for _, _, cycle in told] == sorted(cycle for _, _, cycle in told)
    assert told[0][:2] == (0, 4) and told[-1][2] <= outcome.run.cycles
    plain = target.execute(target.program_job("gemm", {}, 0, "h100-sxm"), values="none", checks="off")
    assert plain.run.cycles == outcome.run.cycles
