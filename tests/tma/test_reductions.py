from pathlib import Path

import numpy as np
import pytest

from h100sim.tma.fields import DTYPES
from h100sim.tma.reductions import REDUCTION_FORMATS, REDUCTIONS, is_legal, reduce_element

CAPTURED = np.load(Path(__file__).parent.parent / "data" / "tma_reduction.npz")
CASES = [key.split(".") for key in CAPTURED.files if key.split(".")[0] in REDUCTIONS]


def as_integers(array: np.ndarray) -> list[int]:
    return array.astype(np.uint64).view(np.int64).tolist()


@pytest.mark.parametrize(("op", "element"), CASES)
def test_special_values_and_random_bits(op, element):
    old, new = as_integers(CAPTURED[f"{element}.old"]), as_integers(CAPTURED[f"{element}.new"])
    code, element_format = REDUCTIONS.index(op), DTYPES[element].driver_code
    found = [reduce_element(code, element_format, a, b) for a, b in zip(old, new, strict=True)]
    assert found == as_integers(CAPTURED[f"{op}.{element}"])


def test_the_tables_of_legal_types_agree():
    for code, reduction in enumerate(REDUCTIONS):
        for name, element in DTYPES.items():
            assert is_legal(code, element.driver_code) == (name in REDUCTION_FORMATS[reduction])


@pytest.mark.parametrize(
    ("op", "element", "old", "new", "result"),
    [
        ("inc", "u32", 3, 3, 0),
        ("inc", "u32", 2, 3, 3),
        ("dec", "u32", 0, 3, 3),
        ("dec", "u32", 9, 3, 3),
        ("dec", "u32", 2, 3, 1),
        ("add", "s32", 0x7FFFFFFF, 1, 0x80000000),
        ("min", "s32", 0x80000000, 1, 0x80000000),
        ("min", "u32", 0x80000000, 1, 1),
        ("max", "u64", -1, 1, -1),
        ("max", "s64", -1, 1, 1),
        ("xor", "u64", -1, 1, -2),
    ],
)
def test_integer_reductions(op, element, old, new, result):
    assert reduce_element(REDUCTIONS.index(op), DTYPES[element].driver_code, old, new) == result
