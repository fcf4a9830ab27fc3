"""``whatif``: the same launch with other settings, tile shapes or numbers of the device, and what that does to its cycles."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import H100SimError, UsageError
from ..report import Summary, summarise
from .output import changes_of_roles, error_json, role_lines
from .target import Job, Outcome, execute


@dataclass(frozen=True)
class Variant:
    """A launch with settings (texts such as ``stages=2``; none: as it is): its outcome, and the summary of its trace, or the
    error that says why it could not be run."""

    settings: tuple[str, ...]
    outcome: Outcome | None = None
    summary: Summary | None = None
    error: H100SimError | None = None

    @property
    def name(self) -> str:
        return " ".join(self.settings) or "as it is"

    @property
    def has_ended(self) -> bool:
        """Did the kernel run to its end, so that its cycles can be compared?"""
        return self.outcome is not None and self.outcome.error is None


def combinations(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of the values of ``name=value,value`` texts. Raises UsageError."""
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        pieces = _pieces(values)
        if not (equals and name and pieces and all(pieces)):
            raise UsageError(f"--vary must be NAME=VALUE,VALUE,... not {text}")
        axes.append([f"{name}={piece}" for piece in pieces])
    names = [text.partition("=")[0] for text in texts]
    if len(set(names)) < len(names):
        raise UsageError(f"--vary must name each setting once, not {', '.join(names)}")
    return list(itertools.product(*axes))


def _pieces(values: str) -> list[str]:
    """Return the values between commas; commas in brackets belong to a value."""
    try:
        return [repr(value) for value in ast.literal_eval(f"[{values}]")]
    except (ValueError, SyntaxError):
        return [value.strip() for value in values.split(",")]


def explore(make: Callable[[tuple[str, ...]], Job], texts: Sequence[str], **options: Any) -> Iterator[Variant]:
    """Run the launch as it is, then every combination of settings; time only. Raises what the launch as it is raises."""
    for settings in [(), *combinations(texts)]:
        try:
            outcome = execute(make(settings), values="none", checks="off", **options)
        except H100SimError as error:
            if not settings or _is_misspelt(error):
                raise
            yield Variant(settings, error=error)
            continue
        yield Variant(settings, outcome, summarise(outcome.run.trace))


def _is_misspelt(error: H100SimError) -> bool:
    """Is it a setting that no launch has, not a value that this one cannot have?"""
    return isinstance(error, UsageError) and error.message.startswith(("setting of ", "number of the device "))


def as_dict(tried: Sequence[Variant]) -> dict[str, Any]:
    """Return the variants as plain values: cycles, their change against the launch as it is, and that of each role's causes (None and
    nothing where one of the two was stopped)."""
    first = tried[0]
    return {"variants": [_plain(first, variant) for variant in tried]}


def exit_status(tried: Sequence[Variant]) -> int:
    """Return 2 if no combination could be run, 1 if one that ran was stopped, else 0."""
    if all(variant.outcome is None for variant in tried[1:]):
        return 2
    return int(any(variant.outcome is not None and variant.outcome.error is not None for variant in tried))


def _plain(first: Variant, variant: Variant) -> dict[str, Any]:
    found: dict[str, Any] = {"settings": list(variant.settings)}
    if variant.error is not None:
        return {**found, "status": "error", "error": error_json(variant.error)}
    assert first.summary and variant.summary and variant.outcome, "a variant without an error has run"
    compared = first.has_ended and variant.has_ended
    roles = {role: dict(changes) for role, changes in changes_of_roles(first.summary, variant.summary)} if compared else {}
    cycles, tensor = variant.summary.cycles, variant.summary.tensor_cores
    change = cycles / max(first.summary.cycles, 1) - 1 if compared else None
    return {
        **found, "status": variant.outcome.status, "cycles": cycles, "change": change,
        "ctas": variant.summary.ctas, "tensor_cores_of_peak": tensor.of_peak, "changes_of_roles": roles,
    }  # fmt: skip


def as_text(title: str, tried: Sequence[Variant]) -> str:
    """Return a table of the variants, and below each what changed in every role."""
    first = tried[0]
    assert first.summary, "the launch as it is has run"
    width = max(len(variant.name) for variant in tried)
    fastest = min((v.summary.cycles for v in tried if v.summary and v.outcome and v.outcome.error is None), default=0)
    lines = [f"What if: {title}", "", f"  {'':<{width}} {'CTAs':>6} {'cycles':>12} {'change':>9} {'tensor cores':>13}"]
    for variant in tried:
        if variant.summary is None or variant.outcome is None:
            lines.append(f"  {variant.name:<{width}} cannot be run: {variant.error.message if variant.error else ''}")
            continue
        summary = variant.summary
        compared = variant is not first and first.has_ended and variant.has_ended
        change = f"{summary.cycles / max(first.summary.cycles, 1) - 1:+.1%}" if compared else ""
        peak = f"{summary.tensor_cores.of_peak:.1%}" if summary.tensor_cores.operations else "-"
        end = "  fastest" if summary.cycles == fastest and len(tried) > 1 else ""
        if variant.outcome.error is not None:
            end = f"  stopped: {variant.outcome.error.message.splitlines()[0]}"
        lines.append(f"  {variant.name:<{width}} {summary.ctas:>6,} {summary.cycles:>12,} {change:>9} {peak:>13}{end}")
        if compared:
            lines += role_lines(first.summary, summary, indent="      ")
    return "\n".join([*lines, "", "Changes of roles: cycles of a CTA's longest-lived warp, against the launch as it is."])
