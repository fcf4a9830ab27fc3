"""What L2 holds between launches: where lines have their home, what an upload leaves there."""

from __future__ import annotations

import numpy as np

import h100sim
from h100sim.memory.cache import NEVER, L2State, homes_of
from h100sim.memory.global_memory import GlobalMemory
from validate.probes import l2_latency


def test_half_of_the_lines_of_every_8_kb_are_at_home_on_each_side() -> None:
    homes = homes_of(np.arange(1 << 14)).reshape(-1, 64)
    assert (homes.sum(1) == 32).all()
    assert len(np.unique(homes, axis=0)) == 2, "the pieces alternate in no fixed order"


def test_an_upload_lies_at_home_alone_in_the_order_of_its_lines() -> None:
    state = L2State(256)
    state.upload(0, 100 * 128 + 1)
    lines = np.arange(101)
    home = state.stamps[2 * lines + homes_of(lines)]
    assert (state.stamps[2 * lines + 1 - homes_of(lines)] == NEVER).all()
    assert (state.stamps[2 * 101 :] == NEVER).all()
    for half in (0, 1):
        of_half = home[homes_of(lines) == half]
        assert (np.diff(of_half) == 128).all() and state.filled[half] == 128 * len(of_half) == of_half[-1]


def test_room_for_more_lines_keeps_what_is_known() -> None:
    memory = GlobalMemory()
    address = memory.upload(np.ones(4096, np.uint8))
    before = memory.l2.stamps.copy()
    memory.allocate(8 << 20)
    assert (memory.l2.stamps[: len(before)] == before).all() and len(memory.l2.stamps) == len(memory.arena) // 64
    memory.write(address, np.ones(128, np.uint8))
    assert not (memory.l2.stamps[: len(before)] == before).all(), "what is written is used"


def test_the_next_launch_finds_what_the_last_one_left() -> None:
    device = h100sim.Device("h200-sxm")
    kernel = h100sim.RawModule(code=l2_latency.kernel(0)).get_function("probe")
    source = device.asarray(np.zeros(l2_latency.LINES * l2_latency.STRIDE // 4, np.uint32))
    lines = (source.address - device.memory.base >> 7) + 33 * np.arange(l2_latency.LINES)

    def on_its_side() -> float:
        """Return which part of the lines that SM 0 loads is in the half of L2 on its side."""
        return float(np.mean(device.memory.l2.stamps[2 * lines] != NEVER))

    assert 0.4 < on_its_side() < 0.6
    cycles, sms = np.zeros((l2_latency.PASSES, l2_latency.LINES), np.uint32), np.zeros(1, np.uint32)
    kernel(1, 32, (cycles, source, sms, np.uint32(0)), device=device, checks="off")
    assert on_its_side() == 1.0
