"""``python -m validate``, also ``h100sim validate``: probes, captures and comparisons, here and on a Hopper GPU.

A GPU machine needs this repository, NumPy, ml_dtypes, Numba, CuPy and cuda-bindings for it, and no more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from h100sim.cli.arguments import settings
from h100sim.errors import H100SimError, UsageError

from . import accuracy, capture, compare, gpu, imports, overlay, probes, sass, timeline


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of printing a usage text."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"validate: {message}")


def main(words: Sequence[str]) -> int:
    """Run a command and return its exit status: 0 the same as silicon, 1 not the same, 2 wrong usage."""
    try:
        options = _parser().parse_args(words)
        _check(options)
        status, answer = options.run(options)
    except H100SimError as error:
        return _say(error, words)
    except OSError as error:
        return _say(UsageError(f"file must be one that can be used, not {error.filename} ({error.strerror})"), words)
    if options.json:
        answer = {"command": f"validate {options.command}", "exit_status": status, **answer}
        print(json.dumps(answer, indent=2, default=str))
    return status


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for what would be found wrong only after long work: places of results, seeds."""
    if getattr(options, "seed", 0) < 0:
        raise UsageError(f"--seed must be at least 0, not {options.seed}")
    out: Path | None = getattr(options, "out", None)
    if out is None:
        return
    kind = "file" if options.command in ("timeline", "coverage") else "folder"
    reason = "" if out.parent.is_dir() else f"there is no folder {out.parent}"
    if out.exists() and out.is_dir() != (kind == "folder"):
        reason = "it is a folder" if kind == "file" else "it is a file"
    if reason:
        raise UsageError(f"{kind} must be one that can be written, not {out} ({reason})")


def _say(error: H100SimError, words: Sequence[str]) -> int:
    """Say in a sentence or a JSON object what is wrong; return the exit status."""
    if "--json" not in words:
        print(f"h100sim: {error}", file=sys.stderr)
    else:
        problem = {"kind": type(error).__name__, "message": error.message}
        print(json.dumps({"command": "validate", "status": "error", "exit_status": 2, "error": problem}, indent=2))
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="h100sim validate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)

    probe = commands.add_parser("probe", help="ask a hardware question, here or on a GPU")
    probe.add_argument("name", help=f"{', '.join(probes.names())} or all")
    probe.add_argument("--on", choices=("sim", "gpu"), default="sim")
    probe.set_defaults(run=_probe)

    captured = commands.add_parser("capture", help="run a program on a GPU and write down its bits and cycles")
    captured.add_argument("--name", help="name of the capture; else the program and its first setting")
    captured.set_defaults(run=_capture)

    maps = commands.add_parser("maps", help="compare TensorMap with the driver's cuTensorMapEncode* on random calls")
    maps.add_argument("--count", type=int, default=20_000)
    maps.add_argument("--seed", type=int, default=0)
    maps.set_defaults(run=_maps)

    both = commands.add_parser(
        "run", help="run a program here and on a GPU (without one: beside its capture), compare every bit and the cycles"
    )
    both.set_defaults(run=_run)

    inputs = commands.add_parser("exhaustive", help="compare all 2^32 inputs of an instruction with silicon")
    inputs.add_argument("opcode", help="an opcode that was captured, or all")
    inputs.add_argument("--on", choices=("sim", "gpu"), default="sim", help="gpu: make the capture")
    inputs.add_argument("--out", type=Path, help="folder for the results of a GPU")
    inputs.set_defaults(run=_exhaustive)

    speed = commands.add_parser("throughput", help="time programs on a GPU, beside cuBLAS and PyTorch's attention")
    speed.add_argument("--out", type=Path, help="folder for the results")
    speed.set_defaults(run=_throughput)

    lessons = commands.add_parser("lessons", help="time the kernels of the lessons on a GPU")
    lessons.add_argument("--out", type=Path, help="folder for the results")
    lessons.set_defaults(run=_lessons)

    table = commands.add_parser("coverage", help="write the table of instructions, or ask ptxas about every form of them")
    table.add_argument("--out", type=Path, help="file for the table; else it is printed")
    table.add_argument("--assemble", action="store_true", help="ask ptxas, and keep what it refuses in tests/data/ptxas_forms.json")
    table.set_defaults(run=_coverage)

    report = commands.add_parser("report", help="compare the simulator with the committed captures")
    report.add_argument("--bits", action="store_true", help="compare the bits of the outputs, too")
    report.add_argument("--html", type=Path, metavar="FILE", help="write a page with errors, curves and timelines, too")
    report.add_argument("--quick", action="store_true", help="only the programs, not the measured laws")
    report.set_defaults(run=_report)

    recorded = commands.add_parser("timeline", help="run a program with records of its waits, issues and arrivals")
    recorded.add_argument("--on", choices=("sim", "gpu"), default="sim")
    recorded.add_argument(
        "--event", action="append", choices=sorted((*timeline.NAMES, timeline.STATEMENT)), help="only such events; repeat for more"
    )
    recorded.add_argument("--out", type=Path, help="file for the timeline")
    recorded.set_defaults(run=_timeline)

    laid = commands.add_parser("overlay", help="lay two timelines over each other, event by event")
    laid.add_argument("here", type=Path, help="a timeline, or the trace of another tool (IKET JSON, Proton's Chrome trace)")
    laid.add_argument("there", type=Path)
    laid.add_argument("--warp", type=int, action="append")
    laid.add_argument("--cta", type=int, default=0)
    laid.set_defaults(run=_overlay)

    machine = commands.add_parser("sass", help="compare the predicted machine code with that of ptxas")
    machine.set_defaults(run=_sass)

    for command in (captured, both, recorded, machine):
        command.add_argument("program")
        command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
        command.add_argument("--seed", type=int, default=0)
    for command in (probe, captured, maps):
        command.add_argument("--out", type=Path, help="folder for the results")
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true")
    return parser


def _probe(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    names = probes.names() if options.name == "all" else [options.name]
    answers = []
    for name in names:
        answer = probes.ask(name, options.on)
        answers.append(answer)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")
        if not options.json:
            print(_probe_text(answer, None if options.on == "gpu" else probes.silicon_answer(name)))
    return 0, {"status": "clean", "answers": answers}


def _throughput(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from . import throughput

    return _written(options, "throughput", throughput.measure(), throughput.as_text)


def _lessons(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from . import lesson_times

    return _written(options, "lesson_times", lesson_times.measure(), lesson_times.as_text)


def _written(options: argparse.Namespace, name: str, answer: dict[str, Any], as_text: Any) -> tuple[int, dict[str, Any]]:
    """Write an answer into the folder of ``--out``, show it, and return it."""
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")
    if not options.json:
        print(as_text(answer))
    return 0, {"status": "clean", **answer}


def _exhaustive(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from . import exhaustive

    opcodes = list(exhaustive.OPCODES) if options.opcode == "all" else [options.opcode]
    if options.on == "gpu":
        results = {opcode: exhaustive.measure(gpu.launch, opcode) for opcode in opcodes}
        answer = {**gpu.card().as_dict(), "results": {opcode: exhaustive.text_of(sums) for opcode, sums in results.items()}}
        if options.out:
            (options.out / exhaustive.SILICON.name).write_text(json.dumps(answer, indent=1) + "\n")
        return 0, {"status": "clean", "answer": answer}
    differing = {}
    for opcode in opcodes:
        differing[opcode] = exhaustive.differing_blocks(opcode)
        if not options.json:
            print(f"{opcode}: {len(differing[opcode])} of {exhaustive.BLOCKS} blocks of 2^24 inputs differ from silicon")
    same = not any(differing.values())
    return int(not same), {"status": "same" if same else "different", "differing_blocks": differing}


def _probe_text(answer: dict[str, Any], silicon: dict[str, Any] | None) -> str:
    lines = [f"{answer['probe']}: {answer['question']}", f"  on {answer['card']}"]
    if silicon:
        lines[-1] += f"; beside it {silicon['card']}, driver {silicon['driver']}, {silicon['date']}"
    width = max(len(name) for name in answer["results"])
    for name, value in answer["results"].items():
        beside = f"   {_short(silicon['results'].get(name, 'not asked'))}" if silicon else ""
        lines.append(f"    {name:<{width}}  {_short(value)}{beside}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    """Return a number or the beginning of a digest."""
    return value[:16] if isinstance(value, str) and len(value) == 64 else str(value)


def _capture(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    out = options.out or capture.SILICON
    path = capture.capture(options.program, settings(options.set), out, options.name, options.seed)
    facts = json.loads(path.read_text())
    if not options.json:
        print(f"{path}: {facts['card']}, driver {facts['driver']}, {facts['date']}")
        print(f"  cycles per CTA (median): {facts['cycles']['cta_median']}")
    return 0, {"status": "clean", "path": str(path), "facts": facts}


def _maps(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from . import tensor_maps

    _, driver = gpu.require()
    found = tensor_maps.compare(options.count, options.seed, tensor_maps.driver_judge(driver))
    facts = {
        **gpu.card().as_dict(),
        "seed": options.seed,
        "calls": found.calls,
        "accepted": found.accepted,
        "sha256": found.sha256,
    }
    if options.out:
        (options.out / "tensor_maps.json").write_text(json.dumps(facts, indent=1) + "\n")
    if not options.json:
        print(found)
        for call in found.differing[:10]:
            print(f"  {call}")
    status = int(bool(found.differing))
    return status, {"status": "different" if status else "same", **facts, "differing": found.differing}


def _run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Compare bits and cycles with the GPU of this machine, or with what was captured of one where there is none."""
    try:
        gpu.require()
    except UsageError as missing:
        return _run_beside_capture(options, missing)
    kernel, arrays, whole = capture.build(options.program, settings(options.set), options.seed)
    inputs = [array.copy() for array, a in zip(arrays, kernel.arguments, strict=True) if a.is_input]
    run = gpu.run(kernel, arrays)
    outputs = kernel.run(*inputs)
    listed = outputs if isinstance(outputs, tuple) else (outputs,)
    results: dict[str, compare.Comparison] = {}
    silicon = [(a.name, array) for a, array in zip(kernel.arguments, arrays, strict=True) if a.is_output]
    for (name, expected), actual in zip(silicon, listed, strict=True):
        results[name] = compare.compare(expected, actual)
        if not options.json:
            print(f"{options.program} {name} on {run.card.card} and here: {results[name]}")
    same = all(result.is_equal for result in results.values())
    there = capture.recorded_cycles(*capture.build(options.program, whole, options.seed)[:2])["cta_median"]
    cycles = _cycles(capture.cycles_here(options.program, whole, options.seed), there, options.json)
    facts = {name: {"differing": r.differing, "elements": r.elements, "sha256": r.expected_sha256} for name, r in results.items()}
    return int(not same), {"status": "same" if same else "different", "config": whole, "outputs": facts, **cycles}


def _run_beside_capture(options: argparse.Namespace, missing: UsageError) -> tuple[int, dict[str, Any]]:
    found = capture.of_program(options.program, settings(options.set), options.seed)
    if found is None:
        known = ", ".join(name for name in capture.timed() if capture.load(name).facts["program"] == options.program)
        raise UsageError(
            f"{options.program} must be captured with these settings (captured: {known or 'none of its settings'}) where there is no GPU: "
            f"{missing.message}"
        )
    facts = found.facts
    text = capture.build(facts["program"], facts["config"], facts["seed"])[0].ptx
    if not options.json:
        print(f"No GPU can be used here ({missing.message}).")
        print(f"Silicon is the capture {found.name}: {facts['card']}, driver {facts['driver']}, {facts['date']}.")
        if compare.ptx_sha256(text) != facts["ptx_sha256"]:
            print("The program's PTX has changed since: capture it again.")
    row = _compared(found.name)
    if not options.json:
        print(_row_text(row))
    cycles = _cycles(capture.simulated_cycles(found), facts["cycles"]["cta_median"], options.json)
    status = int(bool(row["differences"]))
    return status, {"status": "different" if status else "same", **row, **cycles}


def _cycles(here: Any, there: Any, is_quiet: bool) -> dict[str, Any]:
    """Show and return the cycles of a CTA in both places, means over CTAs."""
    mine, theirs = (sum(map(float, cycles)) / len(cycles) for cycles in (here, there))
    if not is_quiet:
        print(f"Cycles of a CTA (mean of {len(there):,}): {mine:,.0f} here, {theirs:,.0f} on silicon ({mine / theirs - 1:+.1%})")
    return {"cycles": {"here": mine, "silicon": theirs, "error": mine / theirs - 1}}


def _coverage(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from .coverage import assembler, table

    if options.assemble:
        assembler.assemble(assembler.every_form())
    text = table.markdown()
    if options.out:
        options.out.write_text(text)
    elif not options.json:
        print(text, end="")
    counts = {"forms": len(assembler.every_form()), "refused_by_ptxas": len(assembler.refusals())}
    return 0, {"status": "clean", "path": str(options.out or ""), **counts}


def _report(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if options.html and (options.html.is_dir() or not options.html.parent.is_dir()):
        reason = "it is a folder" if options.html.is_dir() else f"there is no folder {options.html.parent}"
        raise UsageError(f"file must be one that can be written, not {options.html} ({reason})")
    rows = [_compared(name) for name in capture.names()] if options.bits else []
    cases = list(accuracy.programs())
    measured = [] if options.quick else list(accuracy.laws())
    if not options.json:
        cards = sorted({f"{c.facts['card']}, driver {c.facts['driver']}" for c in map(capture.load, capture.timed())})
        print(f"No GPU is needed: silicon is what was captured on {'; '.join(cards)}.\n" if cards else "No captures are committed.")
        for row in rows:
            print(_row_text(row))
        print(accuracy.as_text(cases, measured))
    if options.html:
        from . import page

        page.write(options.html, page.document(cases, measured, rows))
        if not options.json:
            print(f"\nThe page is {options.html}")
    wrong = any(row["differences"] for row in rows)
    answer = {
        "captures": rows,
        "cases": [{**asdict(case), "error": case.error} for case in (*cases, *measured)],
        "fitted": list(accuracy.FITTED),
        "far_off": [{"name": case.name, "error": case.error, "why": why} for case, why in accuracy.far_off(cases)],
    }
    return int(wrong), {"status": "different" if wrong else "same", **answer}


def _compared(name: str) -> dict[str, Any]:
    captured = capture.load(name)
    facts = captured.facts
    outputs, _ = capture.simulated(captured, device="h200-sxm")
    return {
        "capture": name,
        **{key: facts[key] for key in ("card", "driver", "date", "program", "config")},
        "differences": capture.differences(captured, outputs) if captured.is_small else [],
        "bits_compared": captured.is_small,
    }


def _row_text(row: dict[str, Any]) -> str:
    same = "every bit of the outputs is the same" if row["bits_compared"] else "too large to compare bits; cycles only"
    return f"{row['capture']}: {chr(10).join(row['differences']) or same}"


def _timeline(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    kernel, arrays, _ = capture.build(options.program, settings(options.set), options.seed)
    names = tuple(options.event) if options.event else timeline.NAMES
    found = timeline.record(kernel, arrays, on=options.on, names=names)
    if options.out:
        found.save(options.out)
    if not options.json:
        print(
            f"{len(found.events):,} events of {kernel.name} on {found.source}"
            + (f", written to {options.out}" if options.out else "")
        )
    return 0, {"status": "clean", "source": found.source, "events": len(found.events)}


def _overlay(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    here, there = (imports.load(path) for path in (options.here, options.there))
    pairs = list(overlay.pairs(here, there))
    for name, of, wanted in (("--cta", "cta", [options.cta]), ("--warp", "warp", options.warp or [])):
        known = sorted({getattr(pair, of) for pair in pairs})
        for number in wanted:
            if number not in known:
                raise UsageError(f"{name} must be one that both timelines have ({known[0]} to {known[-1]}), not {number}")
    steps = overlay.by_name(pairs)
    if not options.json:
        print(f"{here.source} against {there.source}: {len(pairs):,} events in both")
        if note := overlay.uneven_records(here, there):
            print(note)
        print(overlay.as_text(pairs, tuple(options.warp or ()), options.cta))
        print("\nWhere the difference arises (mean cycles since the event before, here and there):")
        for name, times, mine, theirs in steps[:12]:
            print(f"  {name:<28} {times:>5} times {mine:>8,.1f} {theirs:>8,.1f} {mine - theirs:>+8,.1f}")
    rows = [dict(zip(("event", "times", "here", "there"), step, strict=True)) for step in steps]
    return 0, {"status": "clean", "events": len(pairs), "steps": rows}


def _sass(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    kernel = capture.build(options.program, settings(options.set), options.seed)[0]
    code = sass.disassemble(kernel.ptx)
    here, there = sass.predicted(kernel.ptx, kernel.name), sass.counts(code)
    if not options.json:
        print(f"{kernel.name}: {here:,.0f} machine instructions predicted, {there['instructions']:,} by ptxas")
    return 0, {"status": "clean", "predicted": here, **there}
