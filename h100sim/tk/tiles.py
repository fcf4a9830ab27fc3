"""The tiles and vectors that operations work on: in shared memory (st, sv), in registers (rt, rv), in global memory
(gl).

Shapes, swizzles and names are ThunderKittens'. A shared tile is stored as column panels of one swizzle width, all
rows of a panel before the next panel, and 16-byte chunks are XORed with the row (:func:`swizzle_bytes`). A register
tile belongs to a warp: the four warps of a warpgroup hold 16 rows each of a 64-row accumulator. Tiles are made while
a kernel is traced; shared ones take their place in shared memory in the order in which they are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..dtypes import ElementType, element_type
from ..errors import UsageError
from .builder import SHARED_START, current, here, usage
from .scalars import Int, Scalar, text

bf16, half, fl = element_type("bf16"), element_type("f16"), element_type("f32")
fp8e4m3, fp8e5m2 = element_type("e4m3"), element_type("e5m2")
int32 = element_type("s32")
_LEGAL = (bf16, half, fl, fp8e4m3, fp8e5m2)

#: Tiles in shared memory begin at multiples of this, as in ThunderKittens: the XOR uses address bits 7 to 9.
_TILE_ALIGN = 1024
#: Rows of the 16x16 base tile in registers; its columns are 16, for fp8 32.
BASE_ROWS = 16


def base_cols(dtype: ElementType) -> int:
    """Return the columns of a base tile: 16, for 8-bit types 32."""
    return 32 if dtype.size_bytes == 1 else 16


def swizzle_bytes(dtype: ElementType, cols: int) -> int:
    """Return the swizzle width that ThunderKittens gives a shared tile: the widest of 128, 64 and 32 bytes that
    divides a row.

    Spec: ThunderKittens 2.0 (commit 0b55588d), ``st``. Measured: tests/data/tk_operations.npz (the layouts that
    follow from it are those of TMA, ldmatrix, stmatrix and wgmma).
    """
    row = cols * dtype.size_bytes
    return next(width for width in (128, 64, 32) if row % width == 0)


@dataclass(frozen=True)
class SharedAddress:
    """A shared-memory address: a register plus a constant offset in bytes."""

    register: str
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.register}+{self.offset}]" if self.offset else f"[{self.register}]"

    def plus(self, index: Scalar, stride_bytes: int) -> SharedAddress:
        """Return the address of element ``index`` of an array."""
        if isinstance(index, int):
            return SharedAddress(self.register, self.offset + index * stride_bytes)
        if stride_bytes == 1:
            return SharedAddress((Int(self.register) + index).register, self.offset)
        register = current().register()
        current().emit(f"mad.lo.s32 {register}, {text(index)}, {stride_bytes}, {self.register}")
        return SharedAddress(register, self.offset)

    def in_register(self) -> str:
        """Return a register that holds the address."""
        if not self.offset:
            return self.register
        register = current().register()
        current().emit(f"add.s32 {register}, {self.register}, {self.offset}")
        return register


def shared_base() -> str:
    """Return the register with the address of the kernel's dynamic shared memory."""
    return current().once("smem", "r", "mov.u32 {d}, dynamic_shared")


def check_index(what: str, index: Scalar, count: int) -> None:
    """Raise UsageError if a constant index lies outside of an array of ``count``."""
    if isinstance(index, int) and not 0 <= index < count:
        raise usage(f"index of {what} must be from 0 to {count - 1}, not {index}")


@dataclass(frozen=True, eq=False)
class SharedTile:
    """A tile in shared memory, an array of them (``count``, which indexing takes off from the left), or a view of a part
    of one: ``whole`` are rows and columns of the tile whose panels it lies in, ``first_col`` is where in the panel (of a
    row-major tile: in the row) it begins.
    """

    dtype: ElementType
    rows: int
    cols: int
    swizzle: int
    count: tuple[int, ...]
    address: SharedAddress
    root: SharedTile | None = None
    whole: tuple[int, int] = (0, 0)
    first_col: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of one tile."""
        return self.rows * self.cols * self.dtype.size_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes from the first to the last of an array."""
        return self.size_bytes * math.prod(self.count)

    @property
    def panel_cols(self) -> int:
        """Columns of one panel."""
        return self.swizzle // self.dtype.size_bytes if self.swizzle else self.row_cols

    @property
    def panel_rows(self) -> int:
        """Rows of one panel: more than the tile's in a view."""
        return self.whole[0] or self.rows

    @property
    def row_cols(self) -> int:
        """Columns of a row of the underlying tile."""
        return self.whole[1] or self.cols

    @property
    def is_contiguous(self) -> bool:
        """Does the tile fill the memory between its first and last element?"""
        if not self.swizzle:
            return self.row_cols == self.cols
        return not self.first_col and (self.panel_rows == self.rows or self.cols <= self.panel_cols)

    @property
    def name(self) -> str:
        return current().name_of(self.root or self, "st")

    def _repr_svg_(self) -> str:
        """Where its elements lie, from the beginning of the tile."""
        from ..layouts.pictures import draw_swizzle

        return draw_swizzle(self.rows, self.cols, self.dtype.size_bytes, self.swizzle)

    def __str__(self) -> str:
        return f"st<{self.dtype}, {self.rows}, {self.cols}>"

    def __getitem__(self, index: Scalar | tuple[Scalar, ...]) -> SharedTile:
        tile = self
        for i in index if isinstance(index, tuple) else (index,):
            tile = tile._element(i)
        return tile

    def _element(self, index: Scalar) -> SharedTile:
        if not self.count:
            raise usage(f"tile {self.name} must be indexed by at most its array dimensions; {self} is a single tile")
        check_index(self.name, index, self.count[0])
        stride = self.size_bytes
        for n in self.count[1:]:
            stride *= n
        address = self.address.plus(index, stride)
        return SharedTile(self.dtype, self.rows, self.cols, self.swizzle, self.count[1:], address, self.root or self)

    def offset_of(self, row: Scalar, col: Scalar) -> Scalar:
        """Return the byte at which an element begins in the tile."""
        size = self.dtype.size_bytes
        col = col + self.first_col
        if not self.swizzle:
            return (row * self.row_cols + col) * size
        panel, inside = col // self.panel_cols, col % self.panel_cols
        line = row * self.swizzle
        flip = ((line >> 7) & (self.swizzle // 16 - 1)) << 4
        return panel * (self.panel_rows * self.swizzle) + line + ((inside * size) ^ flip)

    def panels(self, first: int, cols: int) -> SharedTile:
        """Return the column slice [first, first + cols) as a tile of its own; both must be multiples of the panel
        width.
        """
        if first % self.panel_cols or cols % self.panel_cols or not 0 <= first < first + cols <= self.cols or self.count:
            raise usage(f"columns of a slice of {self} must be whole panels of {self.panel_cols}, not {first} to {first + cols}")
        address = self.address.plus(first // self.panel_cols, self.panel_rows * self.swizzle)
        return replace(self, cols=cols, address=address, root=self.root or self, whole=(self.panel_rows, self.row_cols))

    def subtile(self, rows: int, cols: int, index: tuple[Scalar, int]) -> SharedTile:
        """Return part ``index`` (row, column) of ``rows`` x ``cols`` as a view. Loads and stores of registers take any;
        wgmma takes one that begins at a panel, TMA one that is also contiguous.
        """
        row, col = index
        across = self.cols // max(cols, 1)
        if (
            self.count
            or rows % BASE_ROWS
            or cols % base_cols(self.dtype)
            or not (rows and cols)
            or self.rows % rows
            or self.cols % cols
        ):
            raise usage(f"subtile of {self} must be of base tiles that divide it, not {rows}x{cols}")
        check_index(f"rows of subtiles of {self.name}", row, self.rows // rows)
        if not isinstance(col, int) or not 0 <= col < across:
            raise usage(f"column of a subtile of {self} must be a Python integer from 0 to {across - 1}, not {col}")
        panel, inside = divmod(col * cols + self.first_col, self.panel_cols) if self.swizzle else (0, col * cols + self.first_col)
        line = self.swizzle or self.row_cols * self.dtype.size_bytes
        address = self.address.plus(row * rows, line).plus(panel, self.panel_rows * line)
        whole = self.panel_rows, self.row_cols
        return replace(self, rows=rows, cols=cols, address=address, root=self.root or self, whole=whole, first_col=inside)


def st(
    dtype: ElementType,
    rows: int,
    cols: int,
    *,
    swizzle: int | None = None,
    count: int | tuple[int, ...] = (),
    name: str | None = None,
    over: SharedTile | SharedVector | None = None,
    offset: int = 0,
) -> SharedTile:
    """Make a shared tile (``count``: an array of them). ``swizzle`` fixes the width in bytes: 128, 64, 32 or 0
    (row-major). ``over``: use the memory of this tile or vector, from byte ``offset`` on, instead of more.

    Raises UsageError for a shape that base tiles do not cover, and when the CTA's shared memory is used up.
    """
    counts = (count,) if isinstance(count, int) else tuple(count)
    check_dtype(dtype)
    check_shape("st", dtype, rows, cols)
    if swizzle is None:
        swizzle = swizzle_bytes(dtype, cols)
    if swizzle not in (0, 32, 64, 128):
        raise usage(f"swizzle must be 128, 64, 32 or 0 bytes, not {swizzle}")
    if swizzle and cols * dtype.size_bytes % swizzle:
        raise usage(f"row of {cols} {dtype} must be a multiple of the swizzle's {swizzle} bytes, not {cols * dtype.size_bytes}")
    if any(not isinstance(n, int) or n < 1 for n in counts):
        raise usage(f"count of shared tiles must be positive integers, not {counts}")
    builder = current()
    size = rows * cols * dtype.size_bytes
    for n in counts:
        size *= n
    if over is not None:
        address = _place_over(over, offset, size)
    else:
        start = builder.allocate(f"{'x'.join(map(str, counts)) or 'one'} st<{dtype}, {rows}, {cols}>", size, _TILE_ALIGN)
        address = SharedAddress(shared_base(), start)
    tile = SharedTile(dtype, rows, cols, swizzle, counts, address)
    builder.shared_tiles.append(tile)
    builder.watch(tile, name)
    return tile


def _place_over(over: object, offset: int, size: int) -> SharedAddress:
    """Return the address of a tile that uses the memory of another. Raises UsageError if it does not fit."""
    if not isinstance(over, (SharedTile, SharedVector)) or over.address.register != "%smem":
        found = f"{over.name} at a place known at run time" if isinstance(over, (SharedTile, SharedVector)) else type(over).__name__
        raise usage(f"tile over another must be over a shared tile or vector at a fixed place, not {found}")
    if not 0 <= offset <= over.total_bytes - size:
        raise usage(f"tile over {over.name} must fit its {over.total_bytes:,} bytes, not take {size:,} from {offset:,} on")
    start = over.address.offset + offset
    if start % _TILE_ALIGN:
        raise usage(
            f"tile over {over.name} must begin at a multiple of {_TILE_ALIGN:,} bytes, not {start % _TILE_ALIGN:,} after one: "
            f"give offset={offset + -start % _TILE_ALIGN}",
            "swizzles and wgmma take bits 7 to 9 of the address for the row",
        )
    return SharedAddress(over.address.register, start)


@dataclass(frozen=True, eq=False)
class SharedVector:
    """A vector in shared memory, linear."""

    dtype: ElementType
    length: int
    address: SharedAddress
    root: SharedVector | None = None
    count: int = 1

    @property
    def size_bytes(self) -> int:
        return self.length * self.dtype.size_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes from the first to the last of an array."""
        return self.stride_bytes * (self.count - 1) + self.size_bytes

    @property
    def stride_bytes(self) -> int:
        """Bytes from one vector of an array to the next: a multiple of 128, which TMA needs."""
        return -(-self.size_bytes // 128) * 128

    @property
    def name(self) -> str:
        return current().name_of(self.root or self, "sv")

    def __str__(self) -> str:
        return f"sv<{self.dtype}, {self.length}>"

    def subvec(self, length: int, index: Scalar) -> SharedVector:
        """Return elements [index * length, (index + 1) * length) as a vector. TMA takes it if it begins at a multiple of 128
        bytes.
        """
        if self.count > 1 or length < 16 or length % 16 or self.length % length:
            raise usage(f"length of a part of {self} must be a multiple of 16 that divides it, not {length}")
        check_index(f"parts of {self.name}", index, self.length // length)
        address = self.address.plus(index, length * self.dtype.size_bytes)
        return SharedVector(self.dtype, length, address, self.root or self)

    def __getitem__(self, index: Scalar) -> SharedVector:
        check_index(self.name, index, self.count)
        return SharedVector(self.dtype, self.length, self.address.plus(index, self.stride_bytes), self.root or self)


def sv(dtype: ElementType, length: int, *, count: int = 1, name: str | None = None) -> SharedVector:
    """Make a shared vector (``count``: an array of them) of a multiple of 16 elements."""
    check_dtype(dtype)
    if length < 16 or length % 16:
        raise usage(f"length of an sv must be a multiple of 16, not {length}")
    builder = current()
    stride = -(-length * dtype.size_bytes // 128) * 128
    offset = builder.allocate(f"{count} sv<{dtype}, {length}>", stride * count, 128)
    vector = SharedVector(dtype, length, SharedAddress(shared_base(), offset), count=count)
    builder.shared_tiles.append(vector)
    builder.watch(vector, name)
    return vector


@dataclass(frozen=True)
class ScalarLayout:
    """A number as kernel argument: ``int32``, or ``fl``."""

    dtype: ElementType
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(frozen=True)
class GlobalLayout:
    """A contiguous row-major tensor in global memory, {batch, depth, rows, cols}; missing dimensions are 1. All but the
    columns may be names of sizes that are known only when the kernel runs.
    """

    dtype: ElementType
    batch: int | str
    depth: int | str
    rows: int | str
    cols: int
    ndim: int

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The dimensions that were given."""
        return (self.batch, self.depth, self.rows, self.cols)[4 - self.ndim :]

    def __str__(self) -> str:
        return f"gl<{self.dtype}, {', '.join(map(str, self.shape))}>"

    def sizes_of(self, shape: tuple[int, ...]) -> dict[str, int] | None:
        """Return what the names stand for in an array of this shape, None if it is not one of this layout."""
        sizes: dict[str, int] = {}
        for wanted, found in zip(self.shape, shape, strict=False):
            if found != (sizes.setdefault(wanted, found) if isinstance(wanted, str) else wanted) or found < 1:
                return None
        return sizes if len(shape) == self.ndim else None


def gl(dtype: ElementType, *shape: int | str) -> GlobalLayout:
    """Describe a kernel argument in global memory by its element type and 1 to 4 dimensions, columns last. A dimension other
    than the columns may be a name ("m"), the same wherever it occurs: the size comes from the arrays at the launch. Integers
    (``tk.int32``) are for :func:`h100sim.tk.read` and its kin; tiles hold floating point.
    """
    check_dtype(dtype, int32)
    if not 1 <= len(shape) <= 4 or any(not _is_size(n) for n in shape):
        raise usage(f"gl must have one to four dimensions, positive or names, not {shape}")
    if not isinstance(shape[-1], int):
        raise usage(f"columns of a gl must be known when the kernel is traced, not {shape[-1]}: only outer dimensions are named")
    batch, depth, rows, cols = (1,) * (4 - len(shape)) + tuple(shape)
    return GlobalLayout(dtype, batch, depth, rows, cols, len(shape))  # type: ignore[arg-type]


def _is_size(value: object) -> bool:
    return value.isidentifier() and value.isascii() if isinstance(value, str) else isinstance(value, int) and value >= 1


def check_dtype(dtype: object, *more: ElementType) -> None:
    """Raise UsageError unless ``dtype`` is a type of tiles or one of ``more``."""
    legal = (*_LEGAL, *more)
    if dtype not in legal:
        raise usage(f"element type must be one of {', '.join(map(str, legal))}, not {dtype}")


def check_shape(kind: str, dtype: ElementType, rows: int, cols: int) -> None:
    unit = base_cols(dtype)
    for word, value, step in (("rows", rows, BASE_ROWS), ("cols", cols, unit)):
        if not isinstance(value, int) or value < step or value % step:
            raise usage(f"{word} of an {kind} of {dtype} must be a multiple of {step}, not {value}")


def shared_offset(address: SharedAddress) -> int:
    """Return the offset in the CTA's shared window of something that is not indexed at run time."""
    if address.register != "%smem":
        raise UsageError(f"address must be that of a whole array, not {address}", rule=str(here()))
    return SHARED_START + address.offset


def require_int(value: object, what: str) -> Scalar:
    """Return an integer or tk integer. Raises UsageError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, Int)):
        raise usage(f"{what} must be an int or a tk integer, not {type(value).__name__}")
    return value  # type: ignore[return-value]
