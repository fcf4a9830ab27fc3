"""The single file: complete, small, and asking nobody for anything."""

import re

import pytest
from dash import dcc, html

from h100sim.errors import UsageError
from viz.html import export, render


def test_the_file_names_no_other_resource(replay, tmp_path):
    text = export(replay, tmp_path / "run.html").read_text()
    outside_data = re.sub(r'<script type="[^"]*/[^"]*".*?</script>', "", text, flags=re.S)
    assert not re.search(r"(src|href)=|https?://|@import|url\(", outside_data)
    assert len(text) < 2_500_000


def test_the_same_run_gives_the_same_file(replay, tmp_path):
    first, second = (export(replay, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_only_the_chosen_ctas_are_in_it(replay, tmp_path):
    text = export(replay, tmp_path / "run.html", ctas=[1]).read_text()
    assert 'id="h-recording-1"' in text and 'id="h-recording-0"' not in text


def test_no_cta_is_refused(replay, tmp_path):
    with pytest.raises(UsageError, match=r"^ctas must name at least one CTA, not none$"):
        export(replay, tmp_path / "run.html", ctas=[])


def test_rendering_escapes_text_and_attributes():
    component = html.Div(["a < b", html.Span(id='"x"', hidden=True)], className="c")
    assert render(component) == '<div class="c">a &lt; b<span id="&quot;x&quot;" hidden></span></div>'


def test_rendering_refuses_what_needs_dash():
    with pytest.raises(TypeError, match=r"^component must be of dash.html, not dash_core_components.Store$"):
        render(dcc.Store(id="s"))
