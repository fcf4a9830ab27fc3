"""The command line: ``h100sim list | run | whatif | check | serve | lesson | layout | validate``.

Exit status: 0 clean; 1 the kernel ran and did something wrong (a hazard, a deadlock, an error, a result outside
its allowance); 2 it could not be run (wrong usage, PTX that is not valid, a launch that CUDA would refuse). What is
expensive to import is imported by the command that needs it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import wraps
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import H100SimError, UsageError
from ..words import counted
from . import layout
from .lesson import lesson

if TYPE_CHECKING:
    from .target import Job, Outcome

app = typer.Typer(
    help="Runs the PTX of an sm_90a kernel without a GPU: the same bits, nearly the same cycles, every race explained.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(layout.app, name="layout")
app.command("lesson")(lesson)

_SET_HELP = "A setting of the program, m=512, or a number of the device, tma.latency_cycles=800. Repeat for more."
_ARG_HELP = (
    "An argument of a PTX file's kernel, in order: i32:5, f32:1.5, zeros:f32:64x64, randn:bf16:64x64 (also ones, arange, "
    "randint), file:x.npy, map:ARRAY;box=64x64 (a tensor map)."
)


@dataclass(frozen=True)
class Selection:
    """What a command is to launch: the options that run, check and serve share."""

    target: Annotated[str, typer.Argument(help="A program of the catalogue (see list) or a .ptx file; serve: a trace (.h1t) too.")]
    set_: Annotated[list[str] | None, typer.Option("--set", help=_SET_HELP)] = None
    kernel: Annotated[str | None, typer.Option(help="The entry of the PTX file, if it has several.")] = None
    grid: Annotated[str | None, typer.Option(help="CTAs of a PTX file's launch: x,y,z.")] = None
    block: Annotated[str | None, typer.Option(help="Threads of a CTA of a PTX file's launch: x,y,z.")] = None
    cluster: Annotated[str | None, typer.Option(help="CTAs of a cluster of a PTX file's launch: x,y,z.")] = None
    shared_mem: Annotated[int, typer.Option("--shared-mem", help="Dynamic shared memory of a PTX file's launch, bytes.")] = 0
    arg: Annotated[list[str] | None, typer.Option("--arg", help=_ARG_HELP)] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of random inputs.")] = 0
    device: Annotated[str, typer.Option(help="h100-sxm, h100-pcie or h200-sxm.")] = "h100-sxm"

    def changes(self) -> dict[str, Any]:
        """Return the numbers of the device that are changed."""
        from . import arguments

        return {name: value for name, value in arguments.settings(self.set_ or []).items() if self._is_of_device(name)}

    @staticmethod
    def _is_of_device(name: str) -> bool:
        """Is a setting one of the device: with a dot in its name, or a number of the whole (sms, clock_mhz)?"""
        from .. import devices

        return "." in name or name in devices.numbers(devices.model())

    def with_settings(self, texts: Sequence[str]) -> Selection:
        """Return the same with more settings, which go before those of the same name."""
        return replace(self, set_=[*(self.set_ or []), *texts])

    def model(self, is_changed: bool = True) -> Any:
        """Return the device model, with its changes or as it is."""
        from .. import devices

        found = devices.model(self.device)
        return devices.changed(found, self.changes()) if is_changed else found

    def job(self, is_changed: bool = True) -> Job:
        """Return the launch made ready, on the device with its changes or as it is; options of the other kind of target are
        wrong usage."""
        from . import arguments
        from .target import Launch, file_job, is_file, program_job, read_ptx

        model = self.model(is_changed)
        settings = {name: value for name, value in arguments.settings(self.set_ or []).items() if not self._is_of_device(name)}

        if not is_file(self.target):
            given = {"kernel": self.kernel, "grid": self.grid, "block": self.block, "cluster": self.cluster, "arg": self.arg}
            for name, value in {**given, "shared-mem": self.shared_mem}.items():
                if value:
                    raise UsageError(f"--{name} must be used with a PTX file, not with the program {self.target}")
            return program_job(self.target, settings, self.seed, model)
        if settings:
            raise UsageError("--set must be used with a program, not with a PTX file")
        read_ptx(self.target)
        if self.grid is None or self.block is None:
            raise UsageError("a PTX file must be given --grid and --block")
        launch = Launch(
            arguments.dimensions("--grid", self.grid),
            arguments.dimensions("--block", self.block),
            arguments.dimensions("--cluster", self.cluster or "1"),
            self.shared_mem,
        )
        values = [arguments.kernel_argument(text, self.seed) for text in self.arg or []]
        return file_job(self.target, self.kernel, launch, values, model)


def _with_selection(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of :class:`Selection` in place of its parameter ``selection``."""
    fields = inspect.signature(Selection, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters
    parameters = [p for name, p in own.items() if name != "selection"]

    @wraps(command)
    def wrapped(**given: Any) -> int:
        return command(Selection(**{name: given.pop(name) for name in fields}), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    wrapped.__signature__ = inspect.Signature([p.replace(kind=keyword) for p in (*fields.values(), *parameters)])  # type: ignore[attr-defined]
    return wrapped


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Values = Annotated[str, typer.Option(help="exact: every bit; none: addresses, control flow and time only.")]
Checks = Annotated[str, typer.Option(help="on, strict (contested rules too) or off.")]
MaxCycles = Annotated[
    int | None, typer.Option("--max-cycles", min=1, help="Stop with an error after so many cycles (else after 2^27).")
]
Schedule = Annotated[int, typer.Option(min=0, help="Seed of the order of warps and units; 0 is the usual one.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the browser view on 127.0.0.1.")]


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False
) -> None:
    if version:
        print(f"h100sim {metadata.version('h100sim')}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        raise UsageError("command must be one of those that h100sim --help lists, and none was given")


@app.command("list")
def list_programs(json: Json = False) -> int:
    """List the programs: what each teaches and its default settings."""
    import tk_programs

    entries = tk_programs.catalog()
    if json:
        from .output import as_json

        rows = [{"name": e.name, "teaches": e.teaches, "config": dict(e.config)} for e in entries]
        as_json({"command": "list", "status": "clean", "exit_status": 0, "programs": rows})
        return 0
    for entry in entries:
        print(f"{entry.name}: {entry.teaches}")
        print("    " + " ".join(f"{name}={value}" for name, value in entry.config.items()))
    return 0


@app.command()
@_with_selection
def run(
    selection: Selection,
    values: Values = "exact",
    checks: Checks = "on",
    max_cycles: MaxCycles = None,
    schedule: Schedule = 0,
    trace: Annotated[Path | None, typer.Option(help="Save the trace here (.h1t).")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Save a Perfetto trace here (.pftrace).")] = None,
    save: Annotated[list[str] | None, typer.Option(help="Save array INDEX of the outputs: 0=c.npy.")] = None,
    sms: Annotated[str, typer.Option(help="all, or representative: one SM's CTAs only, to estimate the time of all.")] = "all",
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Serve the browser view afterwards.")] = False,
    port: Port = 8050,
    json: Json = False,
) -> int:
    """Run a program, or a kernel of a PTX file, and report cycles, waits, accuracy and hazards."""
    from .. import representative
    from . import arguments, output
    from .target import execute

    if save and (values != "exact" or sms != "all"):
        without = f"--values {values}" if values != "exact" else f"--sms {sms}"
        raise UsageError(f"--save must be used where every result is computed, not with {without}")
    with _working(f"Simulating {selection.target} (a first run compiles for about a minute)", json) as progress:
        job = selection.job()
        wanted = arguments.saved_outputs(save or [], len(job.outputs))
        _require_folders(trace, perfetto, *(path for _, path in wanted))
        console = {} if json else {"console": print}
        if sms != "all":
            values = "none"
        options: dict[str, Any] = {"checks": checks, "max_cycles": max_cycles, "schedule": schedule, "sms": sms, **console}
        outcome = execute(job, progress, values=values, **options)
        changes = selection.changes()
        options |= {"checks": "off", "max_cycles": None}
        before = execute(selection.job(is_changed=False), values="none", **options) if changes else None
    _save(outcome, wanted, trace, perfetto)
    if json:
        extra: dict[str, Any] = {} if before is None else {"what_if": output.difference_json(before, outcome, changes)}
        if sms != "all":
            extra["estimate"] = {"ctas": len(outcome.run.ctas), **asdict(representative.accuracy(outcome.run.trace))}
        extra["saved"] = [{"path": str(path), **output.saved_json(outcome.outputs[index])} for index, path in wanted]
        output.as_json({**output.outcome_json("run", job, outcome), **extra})
    else:
        print(output.outcome_text(outcome, with_report=True), flush=True)
        for index, path in wanted:
            print("\n" + output.saved_text(path, outcome.outputs[index]), flush=True)
        if sms != "all":
            print("\n" + representative.as_text(outcome.run.trace), flush=True)
        if before is not None:
            print("\n" + output.difference_text(before, outcome, changes), flush=True)
    if serve:
        note = "" if before is None else output.difference_text(before, outcome, changes)
        _serve(selection, outcome, values, port, schedule=schedule, note=note)
    return outcome.exit_status


@app.command()
@_with_selection
def whatif(
    selection: Selection,
    vary: Annotated[
        list[str] | None, typer.Option(help="Values to try: stages=1,2,4, tma.latency_cycles=400,800. Repeat for all pairs.")
    ] = None,
    max_cycles: MaxCycles = None,
    schedule: Schedule = 0,
    json: Json = False,
) -> int:
    """Try other settings, tile shapes or numbers of the device, and show what each does to the cycles of every role."""
    from . import output
    from . import variants as search

    if not vary:
        raise UsageError("whatif must be given what to try, such as --vary stages=1,2,4")
    with _working(f"Simulating {selection.target} (a first run compiles for about a minute)", json):
        search.combinations(vary)
        options = {"max_cycles": max_cycles, "schedule": schedule}
        tried = list(search.explore(lambda extra: selection.with_settings(extra).job(), vary, **options))
        job = selection.job()
    exit_status = search.exit_status(tried)
    if json:
        output.as_json(
            {
                "command": "whatif",
                "status": ("clean", "stopped", "error")[exit_status],
                "exit_status": exit_status,
                "program": job.name,
                "config": job.config,
                **search.as_dict(tried),
            }
        )
    else:
        config = "".join(f" {name}={value}" for name, value in job.config.items())
        print(search.as_text(f"{job.name}{config} on {selection.device}", tried))
    return exit_status


@app.command()
@_with_selection
def check(
    selection: Selection,
    strict: Annotated[bool, typer.Option("--strict", help="Apply the contested rules too.")] = False,
    max_cycles: MaxCycles = None,
    schedule: Schedule = 0,
    schedules: Annotated[
        int, typer.Option(min=0, help="Run in so many other orders, too, until one goes wrong; 12 are a good start.")
    ] = 0,
    json: Json = False,
) -> int:
    """Look for hazards and deadlocks; a PTX file without --grid and --block is only read and judged for legality."""
    from . import output
    from .target import execute, is_file

    if is_file(selection.target) and selection.grid is None and selection.block is None:
        return _check_text(selection.target, json)
    if schedule and schedules:
        raise UsageError("--schedules must be used without --schedule: it tries the seeds from 0 on")
    checks = "strict" if strict else "on"
    with _working(f"Checking {selection.target} (a first run compiles for about a minute)", json):
        job = selection.job()
        if schedules:
            from . import schedules as search

            tried = list(search.explore(selection.job, schedules, checks=checks, max_cycles=max_cycles))
            outcome = tried[-1].outcome
        else:
            tried, outcome = [], execute(job, checks=checks, max_cycles=max_cycles, schedule=schedule)
    exit_status = int(bool(tried[-1].wrong)) if tried else outcome.exit_status
    if json:
        result = output.outcome_json("check", job, outcome)
        if tried:
            result |= {"exit_status": exit_status, "schedules": search.as_dict(tried)}
        output.as_json(result)
    else:
        print(output.outcome_text(outcome, with_report=False))
        if tried:
            print(f"\n{search.summary(tried)}")
    return exit_status


@app.command()
@_with_selection
def serve(
    selection: Selection,
    port: Port = 8050,
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
    json: Json = False,
) -> int:
    """Serve the browser view of a saved trace, or of a run of a program, on 127.0.0.1."""
    target = selection.target
    if target.endswith(".h1t"):
        import viz.app

        if not Path(target).is_file():
            raise UsageError(f"trace must be a file that h100sim wrote, not {target} (there is none)")
        viz.app.serve(target, port=port, open_browser=open_browser, as_json=json)
        return 0
    from .target import execute

    with _working(f"Simulating {selection.target} (a first run compiles for about a minute)", quiet=json):
        outcome = execute(selection.job())
        note = ""
        if changes := selection.changes():
            from .output import difference_text

            before = execute(selection.job(is_changed=False), values="none", checks="off")
            note = difference_text(before, outcome, changes)
    _serve(selection, outcome, "exact", port, open_browser, json, note=note)
    return outcome.exit_status


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def validate(context: typer.Context) -> int:
    """Ask silicon: probe, capture, run and report (validate --help says how)."""
    from validate import commands

    return commands.main(context.args)


def _check_text(path: str, json: bool) -> int:
    """Read a PTX file and decode its entries; raises PtxError for what is not valid on sm_90a."""
    from ..host import RawModule
    from . import output
    from .target import read_ptx

    read_ptx(path)
    module = RawModule(path=path)
    entries = [function.name for function in module.module.functions.values() if function.is_entry]
    unwritten = {name: module.get_function(name).program.unwritten for name in entries}
    if json:
        warnings = [{"kernel": name, **read._asdict(), "message": read.message} for name in entries for read in unwritten[name]]
        found = {"command": "check", "status": "clean", "exit_status": 0, "program": path, "entries": entries}
        output.as_json({**found, "warnings": warnings})
    else:
        print(f"{path}: {counted(len(entries), 'kernel')} ({', '.join(entries)}), valid for sm_90a")
        for name in entries:
            for read in unwritten[name]:
                print(f"warning: {read.message}\n  {path}:{read.line}, {name}")
        print("Give --grid, --block and --arg to run one and look for hazards and deadlocks.")
    return 0


def _require_folders(*paths: Path | None) -> None:
    """Say before a long run that a file cannot be written after it."""
    for path in paths:
        if path and (path.is_dir() or not path.parent.is_dir()):
            reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UsageError(f"file must be one that can be written, not {path} ({reason})")


def _save(outcome: Outcome, wanted: list[tuple[int, Path]], trace: Path | None, perfetto: Path | None) -> None:
    import numpy as np

    from .output import for_file

    writers: list[tuple[Path, Callable[[Path], object]]] = [
        *((path, write) for path, write in ((trace, outcome.run.trace.save), (perfetto, outcome.run.trace.to_perfetto)) if path),
        *((path, lambda path, index=index: np.save(path, for_file(outcome.outputs[index]))) for index, path in wanted),
    ]
    for path, write in writers:
        try:
            write(path)
        except OSError as error:
            raise UsageError(f"file must be one that can be written, not {path} ({error.strerror})") from None


#: Above this many CTAs the view shows the trace alone: stepping through memory would keep a copy of it per checkpoint.
_CTAS_WITH_MEMORY = 32


def _serve(
    selection: Selection,
    outcome: Outcome,
    values: str,
    port: int,
    open_browser: bool = False,
    as_json: bool = False,
    schedule: int = 0,
    note: str = "",
) -> None:
    """Serve a launch: with memory to step through where it ended well and is small, else its trace. ``note``: what changed numbers of
    the device did to it."""
    import viz.app
    from viz.replay import TraceReplay

    replay: Any = TraceReplay(outcome.run.trace, tuple(outcome.run.hazards), outcome.error, note)
    if outcome.error is None and values == "exact" and len(outcome.run.ctas) <= _CTAS_WITH_MEMORY:
        from ..debugger import Debugger, Replay

        stopped = Debugger(selection.job().prepare(checks="off", trace="full", schedule=schedule))
        replay = Replay(stopped, hazards=outcome.run.hazards, note=note)
    viz.app.serve(replay, port=port, open_browser=open_browser, as_json=as_json)


@contextmanager
def _working(text: str, quiet: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """Show that something is going on, on a terminal only; yield what shows how many CTAs have ended, None without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)

        def show(done: int, total: int, cycle: int) -> None:
            bar.update(task, completed=done, total=total, description=f"{done:,} of {total:,} CTAs, cycle {cycle:,}")

        yield show


def execute_command(words: Sequence[str]) -> int:
    """Run a command line (without the program's name) and return its exit status; only bugs escape as tracebacks."""
    if not words:
        app(["--help"], prog_name="h100sim", standalone_mode=False)
        return 2
    command = next((word for word in words if not word.startswith("-")), "")
    json_wanted = "--json" in words
    try:
        status = app(list(words), prog_name="h100sim", standalone_mode=False)
        return int(status or 0)
    except H100SimError as error:
        wrong = error
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Typer's own errors differ by version in type, not in these two attributes.
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        wrong = UsageError(error.format_message().rstrip("."))
    from .output import say_error

    say_error(command, wrong, json_wanted)
    return 2


def main() -> None:
    """The entry point of the ``h100sim`` script."""
    sys.exit(execute_command(sys.argv[1:]))
