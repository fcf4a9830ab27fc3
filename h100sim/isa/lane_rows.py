"""A lane operation's view of its operands: rows of a warp's register file, and scratch rows on the stack.

Results go to a scratch row first and from there to the register file. So an output may be the same register as an input, the
compiler can vectorise every operation without asking, and lanes that are not active keep their value.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ..native import as_pointer, i32, jit
from ..numerics.host_float import stack

__all__ = ["row32", "row64", "row128", "scratch32", "scratch64"]


@jit
def row32(regs, ops, k):
    """Return the row of operand ``k``: uint32, one per lane (a predicate is the first of them)."""
    return carray(as_pointer(regs + i32(ops, 16)[k]), (32,), np.uint32)


@jit
def row64(regs, ops, k):
    """Return the row of operand ``k``: uint64, one per lane."""
    return carray(as_pointer(regs + i32(ops, 16)[k]), (32,), np.uint64)


@jit
def row128(regs, ops, k):
    """Return the row of operand ``k``: uint64, the low words of the 32 lanes and then the high words."""
    return carray(as_pointer(regs + i32(ops, 16)[k]), (64,), np.uint64)


@jit
def scratch32():
    """Return a row of 32 uint32 on the stack."""
    return carray(stack(128), (32,), np.uint32)


@jit
def scratch64():
    """Return a row of 32 uint64 on the stack."""
    return carray(stack(256), (32,), np.uint64)


def plain_rows(regs: np.ndarray) -> dict:
    """Return the same five functions over a register file held in a uint8 array, for plain Python."""

    def row(dtype, length):
        def view(_regs, ops, k):
            start = int(ops[k])
            return regs[start : start + length * np.dtype(dtype).itemsize].view(dtype)

        return view

    return {
        "row32": row(np.uint32, 32),
        "row64": row(np.uint64, 32),
        "row128": row(np.uint64, 64),
        "scratch32": lambda: np.zeros(32, np.uint32),
        "scratch64": lambda: np.zeros(32, np.uint64),
    }
