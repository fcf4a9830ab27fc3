"""Every captured tensor-core result of a real H200, bit for bit. The ``source`` entry of each file describes it."""

import json
from pathlib import Path

import numpy as np
import pytest

from h100sim.numerics import sparse
from h100sim.numerics.mma_sync import mma_sparse, mma_sync
from h100sim.numerics.wgmma import parse_wgmma, wgmma, wgmma_sparse

DATA = Path(__file__).parents[1] / "data"
PREFIX = "wgmma.mma_async.sync.aligned.m64n8"

WGMMA_KERNELS = {
    "bf16_f32": "k16.f32.bf16.bf16",
    "f16_f32": "k16.f32.f16.f16",
    "f16_f32_neg": "k16.f32.f16.f16",
    "f16_f16": "k16.f16.f16.f16",
    "tf32_f32": "k8.f32.tf32.tf32",
    "e4m3_f32": "k32.f32.e4m3.e4m3",
    "e5m2_f32": "k32.f32.e5m2.e5m2",
    "e4m3e5m2_f32": "k32.f32.e4m3.e5m2",
    "e4m3_f16": "k32.f16.e4m3.e4m3",
    "e5m2_f16": "k32.f16.e5m2.e5m2",
    "s8_s32": "k32.s32.s8.s8",
    "s8_s32_sat": "k32.s32.s8.s8.satfinite",
    "u8_s32": "k32.s32.u8.u8",
    "s8u8_s32": "k32.s32.s8.u8",
    "b1_s32": "k256.s32.b1.b1.and.popc",
}


def kernels(file: str) -> list[str]:
    with np.load(DATA / file) as data:
        return sorted(name.removesuffix("_opcode") for name in data.files if name.endswith("_opcode"))


@pytest.fixture(scope="module")
def load():
    files: dict[str, np.lib.npyio.NpzFile] = {}
    yield lambda file: files.setdefault(file, np.load(DATA / file))
    for file in files.values():
        file.close()


def mismatches(got: np.ndarray, expected: np.ndarray) -> list:
    """Return the first few places where bits differ, as (index, got, silicon)."""
    places = np.argwhere(got.view(expected.dtype) != expected)[:5]
    return [(tuple(p), hex(got[tuple(p)]), hex(expected[tuple(p)])) for p in places.tolist()]


@pytest.mark.parametrize("kernel", WGMMA_KERNELS)
def test_wgmma(load, kernel):
    data = load("wgmma_numerics.npz")
    a, b, c, d = (data[f"{kernel}_{operand}"] for operand in "ABCD")
    scale_a = -1 if kernel.endswith("_neg") else 1
    assert mismatches(wgmma(PREFIX + WGMMA_KERNELS[kernel], a, b, c, scale_a=scale_a), d) == []


@pytest.mark.parametrize("kernel", kernels("wgmma_flags.npz"))
def test_wgmma_flags(load, kernel):
    data = load("wgmma_flags.npz")
    a, b, c, d = (data[f"{kernel}_{operand}"] for operand in "ABCD")
    flags = json.loads(str(data[f"{kernel}_flags"]))
    assert mismatches(wgmma(str(data[f"{kernel}_opcode"]), a, b, c, **flags), d) == []


@pytest.mark.parametrize("kernel", kernels("wgmma_sparse.npz"))
def test_wgmma_sparse_with_legal_metadata(load, kernel):
    data = load("wgmma_sparse.npz")
    a, b, c, d, metadata = (data[f"{kernel}_{operand}"] for operand in "ABCDM")
    instr, selector = str(data[f"{kernel}_opcode"]), int(data[f"{kernel}_selector"])
    legal = slice(None) if kernel.startswith("random") else [0, 1, 2, 3, 7]
    result = wgmma_sparse(instr, a[legal], metadata[legal], b[legal], c[legal], selector=selector)
    assert mismatches(result, d[legal]) == []


@pytest.mark.parametrize("kernel", kernels("wgmma_sparse.npz"))
def test_each_packed_element_meets_the_element_of_b_that_its_index_names(load, kernel):
    """Silicon is a multiplexer: also for equal indices, and for tf32 a nibble names two 16-bit halves of B."""
    data = load("wgmma_sparse.npz")
    a, b, c, d, metadata = (data[f"{kernel}_{operand}"] for operand in "ABCDM")
    instruction = parse_wgmma(str(data[f"{kernel}_opcode"]))
    dense = instruction.opcode.replace(".sp", "").replace(f"k{instruction.k}", f"k{instruction.k // 2}")
    selector, bits = int(data[f"{kernel}_selector"]), instruction.a.bits
    halves = np.ascontiguousarray(b).view(np.uint16) if bits == 32 else b
    chunks = 8 if bits == 32 else a.shape[-1] // 2
    nibbles = np.array(
        [[[sparse.nibble_of(bits, chunks, m, selector, r, k) for k in range(chunks)] for r in range(64)] for m in metadata]
    )
    index = np.stack([nibbles & 3, nibbles >> 2], axis=-1) + 4 * np.arange(chunks)[:, None]
    index = index.reshape(*nibbles.shape[:2], -1)
    met = np.take_along_axis(halves[:, None], index[:, :, None], axis=-1)  # (tiles, 64, N, kept)
    met = np.ascontiguousarray(met).view(b.dtype)
    result = wgmma(dense, a[:, :, None], met, c[:, :, None])[:, :, 0]
    assert mismatches(result, d) == []


@pytest.mark.parametrize("kernel", kernels("mma_sync.npz"))
def test_mma_sync(load, kernel):
    data = load("mma_sync.npz")
    a, b, c, d = (data[f"{kernel}_{operand}"] for operand in "ABCD")
    assert mismatches(mma_sync(str(data[f"{kernel}_opcode"]), a, b, c), d) == []


@pytest.mark.parametrize("kernel", kernels("mma_sparse.npz"))
def test_mma_sparse_and_4_bit(load, kernel):
    data = load("mma_sparse.npz")
    a, b, c, d = (data[f"{kernel}_{operand}"] for operand in "ABCD")
    opcode = str(data[f"{kernel}_opcode"])
    if f"{kernel}_M" in data:
        got = mma_sparse(opcode, a, data[f"{kernel}_M"], b, c, selector=int(data[f"{kernel}_selector"]))
    else:
        got = mma_sync(opcode, a, b, c)
    assert mismatches(got, d) == []
