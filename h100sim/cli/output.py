"""What the commands print: text for people, or one JSON object for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import critical_path, report
from ..errors import DeadlockError, H100SimError
from .target import Accuracy, Job, Outcome


def as_json(value: dict[str, Any], indent: int | None = 2) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(value, indent=indent, default=str))


def error_json(error: H100SimError) -> dict[str, Any]:
    """Return an error as plain values; ``waits`` for a deadlock, one text per waiting role."""
    found: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": error.message,
        "where": str(error.where),
        "line": error.where.line,
        "column": error.where.column,
        "rule": error.rule,
    }
    if isinstance(error, DeadlockError):
        found["waits"] = [str(wait) for wait in error.waits]
        found["edges"] = [edge._asdict() for edge in error.edges]
        found["ledger"] = list(error.ledger)
    return found


def say_error(command: str, error: H100SimError, json_wanted: bool) -> None:
    """Print a wrong usage: one sentence and its place on standard error, or a JSON object on standard output."""
    if json_wanted:
        as_json({"command": command, "status": "error", "exit_status": 2, "error": error_json(error)})
    else:
        print(f"h100sim: {error}", file=sys.stderr)


def outcome_json(command: str, job: Job, outcome: Outcome) -> dict[str, Any]:
    """Return what a launch did as plain values."""
    run, accuracy = outcome.run, outcome.accuracy
    return {
        "command": command,
        "status": outcome.status,
        "exit_status": outcome.exit_status,
        "program": job.name,
        "kernel": job.function.name,
        "config": job.config,
        "device": run.device,
        "grid": job.launch.grid,
        "block": job.launch.block,
        "cluster": job.launch.cluster,
        "cycles": run.cycles,
        "instructions": run.instructions,
        "seconds": round(outcome.seconds, 3),
        "accuracy": None
        if accuracy is None
        else {
            "largest_error": accuracy.largest_error,
            "of_allowed": accuracy.of_allowed,
            "is_met": accuracy.is_met,
        },
        "hazards": [_hazard_json(hazard) for hazard in run.hazards],
        "warnings": [_hazard_json(warning) for warning in run.warnings],
        "scrambled": [asdict(operand) | {"message": operand.message} for operand in run.scrambled],
        "texts": [{"block": text.block, "thread": text.thread, "text": str(text)} for text in run.texts],
        "error": None if outcome.error is None else error_json(outcome.error),
        "report": report.as_dict(report.summarise(run.trace)),
        "critical_path": critical_path.as_dict(critical_path.critical_path(run.trace)) if _has_path(outcome) else None,
    }


def _hazard_json(hazard: Any) -> dict[str, Any]:
    return hazard.to_json() if hasattr(hazard, "to_json") else {"kind": hazard.kind, "message": str(hazard)}


def outcome_text(outcome: Outcome, with_report: bool) -> str:
    """Return what a launch did in words: the report, the accuracy, and what it was not allowed to do."""
    parts = []
    if with_report and len(outcome.run.trace):
        parts.append(report.as_text(report.summarise(outcome.run.trace), _remark(outcome)))
        if _has_path(outcome):
            parts.append(critical_path.as_text(critical_path.critical_path(outcome.run.trace)))
    elif with_report:
        parts.append(f"{outcome.run.cycles:,} cycles (the trace is off: nothing more is known)")
    if outcome.accuracy is not None:
        parts.append(accuracy_text(outcome.accuracy))
    parts.append(verdict_text(outcome))
    return "\n\n".join(parts)


def _has_path(outcome: Outcome) -> bool:
    """Has the launch come to an end that a path leads to?"""
    return len(outcome.run.trace) > 0 and outcome.error is None


def _remark(outcome: Outcome) -> str:
    """Return why the cycles of a run are not the kernel's, "" where they are."""
    if outcome.error is not None:
        return f"until {type(outcome.error).__name__} stopped it"
    return "" if not outcome.schedule else f"in the order of seed {outcome.schedule}, which is no silicon's: no measure of speed"


def accuracy_text(accuracy: Accuracy) -> str:
    """Return the error in words."""
    text = f"Largest error against the float64 reference: {accuracy.largest_error:.4g}"
    if accuracy.is_met:
        return f"{text}; every element within its allowance (nearest: {accuracy.of_allowed:.0%} of it)"
    return f"{text}; NOT within the allowance ({accuracy.of_allowed:.3g} times it)"


def verdict_text(outcome: Outcome) -> str:
    """Return the hazards and the error that stopped the kernel, or "no hazards", and the warnings."""
    hazards = [f"hazard {k + 1} of {len(outcome.run.hazards)}: {hazard}" for k, hazard in enumerate(outcome.run.hazards)]
    if outcome.error is not None:
        hazards.append(f"{type(outcome.error).__name__}: {outcome.error}")
    warnings = [f"warning (a hazard with strict checks): {warning}" for warning in outcome.run.warnings]
    return "\n\n".join([*(hazards or ["no hazards"]), *warnings, *map(str, outcome.run.scrambled)])


def difference_text(before: Outcome, after: Outcome, changes: dict[str, Any]) -> str:
    """Return what changed numbers of the device do to the cycles of the kernel and to what each role's cycles went into."""
    what = ", ".join(f"{name}={value}" for name, value in changes.items())
    for outcome, which in ((before, "without them"), (after, "with them")):
        if outcome.error is not None:
            kind = type(outcome.error).__name__
            return f"What if {what}: not compared, because {kind} stopped the run {which} at cycle {outcome.run.cycles:,}"
    old, new = before.run.cycles, after.run.cycles
    first = f"What if {what}: {new:,} cycles instead of {old:,} ({new / max(old, 1) - 1:+.1%})"
    return "\n".join([first, *role_lines(report.summarise(before.run.trace), report.summarise(after.run.trace), indent="  ")])


def difference_json(before: Outcome, after: Outcome, changes: dict[str, Any]) -> dict[str, Any]:
    """Return what changed numbers of the device do to the cycles of the kernel; None where either run was stopped."""
    old, new = before.run.cycles, after.run.cycles
    stopped = before.error is not None or after.error is not None
    return {"changes": changes, "cycles_before": old, "change": None if stopped else new / max(old, 1) - 1}


def saved_json(array: np.ndarray) -> dict[str, str]:
    """Return the type of a saved array, and the one that it has in its file."""
    return {"dtype": array.dtype.name, "file_dtype": for_file(array).dtype.str}


def for_file(array: np.ndarray) -> np.ndarray:
    """Return an array as it is saved: NumPy's files know no bf16 and fp8, of which they hold the bits."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.dtype.itemsize}")


def saved_text(path: Path, array: np.ndarray) -> str:
    """Say what was saved, and how to read what NumPy's files have no type for."""
    text = f"Saved {path}: {array.dtype.name} {'x'.join(map(str, array.shape))}"
    if for_file(array) is array:
        return text
    return f"{text}; numpy.load gives {saved_json(array)['file_dtype']}, so add .view(ml_dtypes.{array.dtype.name})"


def changes_of_roles(before: report.Summary, after: report.Summary) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return (role, changes), a change being (cause, cycles), the largest first and none of less than half a cycle; roles that only
    one of the two has come with all of their cycles."""
    found = []
    spent = [
        {role.name: {item.what: item.cycles for item in role.spent or role.waits} for role in s.roles} for s in (before, after)
    ]
    for role in dict.fromkeys([*spent[0], *spent[1]]):
        first, second = (of.get(role, {}) for of in spent)
        steps = {what: second.get(what, 0) - first.get(what, 0) for what in {*first, *second}}
        changed = sorted(steps.items(), key=lambda item: (-abs(item[1]), item[0]))
        found.append((role, [(what, cycles) for what, cycles in changed if abs(cycles) >= 0.5]))
    return found


def role_lines(before: report.Summary, after: report.Summary, indent: str) -> list[str]:
    """Return a line for each role with its largest changes."""
    return [
        f"{indent}{role}: {', '.join(f'{what} {cycles:+,.0f}' for what, cycles in changed[:3]) or 'no change'}"
        for role, changed in changes_of_roles(before, after)
    ]
