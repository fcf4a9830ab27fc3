"""The browser of the views' tests, for the page of the report."""

from tests.viz.conftest import chromium, watch

__all__ = ["chromium", "watch"]
