"""A kernel's tensor arguments: each becomes tensor maps (one per tile shape that TMA moves) and, if needed, a pointer.

The map of a swizzled tile has rank 5, as in ThunderKittens: dimension 0 is one swizzle width of columns, 1 the rows,
2 the swizzle widths in a row, then depth and batch; so that one copy fills all panels of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .builder import current, usage
from .scalars import Int, Scalar, text
from .tiles import GlobalLayout, SharedTile, SharedVector, require_int

#: Spec: CUDA Driver API 13.0, cuTensorMapEncodeTiled: box dimensions are at most 256, strides multiples of 16 bytes.
_MOST_BOX = 256
_STRIDE_BYTES = 16


@dataclass(frozen=True)
class TensorMapSpec:
    """What ``TensorMap.tiled`` needs except for the address: names and lists as there, dimensions innermost first."""

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str

    def encode(self, address: int) -> Any:
        """Return the TensorMap of a tensor at ``address``."""
        from ..tma import TensorMap

        return TensorMap.tiled(self.dtype, address, self.dims, self.strides, self.box, swizzle=self.swizzle)


@dataclass(eq=False)
class GlobalTensor:
    """A ``gl`` argument while its kernel is traced. ``maps``: PTX parameter name to tensor map, in order of first
    use.
    """

    name: str
    layout: GlobalLayout
    maps: dict[str, TensorMapSpec] = field(default_factory=dict)
    has_pointer: bool = False
    is_read: bool = False
    is_written: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.layout})"

    def map_register(self, tile: SharedTile | SharedVector) -> str:
        """Return the register with the address of the tensor map for tiles of this shape."""
        spec, suffix = _spec(self, tile)
        name = f"{self.name}_map_{suffix}"
        known = self.maps.setdefault(name, spec)
        assert known == spec, f"map {name} must have one meaning"
        return current().once(name, "rd", f"mov.b64 {{d}}, {name}", "cvta.param.u64 {d}, {d}")

    def pointer_register(self) -> str:
        """Return the register with the global address of the tensor."""
        self.has_pointer = True
        name = f"{self.name}_ptr"
        return current().once(name, "rd", f"ld.param.u64 {{d}}, [{name}]", "cvta.to.global.u64 {d}, {d}")


def _spec(tensor: GlobalTensor, tile: SharedTile | SharedVector) -> tuple[TensorMapSpec, str]:
    g = tensor.layout
    if tile.dtype is not g.dtype:
        raise usage(f"element type of the tile must be that of {tensor}, not {tile.dtype}")
    if isinstance(tile, SharedVector):
        return _vector_spec(tensor, tile)
    size = g.dtype.size_bytes
    panel = tile.panel_cols
    if g.cols * size % _STRIDE_BYTES:
        raise usage(f"row of {tensor} must be a multiple of {_STRIDE_BYTES} bytes for TMA, not {g.cols * size}")
    if tile.rows > _MOST_BOX:
        raise usage(f"rows of a tile that TMA copies must be at most {_MOST_BOX}, not {tile.rows}")
    dtype = "u8" if size == 1 else g.dtype.name
    plane = g.rows * g.cols * size
    if not tile.swizzle:
        if tile.cols > _MOST_BOX:
            raise usage(f"columns of a row-major tile that TMA copies must be at most {_MOST_BOX}, not {tile.cols}")
        dims, strides = (g.cols, g.rows, g.depth, g.batch), (g.cols * size, plane, g.depth * plane)
        return TensorMapSpec(dtype, dims, strides, (tile.cols, tile.rows, 1, 1), "none"), f"{tile.rows}x{tile.cols}_row_major"
    if g.cols % panel:
        raise usage(
            f"columns of {tensor} must be a multiple of {panel}, the tile's swizzle width, not {g.cols}",
            "a rank-5 map would wrap the columns past the end into the next row",
        )
    dims5 = (panel, g.rows, g.cols // panel, g.depth, g.batch)
    strides4 = (g.cols * size, tile.swizzle, plane, g.depth * plane)
    box = (panel, tile.rows, tile.cols // panel, 1, 1)
    suffix = f"{tile.rows}x{tile.cols}" + (f"_{tile.swizzle}B" if tile.swizzle != 128 else "")
    return TensorMapSpec(dtype, dims5, strides4, box, f"{tile.swizzle}B"), suffix


def _vector_spec(tensor: GlobalTensor, vector: SharedVector) -> tuple[TensorMapSpec, str]:
    g = tensor.layout
    size = g.dtype.size_bytes
    if vector.length > _MOST_BOX:
        raise usage(f"length of a vector that TMA copies must be at most {_MOST_BOX}, not {vector.length}")
    if g.cols * size % _STRIDE_BYTES:
        raise usage(f"row of {tensor} must be a multiple of {_STRIDE_BYTES} bytes for TMA, not {g.cols * size}")
    plane = g.rows * g.cols * size
    dims, strides = (g.cols, g.rows, g.depth, g.batch), (g.cols * size, plane, g.depth * plane)
    dtype = "u8" if size == 1 else g.dtype.name
    return TensorMapSpec(dtype, dims, strides, (vector.length, 1, 1, 1), "none"), f"vec{vector.length}"


def coordinates(tensor: GlobalTensor, tile: SharedTile | SharedVector, coord: object) -> str:
    """Return the PTX coordinate list of the tile at ``coord``, which counts tiles."""
    rows, cols = (tile.rows, tile.cols) if isinstance(tile, SharedTile) else (1, tile.length)
    b, d, r, c = tile_coordinates(tensor, rows, cols, coord)
    if isinstance(tile, SharedTile) and tile.swizzle:
        parts: tuple[Scalar, ...] = (0, r * rows, c * (cols // tile.panel_cols), d, b)
    else:
        parts = (c * cols, r * rows, d, b)
    return "{" + ", ".join(text(p) for p in parts) + "}"


def tile_coordinates(tensor: GlobalTensor, rows: int, cols: int, coord: object) -> tuple[Scalar, ...]:
    """Return {b, d, r, c}, of which 1 to 4 are given, right-aligned. Raises UsageError for constants outside the
    tensor.
    """
    given = coord if isinstance(coord, tuple) else (coord,)
    if coord is None or not 1 <= len(given) <= 4:
        raise usage(f"coordinates of {tensor} must be one to four integers, not {coord}")
    full = ((0,) * (4 - len(given)) + tuple(require_int(x, "coordinate") for x in given))[-4:]
    g = tensor.layout
    for word, value, step, extent in zip(
        ("batch", "depth", "row", "column"), full, (1, 1, rows, cols), (g.batch, g.depth, g.rows, g.cols), strict=True
    ):
        if isinstance(value, int) and not 0 <= value * step < extent:
            last, unit = -(-extent // step) - 1, "elements" if rows == cols == 1 else "tiles"
            raise usage(f"{word} coordinate of {tensor} must be from 0 to {last} (it counts {unit}), not {value}")
    return full


@dataclass(frozen=True)
class Origin:
    """Where a tile begins in its tensor: the row in its plane, the rows of all planes before it, the column.
    ``limit`` and ``col_limit`` are the rows of the plane and the columns if a tile may stick out of them, else None.
    """

    row: Scalar
    rows_before: Scalar
    col: Scalar
    limit: int | None
    col_limit: int | None


def tile_origin(operation: str, tensor: GlobalTensor, rows: int, cols: int, coord: object, unit: int) -> Origin:
    """Return where tile ``coord`` begins, for ordinary loads and stores of ``unit`` elements at a time. Raises
    UsageError for rows of a tensor that are no multiple of that.
    """
    g = tensor.layout
    if g.cols % unit:
        raise usage(f"{operation} columns of {tensor} must be a multiple of the {unit} of an access, not {g.cols}")
    b, d, r, c = tile_coordinates(tensor, rows, cols, coord)
    plane = d if isinstance(b, int) and b == 0 else b * g.depth + d
    limits = g.rows if g.rows % rows else None, g.cols if g.cols % cols else None
    return Origin(r * rows, plane * g.rows, c * cols, *limits)


def rank(tile: SharedTile | SharedVector) -> str:
    """Return the dimensionality modifier of the tile's copies."""
    return "5d" if isinstance(tile, SharedTile) and tile.swizzle else "4d"


def require_tensor(value: object, operation: str) -> GlobalTensor:
    """Return a kernel argument. Raises UsageError for anything else."""
    if not isinstance(value, GlobalTensor):
        raise usage(f"{operation} must be given a gl argument of the kernel, not {type(value).__name__}")
    return value


def is_scalar(value: object) -> bool:
    """Is the value an integer, of Python or of the kernel?"""
    return isinstance(value, (int, Int))
