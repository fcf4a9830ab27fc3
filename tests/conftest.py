"""Options and reports that all tests share: ``--gpu``, whether there is a Chromium, and the size thermometer."""

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether the browser tests could run, and print what tests recorded as ``thermometer``."""
    path = chromium_path()
    found = f"Chromium for the browser tests: {path}" if path else "No Chromium was found: the browser tests were skipped"
    terminalreporter.write_line(found)
    for report in terminalreporter.stats.get("passed", ()):
        for name, text in report.user_properties:
            if name == "thermometer":
                terminalreporter.write_line(text)
