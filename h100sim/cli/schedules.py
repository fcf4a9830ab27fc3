"""``check --schedules``: the same launch in many orders, and the first one in which it goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import schedules
from .target import Job, Outcome, execute


@dataclass(frozen=True)
class Finding:
    """What a seed did: its outcome, and in a sentence what is wrong with it ("" if nothing is).

    ``is_rounded``: the output has other bits, but the kernel adds floating-point numbers up in memory, whose order
    changes how the sum is rounded, and the output is within its allowance.
    """

    seed: int
    outcome: Outcome
    wrong: str
    is_rounded: bool = False


def explore(make: Callable[[], Job], count: int, **options: Any) -> Iterator[Finding]:
    """Run a job under the seeds 0 to ``count`` until one goes wrong; it is the last one returned.

    Wrong is an error, a hazard, an output outside its allowance, or an output with other bits than seed 0 gave.
    """
    usual: list[np.ndarray] = []
    for seed in range(count + 1):
        job = make()
        outcome = execute(job, schedule=seed, **options)
        wrong, is_rounded = "" if outcome.status == "clean" else _why(outcome), False
        if seed == 0:
            usual = outcome.outputs
        elif not wrong:
            wrong = _difference(usual, outcome.outputs)
            if wrong and _adds_floats(job):
                is_rounded = outcome.accuracy is not None and outcome.accuracy.is_met
                wrong = "" if is_rounded else f"{wrong} (it adds floating-point numbers up in memory: their order changes the sum)"
        yield Finding(seed, outcome, wrong, is_rounded)
        if wrong:
            return


def _adds_floats(job: Job) -> bool:
    """Does the kernel have an atomic or a reduction that adds floating-point numbers to memory?

    The type of a tensor reduction stands in the tensor map, so any add through one counts.
    """
    return any(
        "add" in i.modifiers
        and (i.base in ("atom", "red") or "reduce" in i.modifiers)
        and ("tensor" in i.modifiers or any(type_ in ("f32", "f64") or "f16" in type_ for type_ in i.types))
        for i in job.function.function.instructions
    )


def _why(outcome: Outcome) -> str:
    """Return the first line of what stopped a run, or of what it was not allowed to do."""
    if outcome.error is not None:
        return f"{type(outcome.error).__name__}: {outcome.error.message}"
    if outcome.run.hazards:
        return f"{outcome.run.hazards[0].kind}: {outcome.run.hazards[0].message}"
    return "the output is outside its allowance"


def _difference(usual: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    """Return which output has other bits than the usual order gave, "" if none has."""
    for k, (before, now) in enumerate(zip(usual, outputs, strict=True)):
        width = before.dtype.itemsize
        changed = before.view(np.uint8).reshape(-1, width) != now.view(np.uint8).reshape(-1, width)
        if count := int(changed.any(axis=1).sum()):
            return f"output {k} must not depend on the order, but {count:,} of {before.size:,} elements differ"
    return ""


def summary(findings: list[Finding]) -> str:
    """Return what the search found, and how to see it again."""
    last = findings[-1]
    if not last.wrong:
        rounded = sum(finding.is_rounded for finding in findings)
        but = f" but for the rounding of sums in memory, in {rounded:,}" if rounded else ""
        return f"{len(findings):,} schedules, identical results{but}"
    return (
        f"schedule {last.seed} ({schedules.describe(last.seed)}) goes wrong: {last.wrong}\nsee it again with --schedule {last.seed}"
    )


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    """Return the same as plain values; ``seed`` is the smallest that goes wrong, None if none does."""
    last = findings[-1]
    return {
        "tried": len(findings),
        "seed": last.seed if last.wrong else None,
        "order": schedules.describe(last.seed) if last.wrong else None,
        "wrong": last.wrong or None,
        "rounded": sum(finding.is_rounded for finding in findings),
    }
