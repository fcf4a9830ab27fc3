"""The dense float wgmma against an implementation that is not ours: mmasim (PyPI), where it is installed.

It is the model of arXiv 2511.10909, written and validated apart from this project. Inputs: any bits, and exponents near one,
at the bottom, at the top, mixed and anywhere, for A and B and, independently, C.
"""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.dtypes import ElementType, element_type
from h100sim.numerics.tensor_core import WGMMA_TYPES
from h100sim.numerics.wgmma import wgmma

torch = pytest.importorskip("torch", reason="mmasim needs torch")
nv_ptx = pytest.importorskip("mmasim.nv_ptx", reason="mmasim is not installed")

TRIPLES = sorted(triple for triple in WGMMA_TYPES if element_type(triple[1]).is_float)
CLASSES = ("any bits", "near one", "bottom", "top", "mixed", "anywhere")
TORCH = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def elements(rng: np.random.Generator, element: ElementType, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = rng.integers(0, 1 << element.bits, shape, np.uint64)
    if kind != "any bits":
        mantissa_bits, top = element.mantissa_bits + element.ignored_bits, (1 << element.exponent_bits) - 1
        low, high = {
            "near one": (max(element.bias - 2, 0), element.bias + 2),
            "bottom": (0, 3),
            "top": (top - 3, top),
            "mixed": (0, top),
            "anywhere": (0, top),
        }[kind]
        field = rng.integers(low, high, shape, np.uint64)
        if kind == "mixed":
            field = np.where(rng.random(shape) < 0.5, field, np.uint64(element.bias))
        kept = np.uint64((1 << mantissa_bits) - 1 | 1 << (mantissa_bits + element.exponent_bits))
        bits = (bits & kept) | field << np.uint64(mantissa_bits)
    return bits.astype(element.storage)


def tensor(bits: np.ndarray, name: str):
    signed = bits.view({1: np.uint8, 2: np.int16, 4: np.int32}[bits.itemsize])
    return torch.from_numpy(signed.copy()).view(getattr(torch, TORCH[name]))


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("triple", TRIPLES, ids=".".join)
def test_agrees_with_mmasim(triple, kind):
    d, a, b = (element_type(name) for name in triple)
    k = 256 // a.bits
    rng = np.random.default_rng([CLASSES.index(kind), *"".join(triple).encode()])
    x, y = elements(rng, a, kind, (64, k)), elements(rng, b, kind, (32, k))
    c = elements(rng, d, CLASSES[rng.integers(len(CLASSES))], (64, 32))
    ours = wgmma(f"wgmma.mma_async.sync.aligned.m64n32k{k}.{d}.{a}.{b}", x, y, c)
    unit = nv_ptx.WGMMA("Hopper", f"m64n32k{k}.{d}.{a}.{b}")
    theirs = unit(tensor(x, a.name), tensor(y, b.name).T, tensor(c, d.name))
    signed = torch.int16 if d.bits == 16 else torch.int32
    np.testing.assert_array_equal(ours, theirs.view(signed).numpy().view(d.storage))
