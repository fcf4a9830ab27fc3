"""Reductions of register tiles to vectors: in each thread first, then by shuffles among the lanes that share a row or
column.

A row of a row-layout tile lies in the 4 lanes of a quad, a column in the 8 lanes with equal ``lane % 4``; in column
layout it is the other way round. Butterfly shuffles leave the
same bits in every lane that holds a copy. Spec: PTX ISA 9.1, "shfl.sync".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .builder import current, usage
from .choices import select
from .control import lane
from .floats import Float
from .maps import elements, require_f32, require_vector
from .register_tiles import RegisterTile
from .register_vectors import RegisterVector
from .scalars import Int

_OPCODES = {"max": "max.f32", "min": "min.f32", "sum": "add.rn.f32", "prod": "mul.rn.f32"}
#: Lane distances of the shuffles that combine the copies of a vector's partial results.
_DISTANCES = {"ortho": (1, 2), "align": (4, 8, 16)}


def _reduction(axis: str, name: str) -> Callable[..., None]:
    opcode = _OPCODES[name]

    def reduce(dst: RegisterVector, src: RegisterTile, accum: RegisterVector | None = None) -> None:
        operation = f"warp.{axis}_{name}"
        require_vector(operation, src, dst, axis)
        if accum is not None:
            require_vector(operation, src, accum, axis)
        totals = _in_thread(opcode, _parts(src, axis, len(dst.registers)))
        for distance in _DISTANCES[dst.layout]:
            totals = _shuffled(opcode, totals, distance)
        for index, total in enumerate(totals):
            if accum is None:
                current().emit(f"mov.f32 {dst.registers[index]}, {total}")
            else:
                current().emit(f"{opcode} {dst.registers[index]}, {accum.registers[index]}, {total}")

    reduce.__name__ = reduce.__qualname__ = f"{axis}_{name}"
    words = {"max": "largest element", "min": "smallest element", "sum": "sum", "prod": "product"}[name]
    line = "row" if axis == "row" else "column"
    reduce.__doc__ = (
        f"Set ``dst`` to the {words} of every {line} of ``src``, combined with ``accum`` if given. "
        f"PTX: ``{opcode.removesuffix('.f32')}``, ``shfl.sync.bfly``."
    )
    return reduce


def _parts(src: RegisterTile, axis: str, count: int) -> list[list[str]]:
    parts: list[list[str]] = [[] for _ in range(count)]
    for register, row, col in elements(src):
        parts[row if axis == "row" else col].append(register)
    return parts


def _in_thread(opcode: str, parts: list[list[str]]) -> list[str]:
    """Combine the registers of every row or column in order, left to right; those of different ones side by side, so that
    one's latency passes while another's are issued.
    """
    builder = current()
    totals = [registers[0] for registers in parts]
    for others in zip(*(registers[1:] for registers in parts), strict=True):
        sums = [builder.register("f") for _ in parts]
        for result, total, other in zip(sums, totals, others, strict=True):
            builder.emit(f"{opcode} {result}, {total}, {other}")
        totals = sums
    return totals


def _shuffled(opcode: str, values: list[str], distance: int) -> list[str]:
    builder = current()
    words = [builder.register() for _ in values]
    others, totals = ([builder.register("f") for _ in values] for _ in range(2))
    for word, value in zip(words, values, strict=True):
        builder.emit(f"mov.b32 {word}, {value}")
    for word in words:
        builder.emit(f"shfl.sync.bfly.b32 {word}, {word}, {distance}, 31, 0xffffffff")
    for word, other in zip(words, others, strict=True):
        builder.emit(f"mov.b32 {other}, {word}")
    for total, value, other in zip(totals, values, others, strict=True):
        builder.emit(f"{opcode} {total}, {value}, {other}")
    return totals


row_max, row_min, row_sum, row_prod = (_reduction("row", name) for name in _OPCODES)
col_max, col_min, col_sum, col_prod = (_reduction("col", name) for name in _OPCODES)


#: What leaves a reduction as it is, for lanes that a vector does not reach.
_NEUTRAL = {"max": -math.inf, "min": math.inf, "sum": 0.0, "prod": 1.0}
#: Lane distances that bring together the lanes with different elements.
_ACROSS = {"ortho": (4, 8, 16), "align": (1, 2), "naive": (1, 2, 4, 8, 16)}


def _vector_reduction(name: str) -> Callable[[RegisterVector], Float]:
    opcode = _OPCODES[name]

    def reduce(src: RegisterVector) -> Float:
        if not isinstance(src, RegisterVector):
            raise usage(f"warp.vec_{name} operand must be a register vector, not {type(src).__name__}")
        require_f32(f"warp.vec_{name}", src)
        parts = list(src.registers)
        if src.layout == "naive" and src.length % 32:
            reached = Int(lane(), nonnegative=True) < src.length % 32
            parts[-1] = select(reached, Float(parts[-1], divergent=True), _NEUTRAL[name]).register
        totals = _in_thread(opcode, [parts])
        for distance in _ACROSS[src.layout]:
            totals = _shuffled(opcode, totals, distance)
        return Float(totals[0])

    words = {"max": "largest element", "min": "smallest element", "sum": "sum", "prod": "product"}[name]
    reduce.__name__ = reduce.__qualname__ = f"vec_{name}"
    reduce.__doc__ = (
        f"Return the {words} of a vector, the same in every lane. PTX: ``{opcode.removesuffix('.f32')}``, ``shfl.sync.bfly``."
    )
    return reduce


vec_max, vec_min, vec_sum, vec_prod = (_vector_reduction(name) for name in _OPCODES)
