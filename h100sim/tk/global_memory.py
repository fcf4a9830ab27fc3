"""A kernel's tensor arguments: each becomes tensor maps (one per tile shape that TMA moves) and, if needed, a pointer.

The map of a swizzled tile has rank 5, as in ThunderKittens: dimension 0 is one swizzle width of columns, 1 the rows,
2 the swizzle widths in a row, then depth and batch; so that one copy fills all panels of a tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .builder import current, usage
from .scalars import Int, Scalar, text
from .tiles import GlobalLayout, SharedTile, SharedVector, require_int

#: Spec: CUDA Driver API 13.0, cuTensorMapEncodeTiled: box dimensions are at most 256, strides multiples of 16 bytes.
_MOST_BOX = 256
_STRIDE_BYTES = 16


@dataclass(frozen=True)
class Product:
    """A number that the launch knows: ``factor`` times the sizes of these names."""

    factor: int
    names: tuple[str, ...]

    def __mul__(self, other: int | Product) -> Product:
        if isinstance(other, Product):
            return Product(self.factor * other.factor, self.names + other.names)
        return Product(self.factor * other, self.names)

    __rmul__ = __mul__

    def value(self, sizes: dict[str, int]) -> int:
        return self.factor * math.prod(sizes[name] for name in self.names)


#: A size in a tensor map, known when the kernel is traced or when it is launched.
Size = int | Product


@dataclass(frozen=True)
class TensorMapSpec:
    """What ``TensorMap.tiled`` needs except for the address: names and lists as there, dimensions innermost first."""

    dtype: str
    dims: tuple[Size, ...]
    strides: tuple[Size, ...]
    box: tuple[int, ...]
    swizzle: str

    def encode(self, address: int, sizes: dict[str, int]) -> Any:
        """Return the TensorMap of a tensor at ``address``, with these sizes of its named dimensions."""
        from ..tma import TensorMap

        dims, strides = ([n.value(sizes) if isinstance(n, Product) else n for n in x] for x in (self.dims, self.strides))
        return TensorMap.tiled(self.dtype, address, dims, strides, self.box, swizzle=self.swizzle)


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

    @property
    def batch(self) -> Scalar:
        """The first of four dimensions: an int, or an Int if the launch decides. PTX of an Int: ``ld.param``, once."""
        return _dimension(self.layout.batch)

    @property
    def depth(self) -> Scalar:
        """The second of four dimensions."""
        return _dimension(self.layout.depth)

    @property
    def rows(self) -> Scalar:
        """The rows of a plane."""
        return _dimension(self.layout.rows)

    @property
    def cols(self) -> int:
        """The columns, which are always known."""
        return self.layout.cols

    def line(self, batch: Scalar, depth: Scalar, row: Scalar) -> Scalar:
        """Return the row of {batch, depth, row} among those of all planes."""
        plane = depth if isinstance(batch, int) and batch == 0 else batch * self.depth + depth
        return row if isinstance(plane, int) and plane == 0 else plane * self.rows + row

    def map_register(self, tile: SharedTile | SharedVector, axis: str = "row") -> str:
        """Return the register with the address of the tensor map for tiles of this shape, whose rows run along
        ``axis``.
        """
        spec, suffix = _spec(self, tile, axis)
        name = f"{self.name}_map_{suffix}"
        known = self.maps.setdefault(name, spec)
        assert known == spec, f"map {name} must have one meaning"
        return current().once(name, "rd", f"mov.b64 {{d}}, {name}", "cvta.param.u64 {d}, {d}")

    def pointer_register(self) -> str:
        """Return the register with the global address of the tensor."""
        self.has_pointer = True
        name = f"{self.name}_ptr"
        return current().once(name, "rd", f"ld.param.u64 {{d}}, [{name}]", "cvta.to.global.u64 {d}, {d}")


#: Which dimensions of a tensor (batch 0, depth 1, row 2) a tile's rows run along, and the two others, inner first.
_AXES = {"row": (2, 1, 0), "depth": (1, 2, 0), "batch": (0, 2, 1)}


def _dimension(value: int | str) -> Scalar:
    if isinstance(value, int):
        return value
    return Int(current().once(f"{value}_size", "r", f"ld.param.u32 {{d}}, [{value}_size]"), nonnegative=True)


def _size(value: int | str) -> Size:
    return value if isinstance(value, int) else Product(1, (value,))


def _outer(tensor: GlobalTensor, axis: str) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Return sizes and strides in bytes of the three dimensions outside of the columns, in the order of the map."""
    g = tensor.layout
    row = g.cols * g.dtype.size_bytes
    sizes = _size(g.batch), _size(g.depth), _size(g.rows)
    strides = sizes[1] * sizes[2] * row, sizes[2] * row, row
    return tuple(sizes[i] for i in _AXES[axis]), tuple(strides[i] for i in _AXES[axis])


def _spec(tensor: GlobalTensor, tile: SharedTile | SharedVector, axis: str) -> tuple[TensorMapSpec, str]:
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
        raise usage(f"rows of a tile that TMA copies must be at most {_MOST_BOX}, not {tile.rows}: copy two subtiles")
    dtype = "u8" if size == 1 else g.dtype.name
    sizes, strides = _outer(tensor, axis)
    along = "" if axis == "row" else f"_{axis}"
    if not tile.swizzle:
        if tile.cols > _MOST_BOX:
            raise usage(f"columns of a row-major tile that TMA copies must be at most {_MOST_BOX}, not {tile.cols}")
        box4 = (tile.cols, tile.rows, 1, 1)
        return TensorMapSpec(dtype, (g.cols, *sizes), strides, box4, "none"), f"{tile.rows}x{tile.cols}_row_major{along}"
    if g.cols % panel:
        raise usage(
            f"columns of {tensor} must be a multiple of {panel}, the tile's swizzle width, not {g.cols}",
            "a rank-5 map would wrap the columns past the end into the next row",
        )
    dims5 = (panel, sizes[0], g.cols // panel, *sizes[1:])
    strides4 = (strides[0], tile.swizzle, *strides[1:])
    box = (panel, tile.rows, tile.cols // panel, 1, 1)
    suffix = f"{tile.rows}x{tile.cols}" + (f"_{tile.swizzle}B" if tile.swizzle != 128 else "") + along
    return TensorMapSpec(dtype, dims5, strides4, box, f"{tile.swizzle}B"), suffix


def vector_piece(vector: SharedVector) -> int:
    """Return how many elements of a vector one copy moves: all, or the largest multiple of 16 up to 256 that divides it
    and keeps pieces at multiples of 128 bytes. Spec: ThunderKittens 2.0, ``sv`` descriptors.
    """
    if vector.length <= _MOST_BOX:
        return vector.length
    size = vector.dtype.size_bytes
    return next(n for n in range(_MOST_BOX, 0, -16) if (vector.length % n == 0 and n * size % 128 == 0) or n == 16)


def _vector_spec(tensor: GlobalTensor, vector: SharedVector) -> tuple[TensorMapSpec, str]:
    g = tensor.layout
    size = g.dtype.size_bytes
    piece = vector_piece(vector)
    if piece * size % 128 and piece < vector.length:
        raise usage(f"vector of more than {_MOST_BOX} that TMA copies must be a multiple of 128 bytes, not {vector.size_bytes}")
    if g.cols * size % _STRIDE_BYTES:
        raise usage(f"row of {tensor} must be a multiple of {_STRIDE_BYTES} bytes for TMA, not {g.cols * size}")
    sizes, strides = _outer(tensor, "row")
    dims = (g.cols, *sizes)
    dtype = "u8" if size == 1 else g.dtype.name
    return TensorMapSpec(dtype, dims, strides, (piece, 1, 1, 1), "none"), f"vec{piece}"


def coordinates(tensor: GlobalTensor, tile: SharedTile | SharedVector, coord: object, axis: str = "row", first: int = 0) -> str:
    """Return the PTX coordinate list of the tile at ``coord``, which counts tiles; of a vector from element ``first``."""
    rows, cols = (tile.rows, tile.cols) if isinstance(tile, SharedTile) else (1, tile.length)
    where = list(tile_coordinates(tensor, rows, cols, coord, axis))
    c = where.pop()
    where[_AXES[axis][0]] = where[_AXES[axis][0]] * rows
    along, *others = (where[i] for i in _AXES[axis])
    if isinstance(tile, SharedTile) and tile.swizzle:
        parts: tuple[Scalar, ...] = (0, along, c * (cols // tile.panel_cols), *others)
    else:
        parts = (c * cols + first, along, *others)
    return "{" + ", ".join(text(p) for p in parts) + "}"


def tile_coordinates(tensor: GlobalTensor, rows: int, cols: int, coord: object, axis: str = "row") -> tuple[Scalar, ...]:
    """Return {b, d, r, c}, of which 1 to 4 are given, right-aligned; that of ``axis`` and c count tiles. Raises
    UsageError for constants outside the tensor.
    """
    given = coord if isinstance(coord, tuple) else (coord,)
    if coord is None or not 1 <= len(given) <= 4:
        raise usage(f"coordinates of {tensor} must be one to four integers, not {coord}")
    full = ((0,) * (4 - len(given)) + tuple(require_int(x, "coordinate") for x in given))[-4:]
    g = tensor.layout
    for word, value, step, extent in zip(
        ("batch", "depth", "row", "column"), full, _steps(axis, rows, cols), (g.batch, g.depth, g.rows, g.cols), strict=True
    ):
        if isinstance(value, int) and isinstance(extent, int) and not 0 <= value * step < extent:
            last, unit = -(-extent // step) - 1, "elements" if rows == cols == 1 else "tiles"
            raise usage(f"{word} coordinate of {tensor} must be from 0 to {last} (it counts {unit}), not {value}")
    return full


def _steps(axis: str, rows: int, cols: int) -> tuple[int, ...]:
    """Return what one coordinate stands for, for {b, d, r, c}."""
    if axis not in _AXES:
        raise usage(f"axis of a tile's rows must be {', '.join(_AXES)}, not {axis}")
    steps = [1, 1, 1]
    steps[_AXES[axis][0]] = rows
    return (*steps, cols)


@dataclass(frozen=True)
class Origin:
    """Where a tile begins in its tensor: the row in its plane, the rows of all planes before it, the column.
    ``limit`` and ``col_limit`` are the rows of the plane and the columns if a tile may stick out of them, else None.
    """

    row: Scalar
    rows_before: Scalar
    col: Scalar
    limit: Scalar | None
    col_limit: int | None


def tile_origin(operation: str, tensor: GlobalTensor, rows: int, cols: int, coord: object, unit: int) -> Origin:
    """Return where tile ``coord`` begins, for ordinary loads and stores of ``unit`` elements at a time. Raises
    UsageError for rows of a tensor that are no multiple of that.
    """
    g = tensor.layout
    if g.cols % unit:
        raise usage(f"{operation} columns of {tensor} must be a multiple of the {unit} of an access, not {g.cols}")
    b, d, r, c = tile_coordinates(tensor, rows, cols, coord)
    limits = tensor.rows if isinstance(g.rows, str) or g.rows % rows else None, g.cols if g.cols % cols else None
    return Origin(r * rows, tensor.line(b, d, 0), c * cols, *limits)


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
