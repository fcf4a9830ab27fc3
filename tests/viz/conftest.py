"""Fixtures of the views' tests: the made-up GEMM, its replay, its recording, and a Chromium."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import shutil
import sys
import threading
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


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
def chromium():
    """A headless Chromium that may talk to loopback only; ``requests`` lists what it asked of anybody else."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH")
    sync_api = pytest.importorskip("playwright.sync_api", reason="no browser driver: the package playwright is missing")
    # Playwright refuses to start where a loop is marked as running, which other tests of a long run have left behind in this thread.
    asyncio._set_running_loop(None)
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Watched:
    """A page, with what it logged as an error and what it asked of hosts other than this one."""

    def __init__(self, browser, width=1280, height=800):
        self.page = browser.new_page(viewport={"width": width, "height": height})
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.route("**/*", self._judge)

    def _judge(self, route):
        url = route.request.url
        if url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:")):
            return route.continue_()
        self.foreign.append(url)
        return route.abort()

    def open(self, url):
        self.page.goto(url)
        self.page.wait_for_function("window.h100sim && window.h100sim.model !== null")
        self.settle()

    def settle(self):
        """Wait until the frame after the last step has been drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    @property
    def step(self):
        return self.page.evaluate("window.h100sim.model.step")

    def text(self, selector):
        return self.page.inner_text(selector)


@pytest.fixture
def watch(chromium):
    """Return a function that opens watched pages; at the end none may have logged an error or left loopback."""
    pages: list[Watched] = []

    def new(**size):
        pages.append(Watched(chromium, **size))
        return pages[-1]

    yield new
    for watched in pages:
        watched.page.close()
        assert watched.errors == []
        assert watched.foreign == []


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
