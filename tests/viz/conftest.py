"""Fixtures of the views' tests: the made-up GEMM, its replay, its recording, and a server."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made():
    """The module tests/viz/make_trace.py."""
    name = "h100sim_tests_make_trace"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "make_trace.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def trace(made):
    return made.make_trace()


@pytest.fixture(scope="session")
def replay(made, trace):
    return made.FilledReplay(trace)


@pytest.fixture(scope="session")
def recording(replay):
    from viz.recording import Launch, record

    return record(Launch(replay), 0)


@pytest.fixture(scope="session")
def serve():
    """Return a function that serves a replay in the background and returns the address."""
    from werkzeug.serving import make_server

    from viz.app import create_app

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    servers = []

    def start(replay):
        server = make_server("127.0.0.1", 0, create_app(replay).server, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
