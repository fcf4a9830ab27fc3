"""What was not allowed: the findings of the checks, each with the two accesses and the steps at which they happened."""

from __future__ import annotations

from typing import Any

from dash import html

from ..recording import Recording


def data(recording: Recording) -> dict[str, Any]:
    """Return the hazards (kind, message, text, accesses with their step, -1: another CTA's) and the run's error."""
    return {
        "hazards": [
            {
                "kind": str(hazard.kind),
                "message": str(hazard.message),
                "text": str(hazard),
                "accesses": [
                    _access(recording, getattr(hazard, name)) for name in ("first", "second") if getattr(hazard, name, None)
                ],
            }
            for hazard in recording.hazards or ()
        ],
        "checked": recording.hazards is not None,
        "error": recording.error,
    }


def _access(recording: Recording, access: Any) -> dict[str, Any]:
    event = getattr(access, "event", None)
    if event is None or event < 0:
        return {"text": str(access), "step": -1, "cta": recording.cta, "event": -1}
    cta = getattr(access, "cta", recording.cta)
    return {"text": str(access), "step": int(recording.step_of(int(event))), "cta": int(cta), "event": int(event)}


def layout() -> html.Section:
    return html.Section(
        [
            html.Div([html.H2("Hazards and errors"), html.Span(id="z-count", className="hint")], className="title"),
            html.Div(id="z-list"),
        ],
        id="z-hazards",
    )
