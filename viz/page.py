"""The page: which views there are, what they need for one CTA, and how they stand together (in server and file)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dash import html

from .recording import Recording
from .views import barriers, controls, critical_path, hazards, header, shared_tile, source, timeline

#: Every view, by the name under which the browser finds its data (and ``viz/assets/NN_<name>.js`` draws it).
VIEWS: dict[str, ModuleType] = {
    "header": header,
    "controls": controls,
    "timeline": timeline,
    "critical_path": critical_path,
    "source": source,
    "barriers": barriers,
    "shared_tile": shared_tile,
    "hazards": hazards,
}


def data(recording: Recording) -> dict[str, Any]:
    """Return the data of all views for one CTA, ready for :func:`viz.wire.encode`."""
    return {name: view.data(recording) for name, view in VIEWS.items()}


def layout() -> html.Main:
    """Return the empty page."""
    return html.Main(
        [
            header.layout(),
            controls.layout(),
            timeline.layout(),
            html.Div(
                [
                    source.layout(),
                    barriers.layout(),
                    html.Div([shared_tile.layout(), hazards.layout()], id="h-right"),
                ],
                id="h-panels",
            ),
            html.Div("Loading the recording ...", id="h-message"),
        ],
        id="h100sim",
    )
