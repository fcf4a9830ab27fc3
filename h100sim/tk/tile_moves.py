"""Tiles between registers and shared memory: stmatrix and ldmatrix for 16-bit types, pairs of words for f32.

A lane's addresses differ from its first one by constants: rows of 16 add a multiple of the swizzle pattern, panels
likewise, and columns inside a panel flip address bits (XOR), because a swizzled tile begins at a multiple of 1024
bytes. Spec: PTX ISA 9.1, "stmatrix", "ldmatrix".
"""

from __future__ import annotations

from .builder import current, usage
from .control import lane, warp_rank_in_group
from .conversions import convert_registers
from .tiles import BASE_ROWS, RegisterTile, SharedAddress, SharedTile, base_cols, fl


class _Lanes:
    """The address of every (row of base tiles, column) for this lane, with one register per distinct XOR."""

    def __init__(self, tile: SharedTile, first_row: str | None, lane_offset: str):
        builder = current()
        self.tile = tile
        self.start = builder.register()
        builder.emit(f"add.s32 {self.start}, {tile.address.in_register()}, {lane_offset}")
        if first_row is not None:
            builder.emit(f"add.s32 {self.start}, {self.start}, {first_row}")
        self.flipped = {0: self.start}

    def address(self, row: int, column: int) -> str:
        """Return the PTX address ``row`` rows (a multiple of 8) and ``column`` columns on."""
        tile = self.tile
        size = tile.dtype.size_bytes
        if not tile.swizzle:
            return str(SharedAddress(self.start, (row * tile.cols + column) * size))
        panel, inside = divmod(column, tile.panel_cols)
        return str(SharedAddress(self._flip(inside * size), panel * tile.rows * tile.swizzle + row * tile.swizzle))

    def _flip(self, bits: int) -> str:
        if bits not in self.flipped:
            register = current().register()
            current().emit(f"xor.b32 {register}, {self.start}, {bits}")
            self.flipped[bits] = register
        return self.flipped[bits]


def _pitch(tile: SharedTile) -> int:
    return tile.swizzle or tile.cols * tile.dtype.size_bytes


def _lanes(tile: SharedTile, rt: RegisterTile, group_warps: int, is_matrix: bool) -> _Lanes:
    """Emit this lane's first address: with ``is_matrix`` the row it gives to ldmatrix/stmatrix, else its pair of
    elements.
    """
    builder = current()
    pitch, l = _pitch(tile), lane()  # noqa: E741
    row, column, swizzle, offset = (builder.register() for _ in range(4))
    if is_matrix:
        # Matrices 0 and 1 are rows 0 to 15 of the left half of a base tile, 2 and 3 of the right half.
        builder.emit(f"and.b32 {row}, {l}, 15")
        builder.emit(f"shr.u32 {column}, {l}, 4")
        builder.emit(f"shl.b32 {column}, {column}, 4")
    else:
        builder.emit(f"shr.u32 {row}, {l}, 2")
        builder.emit(f"and.b32 {column}, {l}, 3")
        builder.emit(f"shl.b32 {column}, {column}, 3")
    builder.emit(f"mul.lo.s32 {offset}, {row}, {pitch}")
    if tile.swizzle:
        builder.emit(f"shr.u32 {swizzle}, {offset}, 7")
        builder.emit(f"and.b32 {swizzle}, {swizzle}, {tile.swizzle // 16 - 1}")
        builder.emit(f"shl.b32 {swizzle}, {swizzle}, 4")
        builder.emit(f"xor.b32 {column}, {column}, {swizzle}")
    builder.emit(f"add.s32 {offset}, {offset}, {column}")
    first_row = None
    if group_warps > 1:
        first_row = builder.register()
        builder.emit(f"mul.lo.s32 {first_row}, {warp_rank_in_group()}, {rt.rows * pitch}")
    return _Lanes(tile, first_row, offset)


def _check(operation: str, tile: SharedTile, rt: RegisterTile, group_warps: int) -> None:
    if not isinstance(tile, SharedTile) or not isinstance(rt, RegisterTile):
        raise usage(
            f"{operation} must be given a shared and a register tile, not {type(tile).__name__} and {type(rt).__name__}"
        )
    if tile.count:
        raise usage(f"{operation} must be given one tile, not the array {tile.name}")
    if (tile.rows, tile.cols) != (group_warps * rt.rows, rt.cols):
        wanted = f"{group_warps * rt.rows}x{rt.cols} ({group_warps} {'warps' if group_warps > 1 else 'warp'} with {rt})"
        raise usage(f"{operation} shared tile must be {wanted}, not {tile.rows}x{tile.cols}")
    for x in (tile, rt):
        if x.dtype.size_bytes == 1:
            raise usage(
                f"{operation} element type must be bf16, f16 or f32, not {x.dtype}",
                "moving fp8 between lanes is not supported",
            )
    if tile.dtype is fl and rt.dtype is not fl:
        raise usage(f"{operation} register tile must be f32 where the shared tile is, not {rt.dtype}")


def store(operation: str, tile: SharedTile, rt: RegisterTile, group_warps: int) -> None:
    """Write a register tile to a shared one, converting if the types differ, then fence for asynchronous readers."""
    _check(operation, tile, rt, group_warps)
    builder = current()
    is_matrix = tile.dtype is not fl
    lanes = _lanes(tile, rt, group_warps, is_matrix)
    for i in range(rt.height):
        for j in range(rt.width):
            registers = rt.base(i, j)
            row, column = i * BASE_ROWS, j * base_cols(tile.dtype)
            if is_matrix:
                packed = convert_registers(registers, rt.dtype, tile.dtype)
                builder.emit(
                    f"stmatrix.sync.aligned.m8n8.x4.shared.b16 {lanes.address(row, column)}, {{{', '.join(packed)}}}"
                )
                continue
            for k in range(4):
                pair = f"{{{registers[2 * k]}, {registers[2 * k + 1]}}}"
                builder.emit(f"st.shared.v2.f32 {lanes.address(row + 8 * (k % 2), column + 8 * (k // 2))}, {pair}")
    builder.emit("fence.proxy.async.shared::cta")


def load(operation: str, rt: RegisterTile, tile: SharedTile, group_warps: int) -> None:
    """Read a shared tile into a register tile, converting if the types differ."""
    _check(operation, tile, rt, group_warps)
    builder = current()
    is_matrix = tile.dtype is not fl
    lanes = _lanes(tile, rt, group_warps, is_matrix)
    for i in range(rt.height):
        for j in range(rt.width):
            registers = rt.base(i, j)
            row, column = i * BASE_ROWS, j * base_cols(tile.dtype)
            if is_matrix:
                raw = registers if rt.dtype is tile.dtype else tuple(builder.register() for _ in range(4))
                builder.emit(
                    f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{', '.join(raw)}}}, {lanes.address(row, column)}"
                )
                if rt.dtype is not tile.dtype:
                    convert_registers(raw, tile.dtype, rt.dtype, into=registers)
                continue
            for k in range(4):
                pair = f"{{{registers[2 * k]}, {registers[2 * k + 1]}}}"
                builder.emit(f"ld.shared.v2.f32 {pair}, {lanes.address(row + 8 * (k % 2), column + 8 * (k // 2))}")
