"""The source: Python (or CUDA) and PTX side by side, with a marker for every role at the line where its warps stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from dash import html

from ..recording import Recording


def data(recording: Recording) -> dict[str, Any]:
    """Return the texts and, per instruction, its PTX line and its source file and line (-1: none; lines from 1)."""
    kernel = recording.kernel
    files = list(dict.fromkeys([*kernel.files, *(s[0] for s in kernel.sources if s)]))
    return {
        "ptx": kernel.ptx,
        "ptx_line": np.array(kernel.lines, np.int32),
        "files": [{"name": Path(f).name, "path": f, "text": kernel.files.get(f)} for f in files],
        "file": np.array([files.index(s[0]) if s else -1 for s in kernel.sources], np.int32),
        "line": np.array([s[1] if s else -1 for s in kernel.sources], np.int32),
    }


def layout() -> html.Section:
    return html.Section(
        [
            html.Div([html.H2("Source"), html.Span(id="s-roles")], className="title"),
            html.Div(
                [
                    html.Div([html.H3(id="s-python-title"), html.Div(id="s-python", className="code")], className="pane"),
                    html.Div([html.H3("PTX", id="s-ptx-title"), html.Div(id="s-ptx", className="code")], className="pane"),
                ],
                id="s-panes",
            ),
        ],
        id="s-source",
    )
