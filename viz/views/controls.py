"""Stepping: the steps themselves, and the buttons, keys and slider that move through them."""

from __future__ import annotations

from typing import Any

from dash import html

from h100sim.trace import Cause, Copy, Event, Fence, Space, Wait

from ..recording import Recording


def data(recording: Recording) -> dict[str, Any]:
    """Return the steps as columns, the warps, and the words for kinds of event. ``names[kind]`` is an event's name."""
    steps = recording.steps
    return {
        "steps": {name: steps[name] for name in steps.dtype.names or ()},
        "warps": [{"number": w.number, "rank": w.rank, "role": w.role, "colour": w.colour} for w in recording.warps],
        "opcodes": recording.kernel.opcodes,
        "places": [recording.kernel.place(pc) for pc in range(len(recording.kernel.lines))],
        "kinds": {int(k): k.name for k in Event},
        "waits": {int(k): _words(k.name) for k in Wait},
        "causes": {int(k): _words(k.name) for k in Cause},
        "copies": {int(k): _words(k.name) for k in Copy},
        "spaces": {int(k): _words(k.name) for k in Space},
        "fences": {int(k): _words(k.name) for k in Fence},
        "texts": recording.texts,
    }


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _button(name: str, text: str, title: str) -> html.Button:
    # The name for screen readers has a hyphen, which no keyword has.
    attributes: dict[str, Any] = {"aria-label": title}
    return html.Button(text, id=name, title=title, **attributes)


def layout() -> html.Div:
    buttons = (
        ("first", "|◀", "First step (Home)"),
        ("back", "◀", "Step back (k or ←)"),
        ("play", "▶▶", "Play or pause (space)"),
        ("forward", "▶", "Step forward (j or →)"),
        ("last", "▶|", "Last step (End)"),
    )
    return html.Div(
        [
            html.Div(
                [_button(f"c-{name}", text, title) for name, text, title in buttons],
                id="c-buttons",
            ),
            html.Label(
                [
                    "step by ",
                    html.Select(
                        [
                            html.Option("event", value="event"),
                            html.Option("instruction", value="instruction"),
                            html.Option("selected warp", value="warp"),
                            html.Option("barrier flip", value="flip"),
                        ],
                        id="c-kind",
                    ),
                ]
            ),
            html.Label(["warp ", html.Select(id="c-warp")]),
            html.Div([html.Div(id="c-scrub-done"), html.Div(id="c-scrub-thumb")], id="c-scrub", role="slider", tabIndex=0),
            html.Span(id="c-position"),
            _button("c-help-button", "?", "Keys (?)"),
            html.Div(id="c-sentence"),
            html.Div(id="c-help", hidden=True),
        ],
        id="c-controls",
    )
