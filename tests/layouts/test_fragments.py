from pathlib import Path

import numpy as np
import pytest

from h100sim.errors import PtxError, UsageError
from h100sim.layouts.fragments import fragment, inverse

MOVES = np.load(Path(__file__).parent.parent / "data" / "matrix_moves.npz")
OWNERS = np.load(Path(__file__).parent.parent / "data" / "wgmma_fragments.npz")
CAPTURED = {
    "f16": "m64n{}k16.f32.f16.f16", "f16h": "m64n{}k16.f16.f16.f16", "bf16": "m64n{}k16.f32.bf16.bf16",
    "tf32": "m64n{}k8.f32.tf32.tf32", "u8": "m64n{}k32.s32.u8.u8", "e4m3": "m64n{}k32.f32.e4m3.e4m3",
    "b1": "m64n{}k256.s32.b1.b1.and.popc",
}  # fmt: skip
WGMMA = [
    "m64n8k16.f32.f16.f16", "m64n256k16.f16.f16.f16", "m64n16k16.f32.bf16.bf16", "m64n24k8.f32.tf32.tf32",
    "m64n8k32.f32.e4m3.e5m2", "m64n32k32.s32.s8.u8", "m64n16k256.s32.b1.b1.and.popc",
]  # fmt: skip
MMA = [
    "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f16.f16.f16.f16", "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32", "m8n8k16.row.col.s32.s8.s8.s32",
    "m16n8k32.row.col.s32.u8.s8.s32", "m16n8k64.row.col.s32.s4.u4.s32", "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "m8n8k4.row.col.f64.f64.f64.f64", "m16n8k16.row.col.f64.f64.f64.f64", "m16n8k32.row.col.f32.e4m3.e4m3.f32",
]  # fmt: skip
CASES = [("wgmma.mma_async.sync.aligned." + s, w) for s in WGMMA for w in "ad"]
CASES += [("mma.sync.aligned." + s, w) for s in MMA for w in "abcd"]
CASES += [(f"ldmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16", "d") for n in (1, 2, 4) for t in ("", ".trans")]


@pytest.mark.parametrize(("instr", "which"), CASES)
def test_every_register_bit_belongs_to_exactly_one_element(instr, which):
    owners = fragment(instr, which)
    assert len(np.unique(owners)) == owners.size
    bits = np.diff(np.unique(owners["bit"])).min(initial=64)
    width = 64 if "f64" in instr else 32
    slots = 32 * (owners["warp"].max() + 1) * (owners["register"].max() + 1) * (width // min(bits, width))
    assert owners.size == slots


@pytest.mark.parametrize(("first", "trans"), [(0, ""), (4, ".trans")])
def test_ldmatrix_gives_what_silicon_gave(first, trans):
    owners = fragment(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", "d")
    x, y = MOVES["x"], MOVES["y"]
    rows = x.view(np.uint16).reshape(len(x), 32, 16)[:, :, :8]
    got = y[:, owners["lane"], first + owners["register"]] >> owners["bit"] & 0xFFFF
    assert np.array_equal(got, rows)


def accumulated(instr: str, slots: np.ndarray) -> np.ndarray:
    """Return D (..., 64, N) from what each thread's registers held, by the fragment of D."""
    d = fragment(instr, "d")
    return slots[..., 32 * d["warp"] + d["lane"], d["register"], d["bit"] // 16]


@pytest.mark.parametrize("name", CAPTURED)
def test_silicon_finds_a_where_its_fragment_says(name):
    depth = int(CAPTURED[name].split("k")[1].split(".")[0])
    instr = "wgmma.mma_async.sync.aligned." + CAPTURED[name].format(depth)
    a = fragment(instr, "a")
    bits = 256 // depth
    slot = ((32 * a["warp"] + a["lane"]) * 4 + a["register"]) * (32 // bits) + a["bit"] // bits
    assert np.array_equal(accumulated(instr, OWNERS[f"a.{name}"]), slot)


@pytest.mark.parametrize("name", CAPTURED)
def test_silicon_leaves_d_where_its_fragment_says(name):
    instr = "wgmma.mma_async.sync.aligned." + CAPTURED[name].format(64)
    depth = int(CAPTURED[name].split("k")[1].split(".")[0])
    found = accumulated(instr, OWNERS[f"d.{name}"])
    expected = np.zeros_like(found)
    for row in range(64):
        expected[row // depth, row] = np.arange(64) * depth + row % depth
    assert np.array_equal(found, expected)


def test_movmatrix_transposes():
    into = fragment("movmatrix.sync.aligned.m8n8.trans.b16", "d")
    from_ = fragment("ldmatrix.sync.aligned.m8n8.x1.shared.b16", "d")
    assert np.array_equal(into, from_.T)


def test_the_accumulator_is_an_a_fragment_twice_as_wide():
    """What attention kernels rely on: D of one product feeds A of the next without a shuffle."""
    d = fragment("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", "d")
    a = fragment("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "a")
    assert np.array_equal(d["lane"], a["lane"]) and np.array_equal(d["warp"], a["warp"])
    assert np.array_equal(d["register"], 2 * a["register"] + a["bit"] // 16)


@pytest.mark.parametrize("i", range(8))
def test_the_formula_of_the_manual_for_f16(i):
    held = inverse(fragment("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "a"))
    for t in range(128):
        w, lane = divmod(t, 32)
        row, k = 16 * w + lane // 4 + 8 * ((i >> 1) & 1), 2 * (lane % 4) + (i & 1) + 8 * (i >> 2)
        assert held[w, lane, i // 2][i % 2] == (row, k)


def test_what_is_not_in_registers_is_refused():
    with pytest.raises(UsageError, match=r"^register operand of wgmma must be a or d, not b"):
        fragment("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "b")
    with pytest.raises(PtxError, match=r"^mma shape of f16 must be"):
        fragment("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "a")
