"""Element-wise operations on register tiles and vectors of f32, bf16 and f16.

Arithmetic says ``.rn``, so that ptxas does not contract a product and a sum into one ``fma`` with other bits;
exponentials, logarithms and quotients are the approximations that ThunderKittens gets from ``--use_fast_math``. Of
16-bit types, sums, products, ``max``, ``min``, ``abs``, ``neg`` and ``fma`` are packed instructions; the rest is computed
in f32 and rounded. Spec:
PTX ISA 9.1, "Floating Point Instructions": add, mul, sub and fma without a rounding modifier may be optimised.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .builder import current, usage
from .complex_tiles import Complex, componentwise, with_complex
from .conversions import convert_element, convert_registers, unit_cols
from .floats import Number, immediate, number
from .register_tiles import RegisterTile
from .register_vectors import RegisterVector
from .tiles import bf16, fl, half
from .vector_moves import relayout

Registers = RegisterTile | RegisterVector

_BINARY = {
    "add": "add.rn.f32",
    "sub": "sub.rn.f32",
    "mul": "mul.rn.f32",
    "div": "div.approx.ftz.f32",
    "max": "max.f32",
    "min": "min.f32",
}
_LOG2_E, _LN_2 = math.log2(math.e), math.log(2.0)


def require_like(operation: str, *operands: Registers) -> None:
    """Raise UsageError unless all operands are register tiles or vectors of f32, bf16 or f16 with one shape."""
    for x in operands:
        if not isinstance(x, (RegisterTile, RegisterVector)):
            raise usage(f"{operation} operand must be a register tile or vector, not {type(x).__name__}")
        if x.dtype.size_bytes == 1:
            raise usage(f"{operation} operand must be f32, bf16 or f16, not {x.dtype}: copy it to an f32 tile first")
        if str(x) != str(operands[0]):
            raise usage(f"{operation} operands must have one shape, not {operands[0]} and {x}")


def require_f32(operation: str, *operands: Registers) -> None:
    """Raise UsageError unless all operands are register tiles or vectors of f32 with one shape."""
    require_like(operation, *operands)
    for x in operands:
        if x.dtype is not fl:
            raise usage(f"{operation} operand must be f32, not {x.dtype}: copy it to an f32 tile first")


# --- filling and copying ----------------------------------------------------------------------------------------------


def _fill(name: str, f32: float, what: str) -> Callable[[Registers], None]:
    def fill(dst: Registers) -> None:
        if not isinstance(dst, (RegisterTile, RegisterVector)):
            raise usage(f"warp.{name} destination must be a register tile or vector, not {type(dst).__name__}")
        word = immediate(f32)
        if dst.dtype is not fl:
            word = _packed(dst, word)
        kind = "f32" if dst.dtype is fl else "b32"
        if isinstance(dst, RegisterVector) and dst.dtype is not fl:
            kind, word = "b16", f"0x{word[-4:]}"
        for register in dst.registers:
            current().emit(f"mov.{kind} {register}, {word}")

    fill.__name__ = fill.__qualname__ = name
    fill.__doc__ = f"Set every element to {what}. PTX: ``mov``."
    return fill


def _packed(dst: Registers, word: str) -> str:
    bits = int(word[2:], 16)
    if dst.dtype is bf16:
        return f"{(bits >> 16) * 0x10001:#010x}"
    if dst.dtype is half:
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        return f"{struct.unpack('<H', struct.pack('<e', value))[0] * 0x10001:#010x}"
    raise usage(f"fill must be of f32, bf16 or f16, not {dst.dtype}")


zero = componentwise(_fill("zero", 0.0, "0"))
one = _fill("one", 1.0, "1")
pos_infty = _fill("pos_infty", math.inf, "infinity")
neg_infty = _fill("neg_infty", -math.inf, "minus infinity")


def fill(dst: Registers, value: Number) -> None:
    """Set every element to a number. PTX: ``mov``, ``cvt`` for 16-bit types."""
    require_like("warp.fill", dst)
    kind = "f32" if dst.dtype is fl else "b32" if isinstance(dst, RegisterTile) else "b16"
    for register, word in zip(dst.registers, _others(dst, value), strict=True):
        current().emit(f"mov.{kind} {register}, {word}")


@componentwise
def copy(dst: Registers, src: Registers) -> None:
    """Copy a tile or vector, converting between types and, for vectors, layouts. PTX: ``mov``; ``cvt`` between types,
    with ``shfl.sync`` and ``prmt`` for fp8 tiles, whose lanes hold other elements; ``shfl.sync`` between layouts.
    """
    for x in (dst, src):
        if not isinstance(x, (RegisterTile, RegisterVector)):
            raise usage(f"warp.copy operand must be a register tile or vector, not {type(x).__name__}")
    if isinstance(dst, RegisterVector) or isinstance(src, RegisterVector):
        _copy_vector(dst, src)
        return
    if (dst.rows, dst.cols, dst.layout) != (src.rows, src.cols, src.layout):
        hint = ": warp.swap_layout changes the layout" if (dst.rows, dst.cols) == (src.rows, src.cols) else ""
        raise usage(f"warp.copy operands must have one shape and layout, not {dst} and {src}{hint}")
    cols = unit_cols(src.dtype, dst.dtype)
    for i in range(dst.height):
        for j in range(dst.cols // cols):
            convert_registers(src.unit(i, j, cols), src.dtype, dst.dtype, into=dst.unit(i, j, cols))


def _copy_vector(dst: Registers, src: Registers) -> None:
    if not isinstance(dst, RegisterVector) or not isinstance(src, RegisterVector) or dst.length != src.length:
        raise usage(f"warp.copy operands must have one shape, not {dst} and {src}")
    if dst.layout != src.layout:
        relayout(dst, src)
        return
    for d, s in zip(dst.registers, src.registers, strict=True):
        convert_element(s, src.dtype, dst.dtype, d)


# --- one operand ------------------------------------------------------------------------------------------------------


def _type(x: Registers) -> str:
    """Return the PTX type of a register's contents."""
    return "f32" if x.dtype is fl else f"{x.dtype}x2" if isinstance(x, RegisterTile) else str(x.dtype)


def _wide(register: str, like: Registers) -> tuple[str, ...]:
    """Return f32 registers with the elements of a register."""
    if isinstance(like, RegisterVector):
        return (convert_element(register, like.dtype, fl),)
    return convert_registers((register,), like.dtype, fl)


def _narrow(registers: tuple[str, ...], like: Registers, into: str) -> None:
    """Round f32 registers into a register of ``like``."""
    if isinstance(like, RegisterVector):
        convert_element(registers[0], fl, like.dtype, into)
    else:
        convert_registers(registers, fl, like.dtype, into=(into,))


def _opcodes(*templates: str) -> str:
    """Return the opcodes of templates as documentation: "``a``, ``b``"."""
    return ", ".join(f"``{t.split()[0].removesuffix('.f32')}``" for t in templates)


def _unary(name: str, what: str, *steps: str, packed: str = "") -> Callable[[Registers, Registers], None]:
    def apply(dst: Registers, src: Registers) -> None:
        require_like(f"warp.{name}", dst, src)
        for d, s in zip(dst.registers, src.registers, strict=True):
            if dst.dtype is fl or packed:
                for n, step in enumerate(steps if dst.dtype is fl else (f"{packed}.{_type(dst)} {{d}}, {{s}}",)):
                    current().emit(step.format(d=d, s=s if n == 0 else d))
                continue
            wide = _wide(s, src)
            for register in wide:
                for step in steps:
                    current().emit(step.format(d=register, s=register))
            _narrow(wide, dst, d)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Set every element of ``dst`` to {what} of that of ``src``. PTX: {_opcodes(*steps)}."
    return apply


exp2 = _unary("exp2", "2 to the power", "ex2.approx.ftz.f32 {d}, {s}")
exp = _unary("exp", "e to the power", f"mul.rn.f32 {{d}}, {{s}}, {immediate(_LOG2_E)}", "ex2.approx.ftz.f32 {d}, {d}")
log2 = _unary("log2", "the binary logarithm", "lg2.approx.ftz.f32 {d}, {s}")
log = _unary("log", "the natural logarithm", "lg2.approx.ftz.f32 {d}, {s}", f"mul.rn.f32 {{d}}, {{d}}, {immediate(_LN_2)}")
sqrt = _unary("sqrt", "the square root", "sqrt.approx.ftz.f32 {d}, {s}")
rsqrt = _unary("rsqrt", "1 over the square root", "rsqrt.approx.ftz.f32 {d}, {s}")
rcp = _unary("rcp", "1 over the value", "rcp.approx.ftz.f32 {d}, {s}")
tanh = _unary("tanh", "the hyperbolic tangent", "tanh.approx.f32 {d}, {s}")
sin = _unary("sin", "the sine", "sin.approx.ftz.f32 {d}, {s}")
cos = _unary("cos", "the cosine", "cos.approx.ftz.f32 {d}, {s}")
neg = componentwise(_unary("neg", "the negative", "neg.f32 {d}, {s}", packed="neg"))
absolute = _unary("abs", "the absolute value", "abs.f32 {d}, {s}", packed="abs")
relu = _unary("relu", "the value, or 0 for negative ones,", "max.f32 {d}, {s}, 0f00000000")


# --- two operands -----------------------------------------------------------------------------------------------------


def _others(like: Registers, other: Registers | Number) -> list[str]:
    """Return a second operand for every register of ``like``: those of a tile or vector, or one number's."""
    if isinstance(other, (RegisterTile, RegisterVector)):
        return list(other.registers)
    word = number(other)
    if like.dtype is not fl:
        value, packed = current().register("f"), current().register("r" if isinstance(like, RegisterTile) else "h")
        current().emit(f"mov.f32 {value}, {word}")
        pair = f"{value}, {value}" if isinstance(like, RegisterTile) else value
        current().emit(f"cvt.rn.{_type(like)}.f32 {packed}, {pair}")
        word = packed
    return [word] * len(like.registers)


def _binary(name: str, what: str) -> Callable[[Registers, Registers, Registers | Number], None]:
    def apply(dst: Registers, a: Registers, b: Registers | Number) -> None:
        operation = f"warp.{name}"
        require_like(operation, dst, a, *([b] if isinstance(b, (RegisterTile, RegisterVector)) else []))
        is_approximate = ".approx" in _BINARY[name]
        others = _others(dst, b)
        for d, x, y in zip(dst.registers, a.registers, others, strict=True):
            if dst.dtype is fl or not is_approximate:
                current().emit(f"{_BINARY[name].removesuffix('f32')}{_type(dst)} {d}, {x}, {y}")
                continue
            left, right = _wide(x, dst), _wide(y, dst)
            for p, q in zip(left, right, strict=True):
                current().emit(f"{_BINARY[name]} {p}, {p}, {q}")
            _narrow(left, dst, d)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = (
        f"Set every element of ``dst`` to {what}; ``b`` is a tile or vector like ``a``, or a number. "
        f"PTX: {_opcodes(_BINARY[name])}."
    )
    return apply


add, sub = componentwise(_binary("add", "a + b")), componentwise(_binary("sub", "a - b"))


def _complex_mul(dst: Complex, a: Complex, b: Any) -> None:
    """Multiply complex tiles or vectors: four products, a difference and a sum; or both parts by the same."""
    if not isinstance(b, Complex):
        for part in ("real", "imag"):
            mul(getattr(dst, part), getattr(a, part), b)
        return
    one, other, real = (_like(dst.real) for _ in range(3))
    mul(one, a.real, b.real)
    mul(other, a.imag, b.imag)
    sub(real, one, other)
    mul(one, a.real, b.imag)
    mul(other, a.imag, b.real)
    add(dst.imag, one, other)
    copy(dst.real, real)


def _like(x: Registers) -> Registers:
    """Return new registers of the type and shape of ``x``."""
    kind = "f" if x.dtype is fl else "r" if isinstance(x, RegisterTile) else "h"
    return replace(x, _registers=tuple(current().register(kind) for _ in x.registers))


mul = with_complex(_binary("mul", "a b"), _complex_mul)
div = _binary("div", "a / b, approximately")
maximum, minimum = _binary("max", "the larger of a and b"), _binary("min", "the smaller of a and b")


def fma(dst: Registers, a: Registers, b: Registers | Number, c: Registers | Number) -> None:
    """Set every element of ``dst`` to a b + c with one rounding; ``b`` and ``c`` are like ``a``, or numbers. PTX:
    ``fma.rn``.
    """
    require_like("warp.fma", dst, a, *(x for x in (b, c) if isinstance(x, (RegisterTile, RegisterVector))))
    for d, x, y, z in zip(dst.registers, a.registers, _others(dst, b), _others(dst, c), strict=True):
        current().emit(f"fma.rn.{_type(dst)} {d}, {x}, {y}, {z}")


# --- a tile and a vector ----------------------------------------------------------------------------------------------


def elements(tile: RegisterTile) -> Iterator[tuple[str, int, int]]:
    """Yield every register of an f32 tile with the indices of its row's and column's registers in col_vec and
    row_vec.
    """
    for i in range(tile.height):
        for j in range(tile.width):
            for index, register in enumerate(tile.base(i, j)):
                k, e = divmod(index, 2)
                if tile.layout == "row":
                    yield register, 2 * i + k % 2, 4 * j + 2 * (k // 2) + e
                else:
                    yield register, 4 * i + 2 * (k // 2) + e, 2 * j + k % 2


def require_vector(operation: str, tile: RegisterTile, vector: RegisterVector, axis: str) -> None:
    """Raise UsageError unless ``vector`` has one value per row ("row") or column ("col") of the f32 tile."""
    require_f32(operation, tile)
    if not isinstance(tile, RegisterTile):
        raise usage(f"{operation} operand must be a register tile, not {tile}")
    layout = "ortho" if (axis == "row") == (tile.layout == "row") else "align"
    wanted = RegisterVector(layout, tile.rows if axis == "row" else tile.cols)
    if not isinstance(vector, RegisterVector) or str(vector) != str(wanted):
        kind = "col_vec" if axis == "row" else "row_vec"
        raise usage(f"{operation} vector must be the {kind} of {tile}, {wanted}, not {vector}")


def _broadcast(name: str, axis: str) -> Callable[[RegisterTile, RegisterTile, RegisterVector], None]:
    def apply(dst: RegisterTile, src: RegisterTile, vector: RegisterVector) -> None:
        operation = f"warp.{name}_{axis}"
        require_f32(operation, dst, src)
        require_vector(operation, src, vector, axis)
        for d, (s, row, col) in zip(dst.registers, elements(src), strict=True):
            current().emit(f"{_BINARY[name]} {d}, {s}, {vector.registers[row if axis == 'row' else col]}")

    apply.__name__ = apply.__qualname__ = f"{name}_{axis}"
    line = "row" if axis == "row" else "column"
    apply.__doc__ = (
        f"Set ``dst`` to ``src`` with every {line} combined ({name}) with its value in ``vector``. PTX: {_opcodes(_BINARY[name])}."
    )
    return apply


add_row, add_col = _broadcast("add", "row"), _broadcast("add", "col")
sub_row, sub_col = _broadcast("sub", "row"), _broadcast("sub", "col")
mul_row, mul_col = _broadcast("mul", "row"), _broadcast("mul", "col")
div_row, div_col = _broadcast("div", "row"), _broadcast("div", "col")
max_row, max_col = _broadcast("max", "row"), _broadcast("max", "col")
min_row, min_col = _broadcast("min", "row"), _broadcast("min", "col")


def broadcast_row(dst: RegisterTile, vector: RegisterVector) -> None:
    """Fill every row of ``dst`` with its value in a col_vec. PTX: ``mov``."""
    require_vector("warp.broadcast_row", dst, vector, "row")
    for d, row, _ in elements(dst):
        current().emit(f"mov.f32 {d}, {vector.registers[row]}")


def broadcast_col(dst: RegisterTile, vector: RegisterVector) -> None:
    """Fill every column of ``dst`` with its value in a row_vec. PTX: ``mov``."""
    require_vector("warp.broadcast_col", dst, vector, "col")
    for d, _, col in elements(dst):
        current().emit(f"mov.f32 {d}, {vector.registers[col]}")
