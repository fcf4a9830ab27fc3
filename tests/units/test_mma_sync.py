"""mma.sync: every shape and type, from fragments to fragments, against the arithmetic on whole arrays."""

from __future__ import annotations

import numpy as np
import pytest

import h100sim
from h100sim.layouts.fragments import fragment
from h100sim.numerics.mma_sync import mma_sync, parse_mma
from tests.kernels import entry, launch
from validate import probes
from validate.probes import mma_sync_rate, warp_matrix_bits
from validate.probes.timed_kernel import per_repetition

OPCODES = [
    *(f"m16n8k{k}.row.col.{d}.f16.f16.{d}" for k in (8, 16) for d in ("f16", "f32")),
    *(f"m16n8k{k}.row.col.f32.bf16.bf16.f32" for k in (8, 16)),
    *(f"m16n8k{k}.row.col.f32.tf32.tf32.f32" for k in (4, 8)),
    "m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "m8n8k16.row.col.s32.s8.u8.s32",
    "m16n8k16.row.col.s32.u8.u8.s32",
    "m16n8k32.row.col.satfinite.s32.s8.s8.s32",
    "m8n8k32.row.col.s32.s4.u4.s32",
    "m16n8k64.row.col.satfinite.s32.u4.s4.s32",
    "m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    "m8n8k4.row.col.f64.f64.f64.f64",
    *(f"m16n8k{k}.row.col.f64.f64.f64.f64" for k in (4, 8, 16)),
]


def kernel(opcode: str, counts: dict[str, int], wide: bool) -> str:
    """Load the registers of A, B and C of every lane from in[register][lane], multiply, store D."""
    kind, size = ("b64", 8) if wide else ("b32", 4)
    text = f".reg .{kind} %x<64>; .reg .b64 %p, %o; .reg .b32 %t; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, {size};\n"
    text += "ld.param.u64 %p, [in]; add.s64 %p, %p, %o;\n"
    names, k = {}, 0
    for which in "abc":
        names[which] = [f"%x{k + i}" for i in range(counts[which])]
        text += "".join(f"ld.global.{kind} {name}, [%p+{(k + i) * 32 * size}];\n" for i, name in enumerate(names[which]))
        k += counts[which]
    names["d"] = [f"%x{k + i}" for i in range(counts["c"])]
    text += opcode + " " + ", ".join("{" + ", ".join(names[w]) + "}" for w in "dabc") + ";\n"
    text += "ld.param.u64 %p, [out]; add.s64 %p, %p, %o;\n"
    text += "".join(f"st.global.{kind} [%p+{i * 32 * size}], {name};\n" for i, name in enumerate(names["d"]))
    return entry("u64 in, u64 out", text)


def bits_of(rng: np.random.Generator, name: str, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return element bits of numbers around one: for floats a sign, a small exponent and any mantissa."""
    if name in ("f16", "bf16", "tf32", "f32", "f64"):
        values = rng.standard_normal(shape)
        if name == "f64":
            return values.view(np.uint64)
        if name == "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint64)
        words = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return words >> np.uint64(16) if name == "bf16" else words
    return rng.integers(0, 0x38 if name in ("e4m3", "e5m2") else 1 << min(bits, 24), shape).astype(np.uint64)


@pytest.mark.parametrize("rest", OPCODES)
def test_every_shape_agrees_with_the_arithmetic(rest):
    opcode = "mma.sync.aligned." + rest
    mma, rng = parse_mma(opcode), np.random.default_rng(len(rest))
    wide = mma.a.bits == 64
    elements = {
        "a": bits_of(rng, mma.a.name, mma.a.bits, (mma.m, mma.k)),
        "b": bits_of(rng, mma.b.name, mma.b.bits, (8, mma.k)),
        "c": bits_of(rng, mma.d.name, mma.d.bits, (mma.m, 8)),
    }
    owners = {which: fragment(opcode, which) for which in "abc"}
    counts = {which: int(owners[which]["register"].max()) + 1 for which in "abc"}
    rows = []
    for which in "abc":
        words, owner = np.zeros((counts[which], 32), np.uint64), owners[which]
        np.bitwise_or.at(words, (owner["register"], owner["lane"]), elements[which] << owner["bit"].astype(np.uint64))
        rows.append(words)
    word = np.uint64 if wide else np.uint32
    out = np.zeros((counts["c"], 32), word)
    launch(kernel(opcode, counts, wide), (np.concatenate(rows).astype(word), out))
    owner = owners["c"]
    got = out[owner["register"], owner["lane"]].astype(np.uint64) >> owner["bit"].astype(np.uint64)

    def stored(which: str, bits: int) -> np.ndarray:
        if bits == 1:
            return np.packbits(elements[which].astype(np.uint8), axis=-1, bitorder="little")
        return elements[which].astype(f"u{max(bits, 8) // 8}")

    expected = mma_sync(opcode, stored("a", mma.a.bits), stored("b", mma.b.bits), stored("c", mma.d.bits))
    ones = np.uint64((1 << mma.d.bits) - 1)
    np.testing.assert_array_equal(got & ones, expected.view(f"u{mma.d.bits // 8}").astype(np.uint64))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("m8n8k4.row.col.f16.f16.f16.f16", "^mma.sync shape of f16 must be one of"),
        ("m16n8k8.row.col.f32.f16.f16.f32", "^mma.sync A must have 2 registers, not 4"),
    ],
)
def test_what_is_not_an_mma_is_refused(rest, message):
    with pytest.raises(h100sim.PtxError, match=message):
        launch(
            kernel("mma.sync.aligned." + rest, {"a": 4, "b": 1, "c": 4}, False),
            (np.zeros(1, np.uint32), np.zeros(1, np.uint32)),
        )


SPARSE = [
    ("m16n8k32.row.col.f16.f16.f16.f16", 1),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", 3),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", 2),
    ("m16n8k64.row.col.f32.e4m3.e5m2.f32", 0),
    ("m16n8k32.row.col.satfinite.s32.s8.u8.s32", 1),
    ("m16n8k128.row.col.s32.u4.u4.s32", 0),
]


@pytest.mark.parametrize(("rest", "selector"), SPARSE)
def test_sparse_products_are_those_of_silicon(rest, selector):
    """The kernels of the probe, run here; their digests are those of an H200."""
    opcode = f"mma.sp::ordered_metadata.sync.aligned.{rest}"
    launcher, _ = probes._launcher("sim")
    silicon = probes.silicon_answer("warp_matrix_bits")
    name = warp_matrix_bits.name(opcode, selector)
    assert warp_matrix_bits.measure(launcher, [(opcode, selector)]) == {name: silicon["results"][name]}


def sparse_kernel(metadata: str, selector: int) -> str:
    text = ".reg .b32 %x<8>; .reg .f32 %f<4>; .reg .b64 %p; ld.param.u64 %p, [out]; mov.b32 %x0, 0;\n"
    text += "".join(f"mov.b32 %x{k}, 0; mov.b32 %f{k - 1}, 0f00000000;\n" for k in range(1, 5))
    text += f"mov.b32 %x5, {metadata};\n"
    text += "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%x1, %x2}, {%x3, %x4}, "
    text += f"{{%f0, %f1, %f2, %f3}}, %x5, {selector};\nst.global.f32 [%p], %f0;\n"
    return entry("u64 out", text)


def test_undefined_metadata_stops_the_kernel():
    message = r"metadata of row 0, chunk 1 must be two different indices, not 0b1010"
    with pytest.raises(h100sim.IllegalInstruction, match=message):
        launch(sparse_kernel("0x44A4", 0), (np.zeros(1, np.float32),))


def test_the_selector_must_name_lanes_that_there_are():
    with pytest.raises(h100sim.PtxError, match=r"^mma\.sp selector must be from 0 to 3, not 4"):
        launch(sparse_kernel("0x4444", 4), (np.zeros(1, np.float32),))


@pytest.mark.parametrize(
    "shape",
    [
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k8.row.col.f16.f16.f16.f16",
        "m8n8k16.row.col.s32.s8.s8.s32",
        "m16n8k8.row.col.f64.f64.f64.f64",
    ],
)
def test_rate_and_latency_are_those_of_silicon(shape: str) -> None:
    silicon = probes.silicon_answer("mma_sync_rate")
    assert silicon is not None
    ask, _ = probes._launcher("sim")
    independent, dependent = (
        per_repetition(ask, mma_sync_rate._text(shape, chains), few=32, many=96) for chains in (mma_sync_rate.CHAINS, 1)
    )
    rate, _, latency, *_ = silicon["results"][shape]
    assert independent == pytest.approx(rate, rel=0.1)
    assert dependent == pytest.approx(latency, rel=0.02)
