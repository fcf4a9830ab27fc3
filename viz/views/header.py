"""The facts of the run: kernel, launch, device, duration, findings, and which CTA is shown."""

from __future__ import annotations

from typing import Any

from dash import html

from ..recording import Launch, Recording

#: CTAs that the selector lists at most; any other is reached by its number in the address (#cta=...).
LISTED_CTAS = 4096


def data(recording: Recording) -> dict[str, Any]:
    """Return the facts as plain values. Durations are in SM cycles."""
    kernel = recording.kernel
    return {
        "kernel": kernel.name,
        "grid": kernel.grid,
        "block": kernel.block,
        "cluster": kernel.cluster,
        "device": kernel.device,
        "clock_mhz": kernel.clock_mhz,
        "cycles": recording.cycles,
        "cta": recording.cta,
        "sm": recording.sm,
        "start": recording.start,
        "end": recording.end,
        "hazards": -1 if recording.hazards is None else len(recording.hazards),
        "error": recording.error,
        "note": recording.note,
    }


def ctas(launch: Launch) -> dict[str, Any]:
    """Return which CTAs can be shown: their number, SM, first and last cycle, in the order of the grid."""
    table = launch.trace.ctas[:LISTED_CTAS]
    columns = {name: table[name].tolist() for name in ("cta", "sm", "start", "end")}
    return {**columns, "total": len(launch.trace.ctas)}


def layout() -> html.Header:
    return html.Header(
        [
            html.H1("h100sim", id="h-brand"),
            html.Span(id="h-facts"),
            html.Span(id="h-note", hidden=True),
            html.Span(id="h-verdict"),
            html.Label(["CTA ", html.Select(id="h-cta", title="Which CTA to show (its SM follows)")], id="h-cta-label"),
        ],
        id="h-header",
    )
