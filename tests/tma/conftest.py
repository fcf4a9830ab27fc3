"""Captures of the TMA engine: each row of ``parameters`` is one tensor map and, for copies, one copy."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from h100sim.errors import IllegalInstruction, MisalignedAddress, OutOfRange
from h100sim.tma.fields import DTYPES, INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES
from h100sim.tma.tensor_map import TensorMap

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

DATA = Path(__file__).parent.parent / "data"
ERRORS = {0: None, 1: IllegalInstruction, 2: MisalignedAddress, 3: OutOfRange}
SHARED_BYTES = 50_176


@dataclass(frozen=True)
class Capture:
    """The arrays of a capture file and a dictionary of parameters per row."""

    arrays: dict
    rows: list

    def __getitem__(self, name):
        return self.arrays[name]


def load_capture(name: str) -> Capture:
    arrays = dict(np.load(DATA / name))
    columns = arrays["columns"].tolist()
    return Capture(arrays, [dict(zip(columns, row, strict=True)) for row in arrays["parameters"].tolist()])


def numbers(row: dict, prefix: str, count: int, missing: int = 1) -> list[int]:
    return [row.get(f"{prefix}{i}", missing) for i in range(max(count, 0))]


def name_of(names, code: int) -> str:
    return tuple(names)[code] if code < len(names) else f"code {code}"


def map_of(row: dict, base: int, is_im2col: bool) -> TensorMap:
    """Make the tensor map of a row, or raise TensorMapError."""
    rank = row["rank"]
    fields = {
        "dtype": name_of(DTYPES, row["dtype"]),
        "address": base + row["offset"],
        "dims": numbers(row, "dim", rank),
        "strides": numbers(row, "stride", rank - 1, 16),
        "element_strides": numbers(row, "element_stride", rank),
        "interleave": name_of(INTERLEAVES, row["interleave"]),
        "swizzle": name_of(SWIZZLES, row["swizzle"]),
        "l2_promotion": name_of(L2_PROMOTIONS, row["l2_promotion"]),
        "oob_fill": name_of(OOB_FILLS, row["oob_fill"]),
    }
    if not is_im2col:
        return TensorMap.tiled(box=numbers(row, "box", rank), **fields)
    return TensorMap.im2col(
        lower_corner=numbers(row, "lower", rank - 2),
        upper_corner=numbers(row, "upper", rank - 2),
        channels_per_pixel=row["channels"],
        pixels_per_column=row["pixels"],
        **fields,
    )


@pytest.fixture(scope="session")
def captures():
    return load_capture


@pytest.fixture(scope="session")
def make_map():
    return map_of


@pytest.fixture(scope="session")
def silicon_errors():
    return ERRORS
