"""The plain views: header, controls, source, shared tiles, hazards."""

import base64
import dataclasses
from types import SimpleNamespace

import numpy as np

from viz import page, wire
from viz.recording import Launch
from viz.tiles import element_addresses
from viz.views import controls, hazards, header, shared_tile, source


def test_header_states_the_launch(recording):
    facts = header.data(recording)
    assert (facts["kernel"], facts["grid"], facts["device"], facts["hazards"]) == ("gemm", (2, 1, 1), "h100-sxm", 0)
    assert header.data(dataclasses.replace(recording, hazards=None))["hazards"] == -1


def test_header_lists_the_ctas(replay):
    assert header.ctas(Launch(replay))["cta"] == [0, 1]


def test_controls_carry_every_step_and_the_place_of_every_instruction(recording):
    data = controls.data(recording)
    assert len(data["steps"]["time"]) == len(recording.steps)
    assert data["places"][3] == "gemm.py:9"


def test_source_maps_instructions_to_both_texts(made, recording):
    data = source.data(recording)
    lines = data["files"][0]["text"].split("\n")
    ptx = data["ptx"].split("\n")
    assert "tk.wait(empty" in lines[data["line"][made.PC["empty"]] - 1]
    assert "wgmma.mma_async" in ptx[data["ptx_line"][made.PC["mma"]] - 1]


def test_source_without_a_text_keeps_its_name(recording):
    kernel = dataclasses.replace(recording.kernel, files={})
    data = source.data(dataclasses.replace(recording, kernel=kernel))
    assert data["files"] == [{"name": "gemm.py", "path": "programs/gemm.py", "text": None}]


def test_picture_gives_the_bytes_that_memory_held_then(replay, recording):
    data = shared_tile.data(recording)["tiles"][0]
    tile = recording.tiles[0]
    before = shared_tile.picture(replay, recording, tile, int(data["versions"][0]) - 1)["bytes"]
    after = shared_tile.picture(replay, recording, tile, int(data["versions"][0]))["bytes"]
    assert not any(base64.b64decode(before))
    bits = np.frombuffer(base64.b64decode(after), np.uint16).astype(np.uint32) << 16
    values = bits.view(np.float32)[(element_addresses(tile) - tile.offset) // 2]
    assert (values[:4].ravel() == np.arange(256)).all()


def test_tiles_of_one_shape_share_a_layout(recording):
    data = shared_tile.data(recording)
    assert len(data["tiles"]) == 10 and len(data["layouts"]) == 2


def test_hazards_lead_to_steps_of_this_cta(trace, recording):
    first = SimpleNamespace(event=int(recording.steps["event"][40]), cta=0)
    second = SimpleNamespace(event=int(np.flatnonzero(trace.events["cta"] == 1)[0]), cta=1)
    hazard = SimpleNamespace(kind="race", message="two writes", first=first, second=second)
    data = hazards.data(dataclasses.replace(recording, hazards=(hazard,)))
    assert [(a["step"], a["cta"]) for a in data["hazards"][0]["accesses"]] == [(40, 0), (-1, 1)]


def test_the_page_fits_on_the_wire(recording):
    data = page.data(recording)
    block = wire.encode(data)
    assert set(wire.decode(block)) == set(page.VIEWS)
    assert len(block) < 150 * len(recording.steps)
