"""How near the simulator's cycles come to silicon's: every capture of a program and every measured law, with signed errors.

The programs run here with the clock records that they ran with on the GPU, so that both count the same. Captures in FITTED
were looked at while the numbers of ``h100sim/devices.py`` were chosen; all others are held out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import capture, compare, probes

#: Captures whose cycles had a say in a number of the device models.
FITTED = (
    "copy_64",
    "gemm_256",
    "gemm_f32",
    "gemm_k1024_stages4",
    "gemm_5_two_consumers",
    "gemm_7_persistent",
    "gemm_3_tma",
    "attention_1",
)

#: Probes whose answer here is compared with silicon's: name -> the part of the results that counts, and the error to allow.
LAWS = {
    "wgmma_rate": ("cycles per wgmma", 0.02),
    "wgmma_latency": ("cycles until the results of wgmma can be read", 0.05),
    "mma_sync_rate": ("cycles per mma.sync", 0.08),
    "tma_load_latency": ("cycles of loads from L2 until they have arrived", 0.05),
    "tma_store_latency": ("cycles of stores until they are done", 0.05),
    "tma_bandwidth": ("bytes per cycle and SM", 0.10),
    "bulk_copy_latency": ("cycles of one-dimensional copies from L2", 0.15),
    "barrier_round_trip": ("cycles per round", 0.10),
    "pipeline_step": ("cycles of a step of a ring without copies", 0.08),
}

#: From which error on a case is named as wrong, and what is understood of it.
FAR_OFF = 0.10
WHY = {
    "attention_delta": "it does little but load lines that are new, which come back sooner here (validate probe global_access)",
}


@dataclass(frozen=True)
class Case:
    """One number here and there."""

    group: str
    name: str
    here: float
    there: float
    is_fitted: bool = False
    is_stale: bool = False

    @property
    def error(self) -> float:
        """What is counted here over what was there, less 1."""
        return self.here / self.there - 1


def programs(names: list[str] | None = None) -> Iterator[Case]:
    """Yield the cycles per CTA (mean over CTAs) of the captures with these names, or of all."""
    for name in names or capture.timed():
        captured = capture.load(name)
        facts = captured.facts
        here = float(np.mean(capture.simulated_cycles(captured)))
        there = float(np.mean(facts["cycles"]["cta_median"]))
        text = capture.build(facts["program"], facts["config"], facts["seed"])[0].ptx
        is_stale = compare.ptx_sha256(text) != facts["ptx_sha256"]
        yield Case(facts["program"], name, here, there, name in FITTED, is_stale)


def laws(names: tuple[str, ...] = tuple(LAWS)) -> Iterator[Case]:
    """Yield every number of the probes with these names, here and on silicon."""
    for name in names:
        silicon = probes.silicon_answer(name)
        if silicon is None:
            continue
        here, there = (dict(_numbers(name, results)) for results in (probes.ask(name, "sim")["results"], silicon["results"]))
        for key, value in there.items():
            if value and key in here:
                yield Case(name, key, here[key], value)


def _numbers(probe: str, results: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield (name, number) of the part of a probe's results that counts."""
    for key, value in results.items():
        if probe.startswith("tma_") and isinstance(value, dict):
            yield key, float(value["then"][-1])
        elif probe == "bulk_copy_latency":
            yield f"{key} bytes", float(value[-1])
        elif isinstance(value, list):
            for k, number in enumerate(value):
                if number is not None:
                    yield f"{key} [{k}]", float(number)
        else:
            yield key, float(value)


@dataclass(frozen=True)
class Summary:
    """Errors of several cases: how many, the mean and the largest of their magnitudes, and which case that is."""

    cases: int
    mean: float
    largest: float
    worst: str


def summarise(cases: Sequence[Case]) -> Summary:
    """Return the summary of at least one case."""
    worst = max(cases, key=lambda case: abs(case.error))
    mean = float(np.mean([abs(case.error) for case in cases]))
    return Summary(len(cases), mean, abs(worst.error), worst.name)


def groups(found: Sequence[Case]) -> list[tuple[str, list[Case]]]:
    """Return (title, cases) of the groups that are summed up, those that have cases; stale ones are left out."""
    fresh = [case for case in found if not case.is_stale]
    chosen = {
        "all programs": fresh,
        "held out": [case for case in fresh if not case.is_fitted],
        "gemm": [case for case in fresh if case.group == "gemm"],
        "attention": [case for case in fresh if case.group == "attention"],
    }
    return [(title, cases) for title, cases in chosen.items() if cases]


def far_off(found: Sequence[Case]) -> list[tuple[Case, str]]:
    """Return the cases whose error is above FAR_OFF, the largest first, and why that is as far as it is understood."""
    wrong = [case for case in found if not case.is_stale and abs(case.error) > FAR_OFF]
    return [(case, WHY.get(case.name, "not understood")) for case in sorted(wrong, key=lambda case: -abs(case.error))]


def as_text(found: list[Case], measured: list[Case]) -> str:
    """Return the page: programs one by one, held-out ones marked, then a line for each law."""
    lines = ["Cycles per CTA, here and on silicon (* held out of every fit):", ""]
    width = max((len(case.name) for case in found), default=0)
    for case in found:
        mark = " " if case.is_fitted else "*"
        stale = "  the program's PTX has changed since: capture it again" if case.is_stale else ""
        lines.append(f"  {mark} {case.name:<{width}} {case.here:>10,.0f} {case.there:>10,.0f} {case.error:>+7.1%}{stale}")
    for title, chosen in groups(found):
        s = summarise(chosen)
        lines.append(f"  {title}: {s.cases} cases, mean error {s.mean:.1%}, largest {s.largest:.1%} ({s.worst})")
    if wrong := far_off(found):
        lines += ["", f"Off by more than {FAR_OFF:.0%}:", "", *(f"    {case.name} {case.error:+.1%}: {why}" for case, why in wrong)]
    if measured:
        lines += ["", "Measured laws, the same PTX here and there:", ""]
        for name, (what, allowed) in LAWS.items():
            if chosen := [case for case in measured if case.group == name]:
                s = summarise(chosen)
                verdict = "within" if s.largest <= allowed else "NOT within"
                lines.append(
                    f"    {name}: {what}, {s.cases} numbers, mean error {s.mean:.1%}, largest {s.largest:.1%} ({s.worst}), "
                    f"{verdict} {allowed:.0%}"
                )
    return "\n".join(lines)
