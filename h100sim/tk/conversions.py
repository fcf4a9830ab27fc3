"""Conversions between element types in registers, one base tile at a time.

Spec: PTX ISA 9.1, "cvt": packed conversions take the high half first; "Alternate Floating-Point Data Formats": a bf16
is the upper half of an f32, so widening it is exact and needs no cvt.
"""

from __future__ import annotations

from ..dtypes import ElementType
from .builder import current, usage
from .tiles import bf16, fl, half


def convert_registers(
    source: tuple[str, ...], from_dtype: ElementType, to_dtype: ElementType, into: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Emit the conversion of one base tile's registers; return those that hold the result (``into``, or new ones)."""
    if from_dtype is to_dtype and into is None:
        return source
    builder = current()
    if from_dtype is to_dtype:
        kind = "f32" if to_dtype is fl else "b32"
        for d, s in zip(into or (), source, strict=True):
            builder.emit(f"mov.{kind} {d}, {s}")
        return into or source
    if from_dtype is fl and to_dtype in (bf16, half):
        into = into or tuple(builder.register() for _ in range(4))
        for k, d in enumerate(into):
            builder.emit(f"cvt.rn.{to_dtype}x2.f32 {d}, {source[2 * k + 1]}, {source[2 * k]}")
        return into
    if to_dtype is fl and from_dtype in (bf16, half):
        into = into or tuple(builder.register("f") for _ in range(8))
        widen = _widen_bf16 if from_dtype is bf16 else _widen_half
        for k, s in enumerate(source):
            widen(s, into[2 * k], into[2 * k + 1])
        return into
    raise usage(f"conversion must be between f32 and bf16 or f16, not from {from_dtype} to {to_dtype}")


def _widen_bf16(packed: str, low: str, high: str) -> None:
    builder = current()
    bits = builder.register()
    builder.emit(f"shl.b32 {bits}, {packed}, 16")
    builder.emit(f"mov.b32 {low}, {bits}")
    bits = builder.register()
    builder.emit(f"and.b32 {bits}, {packed}, 0xffff0000")
    builder.emit(f"mov.b32 {high}, {bits}")


def _widen_half(packed: str, low: str, high: str) -> None:
    builder = current()
    halves = builder.register("h"), builder.register("h")
    builder.emit(f"mov.b32 {{{halves[0]}, {halves[1]}}}, {packed}")
    builder.emit(f"cvt.f32.f16 {low}, {halves[0]}")
    builder.emit(f"cvt.f32.f16 {high}, {halves[1]}")


def convert_element(source: str, from_dtype: ElementType, to_dtype: ElementType, into: str | None = None) -> str:
    """Emit the conversion of one element in a register of its own; return the register (``into``, or a new one)."""
    result = source if from_dtype is to_dtype else narrowed(widened(source, from_dtype), to_dtype)
    if into is None:
        return result
    current().emit(f"mov.{'f32' if to_dtype is fl else 'b16'} {into}, {result}")
    return into


def widened(raw: str, dtype: ElementType) -> str:
    """Return an f32 register with the value of an element."""
    if dtype is fl:
        return raw
    builder = current()
    wide = builder.register("f")
    if dtype.size_bytes == 1:
        pair, low, high = builder.register(), builder.register("h"), builder.register("h")
        builder.emit(f"cvt.rn.f16x2.{dtype}x2 {pair}, {raw}")
        builder.emit(f"mov.b32 {{{low}, {high}}}, {pair}")
        raw = low
    builder.emit(f"cvt.f32.{'bf16' if dtype is bf16 else 'f16'} {wide}, {raw}")
    return wide


def narrowed(value: str, dtype: ElementType) -> str:
    """Return a register with an f32 rounded to the type of an element."""
    if dtype is fl:
        return value
    register = current().register("h")
    if dtype in (bf16, half):
        current().emit(f"cvt.rn.{dtype}.f32 {register}, {value}")
    else:
        current().emit(f"cvt.rn.satfinite.{dtype}x2.f32 {register}, 0f00000000, {value}")
    return register
