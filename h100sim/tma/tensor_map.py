"""Tensor maps: the 128 bytes that tell the TMA engine how a tensor lies in global memory and which box of it to copy.

A map is made as with cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col, is refused where the driver refuses it, and
encodes to the bytes that the driver writes. Shapes are given innermost dimension first.

Spec: CUDA 13.0 driver API, "Tensor Map Object Management"; PTX ISA 9.1, "Tensors". Measured:
tests/data/tensor_map_encode.npz.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from h100sim.errors import TensorMapError
from h100sim.integers import integer, integers
from h100sim.layouts.swizzle import SPANS
from h100sim.tma.encoding import decode_words, encode_words
from h100sim.tma.fields import ElementFormat, element_format
from h100sim.tma.legality import check_map
from h100sim.tma.plan import BOX_BYTES, make_plan


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: a tiled one has a ``box``, an im2col one has corners, channels per pixel and pixels per column.

    ``dims`` and ``box`` count elements, ``strides`` are bytes for ``dims[1:]``. Make one with :meth:`tiled` or
    :meth:`im2col`; ``bytes(m)`` are the 128 bytes for the kernel and ``TensorMap.decode`` reads them back.
    """

    dtype: str
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    element_strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"

    @classmethod
    def tiled(
        cls,
        dtype: str,
        address: int,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        element_strides: Sequence[int] | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        l2_promotion: str = "none",
        oob_fill: str = "zero",
    ) -> TensorMap:
        """Make the map of cuTensorMapEncodeTiled. TensorMapError where the driver returns an error."""
        sizes, extents = _integers("dims", dims), _integers("box", box)
        if not extents:
            raise TensorMapError(f"tensor map box must be {len(sizes)} numbers for rank {len(sizes)}, not 0")
        m = cls(
            dtype,
            _integer("address", address),
            sizes,
            _integers("strides", strides),
            (1,) * len(sizes) if element_strides is None else _integers("element_strides", element_strides),
            box=extents,
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            oob_fill=oob_fill,
        )
        check_map(m)
        return m

    @classmethod
    def im2col(
        cls,
        dtype: str,
        address: int,
        dims: Sequence[int],
        strides: Sequence[int],
        lower_corner: Sequence[int],
        upper_corner: Sequence[int],
        channels_per_pixel: int,
        pixels_per_column: int,
        element_strides: Sequence[int] | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        l2_promotion: str = "none",
        oob_fill: str = "zero",
    ) -> TensorMap:
        """Make the map of cuTensorMapEncodeIm2col; ``dims`` are C, W, (H, (D,)) N. TensorMapError as above."""
        sizes = _integers("dims", dims)
        m = cls(
            dtype,
            _integer("address", address),
            sizes,
            _integers("strides", strides),
            (1,) * len(sizes) if element_strides is None else _integers("element_strides", element_strides),
            lower_corner=_integers("lower_corner", lower_corner),
            upper_corner=_integers("upper_corner", upper_corner),
            channels_per_pixel=_integer("channels_per_pixel", channels_per_pixel),
            pixels_per_column=_integer("pixels_per_column", pixels_per_column),
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            oob_fill=oob_fill,
        )
        check_map(m)
        return m

    @classmethod
    def decode(cls, data: bytes | np.ndarray) -> TensorMap:
        """Return the map that 128 bytes hold. TensorMapError if the hardware of sm_90a does not know their format.

        The driver's rules are not checked: a kernel may have changed the bytes with ``tensormap.replace``.
        """
        raw = bytes(data)
        if len(raw) != 128:
            raise TensorMapError(f"tensor map must be 128 bytes, not {len(raw)}")
        return cls(**decode_words(np.frombuffer(raw, "<u4")))

    def __bytes__(self) -> bytes:
        return encode_words(self).tobytes()

    def _repr_svg_(self) -> str | None:
        """The box at the origin of the tensor, where there is such a picture."""
        from h100sim.layouts.pictures import draw_box

        return None if self.is_im2col or self.interleave != "none" else draw_box(self, [0] * self.rank)

    def _repr_html_(self) -> str:
        """The fields and the picture."""
        shown = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) not in ((), 0)}
        shown["address"] = f"{self.address:#x}"
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in shown.items())
        return f"<table>{rows}</table>{self._repr_svg_() or ''}"

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_im2col(self) -> bool:
        return not self.box

    @property
    def format(self) -> ElementFormat:
        return element_format(self.dtype)

    @property
    def span_bytes(self) -> int:
        """The span of the swizzle in bytes, 16 without one."""
        return SPANS[self.swizzle]

    @property
    def box_bytes(self) -> int:
        """What complete_tx counts for one box, whether or not its elements lie in the tensor."""
        return int(self.plan[BOX_BYTES])

    @cached_property
    def plan(self) -> np.ndarray:
        """The fields as a flat int64 array for compiled code; see :mod:`h100sim.tma.plan`."""
        return make_plan(self)


def _integer(noun: str, value: int) -> int:
    return integer(f"tensor map {noun}", value, error=TensorMapError)


def _integers(noun: str, values: Sequence[int]) -> tuple[int, ...]:
    return integers(f"tensor map {noun}", values, TensorMapError)
