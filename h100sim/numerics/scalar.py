"""h100sim.scalar: any scalar PTX instruction on arrays of bits, through the forms that a kernel runs.

Spec: PTX ISA 9.1, "Instructions". Measured: tests/data/ptx_scalar.npz, tests/data/scalar_ops.npz.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ..errors import ElementTypeError, PtxError, UsageError
from ..native import call, jit

#: Bytes of a row of each kind in a warp's register file.
ROW_BYTES = {"u32": 128, "u64": 256, "u128": 512, "pred": 64}

_LANES = 32
_NATURAL = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@jit
def run_blocks(address, regs, stride, blocks, ops):
    """Call a lane operation with all lanes active on ``blocks`` register files, ``stride`` bytes apart."""
    for block in range(blocks):
        call(address, regs + block * stride, 0xFFFFFFFF, ops, 0)
    return blocks


def scalar(opcode: str, *operands):
    """Return what a scalar instruction makes of arrays of bits.

    Operands are unsigned or signed integers that hold the operand's bits (in its low bits if the array is wider),
    booleans for predicates, or floats of exactly the operand's type; they broadcast. A packed conversion from two
    values takes (high, low). The result is unsigned bits of the destination's width, or booleans for a predicate; it
    is a float array of the destination's type if an operand was one. Several results (setp of packed types, a sum and
    its carry) are a tuple. The condition code is the last operand; the look-up table of lop3 is an int.

    Raises PtxError for an opcode that sm_90a does not have or a wrong number of operands, ElementTypeError for an array that
    holds another float type.
    """
    from ..isa import lane
    from ..ptx.module import Imm, Sink

    if not isinstance(opcode, str):
        raise UsageError(f"opcode must be a str such as 'add.f32', not {opcode!r}")
    sources = tuple(Imm(int(x)) if isinstance(x, int) and not isinstance(x, bool) else Sink() for x in operands)
    # A comparison of packed types has a result for each half.
    destinations = 2 if opcode.startswith("setp.") and opcode.endswith("x2") else 1
    operation = lane.operation(opcode, destinations, sources)
    form = lane.natural_form(opcode, sources, destinations)
    types = [t for t in operation.ins if t != "#"] + ["pred"] * operation.carry_in
    values = [x for x, t in zip(operands, (*operation.ins, "pred"), strict=False) if t != "#"]
    if len(values) != len(types) or len(operands) > len(operation.ins) + operation.carry_in:
        raise PtxError(f"{opcode} must have {len(operation.ins) + operation.carry_in} operands, not {len(operands)}")
    is_float = any(np.asarray(x).dtype in _NATURAL.values() for x in values)
    arrays = [_bits(x, t, opcode) for x, t in zip(values, types, strict=True)]
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise UsageError(f"operands of {opcode} must have shapes that broadcast, not {shapes}") from None
    results = _run(form, arrays)
    out_types = [*operation.outs] + ["pred"] * operation.carry_out
    results = [
        _narrow(result, type_, _float_type(opcode) if is_float else None).reshape(arrays[0].shape)
        for result, type_ in zip(results, out_types, strict=True)
    ]
    return results[0] if len(results) == 1 else tuple(results)


def _bits(operand, type_: str, opcode: str) -> np.ndarray:
    """Return an operand as uint64 bits."""
    from ..isa.lane_text import width_of_type

    array = np.asarray(operand)
    if array.dtype == bool:
        return array.astype(np.uint64)
    if array.dtype.kind in "iu":
        width = width_of_type(type_)
        return array.astype(np.int64).view(np.uint64) & np.uint64((1 << width) - 1) if width < 64 else array.astype(np.uint64)
    width = array.dtype.itemsize * 8
    if array.dtype not in _NATURAL.values() or width != width_of_type(type_):
        raise ElementTypeError(f"operand of {opcode} must hold bits or values of .{type_}, not {array.dtype.name}")
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").astype(np.uint64)


def _run(form, arrays) -> list[np.ndarray]:
    """Run a form over flat arrays of uint64 bits; return one array for each output."""
    from ..isa import lane

    count = arrays[0].size
    blocks = -(-count // _LANES)
    kinds = (*form.outs, *form.ins)
    offsets = np.cumsum([0, *(ROW_BYTES[kind] for kind in kinds)]).astype(np.int32)
    regs = np.zeros((blocks, offsets[-1]), np.uint8)
    for kind, start, array in zip(form.ins, offsets[len(form.outs) :], arrays, strict=False):
        padded = np.zeros((blocks, _LANES), np.uint64)
        padded.reshape(-1)[:count] = array.reshape(-1)
        if kind == "pred":
            row = (padded.astype(np.uint32) << np.arange(_LANES, dtype=np.uint32)).sum(1, dtype=np.uint32)[:, None]
        else:
            row = padded if kind == "u64" else padded.astype(np.uint32)
        regs[:, start : start + row.shape[1] * row.itemsize] = row.view(np.uint8)
    run_blocks(lane.compile_form(form), regs.ctypes.data, regs.shape[1], blocks, offsets.ctypes.data)
    results = []
    for kind, start in zip(form.outs, offsets, strict=False):
        size = 4 if kind == "pred" else ROW_BYTES[kind]
        row = regs[:, start : start + size].copy().view(np.uint64 if kind == "u64" else np.uint32)
        if kind == "pred":
            row = (row >> np.arange(_LANES, dtype=np.uint32)) & 1
        results.append(row.reshape(-1)[:count])
    return results


def _float_type(opcode: str) -> np.dtype | None:
    """Return the NumPy float type of an opcode's result, None if it has another type."""
    base, *parts = opcode.split(".")
    name = parts[-2] if base in ("cvt", "set", "slct") else parts[-1]
    return np.dtype(_NATURAL[name]) if name in _NATURAL and base not in ("setp", "testp") else None


def _narrow(result: np.ndarray, type_: str, natural: np.dtype | None) -> np.ndarray:
    """Return a result in the unsigned type of its width, as booleans, or as floats."""
    from ..isa.lane_text import width_of_type

    width = width_of_type(type_)
    if width == 1:
        return result.astype(bool)
    bits = result.astype(f"u{max(width, 8) // 8}")
    return bits.view(natural) if natural is not None else bits
