"""Kernels in CUDA C++ and Triton (tests/kernels), bit for bit what an NVIDIA H200 made of the same inputs, and without hazards.

tests/kernels/silicon.json says which card, driver and day, and how each was launched; silicon.npz has what went in and what came out
(but for what depends on the order of atomics).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import h100sim

KERNELS = Path(__file__).parent / "kernels"
CAPTURE = json.loads((KERNELS / "silicon.json").read_text())


@cache
def module(name: str) -> h100sim.RawModule:
    return h100sim.RawModule(path=KERNELS / f"{name}.ptx")


@cache
def arrays() -> dict[str, np.ndarray]:
    with np.load(KERNELS / "silicon.npz") as file:
        return dict(file)


def argument(spec: dict[str, Any], buffers: list[h100sim.Buffer]) -> Any:
    """Return an argument of a launch: a buffer, a tensor map of one, or a number."""
    if "array" in spec:
        return buffers[spec["array"]]
    if "scalar" in spec:
        dtype, value = spec["scalar"]
        return np.dtype(dtype).type(value)
    buffer = buffers[spec["map"]]
    strides = np.empty(buffer.shape, buffer.dtype).strides[-2::-1]
    box, swizzle = spec["box"][::-1], spec["swizzle"]
    return h100sim.TensorMap.tiled(spec["dtype"], buffer.address, buffer.shape[::-1], strides, box, swizzle=swizzle)


@pytest.mark.parametrize("case", CAPTURE["cases"], ids=lambda case: case["name"])
def test_the_bits_are_those_of_an_h200(case: dict[str, Any]) -> None:
    device = h100sim.Device()
    count = 1 + max(spec.get("array", spec.get("map", -1)) for spec in case["args"])
    buffers = [device.asarray(arrays()[f"{case['name']}_{k}_in"]) for k in range(count)]
    function = module(case["file"]).get_function(case["kernel"])
    function.max_dynamic_shared_size_bytes = 232_448
    args = [argument(spec, buffers) for spec in case["args"]]
    run = function(case["grid"], case["block"], args, shared_mem=case["shared"], cluster=case["cluster"], device=device)
    assert run.hazards == []
    compared = 0
    for k, buffer in enumerate(buffers):
        expected = arrays().get(f"{case['name']}_{k}_out")
        if expected is not None:
            assert np.array_equal(buffer.numpy().reshape(-1).view(np.uint8), expected), f"array {k}"
            compared += 1
    assert compared
