"""L2 and HBM in the time of loads and copies: halves, capacity, what comes together, the spread of HBM, the engine's one queue."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import h100sim
from h100sim import devices
from validate.probes import hbm_latency, l2_sharing, silicon_results, store_bandwidth, tma_order
from validate.probes.tma_load_latency import tensor_map

H200 = devices.model("h200-sxm")


def launcher(**changes: float) -> Any:
    """Return a launch function on a device with changed numbers of its memory."""
    model = devices.changed(H200, {f"memory.{name}": value for name, value in changes.items()})

    def launch(ptx: str, name: str, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, cluster: Any = (1, 1, 1)) -> Any:
        device = h100sim.Device(model)
        function = h100sim.RawModule(code=ptx).get_function(name)
        function.max_dynamic_shared_size_bytes = shared_mem
        given = [value(lambda array: device.asarray(array).address) if callable(value) else value for value in args]
        return function(grid, block, given, shared_mem=shared_mem, cluster=cluster, device=device, checks="off", trace="off")

    return launch


def boxes(launch: Any, rows: int, flush: int) -> np.ndarray:
    """Return the cycles of the boxes of one SM: (pass, box)."""
    source = np.zeros((hbm_latency.BOXES * rows + flush // 128, 32), np.uint32)
    out = np.zeros((1, hbm_latency.PASSES, hbm_latency.BOXES), np.uint32)
    arguments = [out, functools.partial(tensor_map, source, rows), np.uint32(0)]
    launch(hbm_latency.kernel(rows), "probe", (1, 1, 1), (32, 1, 1), arguments, shared_mem=rows * 128)
    return out[0].astype(int)


def test_lines_cross_the_first_time_that_the_other_side_uses_them() -> None:
    first, second = boxes(launcher(load_wait_cycles=0), 8, 0)[:, 1:]
    crossed = first - second > 60
    assert 0.3 < crossed.mean() < 0.7 and (first - second)[~crossed].max() < 20


def test_boxes_of_8_kb_take_as_long_as_on_silicon_the_first_time_and_again() -> None:
    there = silicon_results("hbm_latency")
    cycles = boxes(launcher(), 64, 0)
    for k, where in enumerate(("uploaded", "again")):
        assert np.median(cycles[k, 1:]) == pytest.approx(there[f"1 SMs, 8192 bytes, {where}"][3], rel=0.05)


def test_hbm_answers_within_its_law_by_a_seed() -> None:
    there = silicon_results("hbm_latency")["1 SMs, 8192 bytes, HBM"]
    seeded = [boxes(launcher(seed=seed), 64, hbm_latency.FLUSH)[0, 1:] for seed in (0, 0, 1)]
    assert (seeded[0] == seeded[1]).all() and not (seeded[0] == seeded[2]).all()
    assert np.median(seeded[0]) == pytest.approx(there[3], rel=0.06)
    assert np.ptp(seeded[0]) > 150
    steady = boxes(launcher(hbm_late_percent=0, load_wait_cycles=0), 64, hbm_latency.FLUSH)[0, 1:]
    assert np.ptp(steady) < 20


def test_what_is_more_than_l2_is_gone_when_it_is_used_again() -> None:
    """24 boxes of 32 KB: 1.5 copies of each line."""
    again = [np.median(boxes(launcher(l2_bytes=size), 256, 0)[1, 1:]) for size in (2 << 20, 1 << 19)]
    assert again[1] > again[0] + 300


@pytest.mark.parametrize(("group", "neighbours"), [(2, True), (4, False)])
def test_sms_of_a_tpc_that_ask_together_are_served_together(group: int, neighbours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(l2_sharing, "TOTAL", 4096)
    there = silicon_results("l2_sharing")[f"{group} SMs, {'neighbours' if neighbours else 'apart'}"]
    out = np.zeros(132, np.int64)
    tensor = np.zeros((132 // group * l2_sharing.SHARE, 32), np.uint32)
    arguments = [out, functools.partial(tensor_map, tensor, l2_sharing.ROWS)]
    text = l2_sharing.kernel(group, neighbours, 0)
    launcher()(text, "probe", (132, 1, 1), (32, 1, 1), arguments, shared_mem=160 * 1024)
    assert l2_sharing.TOTAL * 128 / out.mean() == pytest.approx(there, rel=0.08)


def test_loads_wait_behind_stores_as_on_silicon() -> None:
    there = silicon_results("tma_order")
    here = tma_order.measure(launcher())
    for stored in (16_384, 65_536):
        for loaded in (1_024, 16_384):
            case = f"store first, {stored} stored, {loaded} loaded"
            assert here[case] == pytest.approx(there[case], rel=0.05)


@pytest.mark.parametrize("sms", [66, 132])
def test_all_sms_together_store_at_the_rate_of_silicon(sms: int) -> None:
    size = store_bandwidth.SIZE * store_bandwidth.COPIES
    target, out = np.zeros((sms, size // 4), np.float32), np.zeros((sms, store_bandwidth.ROUNDS), np.uint32)
    text = store_bandwidth.kernel(store_bandwidth.STORES["store"])
    launcher()(text, "probe", (sms, 1, 1), (32, 1, 1), [out, target, np.uint32(132)], shared_mem=size)
    there = silicon_results("store_bandwidth")[f"store, {sms} SMs"]
    assert store_bandwidth.rate(out) == pytest.approx(there, rel=0.05)
