"""A lane operation's view of its operands: rows of a warp's register file, and scratch rows on the stack.

Results go to a scratch row first and from there to the register file. So an output may be the same register as an
input, the compiler can vectorise every operation without asking, and lanes that are not active keep their value.

Rows are bare pointers and every access is one LLVM instruction: array structs would compile four times as slowly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..native import cgutils, intrinsic, ir, types

__all__ = ["choose", "load32", "load64", "merge32", "merge64", "row", "scratch", "store32", "store64"]


@intrinsic
def row(typingctx, regs, ops, k):
    """Return a pointer to the row of operand ``k``: ``regs`` plus the byte offset that ``ops`` holds for it."""

    def codegen(context, builder, signature, args):
        regs, ops, k = args
        i8, i32, i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
        k = builder.zext(k, i64) if k.type.width < 64 else k
        offset = builder.load(builder.gep(builder.inttoptr(ops, i32.as_pointer()), [k]))
        return builder.gep(builder.inttoptr(regs, i8.as_pointer()), [builder.zext(offset, i64)])

    return types.voidptr(types.int64, types.int64, types.int64), codegen


@intrinsic
def scratch(typingctx):
    """Return a pointer to 256 bytes of the caller's stack: room for one row."""

    def codegen(context, builder, signature, args):
        with builder.goto_entry_block():
            pointer = builder.alloca(ir.ArrayType(ir.IntType(8), 256))
        pointer.align = 64
        return builder.bitcast(pointer, cgutils.voidptr_t)

    return types.voidptr(), codegen


def _element(builder, width: int, args):
    """Return the address of element ``args[1]`` of a row of integers."""
    return builder.gep(builder.bitcast(args[0], ir.IntType(width).as_pointer()), [args[1]])


@intrinsic
def choose(typingctx, condition, yes, no):
    """Return one of two integers of a type. (What Python writes with ``if`` becomes a load from one of two places.)"""

    def codegen(context, builder, signature, args):
        return builder.select(*args)

    return yes(types.boolean, yes, yes), codegen


def _unsigned(width: int) -> Any:
    return getattr(types, f"uint{width}")


def _load(width: int):
    @intrinsic
    def load(typingctx, pointer, lane):
        def codegen(context, builder, signature, args):
            return builder.load(_element(builder, width, args))

        return _unsigned(width)(types.voidptr, types.int64), codegen

    return load


def _store(width: int):
    @intrinsic
    def store(typingctx, pointer, lane, value):
        def codegen(context, builder, signature, args):
            builder.store(args[2], _element(builder, width, args))
            return context.get_dummy_value()

        return types.void(types.voidptr, types.int64, _unsigned(width)), codegen

    return store


def _merge(bits_of_element: int):
    """Copy the active lanes of a scratch row to a row, ``start`` elements after its beginning: mostly all, in whole vectors."""

    @intrinsic
    def merge(typingctx, target, start, source, active):
        def codegen(context, builder, signature, args):
            target, start, source, active = args
            width = 256 // bits_of_element
            chunk = ir.VectorType(ir.IntType(bits_of_element), width)

            def copy(lanes_from):
                for lane in range(0, 32, width):
                    index = builder.add(start, start.type(lane))
                    place = builder.bitcast(_element(builder, bits_of_element, (target, index)), chunk.as_pointer())
                    scratch = _element(builder, bits_of_element, (source, start.type(lane)))
                    new = builder.load(builder.bitcast(scratch, chunk.as_pointer()), align=32)
                    if lanes_from is not None:
                        old = builder.load(place, align=bits_of_element // 8)
                        new = builder.select(lanes_from(lane), new, old)
                    builder.store(new, place, align=bits_of_element // 8)

            def lanes_from(lane):
                # Tests of a bit each: from bits to a vector of booleans there is no instruction.
                tested = builder.and_(everywhere, chunk([1 << (lane + k) for k in range(width)]))
                return builder.icmp_unsigned("!=", tested, chunk([0] * width))

            with builder.if_else(builder.icmp_unsigned("==", active, active.type(0xFFFFFFFF))) as (all_lanes, some_lanes):
                with all_lanes:
                    copy(None)
                with some_lanes:
                    nothing, first = ir.Constant(chunk, ir.Undefined), ir.VectorType(ir.IntType(32), width)([0] * width)
                    bits = builder.zext(active, chunk.element) if bits_of_element > 32 else active
                    everywhere = builder.shuffle_vector(builder.insert_element(nothing, bits, ir.IntType(32)(0)), nothing, first)
                    copy(lanes_from)
            return context.get_dummy_value()

        return types.void(types.voidptr, types.int64, types.voidptr, types.uint32), codegen

    return merge


load32 = _load(32)
load64 = _load(64)
store32 = _store(32)
store64 = _store(64)
merge32 = _merge(32)
merge64 = _merge(64)


def plain_rows(regs: np.ndarray) -> dict:
    """Return the same functions over a register file held in a uint8 array, for plain Python."""

    def load(dtype):
        return lambda pointer, lane: pointer.view(dtype)[lane]

    def store(dtype):
        def put(pointer, lane, value):
            pointer.view(dtype)[lane] = value

        return put

    def merge(dtype):
        def copy(target, start, source, active):
            for lane in range(32):
                if (int(active) >> lane) & 1:
                    target.view(dtype)[start + lane] = source.view(dtype)[lane]

        return copy

    return {
        "row": lambda _regs, ops, k: regs[int(ops[k]) : len(regs) & -8],
        "scratch": lambda: np.zeros(256, np.uint8),
        "choose": lambda condition, yes, no: yes if condition else no,
        "load32": load(np.uint32),
        "load64": load(np.uint64),
        "store32": store(np.uint32),
        "store64": store(np.uint64),
        "merge32": merge(np.uint32),
        "merge64": merge(np.uint64),
    }
