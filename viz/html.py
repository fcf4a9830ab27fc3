"""The same page as one HTML file that needs no server and no network: it steps with the same scripts.

The file holds the recordings of some CTAs (gzip, base64) and, where the replay has memory, what each shared tile held
after each of its changes, as far as the budget goes. Needs a browser with DecompressionStream (all since 2023).
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from h100sim.errors import UsageError

from . import page, wire
from .recording import Launch, Recording, record
from .replay import as_replay, has_memory
from .tiles import versions
from .views import header, shared_tile

#: CTAs that are written unless the caller chooses: enough for a look, small enough to mail.
DEFAULT_CTAS = 4

#: Bytes of tiles (before base64) that are written at most.
TILE_BUDGET_BYTES = 4 << 20

_ASSETS = Path(__file__).parent / "assets"
_ATTRIBUTE_NAMES = {"className": "class", "tabIndex": "tabindex"}


def export(replay: Any, path: str | Path, ctas: Sequence[int] | None = None) -> Path:
    """Write the view of a replay, a run or a trace as one HTML file and return its path.

    ``ctas`` are the CTAs to include (default: the first DEFAULT_CTAS of the trace). Raises UsageError for one that is
    not there.
    """
    launch = Launch(as_replay(replay))
    known = launch.trace.ctas["cta"].tolist()
    chosen = list(ctas) if ctas is not None else known[:DEFAULT_CTAS]
    if not chosen:
        raise UsageError("ctas must name at least one CTA, not none")
    recordings = [record(launch, cta) for cta in chosen]
    embedded = {"ctas": _listed(launch, chosen), "tiles": _tiles(launch, recordings)}
    blocks = {f"h-recording-{r.cta}": gzip.compress(wire.encode(page.data(r)), 6, mtime=0) for r in recordings}
    Path(path).write_text(_document(launch.trace.kernel.name, embedded, blocks), encoding="utf-8")
    return Path(path)


def _listed(launch: Launch, chosen: list[int]) -> dict[str, Any]:
    table = launch.trace.ctas[np.isin(launch.trace.ctas["cta"], chosen)]
    return {**{n: table[n].tolist() for n in ("cta", "sm", "start", "end")}, "total": header.ctas(launch)["total"]}


def _tiles(launch: Launch, recordings: list[Recording]) -> dict[str, str]:
    if not has_memory(launch.replay):
        return {}
    found: dict[str, str] = {}
    budget = TILE_BUDGET_BYTES
    for recording in recordings:
        wanted = [
            (int(step), index, tile)
            for index, tile in enumerate(recording.tiles)
            for step in versions(tile, recording.steps, recording.lanes)
        ]
        for step, index, tile in sorted(wanted, key=lambda entry: entry[:2]):
            budget -= tile.size_bytes
            if budget < 0:
                return found
            key = f"{recording.cta}/{index}/{step}"
            found[key] = shared_tile.picture(launch.replay, recording, tile, step)["bytes"]
    return found


def _document(title: str, embedded: dict[str, Any], blocks: dict[str, bytes]) -> str:
    scripts = [p.read_text(encoding="utf-8") for p in sorted(_ASSETS.glob("*.js"))]
    styles = [p.read_text(encoding="utf-8") for p in sorted(_ASSETS.glob("*.css"))]
    data = json.dumps(embedded, separators=(",", ":")).replace("</", "<\\/")
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)} - h100sim</title>',
        *(f"<style>\n{text}</style>" for text in styles),
        f"</head><body>{render(page.layout())}",
        f'<script type="application/json" id="h-embedded">{data}</script>',
        *(f'<script type="text/plain" id="{name}">{base64.b64encode(b).decode()}</script>' for name, b in blocks.items()),
        *(f"<script>\n{text}</script>" for text in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def render(component: Any) -> str:
    """Return a tree of ``dash.html`` components as HTML text. Raises TypeError for a component of another library."""
    if component is None:
        return ""
    if isinstance(component, list | tuple):
        return "".join(render(child) for child in component)
    if isinstance(component, str | int | float):
        return html.escape(str(component))
    described = component.to_plotly_json()
    if described["namespace"] != "dash_html_components":
        raise TypeError(f"component must be of dash.html, not {described['namespace']}.{described['type']}")
    properties = dict(described["props"])
    children = properties.pop("children", None)
    tag = described["type"].lower()
    attributes = "".join(_attribute(name, value) for name, value in properties.items())
    return f"<{tag}{attributes}>{render(children)}</{tag}>"


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = _ATTRIBUTE_NAMES.get(name, name)
    return f" {name}" if value is True else f' {name}="{html.escape(str(value), quote=True)}"'
