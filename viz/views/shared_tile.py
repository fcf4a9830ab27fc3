"""A shared tile at a step, twice: as stored (address rows of 128 bytes over 32 banks) and as seen through its swizzle.

Where elements lie comes from the tile's description; what they hold comes from the replay, one request per tile and
version (the last step that may have changed the tile), never from the trace.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from dash import html

from ..recording import Recording
from ..tiles import Tile, accesses, element_addresses, versions


def data(recording: Recording) -> dict[str, Any]:
    """Return the tiles, with versions (steps) and layout; ``layouts`` holds offsets from a tile's first byte.

    ``accesses.offset`` has 32 window offsets for each step at which lanes touch shared memory, -1 for inactive lanes.
    """
    layouts: dict[tuple, int] = {}
    tables: list[np.ndarray] = []
    tiles = []
    for tile in recording.tiles:
        key = (tile.rows, tile.cols, tile.dtype, tile.swizzle, tile.offset % max(8 * tile.swizzle, 1))
        if key not in layouts:
            layouts[key] = len(tables)
            tables.append((element_addresses(tile) - tile.offset).astype(np.int32).reshape(-1))
        tiles.append(
            {
                "name": tile.name,
                "offset": tile.offset,
                "rows": tile.rows,
                "cols": tile.cols,
                "dtype": tile.dtype,
                "element_bytes": tile.element_bytes,
                "swizzle": tile.swizzle,
                "is_region": tile.is_region,
                "layout": layouts[key],
                "versions": versions(tile, recording.steps, recording.lanes).astype(np.int32),
            }
        )
    touched, offsets = accesses(recording.steps, recording.lanes)
    return {
        "tiles": tiles,
        "layouts": tables,
        "has_memory": recording.has_memory,
        "accesses": {"step": touched.astype(np.int32), "offset": offsets.astype(np.int32).reshape(-1)},
    }


def picture(replay: Any, recording: Recording, tile: Tile, step: int) -> dict[str, Any]:
    """Return what a tile holds after a step: ``{"bytes": base64}``, byte 0 at the tile's offset."""
    event = int(recording.steps["event"][step])
    window = np.asarray(replay.shared_at(event, recording.cta), np.uint8)
    return {"bytes": base64.b64encode(window[tile.offset : tile.offset + tile.size_bytes].tobytes()).decode()}


def _canvas(name: str) -> html.Div:
    return html.Div([html.Canvas(id=name), html.Div(className="spot", hidden=True)], className="frame")


def layout() -> html.Section:
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Shared tile"),
                    html.Select(id="m-tile", title="Which tile"),
                    html.Label(
                        [
                            "colour ",
                            html.Select(
                                [html.Option("value", value="value"), html.Option("16-byte chunk", value="chunk")],
                                id="m-colour",
                            ),
                        ]
                    ),
                ],
                className="title",
            ),
            html.Div(id="m-note"),
            html.Div(
                [
                    html.Div([html.H3(id="m-stored-title"), _canvas("m-stored")], className="picture"),
                    html.Div([html.H3(id="m-seen-title"), _canvas("m-seen")], className="picture"),
                ],
                id="m-pictures",
            ),
            html.Div(id="m-hover"),
        ],
        id="m-memory",
    )
