"""Sparse wgmma in a kernel: against the arithmetic on whole arrays. The bits of an H200 are in test_silicon_bits."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.layouts.fragments import fragment
from h100sim.numerics.wgmma import wgmma_sparse
from tests.kernels import launch
from validate import probes
from validate.probes import sparse_wgmma_bits as probe

CASES = [(shape, type_, selector, place) for shape, type_, selector in probe.CASES for place in probe.PLACES]


DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def run(ptx, name, grid, block, args):
    return launch(ptx, tuple(args), grid=grid, block=block, name=name)


@pytest.mark.parametrize(("shape", "type_", "selector", "place"), CASES)
def test_a_kernel_computes_what_the_arithmetic_does(shape, type_, selector, place):
    a, b, metadata = probe.operands(shape, type_)
    opcode = f"wgmma.mma_async.sp.sync.aligned.{shape}"
    held = probe.result(run, shape, type_, selector, place)
    owner = fragment(opcode, "d")
    bits = 16 if shape.split(".")[-3] == "f16" else 32
    thread = 32 * owner["warp"] + owner["lane"]
    found = held[thread, owner["register"]] >> owner["bit"].astype(np.uint32) & np.uint32((1 << bits) - 1)
    element = DTYPES[probe._BYTES[type_]]
    packed, dense = a.view(element), b.view(element)
    c = np.zeros((64, probe.columns_of(shape)), np.uint16 if bits == 16 else np.uint32)
    if shape.split(".")[-3] == "s32":
        c, packed, dense = c.view(np.int32), packed.view(np.int8), dense.view(np.int8 if shape.endswith("s8") else np.uint8)
    expected = wgmma_sparse(opcode, packed, metadata, dense, c, selector=selector, scale_d=0)
    assert np.array_equal(found, expected.view(np.uint16 if bits == 16 else np.uint32))


def test_undefined_metadata_is_an_error():
    def zeroed(ptx, name, grid, block, args):
        args[1][5, 4] = 0
        return run(ptx, name, grid, block, args)

    with pytest.raises(h100sim.IllegalInstruction, match=r"metadata of row .* must be two different indices, not 0b0000"):
        probe.result(zeroed, "m64n16k32.f32.f16.f16", "f16", 0, "registers")


@pytest.mark.parametrize(
    ("shape", "selector", "message"),
    [
        ("m64n16k64.s32.s8.s8", 1, "sparsity selector of s8 must be 0, not 1"),
        ("m64n16k32.f32.f16.f16", 2, "sparsity selector of f16 must be 0 or 1, not 2"),
        ("m64n16k16.f32.f16.f16", 0, "wgmma.mma_async K of f16 must be 32, not 16"),
    ],
)
def test_what_there_is_not_is_refused(shape, selector, message):
    with pytest.raises(h100sim.PtxError, match=message):
        probe.result(run, shape, "s8" if "s8" in shape else "f16", selector, "shared")


def test_the_rate_is_that_of_silicon():
    silicon = probes.silicon_results("sparse_wgmma_rate")
    here = probes.ask("sparse_wgmma_rate", "sim")["results"]
    assert len(here) == 12
    assert {key: value for key, value in here.items() if np.abs(np.array(value) / silicon[key] - 1).max() > 0.02} == {}
