"""ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements between shared memory and the fragments of a warp.

Lane l holds, of matrix j, the elements [l/4][2*(l%4)] and [l/4][2*(l%4)+1] in register j (rows and columns swapped with
.trans); row r of matrix j lies at the address that lane 8j + r gives.

Spec: PTX ISA 9.1, "Warp-level matrix load instruction: ldmatrix", "stmatrix", "movmatrix". Measured: tests/data/warp_ops.npz.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, flatten, get, machine_instruction, operand, put, refuse
from ..layouts.banks import MATRIX
from ..memory.windows import CODES, pointer
from ..native import i64, inner, u16
from ..ptx.module import Instruction
from ..services import fail
from ..trace import Access
from .load_store import POINTERS, address_operand, record, shared_time, space_name

_READ, _WRITE = int(Access.READ), int(Access.WRITE)
_FULL = 0xFFFFFFFF


@inner
def _rows(ctx, regs, op, offset, space, count):
    """Put the host address of each of 8*count rows into the scratch table; return False after an error."""
    c = S.context(ctx)
    rows = i64(c.scratch + POINTERS, 64)
    for lane in range(8 * count):
        address = get(regs, op, lane) + offset
        if address & 15:
            fail(ctx, faults.MISALIGNED, address, 16, 1)
            return False
        rows[lane] = pointer(ctx, c.warp, lane, space, address, 16)
        if rows[lane] == 0:
            return False
    return True


@inner
def _converged(ctx, mask):
    W = S.warps(ctx)[S.context(ctx).warp]
    if mask != W.alive or mask != _FULL:
        fail(ctx, faults.DIVERGENT_COLLECTIVE, mask, W.alive, 0)
        return False
    return True


def load_matrix(regs, mask, ops, ctx):
    """d0.., [a]; imm0 offset, imm1 space, imm2 matrices, imm3 transposed."""
    c, ins = S.context(ctx), current(ctx)
    count = ins.imm2
    if not _converged(ctx, mask) or not _rows(ctx, regs, operand(ops, count), ins.imm0, ins.imm1, count):
        return S.S_ERROR
    lanes = (1 << (8 * count)) - 1
    shared_time(ctx, regs, ops, count, ins.imm0, lanes, 16, True, MATRIX)
    record(ctx, regs, ops, count, ins.imm0, lanes, 16, ins.imm1, _READ)
    rows = i64(c.scratch + POINTERS, 64)
    for j in range(count):
        for lane in range(32):
            r, k = lane // 4, 2 * (lane % 4)
            if ins.imm3:
                low, high = u16(rows[8 * j + k], 8)[r], u16(rows[8 * j + k + 1], 8)[r]
            else:
                low, high = u16(rows[8 * j + r], 8)[k], u16(rows[8 * j + r], 8)[k + 1]
            put(regs, operand(ops, j), lane, int(low) | (int(high) << 16))
    return S.S_NEXT


def store_matrix(regs, mask, ops, ctx):
    """[a], s0..; imm0 offset, imm1 space, imm2 matrices, imm3 transposed."""
    c, ins = S.context(ctx), current(ctx)
    count = ins.imm2
    if not _converged(ctx, mask) or not _rows(ctx, regs, operand(ops, 0), ins.imm0, ins.imm1, count):
        return S.S_ERROR
    rows = i64(c.scratch + POINTERS, 64)
    for j in range(count):
        for lane in range(32):
            value = get(regs, operand(ops, 1 + j), lane)
            r, k = lane // 4, 2 * (lane % 4)
            if ins.imm3:
                u16(rows[8 * j + k], 8)[r] = value & 0xFFFF
                u16(rows[8 * j + k + 1], 8)[r] = (value >> 16) & 0xFFFF
            else:
                u16(rows[8 * j + r], 8)[k] = value & 0xFFFF
                u16(rows[8 * j + r], 8)[k + 1] = (value >> 16) & 0xFFFF
    c.progress += 1
    lanes = (1 << (8 * count)) - 1
    shared_time(ctx, regs, ops, 0, ins.imm0, lanes, 16, False, MATRIX)
    record(ctx, regs, ops, 0, ins.imm0, lanes, 16, ins.imm1, _WRITE)
    return S.S_NEXT


def move_matrix(regs, mask, ops, ctx):
    """d, a: transpose one 8x8 matrix across the lanes."""
    if not _converged(ctx, mask):
        return S.S_ERROR
    held = i64(S.context(ctx).scratch, 64)
    for lane in range(32):
        held[lane] = get(regs, operand(ops, 1), lane)
    for lane in range(32):
        r, k = lane // 4, 2 * (lane % 4)
        value = 0
        for half in range(2):
            source = held[(k + half) * 4 + r // 2]
            value |= ((source >> (16 * (r & 1))) & 0xFFFF) << (16 * half)
        put(regs, operand(ops, 0), lane, value)
    return S.S_NEXT


def _matrices(instruction: Instruction, environment: Environment) -> int:
    if not instruction.has("m8n8") or instruction.types != ("b16",):
        raise refuse(instruction, f"{instruction.base} shape must be m8n8 of b16 on sm_90a, not {instruction.opcode}", environment)
    for name, count in (("x1", 1), ("x2", 2), ("x4", 4)):
        if instruction.has(name):
            return count
    raise refuse(instruction, f"{instruction.base} must have .x1, .x2 or .x4", environment)


@machine_instruction("ldmatrix")
def lower_ldmatrix(instruction: Instruction, environment: Environment) -> MachineOp:
    count = _matrices(instruction, environment)
    base, offset = address_operand(instruction, instruction.operands[1], environment)
    integers = (offset, CODES[space_name(instruction)], count, int(instruction.has("trans")))
    return MachineOp(load_matrix, flatten(instruction.operands[0]), ((base, "u64"),), integers, latency=33, issue=4)


@machine_instruction("stmatrix")
def lower_stmatrix(instruction: Instruction, environment: Environment) -> MachineOp:
    count = _matrices(instruction, environment)
    base, offset = address_operand(instruction, instruction.operands[0], environment)
    ins = ((base, "u64"), *((v, "b32") for v in flatten(instruction.operands[1])))
    return MachineOp(store_matrix, (), ins, (offset, CODES[space_name(instruction)], count, int(instruction.has("trans"))), issue=4)


@machine_instruction("movmatrix")
def lower_movmatrix(instruction: Instruction, environment: Environment) -> MachineOp:
    d, a = instruction.operands
    return MachineOp(move_matrix, (d,), ((a, "b32"),), latency=24, issue=4)
