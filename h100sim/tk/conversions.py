"""Conversions between element types in registers, one base tile at a time (for fp8 two of the other type).

Spec: PTX ISA 9.1, "cvt": packed conversions take the high half first; "Alternate Floating-Point Data Formats": a bf16
is the upper half of an f32, so widening it is exact and needs no cvt.
"""

from __future__ import annotations

from ..dtypes import ElementType
from .builder import current
from .control import lane
from .tiles import base_cols, bf16, fl, half


def unit_cols(*dtypes: ElementType) -> int:
    """Return the columns that conversions among these types work on at once: a base tile of the widest."""
    return max(base_cols(dtype) for dtype in dtypes)


def convert_registers(
    source: tuple[str, ...], from_dtype: ElementType, to_dtype: ElementType, into: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Emit the conversion of the registers of 16 rows and :func:`unit_cols` columns; return those that hold the result
    (``into``, or new ones). fp8 moves elements between the lanes of a quad, since its base tiles are wider.
    """
    if from_dtype is to_dtype:
        return source if into is None else _moved(source, to_dtype, into)
    if from_dtype is not fl and to_dtype is not fl:
        return convert_registers(convert_registers(source, from_dtype, fl), fl, to_dtype, into)
    if from_dtype is fl:
        if into is None:
            count = len(source) // (4 if to_dtype.size_bytes == 1 else 2)
            into = tuple(current().register() for _ in range(count))
        narrow = _pack_fp8 if to_dtype.size_bytes == 1 else _pack
        narrow(source, to_dtype, into)
        return into
    if into is None:
        into = tuple(current().register("f") for _ in range(len(source) * (4 // from_dtype.size_bytes)))
    if from_dtype.size_bytes == 1:
        _unpack_fp8(source, from_dtype, into)
        return into
    widen = _widen_bf16 if from_dtype is bf16 else _widen_half
    for k, s in enumerate(source):
        widen(s, into[2 * k], into[2 * k + 1])
    return into


def _moved(source: tuple[str, ...], dtype: ElementType, into: tuple[str, ...]) -> tuple[str, ...]:
    kind = "f32" if dtype is fl else "b32"
    for d, s in zip(into, source, strict=True):
        current().emit(f"mov.{kind} {d}, {s}")
    return into


def _pack(source: tuple[str, ...], dtype: ElementType, into: tuple[str, ...]) -> None:
    for k, d in enumerate(into):
        current().emit(f"cvt.rn.{dtype}x2.f32 {d}, {source[2 * k + 1]}, {source[2 * k]}")


def _pack_fp8(source: tuple[str, ...], dtype: ElementType, into: tuple[str, ...]) -> None:
    """Lane q of a quad has columns 2 q, 2 q + 1 of both halves of a 16x16 tile and wants columns 4 q to 4 q + 3, which
    lanes 2 q % 4 and 2 q % 4 + 1 have, in the half q / 2.
    """
    builder = current()
    pair = builder.once("quad_pair", "r", *_bits_of_lane("shl.b32 {d}, {lane}, 1", "and.b32 {d}, {d}, 2"))
    half = builder.once("quad_half", "r", f"bfe.u32 {{d}}, {lane()}, 1, 1", *_SELECT)
    next_pair = builder.once("quad_pair_next", "r", f"add.s32 {{d}}, {pair}, 1")
    for n, d in enumerate(into):
        base, row = 8 * (n // 2), n % 2
        halves = builder.register("h"), builder.register("h")
        for side, h in enumerate(halves):
            first = base + 2 * (row + 2 * side)
            builder.emit(f"cvt.rn.satfinite.{dtype}x2.f32 {h}, {source[first + 1]}, {source[first]}")
        word = builder.register()
        builder.emit(f"mov.b32 {word}, {{{halves[0]}, {halves[1]}}}")
        _exchange(word, pair, next_pair, half, d)


def _unpack_fp8(source: tuple[str, ...], dtype: ElementType, into: tuple[str, ...]) -> None:
    """The way back: columns 2 q, 2 q + 1 are in lane q / 2, those of the right half in lane q / 2 + 2."""
    builder = current()
    left = builder.once("quad_left", "r", *_bits_of_lane("bfe.u32 {d}, {lane}, 1, 1"))
    odd = builder.once("quad_odd", "r", f"and.b32 {{d}}, {lane()}, 1", *_SELECT)
    right = builder.once("quad_right", "r", f"add.s32 {{d}}, {left}, 2")
    for n, s in enumerate(source):
        base, row = 8 * (n // 2), n % 2
        word = builder.register()
        _exchange(s, left, right, odd, word)
        halves = builder.register("h"), builder.register("h")
        builder.emit(f"mov.b32 {{{halves[0]}, {halves[1]}}}, {word}")
        for side, h in enumerate(halves):
            pair, first = builder.register(), base + 2 * (row + 2 * side)
            builder.emit(f"cvt.rn.f16x2.{dtype}x2 {pair}, {h}")
            _widen_half(pair, into[first], into[first + 1])


#: Turns 0 or 1 into the prmt selector of the low or high halves of two words.
_SELECT = ("mad.lo.s32 {d}, {d}, 0x2222, 0x5410",)


def _bits_of_lane(*instructions: str) -> tuple[str, ...]:
    """Return instructions that replace the lane's place in its quad by what ``instructions`` make of it."""
    l = lane()  # noqa: E741
    return (*(i.replace("{lane}", l) for i in instructions), f"bfi.b32 {{d}}, {{d}}, {l}, 0, 2")


def _exchange(word: str, first: str, second: str, selector: str, into: str) -> None:
    """Set ``into`` to one half of the words of two lanes."""
    builder = current()
    words = builder.register(), builder.register()
    for register, source in zip(words, (first, second), strict=True):
        builder.emit(f"shfl.sync.idx.b32 {register}, {word}, {source}, 31, 0xffffffff")
    builder.emit(f"prmt.b32 {into}, {words[0]}, {words[1]}, {selector}")


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
