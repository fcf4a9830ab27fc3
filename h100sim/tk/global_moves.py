"""Register tiles straight from and to global memory, a pair of elements at a time. Rows past the end of the tensor are
neither written nor read; they read as zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

from .builder import current, usage
from .control import lane, warp_rank_in_group
from .conversions import convert_registers
from .global_memory import GlobalTensor, require_tensor, tile_origin
from .register_tiles import RegisterTile
from .scalars import Int, Pred, text
from .tiles import BASE_ROWS, fl


class _Lanes:
    """The 64-bit address of this lane's first pair, and the predicates that guard the rows of a tile that may stick
    out.
    """

    def __init__(self, operation: str, tensor: GlobalTensor, rt: RegisterTile, coord: object, group_warps: int):
        g = require_tensor(tensor, operation).layout
        if not isinstance(rt, RegisterTile):
            raise usage(f"{operation} must be given a register tile, not {type(rt).__name__}")
        if g.dtype.size_bytes == 1 or rt.dtype.size_bytes == 1 or (g.dtype is fl and rt.dtype is not fl):
            raise usage(f"{operation} must move 16-bit elements, or f32 into f32, not {g.dtype} and {rt.dtype}")
        if rt.layout != "row":
            raise usage(f"{operation} layout of the register tile must be row, not {rt.layout}")
        origin = tile_origin(operation, tensor, group_warps * rt.rows, rt.cols, coord)
        l = Int(lane(), nonnegative=True)  # noqa: E741
        self.row, self.limit = (l >> 2) + origin.row, origin.limit
        if group_warps > 1:
            self.row = self.row + Int(warp_rank_in_group(), nonnegative=True) * rt.rows
        line, column = self.row + origin.rows_before, (l & 3) * 2 + origin.col
        self.pitch, self.size = g.cols * g.dtype.size_bytes, g.dtype.size_bytes
        builder = current()
        wide = builder.register("rd")
        builder.emit(f"mul.wide.s32 {wide}, {text(line)}, {self.pitch}")
        shift = builder.register("rd")
        builder.emit(f"mul.wide.s32 {shift}, {text(column)}, {self.size}")
        self.start = builder.register("rd")
        builder.emit(f"add.s64 {self.start}, {tensor.pointer_register()}, {wide}")
        builder.emit(f"add.s64 {self.start}, {self.start}, {shift}")
        self.guards: dict[int, Pred] = {}

    def address(self, row: int, column: int) -> str:
        return f"[{self.start}+{row * self.pitch + column * self.size}]"

    def guard(self, row: int) -> str:
        """Return the guard of accesses ``row`` rows on, "" where every row exists."""
        if self.limit is None:
            return ""
        if row not in self.guards:
            self.guards[row] = self.row < self.limit - row
        return f"@{self.guards[row].register} "


def load(operation: str, rt: RegisterTile, tensor: GlobalTensor, coord: object, group_warps: int) -> None:
    """Read tile ``coord`` of a tensor into registers, converting if the types differ."""
    lanes = _Lanes(operation, tensor, rt, coord, group_warps)
    dtype = tensor.layout.dtype
    tensor.is_read = True
    for i in range(rt.height):
        for j in range(rt.width):
            registers = rt.base(i, j)
            raw = registers if dtype is rt.dtype else tuple(current().register() for _ in range(4))
            for pair, row, column in _pairs(raw, i, j):
                _load_pair(lanes, pair, row, column)
            if dtype is not rt.dtype:
                convert_registers(raw, dtype, rt.dtype, into=registers)


def _pairs(registers: tuple[str, ...], i: int, j: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield each pair of elements of base tile (i, j): its registers (two of f32, or one), its row and its column."""
    width = len(registers) // 4
    for k in range(4):
        yield registers[k * width : (k + 1) * width], i * BASE_ROWS + 8 * (k % 2), j * 16 + 8 * (k // 2)


def _operand(pair: tuple[str, ...]) -> tuple[str, str]:
    return ("v2.f32", f"{{{pair[0]}, {pair[1]}}}") if len(pair) == 2 else ("b32", pair[0])


def _load_pair(lanes: _Lanes, pair: tuple[str, ...], row: int, column: int) -> None:
    kind, operand = _operand(pair)
    guard = lanes.guard(row)
    if guard:
        for register in pair:
            current().emit(f"mov.f32 {register}, 0f00000000" if len(pair) == 2 else f"mov.b32 {register}, 0")
    current().emit(f"{guard}ld.global.{kind} {operand}, {lanes.address(row, column)}")


def store(operation: str, tensor: GlobalTensor, rt: RegisterTile, coord: object, group_warps: int) -> None:
    """Write registers to tile ``coord`` of a tensor, converting if the types differ."""
    lanes = _Lanes(operation, tensor, rt, coord, group_warps)
    tensor.is_written = True
    for i in range(rt.height):
        for j in range(rt.width):
            for pair, row, column in _pairs(convert_registers(rt.base(i, j), rt.dtype, tensor.layout.dtype), i, j):
                kind, operand = _operand(pair)
                current().emit(f"{lanes.guard(row)}st.global.{kind} {lanes.address(row, column)}, {operand}")
