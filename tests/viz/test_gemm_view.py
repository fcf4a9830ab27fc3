"""The view of the real program: the GEMM, simulated, stepped through with its memory in a headless Chromium."""

import base64

import numpy as np
import pytest

import tk_programs.gemm
from h100sim.debugger import Replay
from h100sim.host import Device
from h100sim.trace import Event
from viz.recording import Launch, record
from viz.tiles import element_addresses
from viz.views import shared_tile, timeline


@pytest.fixture(scope="module")
def inputs():
    return tk_programs.gemm.inputs(0)


@pytest.fixture(scope="module")
def real(inputs):
    kernel = tk_programs.gemm.build()
    device = Device()
    buffers = [device.asarray(array) for array in kernel.arrays(*inputs)]
    arguments = kernel.launch_args(*buffers, address_of=lambda buffer: buffer.address)
    function = kernel.function()
    launch = {"shared_mem": kernel.shared_bytes, "device": device, "checks": "off"}
    debugger = function.debug(kernel.grid, kernel.block, arguments, **launch)
    return Replay(debugger)


@pytest.fixture(scope="module")
def shown(real):
    return record(Launch(real), 0)


def test_every_wait_copy_and_wgmma_has_a_beginning_and_an_end(shown):
    assert (shown.waits["resumed"] >= shown.waits["blocked"]).all()
    for units in (shown.copies, shown.wgmmas):
        assert (units["completed"] > units["issued"]).all() and len(units) > 10


def test_bars_name_tiles_and_barriers_of_the_program(shown):
    texts = timeline.data(shown)["bars"]["texts"]
    assert {"full[0]", "a[0][0] · b[0], consumer 0", "load a[1][1] 8,192 B", "store c[0] 16,384 B"} <= set(texts)


def test_a_loaded_tile_holds_the_block_of_the_input(real, shown, inputs):
    load = np.flatnonzero((shown.steps["kind"] == Event.TMA_COMPLETED) & (shown.steps["a"] == 0))
    for name, block in (("a[0][1]", inputs[0][64:128, :64]), ("b[1]", inputs[1][64:128, :128])):
        index = next(i for i, tile in enumerate(shown.tiles) if tile.name == name)
        tile = shown.tiles[index]
        step = int(shared_tile.data(shown)["tiles"][index]["versions"][0])
        assert step in load
        held = np.frombuffer(base64.b64decode(shared_tile.picture(real, shown, tile, step)["bytes"]), np.uint16)
        seen = held[(element_addresses(tile) - tile.offset) // 2]
        assert (seen == block.view(np.uint16)).all()


def roles(watched) -> set[str]:
    """Return the roles that have a chip at a line of the program."""
    return set(watched.page.eval_on_selector_all("#s-python .chips em", "l => l.map(e => e.textContent)"))


@pytest.mark.browser
def test_the_gemm_can_be_stepped_through_with_its_values(watch, serve, real, inputs):
    watched = watch()
    watched.open(serve(real))
    watched.press("]")
    assert watched.text("#c-sentence") == "full[0] completes phase 0"
    watched.page.wait_for_function("h100sim.sharedTile.values && h100sim.sharedTile.tile.name === 'b[0]'")
    value = watched.page.evaluate("h100sim.sharedTile.values[3 * 128 + 70]")
    assert value == float(inputs[1][3, 70])
    # The producer has issued all four steps by then, and ended.
    assert roles(watched) == {"C0", "C1"}
    line = watched.text("#s-python .line:has(.chips em:text-is('C1')) code")
    assert line.strip().startswith("tk.wait(full[")
    watched.press("End", "k", "k")
    watched.press("Home", "j")
    assert watched.step == 1
    assert roles(watched) == {"P"}
