"""Register tiles straight from and to global memory, a pair of elements at a time (four of fp8, one in column layout).
Rows and columns past the end of the tensor are neither written nor read; they read as zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..dtypes import ElementType
from .builder import current, usage
from .control import lane, slot_in
from .conversions import convert_registers, unit_cols
from .global_memory import GlobalTensor, require_tensor, tile_origin
from .register_tiles import RegisterTile
from .scalars import Int, Pred, all_of, text
from .tiles import BASE_ROWS, fl


@dataclass(frozen=True)
class _Part:
    """What a lane accesses at once: the type of the access, the registers, row and column without the lane's share.
    Type "b16" is one half, ``half``, of the register.
    """

    kind: str
    registers: tuple[str, ...]
    row: int
    column: int
    half: int = 0


class _Lanes:
    """The 64-bit address of this lane's first elements, and the predicates that guard the parts of a tile that may
    stick out.
    """

    def __init__(self, operation: str, tensor: GlobalTensor, rt: RegisterTile, coord: object, group_warps: int):
        g = require_tensor(tensor, operation).layout
        if not isinstance(rt, RegisterTile):
            raise usage(f"{operation} must be given a register tile, not {type(rt).__name__}")
        if not g.dtype.is_float or (g.dtype.size_bytes == 1 and rt.layout == "col"):
            raise usage(f"{operation} must move floating-point elements, of fp8 in row layout, not {g.dtype} and {rt}")
        is_row, per = rt.layout == "row", 4 if g.dtype.size_bytes == 1 else 2
        origin = tile_origin(operation, tensor, group_warps * rt.rows, rt.cols, coord, per if is_row else 1)
        l = Int(lane(), nonnegative=True)  # noqa: E741
        first_row, first_col = (l >> 2, (l & 3) * per) if is_row else ((l & 3) * 2, l >> 2)
        self.row, self.limit = first_row + origin.row, origin.limit
        if group_warps > 1:
            self.row = self.row + slot_in(group_warps) * rt.rows
        self.column, self.col_limit = first_col + origin.col, origin.col_limit
        line, self.size = self.row + origin.rows_before, g.dtype.size_bytes
        self.pitch = g.cols * self.size
        builder = current()
        wide, shift, self.start = (builder.register("rd") for _ in range(3))
        builder.emit(f"mul.wide.s32 {wide}, {text(line)}, {self.pitch}")
        builder.emit(f"mul.wide.s32 {shift}, {text(self.column)}, {self.size}")
        builder.emit(f"add.s64 {self.start}, {tensor.pointer_register()}, {wide}")
        builder.emit(f"add.s64 {self.start}, {self.start}, {shift}")
        self.guards: dict[tuple[int, int], Pred | None] = {}

    def address(self, part: _Part) -> str:
        return f"[{self.start}+{part.row * self.pitch + part.column * self.size}]"

    def guard(self, part: _Part) -> str:
        """Return the guard of an access, "" where every row and column exists."""
        key = part.row if self.limit is not None else 0, part.column if self.col_limit is not None else 0
        if key not in self.guards:
            in_rows = self.row < self.limit - part.row if self.limit is not None else None
            in_cols = self.column < self.col_limit - part.column if self.col_limit is not None else None
            self.guards[key] = all_of(in_rows, in_cols)
        found = self.guards[key]
        return "" if found is None else f"@{found.register} "


def load(operation: str, rt: RegisterTile, tensor: GlobalTensor, coord: object, group_warps: int) -> None:
    """Read tile ``coord`` of a tensor into registers, converting if the types differ."""
    lanes = _Lanes(operation, tensor, rt, coord, group_warps)
    dtype = tensor.layout.dtype
    tensor.is_read = True
    cols = unit_cols(dtype, rt.dtype)
    for i in range(rt.height):
        for j in range(rt.cols // cols):
            registers = raw = rt.unit(i, j, cols)
            if dtype is not rt.dtype:
                kind = "f" if dtype is fl else "r"
                raw = tuple(current().register(kind) for _ in range(cols * dtype.size_bytes // 8))
            low = ""
            for part in _parts(dtype, rt.layout, raw, i, j * cols):
                if part.kind != "b16":
                    _load_part(lanes, part, part.registers)
                    continue
                half = current().register("h")
                _load_part(lanes, part, (half,))
                if part.half:
                    current().emit(f"mov.b32 {part.registers[0]}, {{{low}, {half}}}")
                low = half
            if dtype is not rt.dtype:
                convert_registers(raw, dtype, rt.dtype, into=registers)


def _load_part(lanes: _Lanes, part: _Part, into: tuple[str, ...]) -> None:
    guard, kind = lanes.guard(part), part.kind.removeprefix("v2.")
    if guard:
        for register in into:
            current().emit(f"mov.{kind} {register}, {'0f00000000' if kind == 'f32' else 0}")
    operand = f"{{{', '.join(into)}}}" if len(into) > 1 else into[0]
    current().emit(f"{guard}ld.global.{part.kind} {operand}, {lanes.address(part)}")


def store(operation: str, tensor: GlobalTensor, rt: RegisterTile, coord: object, group_warps: int) -> None:
    """Write registers to tile ``coord`` of a tensor, converting if the types differ."""
    lanes = _Lanes(operation, tensor, rt, coord, group_warps)
    tensor.is_written = True
    cols = unit_cols(tensor.layout.dtype, rt.dtype)
    for i in range(rt.height):
        for j in range(rt.cols // cols):
            converted = convert_registers(rt.unit(i, j, cols), rt.dtype, tensor.layout.dtype)
            halves: tuple[str, str] = ("", "")
            for part in _parts(tensor.layout.dtype, rt.layout, converted, i, j * cols):
                operand = f"{{{', '.join(part.registers)}}}" if len(part.registers) > 1 else part.registers[0]
                if part.kind == "b16":
                    if part.half == 0:
                        halves = current().register("h"), current().register("h")
                        current().emit(f"mov.b32 {{{halves[0]}, {halves[1]}}}, {operand}")
                    operand = halves[part.half]
                current().emit(f"{lanes.guard(part)}st.global.{part.kind} {lanes.address(part)}, {operand}")


def _parts(dtype: ElementType, layout: str, registers: tuple[str, ...], i: int, column: int) -> Iterator[_Part]:
    """Yield what a lane accesses of the registers of 16 rows in the type of the tensor, from ``column`` on."""
    size = dtype.size_bytes
    per, width = 8 if size == 4 else 4, 32 if size == 1 else 16
    for n in range(len(registers) // per):
        base, left = registers[n * per : (n + 1) * per], column + n * width
        for k in range(4):
            chosen = base[k * per // 4 : (k + 1) * per // 4]
            if layout == "row":
                kind = "v2.f32" if size == 4 else "b32"
                yield _Part(kind, chosen, i * BASE_ROWS + 8 * (k % 2), left + width // 2 * (k // 2))
                continue
            for e in range(2):
                row, col = i * BASE_ROWS + 8 * (k // 2) + e, left + 8 * (k % 2)
                yield _Part("f32", chosen[e : e + 1], row, col) if size == 4 else _Part("b16", chosen, row, col, e)
