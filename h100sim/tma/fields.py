"""The words of a tensor map: element formats, interleaves, swizzles, L2 promotions, out-of-bounds fills."""

from __future__ import annotations

from dataclasses import dataclass

from h100sim.errors import TensorMapError


@dataclass(frozen=True)
class ElementFormat:
    """One element type of tensor maps.

    ``driver_code`` is CUtensorMapDataType, ``hardware_code`` what the map's bits say.

    ``kind``: u, s or f. ``flushes``: the _ftz types. ``rounds``: tf32 types, whose loads round to 10 mantissa bits.
    """

    name: str
    size_bytes: int
    kind: str
    driver_code: int
    hardware_code: int
    rounds: bool = False
    flushes: bool = False


# Spec: CUDA 13.0 driver API, CUtensorMapDataType. Measured: hardware codes from tests/data/tensor_map_encode.npz.
_FORMATS = (
    ElementFormat("u8", 1, "u", 0, 0),
    ElementFormat("u16", 2, "u", 1, 1),
    ElementFormat("u32", 4, "u", 2, 2),
    ElementFormat("s32", 4, "s", 3, 3),
    ElementFormat("u64", 8, "u", 4, 4),
    ElementFormat("s64", 8, "s", 5, 5),
    ElementFormat("f16", 2, "f", 6, 6),
    ElementFormat("f32", 4, "f", 7, 7),
    ElementFormat("f64", 8, "f", 8, 9),
    ElementFormat("bf16", 2, "f", 9, 10),
    ElementFormat("f32_ftz", 4, "f", 10, 8, flushes=True),
    ElementFormat("tf32", 4, "f", 11, 7, rounds=True),
    ElementFormat("tf32_ftz", 4, "f", 12, 8, rounds=True, flushes=True),
)
#: Element formats by name, in the driver's order.
DTYPES = {f.name: f for f in _FORMATS}
#: Values of the enumerations in the driver's order.
INTERLEAVES = ("none", "16B", "32B")
SWIZZLES = ("none", "32B", "64B", "128B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")


def element_format(name: str) -> ElementFormat:
    """Return an element format by name; TensorMapError if tensor maps have none such."""
    if name not in DTYPES:
        raise TensorMapError(f"tensor map dtype must be one of {', '.join(DTYPES)}, not {name}")
    return DTYPES[name]


def format_of_hardware(code: int, rounds: bool) -> ElementFormat:
    """Return the element format that a map's bits name; TensorMapError if sm_90a has none such."""
    for f in _FORMATS:
        if f.hardware_code == code and f.rounds == rounds:
            return f
    raise TensorMapError(f"tensor map element type must be one that sm_90a has, not code {code}")
