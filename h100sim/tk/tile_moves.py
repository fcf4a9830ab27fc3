"""Tiles between registers and shared memory: stmatrix and ldmatrix for 8- and 16-bit types, words for f32 (two at a
time in row layout).

A lane's addresses differ from its first one by constants: rows of 16 add a multiple of the swizzle pattern, panels
likewise, and columns inside a panel flip address bits (XOR), because a swizzled tile begins at a multiple of 1024
bytes. Spec: PTX ISA 9.1, "stmatrix", "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator

from .builder import current, usage
from .control import lane, slot_in
from .conversions import convert_registers, unit_cols
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
        """Return the PTX address ``row`` rows (a multiple of 8, or 1 more where lanes begin in even rows) and
        ``column`` columns on.
        """
        tile = self.tile
        size = tile.dtype.size_bytes
        column += tile.first_col
        if not tile.swizzle:
            return str(SharedAddress(self.start, (row * tile.row_cols + column) * size))
        panel, inside = divmod(column, tile.panel_cols)
        # Of two neighbouring rows, only a swizzle of 128 bytes tells the odd one from the even one.
        odd = 16 if row % 2 and tile.swizzle == 128 else 0
        return str(SharedAddress(self._flip(inside * size ^ odd), (panel * tile.panel_rows + row) * tile.swizzle))

    def _flip(self, bits: int) -> str:
        if bits not in self.flipped:
            register = current().register()
            current().emit(f"xor.b32 {register}, {self.start}, {bits}")
            self.flipped[bits] = register
        return self.flipped[bits]


def _pitch(tile: SharedTile) -> int:
    return tile.swizzle or tile.row_cols * tile.dtype.size_bytes


def _first_element(tile: SharedTile, rt: RegisterTile) -> tuple[str, str]:
    """Emit the row and the byte in the row that this lane accesses first: of f32 its first elements, of other types
    the row of a matrix that it gives to ldmatrix or stmatrix.
    """
    l = Int(lane(), nonnegative=True)  # noqa: E741
    if tile.dtype is fl and rt.layout == "col":
        return ((l & 3) << 1).register, ((l >> 2) << 2).register
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
        builder.emit(f"mul.lo.s32 {first_row}, {slot_in(group_warps).register}, {rt.rows * pitch}")
    return _Lanes(tile, first_row, offset)


def _check(operation: str, tile: SharedTile, rt: RegisterTile, group_warps: int) -> None:
    if not isinstance(tile, SharedTile) or not isinstance(rt, RegisterTile):
        raise usage(f"{operation} must be given a shared and a register tile, not {type(tile).__name__} and {type(rt).__name__}")
    if tile.count:
        raise usage(f"{operation} must be given one tile, not the array {tile.name}")
    if (tile.rows, tile.cols) != (group_warps * rt.rows, rt.cols):
        wanted = f"{group_warps * rt.rows}x{rt.cols} ({group_warps} {'warps' if group_warps > 1 else 'warp'} with {rt})"
        raise usage(f"{operation} shared tile must be {wanted}, not {tile.rows}x{tile.cols}")
    if tile.dtype.size_bytes == 1 and rt.layout == "col":
        raise usage(f"{operation} register tile must be in row layout where the shared one is {tile.dtype}, not {rt}")


def store(operation: str, tile: SharedTile, rt: RegisterTile, group_warps: int) -> None:
    """Write a register tile to a shared one, converting if the types differ, then fence for asynchronous readers."""
    _check(operation, tile, rt, group_warps)
    lanes, cols = _lanes(tile, rt, group_warps), unit_cols(rt.dtype, tile.dtype)
    for i in range(rt.height):
        for j in range(rt.cols // cols):
            registers = convert_registers(rt.unit(i, j, cols), rt.dtype, tile.dtype)
            for part, row, column in _base_tiles(tile, registers, i, j * cols):
                _move_base(lanes, rt, part, row, column, "st")
    current().emit("fence.proxy.async.shared::cta")


def load(operation: str, rt: RegisterTile, tile: SharedTile, group_warps: int) -> None:
    """Read a shared tile into a register tile, converting if the types differ."""
    _check(operation, tile, rt, group_warps)
    lanes, cols = _lanes(tile, rt, group_warps), unit_cols(rt.dtype, tile.dtype)
    kind = "f" if tile.dtype is fl else "r"
    for i in range(rt.height):
        for j in range(rt.cols // cols):
            raw = registers = rt.unit(i, j, cols)
            if rt.dtype is not tile.dtype:
                raw = tuple(current().register(kind) for _ in range(cols * tile.dtype.size_bytes // 8))
            for part, row, column in _base_tiles(tile, raw, i, j * cols):
                _move_base(lanes, rt, part, row, column, "ld")
            if rt.dtype is not tile.dtype:
                convert_registers(raw, tile.dtype, rt.dtype, into=registers)


def _base_tiles(tile: SharedTile, registers: tuple[str, ...], i: int, column: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield the registers, row and column of each base tile of the shared type."""
    per, width = 8 if tile.dtype is fl else 4, base_cols(tile.dtype)
    for n in range(len(registers) // per):
        yield registers[n * per : (n + 1) * per], i * BASE_ROWS, column + n * width


def _move_base(lanes: _Lanes, rt: RegisterTile, registers: tuple[str, ...], row: int, column: int, direction: str) -> None:
    """Emit the accesses of one base tile. ``direction``: "ld" or "st"."""
    if len(registers) == 4:
        matrix = {"ld": "ldmatrix", "st": "stmatrix"}[direction]
        opcode = f"{matrix}.sync.aligned.m8n8.x4{'.trans' if rt.layout == 'col' else ''}.shared.b16"
        _access(opcode, lanes.address(row, column), _vector(registers), direction)
        return
    for k in range(4):
        pair = registers[2 * k : 2 * k + 2]
        if rt.layout == "row":
            address = lanes.address(row + 8 * (k % 2), column + 8 * (k // 2))
            _access(f"{direction}.shared.v2.f32", address, _vector(pair), direction)
            continue
        for e, register in enumerate(pair):
            address = lanes.address(row + 8 * (k // 2) + e, column + 8 * (k % 2))
            _access(f"{direction}.shared.f32", address, register, direction)


def _access(opcode: str, address: str, registers: str, direction: str) -> None:
    operands = (registers, address) if direction == "ld" else (address, registers)
    current().emit(f"{opcode} {', '.join(operands)}")


def _vector(registers: tuple[str, ...]) -> str:
    return "{" + ", ".join(registers) + "}"
