"""The report as one HTML page that needs no network: silicon and the simulator side by side, as bars, curves and timelines.

It shows what ``validate report`` counts (:mod:`validate.accuracy`): the signed error of every case, the measured laws as curves,
sweeps over the stages of a ring, and the committed timelines of an H200 with those of the same kernels here.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from h100sim.errors import H100SimError, UsageError

from . import accuracy, capture, overlay, probes, timeline
from .accuracy import Case
from .timeline import Timeline

SILICON, HERE, HELD_OUT, FITTED = "#222222", "#0072b2", "#d55e00", "#8a95a0"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#8a6d00", "#56b4e9", "#666666", "#882255")
_PERCENT = "+.1%"

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1b2530; background: #f4f6f8; margin: 0; }
main { max-width: 1180px; margin: 0 auto; padding: 12px 20px 40px; } h1 { font-size: 22px; } h2 { font-size: 17px; margin: 4px 0 6px; }
section { background: #fff; border: 1px solid #d5dae0; border-radius: 6px; padding: 8px 14px 12px; margin-top: 12px; }
table { border-collapse: collapse; font-size: 13px; } 
th, td { text-align: left; padding: 2px 14px 2px 0; border-bottom: 1px solid #eef1f4; }
td { white-space: nowrap; } td:last-child { white-space: normal; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.note { color: #5b6875; } .bad { color: #b03a00; font-weight: 600; }
"""


@dataclass(frozen=True)
class Curve:
    """A law along a quantity: the same points here and on silicon."""

    name: str
    x: list[float]
    here: list[float]
    there: list[float]


def document(cases: Sequence[Case], measured: Sequence[Case], bits: Sequence[dict[str, Any]] = ()) -> str:
    """Return the page. ``measured`` may be empty (``--quick``); ``bits``: the captures whose bits were compared."""
    parts = [
        _section("Where the numbers of silicon come from", _provenance(cases, measured)),
        _section("Errors in short", _summary(cases, measured)),
        _section("Cycles per CTA: signed error of every case", _errors(cases), _table(cases)),
    ]
    if wrong := accuracy.far_off(cases):
        rows = [(case.name, f"{case.error:{_PERCENT}}", why) for case, why in wrong]
        parts.append(
            _section(
                f"Off by more than {accuracy.FAR_OFF:.0%}, and why",
                _rows(("capture", "error", "what is understood of it"), rows, (1,)),
            )
        )
    if bits:
        parts.append(_section("Bits of the outputs", _bits(bits)))
    if sweeps := list(_sweeps(cases)):
        parts.append(_section("Stages of a ring", *(_drawn(_sweep(name, curves)) for name, curves in sweeps)))
    if measured:
        parts.append(_section("Measured laws", *_laws(measured)))
    parts += [_section(f"Timeline of {name}", *_overlaid(path)) for name, path in recorded()]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>h100sim beside silicon</title>',
            f"<style>{_STYLE}</style>",
            f"<script>{get_plotlyjs()}</script></head><body><main>",
            "<h1>h100sim beside silicon</h1>",
            "<p>The same PTX on a GPU and in the simulator. An error is what is counted here over what was counted there, less 1: "
            "above 0 the simulator is slower than silicon. Cases marked as held out had no say in any number of the device models.</p>",
            *parts,
            "</main></body></html>",
            "",
        ]
    )


def write(path: Path, text: str) -> None:
    """Write the page. Raises UsageError where that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"file must be one that can be written, not {path} ({error.strerror})") from None


# --- text and tables --------------------------------------------------------------------------------------------------


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def _rows(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    """Return a table of texts; columns in ``numbers`` are aligned as such."""

    def line(tag: str, cells: Sequence[Any]) -> str:
        marks = (' class="number"' if k in numbers else "" for k in range(len(cells)))
        return "".join(f"<{tag}{mark}>{html.escape(str(cell))}</{tag}>" for mark, cell in zip(marks, cells, strict=True))

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _provenance(cases: Sequence[Case], measured: Sequence[Case]) -> str:
    """Return which cards, drivers and days the captures and probes are of."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for facts in (
        *(capture.load(case.name).facts for case in cases),
        *map(probes.silicon_answer, dict.fromkeys(c.group for c in measured)),
    ):
        if facts is not None:
            key = tuple(str(facts[name]) for name in ("card", "driver", "cuda", "date"))
            found[key].append(f"probe {facts['probe']}" if "probe" in facts else "capture")
    rows = [
        (*key, of.count("capture"), ", ".join(name.removeprefix("probe ") for name in of if name != "capture") or "-")
        for key, of in sorted(found.items())
    ]
    return _rows(("card", "driver", "CUDA", "date", "captured programs", "probes"), rows, (4,)) + (
        '<p class="note">No GPU was used to make this page: silicon is what was captured and committed in validate/silicon.</p>'
    )


def _summary(cases: Sequence[Case], measured: Sequence[Case]) -> str:
    rows = []
    for title, chosen in accuracy.groups(cases):
        s = accuracy.summarise(chosen)
        rows.append((title, s.cases, f"{s.mean:.1%}", f"{s.largest:.1%}", s.worst, ""))
    for name, (what, allowed) in accuracy.LAWS.items():
        if chosen := [case for case in measured if case.group == name]:
            s = accuracy.summarise(chosen)
            verdict = f"{'within' if s.largest <= allowed else 'NOT within'} {allowed:.0%}"
            rows.append((f"{name}: {what}", s.cases, f"{s.mean:.1%}", f"{s.largest:.1%}", s.worst, verdict))
    return _rows(("what", "cases", "mean error", "largest", "that is", "allowed"), rows, (1, 2, 3))


def _table(cases: Sequence[Case]) -> str:
    rows = []
    for case in cases:
        facts = capture.load(case.name).facts
        config = " ".join(f"{name}={value}" for name, value in facts["config"].items())
        kind = "stale: its PTX has changed since" if case.is_stale else "fitted" if case.is_fitted else "held out"
        rows.append(
            (
                case.name,
                f"{facts['program']} {config}",
                f"{case.here:,.0f}",
                f"{case.there:,.0f}",
                f"{case.error:{_PERCENT}}",
                kind,
                facts["date"],
            )
        )
    table = _rows(("capture", "program and settings", "here", "silicon", "error", "", "captured"), rows, (2, 3, 4))
    return f"<details><summary>All {len(rows)} cases as a table</summary>{table}</details>"


def _bits(bits: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            row["capture"],
            "cycles only: too large to compare bits"
            if not row["bits_compared"]
            else "; ".join(row["differences"]) or "every bit the same",
        )
        for row in bits
    ]
    return _rows(("capture", "outputs here and on silicon"), rows)


# --- figures ----------------------------------------------------------------------------------------------------------


def _drawn(figure: go.Figure, height: int = 360) -> str:
    figure.update_layout(
        height=height, margin={"l": 60, "r": 20, "t": 64, "b": 44}, template="plotly_white", font={"size": 12},
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0}, 
        title={"y": 1, "yanchor": "top", "yref": "container", "pad": {"t": 6}},
    )  # fmt: skip
    # The ids of plots are random otherwise: the same data give the same page.
    name = f"plot-{hashlib.sha256(figure.to_json().encode()).hexdigest()[:12]}"
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config={"displaylogo": False}))


def _errors(cases: Sequence[Case]) -> str:
    """Return a bar for each case, programs together, held-out ones in another colour."""
    ordered = sorted((case for case in cases if not case.is_stale), key=lambda case: (case.group, case.name), reverse=True)
    figure = go.Figure()
    for title, colour, is_fitted in (("held out of every fit", HELD_OUT, False), ("had a say in a fit", FITTED, True)):
        chosen = [case for case in ordered if case.is_fitted == is_fitted]
        figure.add_bar(
            x=[case.error for case in chosen], y=[case.name for case in chosen], orientation="h", name=title, marker_color=colour,
            customdata=[(case.here, case.there) for case in chosen],
            hovertemplate="%{y}: %{x:+.1%}<br>here %{customdata[0]:,.0f}, silicon %{customdata[1]:,.0f} cycles<extra></extra>",
        )  # fmt: skip
    figure.add_vrect(x0=-0.05, x1=0.05, fillcolor="#009e73", opacity=0.12, line_width=0, layer="below")
    figure.update_yaxes(
        categoryorder="array", categoryarray=[case.name for case in ordered], automargin=True, tickfont={"size": 11}
    )
    figure.update_xaxes(tickformat="+.0%", title="signed error (green: within 5 %)", zeroline=True, zerolinecolor="#222")
    return _drawn(figure, 120 + 17 * len(ordered))


def _curves(title: str, curves: Sequence[Curve], x: str, y: str, is_log: bool = True) -> go.Figure:
    """Return silicon as marks and the simulator as lines, a colour per curve."""
    title = f"{title}{' - ' * bool(title)}lines: here, rings: silicon"
    figure = go.Figure(layout={"title": {"text": title, "font": {"size": 14}}})
    for k, curve in enumerate(curves):
        colour = _COLOURS[k % len(_COLOURS)]
        error = [here / there - 1 for here, there in zip(curve.here, curve.there, strict=True)]
        hover = f"{curve.name}, {x} %{{x:,}}<br>%{{y:,.4g}}"
        figure.add_scatter(
            x=curve.x, y=curve.here, mode="lines", name=curve.name, line={"color": colour, "width": 2}, customdata=error,
            legendgroup=curve.name, hovertemplate=hover + " here (%{customdata:+.1%})<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=curve.x, y=curve.there, mode="markers", name=curve.name, showlegend=False, 
            marker={"color": colour, "size": 8, "symbol": "circle-open", "line": {"width": 2}}, legendgroup=curve.name,
            hovertemplate=hover + " on silicon<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(
        title=x, type="log" if is_log else "linear", tickvals=sorted({v for c in curves for v in c.x}), tickformat=","
    )
    figure.update_yaxes(title=y, rangemode="tozero", tickformat=",")
    return figure


def _sweeps(cases: Sequence[Case]) -> Iterator[tuple[str, list[Curve]]]:
    """Yield the captures of one program that differ in ``stages`` only, at least three of them."""
    found: dict[str, dict[int, Case]] = defaultdict(dict)
    for case in cases:
        facts = capture.load(case.name).facts
        config = dict(facts["config"])
        stages = config.pop("stages", None)
        if stages is not None and not case.is_stale:
            found[f"{facts['program']} " + " ".join(f"{k}={v}" for k, v in config.items())][stages] = case
    for name, of in found.items():
        if len(of) >= 3:
            points = sorted(of.items())
            yield name, [Curve("cycles", [s for s, _ in points], [c.here for _, c in points], [c.there for _, c in points])]


def _sweep(name: str, curves: list[Curve]) -> go.Figure:
    return _curves(name, curves, "stages", "cycles of a CTA", is_log=False)


def _laws(measured: Sequence[Case]) -> Iterator[str]:
    for name, (what, _) in accuracy.LAWS.items():
        chosen = [case for case in measured if case.group == name]
        if not chosen:
            continue
        silicon = probes.silicon_answer(name)
        yield f"<h3>{html.escape(name)}</h3><p>{html.escape(silicon['question'] if silicon else what)}</p>"
        curves, x = _along(name, chosen)
        yield _drawn(_curves("", curves, x, what)) if curves else _drawn(_bars(chosen, what), 160 + 18 * len(chosen))


def _along(name: str, cases: Sequence[Case]) -> tuple[list[Curve], str]:
    """Return the curves that the names of a law's numbers tell, and along what; none where they are not of one quantity."""
    forms = {
        "wgmma_rate": (r"(?P<a>ss|rs) n(?P<x>\d+) \[(?P<b>\d)\]", "N"),
        "tma_load_latency": (r"(?P<a>\d+) x (?P<x>\d+)", "bytes of a box"),
        "tma_store_latency": (r"(?P<a>\d+) x (?P<x>\d+)", "bytes of a box"),
        "bulk_copy_latency": (r"(?P<x>\d+) bytes", "bytes"),
    }
    if name not in forms:
        return [], ""
    pattern, along = forms[name]
    points: dict[str, list[tuple[float, Case]]] = defaultdict(list)
    for case in cases:
        if match := re.fullmatch(pattern, case.name):
            points[_curve_name(name, match.groupdict())].append((float(match["x"]), case))
    curves = [
        Curve(key, *map(list, zip(*sorted((x, case.here, case.there) for x, case in of), strict=True)))
        for key, of in points.items()
        if len(of) >= 2
    ]
    return curves, along


def _curve_name(name: str, fields: dict[str, str]) -> str:
    if name == "wgmma_rate":
        groups = int(fields["b"]) + 1
        return f"A in {'shared memory' if fields['a'] == 'ss' else 'registers'}, {groups} warpgroup{'s' * (groups > 1)}"
    return f"{fields['a']} at a time" if "a" in fields else "one copy"


def _bars(cases: Sequence[Case], what: str) -> go.Figure:
    figure = go.Figure()
    names = [case.name for case in cases][::-1]
    for title, colour, values in (("silicon", SILICON, [c.there for c in cases]), ("here", HERE, [c.here for c in cases])):
        figure.add_bar(
            x=values[::-1],
            y=names,
            orientation="h",
            name=title,
            marker_color=colour,
            hovertemplate="%{y}: %{x:,.4g}<extra></extra>",
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title=what)
    figure.update_yaxes(automargin=True, tickfont={"size": 11})
    return figure


# --- timelines --------------------------------------------------------------------------------------------------------


def recorded(folder: Path = capture.SILICON) -> list[tuple[str, Path]]:
    """Return (name, file) of the committed timelines of a GPU."""
    return [(path.stem.removeprefix("timeline_"), path) for path in sorted(folder.glob("timeline_*.json"))]


def simulated(there: Timeline) -> Timeline:
    """Return the timeline here of the program of a timeline with its usual settings and with the same kinds of record: each costs
    instructions."""
    kernel, arrays, _ = capture.build(there.kernel, {}, 0)
    return timeline.record(kernel, arrays, on="sim", names=overlay.kinds(there))


def _overlaid(path: Path) -> Iterator[str]:
    """Yield a recorded timeline over one of the same kernel here, and how far apart each event is."""
    there = Timeline.load(path)
    try:
        here = simulated(there)
        found = list(overlay.pairs(here, there))
    except H100SimError as error:
        yield f'<p class="bad">It cannot be laid over one made here: {html.escape(str(error))}</p>'
        return
    cta = min(pair.cta for pair in found)
    total = sum(len(overlay.settled(there.of_warp(*key))) for key in {(e.cta, e.warp) for e in there.events})
    facts = ", ".join(f"{key} {value}" for key, value in there.facts.items()) or "driver and date were not recorded with it"
    yield (
        f"<p>{html.escape(there.source)} ({html.escape(facts)}) and {html.escape(here.source)}, with the same records in the text: "
        f"{len(found):,} of {total:,} events match. CTA {cta}, one warp of each warpgroup; "
        "a bar is a wait, a mark an issue or an arrival.</p>"
    )
    warps = sorted({pair.warp // 4: pair.warp for pair in sorted(found, key=lambda p: -p.warp) if pair.cta == cta}.values())
    yield _drawn(_gantt(there, here, cta, warps), 150 + 46 * len(warps))
    yield _drawn(_residuals([pair for pair in found if pair.cta == cta and pair.warp in warps]), 300)


def _gantt(there: Timeline, here: Timeline, cta: int, warps: Sequence[int]) -> go.Figure:
    figure = go.Figure()
    lanes = [(f"warp {warp}, {'silicon' if of is there else 'here'}", warp, of) for warp in warps for of in (there, here)]
    kinds: dict[str, str] = {}
    for label, warp, of in lanes:
        waits, marks = _spans(of, cta, warp)
        for name in dict.fromkeys(wait[0].rsplit(" ", 1)[0] for wait in waits):
            colour = kinds.setdefault(name, _COLOURS[len(kinds) % len(_COLOURS)])
            chosen = [wait for wait in waits if wait[0].rsplit(" ", 1)[0] == name]
            is_first = name not in {trace.name for trace in figure.data}
            figure.add_bar(
                base=[begin for _, begin, _ in chosen], x=[end - begin for _, begin, end in chosen], y=[label] * len(chosen), orientation="h",
                name=name, legendgroup=name, showlegend=is_first, marker_color=colour,
                customdata=[(site, begin, end) for site, begin, end in chosen],
                hovertemplate="%{y}: %{customdata[0]}<br>cycles %{customdata[1]:,} to %{customdata[2]:,}<extra></extra>",
            )  # fmt: skip
        figure.add_scatter(
            x=[at for _, at in marks], y=[label] * len(marks), mode="markers", name="issue or arrival", legendgroup="marks",
            showlegend=label == lanes[0][0], marker={"symbol": "line-ns-open", "size": 12, "color": SILICON},
            text=[site for site, _ in marks],
            hovertemplate="%{y}: %{text}<br>cycle %{x:,}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_yaxes(categoryorder="array", categoryarray=[label for label, _, _ in lanes][::-1], automargin=True)
    figure.update_xaxes(title="cycles since the first record of the CTA", tickformat=",")
    return figure


def _spans(of: Timeline, cta: int, warp: int) -> tuple[list[tuple[str, int, int]], list[tuple[str, int]]]:
    """Return the waits (site, begin, end) of a warp, and its other records (site, cycle)."""
    waits, marks, begun = [], [], {}
    for event in overlay.settled(of.of_warp(cta, warp)):
        site = of.sites[event.instruction]
        if event.side == "begin":
            begun[event.instruction] = event.cycle
        elif event.instruction in begun:
            waits.append((site, begun.pop(event.instruction), event.cycle))
        else:
            marks.append((site, event.cycle))
    return waits, marks


def _residuals(found: Sequence[overlay.Pair]) -> go.Figure:
    """Return how much later each event came here than on silicon, along the time of silicon."""
    figure = go.Figure(layout={"title": {"text": "Cycles that each event comes later here than on silicon", "font": {"size": 14}}})
    for k, warp in enumerate(sorted({pair.warp for pair in found})):
        own = sorted((pair for pair in found if pair.warp == warp), key=lambda pair: pair.there)
        figure.add_scatter(
            x=[pair.there for pair in own], y=[pair.here - pair.there for pair in own], mode="lines+markers", name=f"warp {warp}",
            line={"color": _COLOURS[k % len(_COLOURS)], "width": 1.5}, marker={"size": 4}, text=[f"{pair.name} {pair.side}" for pair in own],
            hovertemplate="%{text}: %{y:+,} at cycle %{x:,}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="cycle on silicon", tickformat=",")
    figure.update_yaxes(title="here less silicon", tickformat="+,", zerolinecolor="#222")
    return figure
