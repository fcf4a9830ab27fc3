"""Tiles between registers and shared memory: stmatrix and ldmatrix for 16-bit types, pairs of words for f32.

A lane's addresses differ from its first one by constants: rows of 16 add a multiple of the swizzle pattern, panels
likewise, and columns inside a panel flip address bits (XOR), because a swizzled tile begins at a multiple of 1024
bytes. Spec: PTX ISA 9.1, "stmatrix", "ldmatrix".
"""

from __future__ import annotations

from .builder import current, usage
from .control import lane, warp_rank_in_group
from .conversions import convert_registers
from .register_tiles import RegisterTile
from .scalars import Int
from .tiles import BASE_ROWS, SharedAddress, SharedTile, base_cols, fl


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


def _first_element(tile: SharedTile, rt: RegisterTile) -> tuple[str, str]:
    """Emit the row and the byte in the row that this lane accesses first: of f32 its first pair of elements, of 16-bit
    types the row of a matrix that it gives to ldmatrix or stmatrix.
    """
    l = Int(lane(), nonnegative=True)  # noqa: E741
    if tile.dtype is fl:
        return (l >> 2).register, ((l & 3) << 3).register
    if rt.layout == "col":
        # Matrices 0 and 1 are the left and right half of rows 0 to 7 of a base tile, 2 and 3 of rows 8 to 15.
        return ((l & 7) + ((l >> 4) << 3)).register, (((l >> 3) & 1) << 4).register
    # Matrices 0 and 1 are rows 0 to 7 and 8 to 15 of the left half of a base tile, 2 and 3 of the right half.
    return (l & 15).register, ((l >> 4) << 4).register


def _lanes(tile: SharedTile, rt: RegisterTile, group_warps: int) -> _Lanes:
    """Emit this lane's first address."""
    builder = current()
    pitch = _pitch(tile)
    row, inside = _first_element(tile, rt)
    swizzle, offset, column = builder.register(), builder.register(), builder.register()
    builder.emit(f"mul.lo.s32 {offset}, {row}, {pitch}")
    if tile.swizzle:
        builder.emit(f"shr.u32 {swizzle}, {offset}, 7")
        builder.emit(f"and.b32 {swizzle}, {swizzle}, {tile.swizzle // 16 - 1}")
        builder.emit(f"shl.b32 {swizzle}, {swizzle}, 4")
        builder.emit(f"xor.b32 {column}, {inside}, {swizzle}")
    builder.emit(f"add.s32 {offset}, {offset}, {column if tile.swizzle else inside}")
    first_row = None
    if group_warps > 1:
        first_row = builder.register()
        builder.emit(f"mul.lo.s32 {first_row}, {warp_rank_in_group()}, {rt.rows * pitch}")
    return _Lanes(tile, first_row, offset)


def _check(operation: str, tile: SharedTile, rt: RegisterTile, group_warps: int) -> None:
    if not isinstance(tile, SharedTile) or not isinstance(rt, RegisterTile):
        raise usage(f"{operation} must be given a shared and a register tile, not {type(tile).__name__} and {type(rt).__name__}")
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
    opcode = f"stmatrix.sync.aligned.m8n8.x4{_trans(rt)}.shared.b16"
    lanes = _lanes(tile, rt, group_warps)
    for i in range(rt.height):
        for j in range(rt.width):
            registers, row, column = rt.base(i, j), i * BASE_ROWS, j * base_cols(tile.dtype)
            if tile.dtype is fl:
                for k in range(4):
                    pair = _vector(registers[2 * k : 2 * k + 2])
                    builder.emit(f"st.shared.v2.f32 {lanes.address(row + 8 * (k % 2), column + 8 * (k // 2))}, {pair}")
            else:
                packed = convert_registers(registers, rt.dtype, tile.dtype)
                builder.emit(f"{opcode} {lanes.address(row, column)}, {_vector(packed)}")
    builder.emit("fence.proxy.async.shared::cta")


def load(operation: str, rt: RegisterTile, tile: SharedTile, group_warps: int) -> None:
    """Read a shared tile into a register tile, converting if the types differ."""
    _check(operation, tile, rt, group_warps)
    builder = current()
    opcode = f"ldmatrix.sync.aligned.m8n8.x4{_trans(rt)}.shared.b16"
    lanes = _lanes(tile, rt, group_warps)
    for i in range(rt.height):
        for j in range(rt.width):
            registers, row, column = rt.base(i, j), i * BASE_ROWS, j * base_cols(tile.dtype)
            if tile.dtype is fl:
                for k in range(4):
                    pair = _vector(registers[2 * k : 2 * k + 2])
                    builder.emit(f"ld.shared.v2.f32 {pair}, {lanes.address(row + 8 * (k % 2), column + 8 * (k // 2))}")
                continue
            raw = registers if rt.dtype is tile.dtype else tuple(builder.register() for _ in range(4))
            builder.emit(f"{opcode} {_vector(raw)}, {lanes.address(row, column)}")
            if rt.dtype is not tile.dtype:
                convert_registers(raw, tile.dtype, rt.dtype, into=registers)


def _trans(rt: RegisterTile) -> str:
    return ".trans" if rt.layout == "col" else ""


def _vector(registers: tuple[str, ...]) -> str:
    return "{" + ", ".join(registers) + "}"
