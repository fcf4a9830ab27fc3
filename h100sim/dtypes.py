"""Element types: one row per type that a tensor core, a tensor map or a register of sm_90a knows.

A type is described by its storage width and, for floating point, by the widths of its exponent and mantissa fields,
its bias and whether its top exponent holds infinities. Bits are kept in unsigned NumPy integers of the storage width,
so that NaN payloads and signed zeros survive; ``natural`` is the NumPy or ml_dtypes type whose arrays mean the same
values.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from h100sim.errors import ElementTypeError, PtxError


@dataclass(frozen=True)
class ElementType:
    """One element type, named as in PTX.

    ``index`` is its row in :data:`ELEMENT_TYPES` (compiled code passes it around), ``bits`` the storage width,
    ``exponent_bits``, ``mantissa_bits`` and ``bias`` are 0 for integers. ``has_inf``: the top exponent holds
    infinities and NaNs; e4m3 has no infinity and a single NaN magnitude. ``ignored_bits`` low bits of the storage are
    not looked at. Arrays of s4 and u4 hold one element a byte, in its low bits.
    """

    index: int
    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_inf: bool
    is_signed: bool
    storage: np.dtype
    natural: np.dtype
    ignored_bits: int = 0

    @property
    def is_float(self) -> bool:
        return self.exponent_bits > 0

    @property
    def size_bytes(self) -> int:
        """Bytes of one element. b1, s4 and u4 have none of their own: elements share a byte."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


# name, bits, exponent, mantissa, bias, has_inf, is_signed, natural, ignored low bits
# Spec: PTX ISA 9.1, "Fundamental Types", "Alternate Floating-Point Data Formats".
# Spec: OCP 8-bit Floating Point Specification 1.0 (e4m3 without infinities).
_ROWS = (
    ("f16", 16, 5, 10, 15, True, True, np.float16, 0),
    ("bf16", 16, 8, 7, 127, True, True, ml_dtypes.bfloat16, 0),
    ("tf32", 32, 8, 10, 127, True, True, np.float32, 13),
    ("e4m3", 8, 4, 3, 7, False, True, ml_dtypes.float8_e4m3fn, 0),
    ("e5m2", 8, 5, 2, 15, True, True, ml_dtypes.float8_e5m2, 0),
    ("f32", 32, 8, 23, 127, True, True, np.float32, 0),
    ("f64", 64, 11, 52, 1023, True, True, np.float64, 0),
    ("s8", 8, 0, 0, 0, False, True, np.int8, 0),
    ("u8", 8, 0, 0, 0, False, False, np.uint8, 0),
    ("s16", 16, 0, 0, 0, False, True, np.int16, 0),
    ("u16", 16, 0, 0, 0, False, False, np.uint16, 0),
    ("s32", 32, 0, 0, 0, False, True, np.int32, 0),
    ("u32", 32, 0, 0, 0, False, False, np.uint32, 0),
    ("s64", 64, 0, 0, 0, False, True, np.int64, 0),
    ("u64", 64, 0, 0, 0, False, False, np.uint64, 0),
    ("b1", 1, 0, 0, 0, False, False, np.uint8, 0),
    ("s4", 4, 0, 0, 0, False, True, np.int8, 0),
    ("u4", 4, 0, 0, 0, False, False, np.uint8, 0),
)


def _rows() -> tuple[ElementType, ...]:
    types = []
    for index, (name, bits, exponent, mantissa, bias, has_inf, is_signed, natural, ignored) in enumerate(_ROWS):
        storage = np.dtype(f"u{max(bits, 8) // 8}")
        types.append(
            ElementType(index, name, bits, exponent, mantissa, bias, has_inf, is_signed, storage, np.dtype(natural), ignored)
        )
    return tuple(types)


#: Every element type, in the order of their indices.
ELEMENT_TYPES = _rows()

_BY_NAME = {element.name: element for element in ELEMENT_TYPES}


def element_type(name: str) -> ElementType:
    """Return the row of a type by its PTX name without the dot; PtxError if there is none."""
    if name not in _BY_NAME:
        raise PtxError(f"element type must be one of {', '.join(_BY_NAME)}, not {name}")
    return _BY_NAME[name]


def to_bits(element: ElementType, array: np.ndarray) -> np.ndarray:
    """Return the bits of ``array``, which holds either bits of the storage width or values of the natural type.

    Raises ElementTypeError if it holds anything else: a value is never converted on the way into an instruction.
    """
    array = np.asarray(array)
    if array.dtype == element.storage:
        return array
    if array.dtype == element.natural:
        return np.ascontiguousarray(array).view(element.storage).reshape(array.shape)
    signed = np.dtype(f"i{element.storage.itemsize}")
    if array.dtype == signed and not element.is_float:
        return np.ascontiguousarray(array).view(element.storage).reshape(array.shape)
    raise ElementTypeError(
        f"array of {element.name} must hold {element.storage.name} bits or {element.natural.name} values, not {array.dtype.name}"
    )
