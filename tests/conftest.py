"""What all tests share: ``--gpu``, a Chromium (one for each worker: Playwright starts once in a process), the size thermometer."""

from __future__ import annotations

import shutil

import hypothesis
import pytest

# A test never asserts a time, so no example may be called too slow either.
hypothesis.settings.register_profile("h100sim", deadline=None)
hypothesis.settings.load_profile("h100sim")

#: Where the tests look for a browser, in this order.
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="also run the tests that need a Hopper GPU and CuPy")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``on`` in the simulator and, with ``--gpu``, the same body on the GPU."""
    if "on" in metafunc.fixturenames:
        places = [
            pytest.param("sim"),
            *([pytest.param("gpu", marks=pytest.mark.gpu)] if metafunc.config.getoption("--gpu") else []),
        ]
        metafunc.parametrize("on", places)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    no_gpu = pytest.mark.skip(reason="needs a Hopper GPU and CuPy: run with --gpu")
    for item in items:
        if "gpu" in item.keywords and not config.getoption("--gpu"):
            item.add_marker(no_gpu)


def chromium_path() -> str | None:
    """Return the path of the first Chromium found, or None."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium that may talk to loopback only; ``requests`` lists what it asked of anybody else."""
    executable = chromium_path()
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM_NAMES)} is on PATH")
    sync_api = pytest.importorskip("playwright.sync_api", reason="no browser driver: the package playwright is missing")
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether the browser tests could run, and print what tests recorded as ``thermometer``."""
    path = chromium_path()
    found = f"Chromium for the browser tests: {path}" if path else "No Chromium was found: the browser tests were skipped"
    terminalreporter.write_line(found)
    for report in terminalreporter.stats.get("passed", ()):
        for name, text in report.user_properties:
            if name == "thermometer":
                terminalreporter.write_line(text)
