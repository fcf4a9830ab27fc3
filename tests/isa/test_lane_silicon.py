"""Every scalar form captured on silicon, bit for bit: 589 forms on 512 inputs each.

Measured: tests/data/ptx_scalar.npz (NVIDIA H200, driver 580.159, CUDA 13.0, 2026-11-29). X holds three 64-bit words a
row, of which an operand takes the low bits; bfi used the length 7.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from h100sim.isa.lane_text import width_of_type
from h100sim.numerics.scalar import scalar

DATA = Path(__file__).parents[1] / "data"
FORMS = json.loads((DATA / "ptx_scalar.json").read_text())


@cache
def capture() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "ptx_scalar.npz") as data:
        return data["X"], data["Y"]


def group(form: dict) -> str:
    base, *parts = form["op"].split(".")
    return f"{base} {parts[-2] if base in ('cvt', 'set') else parts[-1]}"


GROUPS = {name: [k for k, form in enumerate(FORMS) if group(form) == name] for name in dict.fromkeys(map(group, FORMS))}


def operands(form: dict, words: np.ndarray) -> list:
    result = []
    for k, type_ in enumerate(form["inputs"]):
        if type_.startswith("#"):
            result.append(int(type_[1:]))
        else:
            width = width_of_type(type_)
            result.append(words[:, k] & np.uint64((1 << width) - 1) if width < 64 else words[:, k])
    return [*result, np.full(len(words), 7, np.uint64)] if form["op"].startswith("bfi.") else result


def widened(form: dict, result: np.ndarray) -> np.ndarray:
    """Return a result as the capture holds it: an 8-bit integer sits sign- or zero-extended in a 32-bit register."""
    destination = form["op"].split(".")[-2]
    if destination == "s8":
        return result.view(np.int8).astype(np.int32).view(np.uint32).astype(np.uint64)
    return result.astype(np.uint64)


@pytest.mark.parametrize("name", GROUPS)
def test_matches_silicon(name):
    words, results = capture()
    wrong = {}
    for k in GROUPS[name]:
        form = FORMS[k]
        mismatches = np.flatnonzero(widened(form, scalar(form["op"], *operands(form, words))) != results[k])
        if len(mismatches):
            wrong[form["op"]] = [[hex(int(v)) for v in words[row]] for row in mismatches[:3]]
    assert not wrong
