"""The server of the browser view: one page, the recordings of CTAs, the bytes of shared tiles; loopback only."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
import webbrowser
from functools import lru_cache
from pathlib import Path
from typing import Any

import dash
from dash import dcc, html
from flask import Flask, Response, abort, jsonify, request
from werkzeug.serving import make_server

from h100sim.errors import H100SimError, UsageError

from . import page, wire
from .recording import Launch, Recording, record
from .replay import as_replay, has_memory
from .views import header, shared_tile

HOST = "127.0.0.1"

#: Names under which a browser on this machine, or at the other end of an ssh tunnel, reaches the server. Anything else
#: in the Host header is another site's page that resolved its own name to loopback.
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

#: Recordings and tiles that are kept; a recording of 100,000 steps takes about 6 MB.
_KEPT_RECORDINGS, _KEPT_TILES = 16, 512


def create_app(replay: Any) -> dash.Dash:
    """Return the Dash app that shows a replay, a run, a trace or the path of a saved trace (see :mod:`viz.replay`).

    The store ``h-step`` holds the current step as ``{"cta", "step", "event"}``, for callbacks that somebody adds.
    Raises UsageError for an empty trace.
    """
    launch = Launch(as_replay(replay))
    app = dash.Dash("viz", title=f"{launch.trace.kernel.name} - h100sim", update_title="", assets_folder=_assets())
    app.layout = html.Div([page.layout(), dcc.Store(id="h-step")])
    _add_routes(app.server, launch)
    return app


def serve(replay: Any, port: int = 8050, open_browser: bool = False, as_json: bool = False) -> None:
    """Serve the view on 127.0.0.1 until interrupted; print its address, as a line of text or of JSON. Raises UsageError if the
    port is taken."""
    app = create_app(replay)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(f"port must be free, not {port} ({str(error.strerror).lower()})") from error
    url = f"http://{HOST}:{port}/"
    tunnel = f"ssh -L {port}:{HOST}:{port} {socket.gethostname()}"
    if as_json:
        print(json.dumps({"url": url, "tunnel": tunnel}), flush=True)
    else:
        print(f"Serving on {url} (Ctrl+C stops)\nFrom another machine: {tunnel}, then open {url} there", flush=True)
    if open_browser:
        threading.Timer(0.5, webbrowser.open, (url,)).start()
    _quiet_run(app, port)


def _quiet_run(app: dash.Dash, port: int) -> None:
    # One line per request would bury the address that the user needs; Flask's own start would print a banner.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    make_server(HOST, port, app.server, threaded=True).serve_forever()


def _assets() -> str:
    return str(Path(__file__).parent / "assets")


def _add_routes(server: Flask, launch: Launch) -> None:
    # A replay re-executes; two requests at a time would disturb each other.
    lock = threading.Lock()

    @lru_cache(maxsize=_KEPT_RECORDINGS)
    def recording(cta: int) -> Recording:
        return record(launch, cta)

    @lru_cache(maxsize=_KEPT_RECORDINGS)
    def block(cta: int) -> bytes:
        return gzip.compress(wire.encode(page.data(recording(cta))), 5, mtime=0)

    @lru_cache(maxsize=_KEPT_TILES)
    def picture(cta: int, tile: int, step: int) -> dict[str, Any]:
        shown = recording(cta)
        if not (tile < len(shown.tiles) and step < len(shown.steps)):
            raise UsageError(f"tile and step must be in the recording of CTA {cta}, not {tile} and {step}")
        return shared_tile.picture(launch.replay, shown, shown.tiles[tile], step)

    @server.before_request
    def refuse_other_names() -> None:
        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        if host not in _LOOPBACK_NAMES:
            abort(403, "this page is served to loopback names only")

    @server.get("/h100sim/ctas")
    def ctas() -> Response:
        return jsonify(header.ctas(launch))

    @server.get("/h100sim/recording/<int:cta>")
    def recording_block(cta: int) -> Response:
        with lock:
            return _or_error(
                lambda: Response(block(cta), mimetype="application/octet-stream", headers={"Content-Encoding": "gzip"})
            )

    @server.get("/h100sim/tile/<int:cta>/<int:tile>/<int:step>")
    def tile_bytes(cta: int, tile: int, step: int) -> Response:
        if not has_memory(launch.replay):
            return Response("this trace carries no memory", 404, mimetype="text/plain")
        with lock:
            return _or_error(lambda: jsonify(picture(cta, tile, step)))


def _or_error(answer: Any) -> Response:
    """Return the answer, or an error's message as plain text for the page to show: 404 for ours, 500 for a defect."""
    try:
        return answer()
    except H100SimError as error:
        return Response(str(error), 404, mimetype="text/plain")
    except Exception as error:
        logging.getLogger(__name__).exception("the view could not be made")
        return Response(f"{type(error).__name__}: {error}", 500, mimetype="text/plain")
