"""atom and red: read, modify and write memory in one step, for scalars and vectors.

Lanes take their turns in ascending order, so a launch gives the same old values every time; silicon promises no order.
Scopes are accepted, release and acquire are handed to the trace. red.async is in :mod:`.async_stores`.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: atom", "red": f32 sums flush
subnormal numbers in global memory, not in shared memory. Measured: the arithmetic of elements, as the TMA does it, in
tests/data/tma_reduction.npz; validate/silicon/load_latency.json: the time of 32 lanes that add to one word. Assumed: atomics do the same
to special values; all operations and types take the time of that one; what takes turns does not keep others from memory.

Approximated: where all lanes name one address and ptxas can tell, it adds their values up first and one lane goes to memory.
"""

from __future__ import annotations

import numpy as np

from .. import state as S
from ..isa.machine import (
    HIGH_HALF,
    Environment,
    MachineOp,
    current,
    flatten,
    get,
    machine_instruction,
    operand,
    put,
    refuse,
)
from ..layouts.banks import LOAD
from ..memory.windows import CODES, GENERIC, GLOBAL, SHARED, space_of_generic
from ..native import i64, inner, u8
from ..ptx.module import Instruction, Sink
from ..tma.fields import DTYPES
from ..tma.reductions import REDUCTIONS, reduce_word
from ..trace import Access
from .global_path import load_out
from .load_store import (
    POINTERS,
    _flags,
    address_operand,
    check_address,
    element_bytes,
    lane_addresses,
    record,
    shared_time,
    space_name,
    targets,
    vector_length,
)

_ACCESS = int(Access.READ) | int(Access.WRITE) | int(Access.ATOMIC)
_FORMATS = tuple(DTYPES)
_F32, _F32_FTZ = _FORMATS.index("f32"), _FORMATS.index("f32_ftz")
_EXCH, _CAS = len(REDUCTIONS), len(REDUCTIONS) + 1
#: Operations in the order of their codes.
OPERATIONS = (*REDUCTIONS, "exch", "cas")

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
#: Types that each operation takes; floats have min and max as vectors alone. Spec: "atom", "red".
_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
}
_VECTOR_TYPES = {"add": ("f32", *_HALVES), "min": _HALVES, "max": _HALVES}


def format_of(type_: str) -> int:
    """Return the format in which the arithmetic of elements knows a type."""
    return _FORMATS.index(type_.removesuffix("x2") if type_ in _HALVES else type_.replace("b", "u") if type_[0] == "b" else type_)


@inner
def read_word(target, size):
    """Return ``size`` bytes as an integer."""
    data = u8(target, size)
    word = np.int64(0)
    for b in range(size):
        word |= np.int64(data[b]) << (8 * b)
    return word


@inner
def modify(target, size, operation, element_format, element, value, other):
    """Do one operation on ``size`` bytes and return what they were; ``other`` is the new value of a cas."""
    data = u8(target, size)
    old = read_word(target, size)
    if operation == _EXCH:
        new = value
    elif operation == _CAS:
        new = other if old == value & (-1 if size == 8 else (1 << (8 * size)) - 1) else old
    else:
        new = np.int64(reduce_word(element, element_format, operation, np.uint64(old), np.uint64(value)))
    for b in range(size):
        data[b] = (new >> (8 * b)) & 0xFF
    return old


@inner
def turns(ctx, regs, ops, k, offset, mask):
    """Return how many lanes have the address in common that most of them give in operand ``k``."""
    addresses = lane_addresses(ctx, regs, ops, k, offset, mask)
    most = 0
    for lane in range(32):
        same = 0
        for other in range(32):
            same += addresses[other] == addresses[lane]
        if addresses[lane] >= 0:
            most = max(most, same)
    return most


@inner
def atomic_time(ctx, regs, ops, k, offset, mask, size, kind):
    """Charge the way to memory and set the latency: lanes with one address take turns."""
    c, T = S.context(ctx), S.timing(ctx)
    if kind == SHARED:
        shared_time(ctx, regs, ops, k, offset, mask, size, True, LOAD)
    else:
        c.latency = load_out(ctx, lane_addresses(ctx, regs, ops, k, offset, mask), size, False) - c.now + T.atomic_cycles
    c.latency += (turns(ctx, regs, ops, k, offset, mask) - 1) * T.atomic_lane_cycles


def atomic_wide(regs, mask, ops, ctx):
    """d, [a], b, (c) of 128 bits; imm0 offset, imm1 space, imm4 operation, imm5 access."""
    c, ins = S.context(ctx), current(ctx)
    kind, targeted = targets(ctx, regs, ops, 1, ins.imm0, mask, ins.imm1, 16)
    if kind < 0:
        return S.S_ERROR
    atomic_time(ctx, regs, ops, 1, ins.imm0, mask, 16, kind)
    record(ctx, regs, ops, 1, ins.imm0, mask, 16, ins.imm1, ins.imm5)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        words = i64(targeted[lane], 2)
        low, high = words[0], words[1]
        b, new = operand(ops, 2), operand(ops, 3 if ins.imm4 == _CAS else 2)
        if ins.imm4 == _EXCH or (low == get(regs, b, lane) and high == get(regs, b + HIGH_HALF, lane)):
            words[0], words[1] = get(regs, new, lane), get(regs, new + HIGH_HALF, lane)
        put(regs, operand(ops, 0), lane, low)
        put(regs, operand(ops, 0) + HIGH_HALF, lane, high)
    c.progress += 1
    return S.S_NEXT


def atomic(regs, mask, ops, ctx):
    """d.., [a], b.., (c); imm0 offset, imm1 space, imm2 bytes, imm3 vector length, imm4 operation, format, bytes of an
    element, imm5 access."""
    c, ins = S.context(ctx), current(ctx)
    offset, space, size, count = ins.imm0, ins.imm1, ins.imm2, ins.imm3
    operation, wanted, element = ins.imm4 & 0xFF, (ins.imm4 >> 8) & 0xFF, ins.imm4 >> 16
    where = operand(ops, count)
    kind, targeted = targets(ctx, regs, ops, count, offset, mask, space, size * count)
    if kind < 0:
        return S.S_ERROR
    atomic_time(ctx, regs, ops, count, offset, mask, size * count, kind)
    record(ctx, regs, ops, count, offset, mask, size * count, space, ins.imm5)
    olds = i64(c.scratch + POINTERS + 256, 8)
    changed = 0
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        target = targeted[lane]
        own = space_of_generic(get(regs, where, lane) + offset) if space == GENERIC else space
        element_format = _F32_FTZ if wanted == _F32 and own == GLOBAL else wanted
        for k in range(count):
            value = get(regs, operand(ops, count + 1 + k), lane)
            other = get(regs, operand(ops, count + 2), lane) if operation == _CAS else 0
            olds[k] = modify(target + k * size, size, operation, element_format, element, value, other)
            changed |= read_word(target + k * size, size) != olds[k]
        for k in range(count):
            put(regs, operand(ops, k), lane, olds[k])
    c.progress += changed
    return S.S_NEXT


@machine_instruction("atom", "red")
def lower_atomic(instruction: Instruction, environment: Environment) -> MachineOp:
    operation = next((m for m in instruction.modifiers if m in OPERATIONS[1:]), "")
    type_, count = instruction.types[-1], vector_length(instruction)
    legal = (_TYPES if count == 1 else _VECTOR_TYPES).get(operation, ())
    if type_ not in legal or (instruction.base == "red" and operation in ("exch", "cas")):
        rule = f"have a type of {operation}: {', '.join(legal)}" if legal else "name an operation that is supported"
        raise refuse(instruction, f"{instruction.opcode} must {rule}, not {type_}", environment)
    size = 4 if type_.endswith("x2") else element_bytes(instruction)[0]
    operands = list(instruction.operands)
    old = flatten(operands.pop(0)) if instruction.base == "atom" else (Sink(),) * count
    old = (Sink(),) * count if old == (Sink(),) else old
    base, offset = address_operand(instruction, operands.pop(0), environment)
    check_address(instruction, base, environment)
    values = [x for value in operands[: 2 if operation == "cas" else 1] for x in flatten(value)]
    if len(old) != count or len(values) != count + (operation == "cas"):
        raise refuse(instruction, f"{instruction.opcode} must have vectors of {count} elements, not {len(values)}", environment)
    if type_ == "b128":
        integers = (offset, CODES[space_name(instruction)], size, 1, OPERATIONS.index(operation), _flags(instruction, _ACCESS))
        return MachineOp(atomic_wide, old, ((base, "u64"), *((x, type_) for x in values)), integers, latency=30)
    element = 2 if type_ in _HALVES else size
    packed = OPERATIONS.index(operation) | format_of(type_) << 8 | element << 16
    integers = (offset, CODES[space_name(instruction)], size, count, packed, _flags(instruction, _ACCESS))
    return MachineOp(atomic, old, ((base, "u64"), *((x, type_) for x in values)), integers, latency=30)
