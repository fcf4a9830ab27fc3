"""The page in a real headless Chromium: it loads without a network, and steps without asking the server.

The fixture ``watch`` fails a test whose page logged an error or warning, or asked anything of a host but this one.
"""

import dataclasses
import statistics
from types import SimpleNamespace

import numpy as np
import pytest

from h100sim.errors import DeadlockError
from h100sim.trace import Event
from viz.replay import TraceReplay
from viz.tiles import DTYPE_BYTES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def address(serve, replay):
    return serve(replay)


@pytest.fixture
def page(watch, address):
    watched = watch()
    watched.open(address)
    return watched


def playhead(watched):
    return watched.page.evaluate("document.getElementById('t-playhead').getBoundingClientRect().x")


def test_the_page_shows_the_run(page):
    assert "kernel gemm" in page.text("#h-facts") and page.text("#h-verdict") == "no hazards"
    assert "5,867 cycles" in page.text("#h-facts")
    assert "consumer 1" in page.text("#t-labels") and "TMA engine, SM 0" in page.text("#t-labels")
    assert page.page.evaluate("document.getElementById('h-message').hidden")
    assert page.text("#c-position").startswith("step 1 of 1,701, cycle 0")


def test_j_and_k_step_forward_and_back_and_move_the_playhead(page):
    page.press(*"jjjjj" * 20)
    assert page.step == 100
    there = playhead(page)
    page.press(*"]]]]]]")
    assert playhead(page) > there
    step = page.step
    page.press("k")
    assert page.step == step - 1
    page.press("End")
    assert page.text("#c-sentence").startswith("CTA ends")
    page.press("Home", "k")
    assert page.step == 0


def test_keys_pressed_back_to_back_are_all_counted(page):
    page.page.evaluate(
        "for (let i = 0; i < 30; i++) document.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))"
    )
    assert page.step == 30


def test_buttons_step(page):
    for button, step in (("forward", 1), ("forward", 2), ("back", 1), ("last", 1700), ("first", 0)):
        page.page.click(f"#c-{button}")
        assert page.step == step


def test_play_runs_and_pauses(page):
    page.press("Space")
    page.page.wait_for_function("window.h100sim.model.step > 2")
    page.press("Space")
    step = page.step
    page.page.wait_for_timeout(250)
    assert page.step == step


def test_stepping_by_warp_and_by_flip(page):
    page.page.select_option("#c-warp", label="w4 consumer 0")
    page.page.select_option("#c-kind", "warp")
    page.press("j", "j")
    assert page.text("#c-sentence").startswith("consumer 0 w4 ")
    page.page.select_option("#c-kind", "flip")
    page.press("j")
    assert page.text("#c-sentence") == "full[0] completes phase 0"
    page.press("j", "k")
    assert page.text("#c-sentence") == "full[0] completes phase 0"


def test_the_barrier_table_follows(page):
    row = "#b-table tbody tr:nth-child(1)"
    assert page.text(f"{row} td.phase") == "not initialised"
    page.press("]")
    assert page.text(f"{row} td.phase") == "1 (parity 1)"
    chips = page.page.eval_on_selector_all(f"{row} td.waiting em", "l => l.map(e => [e.textContent, e.title])")
    assert chips == [["C0 ×4", "consumer 0: w4 w5 w6 w7"], ["C1 ×4", "consumer 1: w8 w9 w10 w11"]]
    page.press("k")
    assert page.text(f"{row} td.phase") == "0 (parity 0)"
    assert page.text(f"{row} td.pending") == "0 of 1"
    page.page.evaluate("h100sim.goto(h100sim.model.next(-1, 'flip'))")
    page.page.click("#b-table tbody tr:nth-child(7)")
    page.settle()
    assert page.text("#b-ledger-name") == "empty[2] (pinned); cycle, event"
    assert "phase 0, parity 0 (now)" in page.text("#b-ledger")


def test_the_sources_mark_the_line_of_every_role(page):
    for _ in range(6):
        page.press("]")
    page.press("j", "j")
    chips = page.page.eval_on_selector_all("#s-python .chips em", "l => l.map(e => [e.textContent, e.title])")
    assert {c[0] for c in chips} == {"P", "C0", "C1"}
    assert sorted(w for _, title in chips for w in title.split(": ")[1].split()) == sorted(f"w{i}" for i in (0, *range(4, 12)))
    lit = page.text("#s-ptx .lit code")
    assert lit.strip().startswith(("mbarrier.", "wgmma.", "cp.async", "@%p"))
    visible = page.page.evaluate(
        """() => { const pane = document.getElementById('s-ptx').getBoundingClientRect();
                   const line = document.querySelector('#s-ptx .lit').getBoundingClientRect();
                   return line.top >= pane.top && line.bottom <= pane.bottom; }"""
    )
    assert visible


def test_the_shared_tile_shows_values_through_the_swizzle(page):
    page.page.evaluate("h100sim.goto(h100sim.model.data.shared_tile.tiles[0].versions[0])")
    page.page.wait_for_function("h100sim.sharedTile.values")
    assert page.text("#m-seen-title") == "as seen: 128×64 bf16, 128 B swizzle"
    page.page.evaluate("document.getElementById('m-pictures').scrollTop = 0")
    box = page.page.locator("#m-seen").bounding_box()
    cell = box["width"] / 64
    page.page.mouse.move(box["x"] + 9.5 * cell, box["y"] + 3.5 * cell)
    assert page.text("#m-hover") == "a[0] (3, 9) = 201, byte address 0x9a2, bank 8, 16-byte chunk 2 of row 3"
    stored = page.page.locator("#m-stored").bounding_box()
    page.page.mouse.move(stored["x"] + 17.5 * cell, stored["y"] + 3.5 * cell)
    assert page.text("#m-hover").startswith("a[0] (3, 9) = 201, byte address 0x9a2")


def test_a_click_on_a_line_goes_to_the_next_step_there_and_the_tile_shows_what_lanes_touch(page):
    page.page.click("#s-python .line:nth-child(19) code")
    page.settle()
    assert page.text("#c-sentence").endswith("(gemm.py:19)")
    page.press("j")
    assert page.text("#c-sentence").startswith("consumer 1 w8 writes shared memory, 16 bytes per lane")
    # The bytes come from a re-execution: until they are here the note says so.
    page.page.wait_for_function("!document.querySelector('#m-note').textContent.startsWith('Re-executing')")
    assert page.text("#m-note") == ("This step touches 32 × 16 bytes (yellow): bank conflict, 32 wavefronts instead of 4.")
    yellow = """() => { const c = document.getElementById('m-stored');
        const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true});
        copy.drawImage(c, 0, 0);
        const d = copy.getImageData(0, 0, c.width, c.height).data; let n = 0;
        for (let i = 0; i < d.length; i += 4) n += d[i] === 255 && d[i + 1] === 212 && d[i + 2] === 0; return n; }"""
    assert page.page.evaluate(yellow) == 32 * 16 // 2
    page.press("j", "j")
    assert page.page.evaluate(yellow) == 0


def test_every_element_type_is_decoded(page):
    decode = """([dtype, bytes]) => h100sim.decodeElement(dtype, new DataView(Uint8Array.from(bytes).buffer), 0)"""
    cases = {
        "bf16": ([0xC0, 0x3F], 1.5),
        "f16": ([0x00, 0xC2], -3.0),
        "f32": ([0, 0, 0x20, 0x40], 2.5),
        "tf32": ([0, 0, 0x80, 0x3F], 1.0),
        "e4m3": ([0x7E], 448.0),
        "e5m2": ([0x7B], 57344.0),
        "s8": ([0xFF], -1),
        "u8": ([0xFF], 255),
        "s16": ([0, 0x80], -32768),
        "u16": ([0, 0x80], 32768),
        "s32": ([0xFE, 0xFF, 0xFF, 0xFF], -2),
        "u32": ([1, 0, 0, 0x80], 0x80000001),
    }
    assert set(cases) == set(DTYPE_BYTES)
    for dtype, (stored, value) in cases.items():
        assert page.page.evaluate(decode, [dtype, stored]) == value, dtype


def test_a_click_in_the_timeline_goes_there(page):
    box = page.page.locator("#t-bars").bounding_box()
    page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 70)
    page.settle()
    assert page.text("#c-sentence").startswith("consumer 0 w4 ")
    assert abs(playhead(page) - box["x"] - box["width"] / 2) < 80


def violet(watched):
    """Return how many pixels of the timeline are of the critical path's colour."""
    return watched.page.evaluate(
        """() => { const c = document.getElementById('t-bars');
            const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true});
            copy.drawImage(c, 0, 0);
            const d = copy.getImageData(0, 0, c.width, c.height).data; let n = 0;
            for (let i = 0; i < d.length; i += 4) n += d[i] === 94 && d[i + 1] === 0 && d[i + 2] === 184; return n; }"""
    )


def test_the_critical_path_is_drawn_listed_and_leads_to_its_events(watch, address):
    page = watch()
    page.open(address)
    assert not page.page.is_visible("#p-path") and violet(page) == 0
    page.page.click("#p-switch")
    assert page.text("#p-elsewhere") == "It does not run through this CTA but through CTA 1"
    page.page.click("#p-elsewhere button")
    page.page.wait_for_function("h100sim.criticalPath.state.marks.length > 0")
    page.settle()
    assert page.page.get_attribute("#p-switch", "aria-pressed") == "true"
    assert page.page.is_visible("#p-path") and not page.page.is_visible("#p-elsewhere") and violet(page) > 500
    shares = page.page.eval_on_selector_all(
        "#p-shares td.number:first-child", "l => l.map(e => Number(e.textContent.replace(/,/g, '')))"
    )
    assert sum(shares) == 5867 and shares == sorted(shares, reverse=True)
    page.page.click("#p-links tr:has-text('TMA loads') >> nth=0")
    page.settle()
    assert page.text("#c-sentence").startswith("TMA engine completes a tensor load of")
    assert "now" in page.page.get_attribute("#p-links tr:has-text('TMA loads') >> nth=0", "class")
    page.press("c")
    assert not page.page.is_visible("#p-path") and violet(page) == 0


def test_a_bar_on_the_critical_path_says_why_and_every_copy_its_slack(watch, address):
    page = watch()
    page.open(address + "#cta=1&step=1")
    page.press("c")
    where = """() => { const { view } = h100sim.timeline, { links } = h100sim.model.data.critical_path;
        const m = h100sim.criticalPath.state.marks.find(
            m => m.row.lane.kind === 'tma' && links.unit[links.number.indexOf(m.link)] === 'TMA loads');
        return [((m.from + m.to) / 2 - view.from) * view.width / (view.to - view.from), m.row.y + 1]; }"""
    x, y = page.page.evaluate(where)
    box = page.page.locator("#t-bars").bounding_box()
    page.page.mouse.move(box["x"] + x, box["y"] + y)
    tip = page.text("#t-tip")
    assert "critical path: TMA loads, bytes are on their way from L2 or HBM" in tip
    assert "slack: none" in tip or "slack: its end could come" in tip


def test_another_cta_can_be_chosen(page):
    page.page.select_option("#h-cta", "1")
    page.page.wait_for_function("h100sim.model.data.header.cta === 1")
    page.settle()
    assert "TMA engine, SM 1" in page.text("#t-labels")


def test_the_address_leads_to_the_step(page, watch, address):
    page.press("]")
    page.page.wait_for_function("location.hash.includes('step=')")
    again = watch()
    again.open(address + page.page.evaluate("location.hash"))
    assert again.step == page.step > 0


def test_a_step_takes_at_most_a_few_frames(page):
    times = page.page.evaluate(
        """async () => { const times = [];
            for (let i = 0; i < 120; i++) {
                const from = performance.now();
                h100sim.goto(h100sim.model.step + 7);
                for (const view of h100sim.views) view.update(h100sim.model);
                times.push(performance.now() - from);
                await new Promise(requestAnimationFrame);
            }
            return times; }"""
    )
    # The median: a busy machine delays single frames.
    assert statistics.median(times) < 50


def test_hazards_and_errors_are_shown_and_lead_to_their_steps(watch, serve, made, trace):
    issued = trace.events["kind"] == Event.TMA_ISSUED
    event, other = (int(np.flatnonzero(issued & (trace.events["cta"] == cta))[2]) for cta in (0, 1))
    first, second = SimpleNamespace(event=event, cta=0), SimpleNamespace(event=other, cta=1)
    hazard = SimpleNamespace(kind="race", message="stores must be ordered", first=first, second=second)
    replay = made.FilledReplay(trace, hazards=(hazard,))
    replay.error = DeadlockError("no warp can proceed at cycle 5,867", ("producer waits for empty[2]",))
    watched = watch()
    watched.open(serve(replay))
    assert watched.text("#h-verdict") == "no warp can proceed at cycle 5,867"
    assert "producer waits for empty[2]" in watched.text("#z-list .error")
    assert watched.text("#c-sentence").startswith("CTA ends")
    watched.page.click("#z-list .access >> nth=0")
    watched.settle()
    assert watched.page.evaluate("h100sim.model.steps.event[h100sim.model.step]") == event
    assert watched.text("#c-sentence").startswith("producer w0 gives the TMA engine a tensor load of 16,384 bytes, ")
    assert watched.text("#z-list .access >> nth=1") == "second access, CTA 1"
    watched.page.click("#z-list .access >> nth=1")
    watched.page.wait_for_function(f"h100sim.model.steps.event[h100sim.model.step] === {other}")


def test_a_warp_without_a_role_is_called_by_its_number_once(watch, serve, trace):
    kernel = dataclasses.replace(trace.kernel, roles=(), block=(352, 1, 1))
    watched = watch()
    watched.open(serve(dataclasses.replace(trace, kernel=kernel)))
    watched.press("j", "j")
    assert watched.text("#c-sentence") == "warp 0 initialises full[0] with 1 expected arrivals (gemm.py:5)"
    assert watched.page.inner_text("#c-warp option >> nth=3") == "warp 3"
    assert "w0–" not in watched.text("#t-labels .lane >> nth=1")


def test_what_changed_numbers_did_to_the_launch_stands_in_the_header(watch, serve, trace):
    note = "What if tma.latency_cycles=800: 5,867 cycles instead of 5,311 (+10.5%)\n  consumer 0: full: TMA latency +556"
    watched = watch()
    watched.open(serve(TraceReplay(trace, (), note=note)))
    assert watched.text("#h-note") == note.split("\n")[0]
    assert watched.page.get_attribute("#h-note", "title") == note
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_kernel_without_sources_tiles_or_barriers_is_still_shown(watch, serve, trace):
    kernel = dataclasses.replace(
        trace.kernel, sources=(None,) * len(trace.kernel.sources), files={}, tiles=(), semaphores=(), roles=()
    )
    kinds = [k for k in Event if k.name.startswith(("MBARRIER", "TMA", "BARRIER", "MEMORY"))]
    bare = trace.events[~np.isin(trace.events["kind"], kinds)]
    watched = watch()
    watched.open(serve(dataclasses.replace(trace, kernel=kernel, events=bare)))
    watched.press("j", "j", "]", "End")
    assert watched.text("#s-python").startswith("This PTX names no source lines")
    assert watched.text("#m-note") == "This CTA has no shared tile that the kernel names or a bulk copy uses."
    assert watched.text("#b-ledger") == "This CTA uses no mbarrier."
    assert "warpgroup 2" in watched.text("#t-labels")


def test_a_bar_says_what_it_is(page):
    box = page.page.locator("#t-bars").bounding_box()
    page.page.mouse.move(box["x"] + 60, box["y"] + 70)
    page.page.mouse.move(box["x"] + 62, box["y"] + 70)
    assert page.text("#t-tip").startswith("consumer 0 w4 waits for full[0]\ncycles ")


def test_a_trace_without_memory_says_so(watch, serve, trace):
    watched = watch()
    watched.open(serve(trace))
    assert watched.text("#m-note") == "This trace carries no memory: the picture shows the layout only."
    assert watched.text("#h-verdict") == "not checked"


def test_the_exported_file_steps_and_shows_tiles(watch, replay, tmp_path):
    from viz.html import export

    watched = watch()
    watched.open(export(replay, tmp_path / "run.html").as_uri())
    watched.press("]", "j")
    assert "full[0]" in watched.text("#b-ledger-name")
    watched.page.wait_for_function("h100sim.sharedTile.values")


def test_a_hundred_thousand_events_are_drawn_by_the_pixel(watch, serve, made):
    """What is narrower than a pixel shares one, so the work of a frame is bounded by the screen and not by the trace."""
    watched = watch()
    watched.open(serve(made.make_trace(ctas=1, steps=580)))
    assert watched.page.evaluate("h100sim.model.length") > 100_000
    most = watched.page.evaluate(
        """() => { const view = h100sim.timeline.view; const span = view.to - view.from; const counts = [];
            const kind = CanvasRenderingContext2D.prototype, fill = kind.fillRect; let drawn = 0;
            kind.fillRect = function (...box) { drawn++; return fill.apply(this, box); };
            for (let i = 0; i < 20; i++) {
                view.from = 50 * i; view.to = 50 * i + (i % 2 ? span : span / 20);
                drawn = 0; h100sim.timeline.draw(); counts.push(drawn);
            }
            kind.fillRect = fill;
            return Math.max(...counts); }"""
    )
    assert 100 < most < 20_000
