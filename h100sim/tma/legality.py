"""Which tensor maps the driver accepts: every rule of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.

The rules are what the driver does, which is not always what its manual says: strides may overlap, 32-byte interleave
takes any swizzle, interleaved rows are whole 16-byte units, and a box is at most 228 KiB.

Spec: CUDA 13.0 driver API, "Tensor Map Object Management". Measured: tests/data/tensor_map_encode.npz, all cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from h100sim.errors import TensorMapError
from h100sim.layouts.swizzle import SPANS
from h100sim.tma.encoding import corner_bits, noted_bytes
from h100sim.tma.fields import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES, element_format

if TYPE_CHECKING:
    from h100sim.tma.tensor_map import TensorMap

#: Most bytes of one box. Measured: tests/data/tensor_map_encode.npz (228 KiB pass, one row more does not).
BOX_BYTES_LIMIT = 228 * 1024
_RULE = "CUDA 13.0 driver API, cuTensorMapEncode{}"


def check_map(m: TensorMap) -> None:
    """Raise TensorMapError, which names the rule and the value, if the driver would refuse the map."""
    element = element_format(m.dtype)
    for noun, value, legal in (
        ("interleave", m.interleave, INTERLEAVES),
        ("swizzle", m.swizzle, SWIZZLES),
        ("l2_promotion", m.l2_promotion, L2_PROMOTIONS),
        ("oob_fill", m.oob_fill, OOB_FILLS),
    ):
        if value not in legal:
            _refuse(m, noun, f"one of {', '.join(legal)}", value)
    lowest = 3 if m.is_im2col or m.interleave != "none" else 1
    if not lowest <= m.rank <= 5:
        kind = "im2col" if m.is_im2col else f"interleave {m.interleave}" if lowest == 3 else "tiled"
        _refuse(m, f"rank of a map with {kind}" if lowest == 3 else "rank", f"from {lowest} to 5", m.rank)
    _check_lengths(m)
    _check_memory(m)
    if m.oob_fill == "nan" and element.kind != "f":
        _refuse(m, f"oob_fill of {m.dtype}", "zero (nan needs a float type)", "nan")
    for i, stride in enumerate(m.element_strides):
        if not 1 <= stride <= 8:
            _refuse(m, f"element_strides[{i}]", "from 1 to 8", stride)
    if m.is_im2col:
        _check_column(m)
    else:
        for i, extent in enumerate(m.box):
            if not 1 <= extent <= 256:
                _refuse(m, f"box[{i}]", "from 1 to 256", extent)
    _check_inner(m)
    size = noted_bytes(m)
    if size > BOX_BYTES_LIMIT:
        _refuse(m, "box", f"at most {BOX_BYTES_LIMIT:,} bytes", f"{size:,}")


def _refuse(m: TensorMap, noun: str, rule: str, value: object) -> NoReturn:
    raise TensorMapError(f"tensor map {noun} must be {rule}, not {value}", rule=_RULE.format("Im2col" if m.is_im2col else "Tiled"))


def _check_lengths(m: TensorMap) -> None:
    expected: list[tuple[str, Sequence[int], int]] = [
        ("strides", m.strides, m.rank - 1),
        ("element_strides", m.element_strides, m.rank),
    ]
    if m.is_im2col:
        expected += [("lower_corner", m.lower_corner, m.rank - 2), ("upper_corner", m.upper_corner, m.rank - 2)]
    else:
        expected += [("box", m.box, m.rank)]
    for noun, values, count in expected:
        if len(values) != count:
            _refuse(m, noun, f"{count} numbers for rank {m.rank}", len(values))


def _check_memory(m: TensorMap) -> None:
    unit = 32 if m.interleave == "32B" else 16
    if m.address % unit or not 0 <= m.address < 1 << 64:
        _refuse(m, "address", f"a multiple of {unit}", f"{m.address:#x}")
    for i, dim in enumerate(m.dims):
        if not 1 <= dim <= 1 << 32:
            _refuse(m, f"dims[{i}]", "from 1 to 2^32", dim)
    for i, stride in enumerate(m.strides):
        if stride % unit or not 0 <= stride < 1 << 40:
            _refuse(m, f"strides[{i}]", f"a multiple of {unit} bytes below 2^40", stride)


def _check_column(m: TensorMap) -> None:
    if not 1 <= m.channels_per_pixel <= 256:
        _refuse(m, "channels_per_pixel", "from 1 to 256", m.channels_per_pixel)
    if not 1 <= m.pixels_per_column <= 1024:
        _refuse(m, "pixels_per_column", "from 1 to 1024", m.pixels_per_column)
    limit = 1 << corner_bits(m.rank - 2) - 1
    for noun, corner in (("lower_corner", m.lower_corner), ("upper_corner", m.upper_corner)):
        for i, value in enumerate(corner):
            if not -limit <= value < limit:
                _refuse(m, f"{noun}[{i}]", f"from {-limit} to {limit - 1} for rank {m.rank}", value)
    # Interleaved maps are checked against the dimension before the spatial one, and sums wrap at 32 bits, both as the
    # driver does it. Measured: tests/data/tensor_map_encode.npz.
    first = 1 if m.interleave == "none" else 0
    for i, (lower, upper) in enumerate(zip(m.lower_corner, m.upper_corner, strict=True)):
        if lower >= _int32(m.dims[first + i] + upper):
            _refuse(m, f"lower_corner[{i}]", f"below dims[{first + i}] + upper_corner[{i}]", lower)


def _check_inner(m: TensorMap) -> None:
    count, noun = (m.channels_per_pixel, "channels_per_pixel") if m.is_im2col else (m.box[0], "box[0]")
    inner = count * m.format.size_bytes
    if inner % 16:
        _refuse(m, f"{noun} of {m.dtype}", "a multiple of 16 bytes", inner)
    if m.interleave == "none" and m.swizzle != "none" and inner > SPANS[m.swizzle]:
        _refuse(m, f"{noun} with swizzle {m.swizzle}", f"at most {SPANS[m.swizzle]} bytes", inner)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
