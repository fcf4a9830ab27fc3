"""Loads, stores and the tensor core at the port of shared memory, against an H200."""

import numpy as np
import pytest

import h100sim
from h100sim.attribution import PORT
from h100sim.report import summarise
from validate import probes
from validate.probes import shared_port

SILICON = probes.silicon_results("shared_port")


def measured(product, stream, monkeypatch):
    """Return (cycles per wgmma, bytes a cycle of the stream) of one case here."""
    monkeypatch.setattr(shared_port, "PRODUCTS", (product,))
    monkeypatch.setattr(shared_port, "STREAMS", {stream: shared_port.STREAMS[stream]})
    ((name, numbers),) = probes.ask("shared_port", "sim")["results"].items()
    return name, numbers


@pytest.mark.parametrize("product", [(256, 1), (256, 2), (128, 1), (128, 2), (96, 1)], ids=str)
def test_stores_get_what_the_tensor_core_leaves(product, monkeypatch):
    name, (cycles, moved) = measured(product, "4 warps store", monkeypatch)
    there_cycles, there_moved = SILICON[name]
    assert cycles == pytest.approx(there_cycles, rel=0.015)
    assert moved == pytest.approx(there_moved, rel=0.25)
    assert moved < 0.5 * SILICON["nobody, 4 warps store"][1]


@pytest.mark.parametrize("stream", ["4 warps load", "8 warps load"])
def test_loads_have_the_port_for_themselves_where_nobody_multiplies(stream, monkeypatch):
    name, (cycles, moved) = measured(None, stream, monkeypatch)
    assert cycles is None
    assert moved == pytest.approx(SILICON[name][1], rel=0.16)


def test_copies_do_not_slow_the_tensor_core(monkeypatch):
    name, (cycles, _) = measured((128, 2), "copies", monkeypatch)
    assert cycles == pytest.approx(SILICON[name][0], rel=0.01)


def test_a_load_behind_a_wgmma_is_late_by_what_its_operands_take():
    """One wgmma of n 64 reads 128 bytes a cycle all the time: a load that comes meanwhile waits, and its cycles say so."""
    text = shared_port.kernel((64, 1), "ld", 4)
    out = np.zeros((8, 2), np.int64)
    kernel = h100sim.RawModule(code=text).get_function("probe")
    kernel.max_dynamic_shared_size_bytes = shared_port.SHARED_BYTES
    args = (out, np.zeros(shared_port.COPY_BYTES, np.uint8), np.uint32(0), np.uint32(2))
    run = kernel((1,), (256,), args, shared_mem=shared_port.SHARED_BYTES, checks="off", values="none")
    multiplies, loads = ({item.what: item.cycles for item in role.spent} for role in summarise(run.trace).roles)
    assert loads[PORT] > 0.8 * multiplies["tensor core busy"]
    assert multiplies.get(PORT, 0.0) < 0.05 * multiplies["tensor core busy"]
