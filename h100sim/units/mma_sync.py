"""mma.sync and mma.sp: the matrix product of one warp, from registers to registers.

The operands are gathered from the fragments of the 32 lanes, multiplied by the same arithmetic as
:func:`h100sim.numerics.mma_sync.mma_sync`, and D is scattered. Every shape and type that the arithmetic knows is here;
it refuses m8n8k4 of f16 by name. Metadata that the manual leaves undefined is an error.

Spec: PTX ISA 9.1, "Multiply-and-Accumulate Instruction: mma", "Matrix Fragments for mma". Measured: times in
validate/silicon/mma_sync_rate.json. Assumed: mma.sync and wgmma do not hinder each other.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..errors import PtxError
from ..isa.machine import (
    Environment,
    MachineOp,
    current,
    flatten,
    get,
    immediate,
    machine_instruction,
    operand,
    put,
    refuse,
)
from ..native import array_at, call, i64, inner, u32
from ..numerics.mma_sync import MmaInstruction, parse_mma
from ..numerics.sparse import chunks_of, expand_into, nibble_of
from ..numerics.tensor_core import address_of_step
from ..ptx.module import Instruction
from ..services import fail

_FULL = 0xFFFFFFFF
_COLUMNS = 8
_SPARSE_ROWS = 16
#: Places in the scratch memory: A (16, 128) and B (8, 128) of 32-bit elements, D, the argument block; of a sparse product
#: also A as stored (16, 64), a byte for each element that is kept, and the metadata of the lanes.
_A, _B, _D, _BLOCK, _STORED, _PRESENT, _METADATA = 0, 2 << 12, 3 << 12, 4 << 12, 5 << 12, 6 << 12, 7 << 12
#: Bits of a row of A in one step of the tensor core, and for one step and for two: cycles to the result, whether through C or
#: through A, and cycles of the tensor core of a scheduler. m8n8k16 of 8 bits is through earlier. Measured:
#: validate/silicon/mma_sync_rate.json. Assumed: sparse ones take as long as dense ones that store as much.
_STEP_BITS = 128
_ONE_STEP, _TWO_STEPS, _HALF_ROWS = (17, 4), (24, 6), (14, 4)
#: Of doubles: columns of K in a step, its cycles, and the cycles behind the last step until the result is there; m8n8k4 is
#: through earlier. Measured: the same file.
_DOUBLE_STEP, _DOUBLE_CYCLES, _DOUBLE_TAIL, _DOUBLE_HALF_TAIL = 4, 16, 18, 10


@inner
def gather(regs, ops, first, rows, depth, bits, words, to):
    """Copy A or B of 8 or 16 rows from registers ``first`` onwards to (rows, depth) elements at ``to``."""
    per_register = 1 if bits >= 32 else 32 // bits
    ones = -1 if bits >= 32 else (1 << bits) - 1
    halves = rows // 8
    a32, a64 = array_at(to, (rows, depth), np.uint32), array_at(to, (rows, depth), np.uint64)
    for r in range(rows * depth // (32 * per_register)):
        op = operand(ops, first + r)
        left = 4 * per_register * (r // halves)
        for lane in range(32):
            value = get(regs, op, lane)
            row, column = (lane >> 2) + 8 * (r % halves), left + per_register * (lane & 3)
            for j in range(per_register):
                if words == 2:
                    a64[row, column + j] = np.uint64(value)
                else:
                    a32[row, column + j] = np.uint32((value >> (bits * j)) & ones & _FULL)


@inner
def move_accumulator(regs, ops, first, rows, bits, d, write):
    """Copy C or D between registers ``first`` onwards and (rows, 8) elements at ``d``."""
    halves = rows // 8
    d32, d64 = array_at(d, (rows, _COLUMNS), np.uint32), array_at(d, (rows, _COLUMNS), np.uint64)
    for r in range(halves if bits == 16 else 2 * halves):
        op = operand(ops, first + r)
        top = 8 * (r if bits == 16 else r >> 1)
        for lane in range(32):
            row, column = top + (lane >> 2), 2 * (lane & 3) + (0 if bits == 16 else r & 1)
            if bits == 64 and write:
                put(regs, op, lane, np.int64(d64[row, column]))
            elif bits == 64:
                d64[row, column] = np.uint64(get(regs, op, lane))
            elif bits == 32 and write:
                put(regs, op, lane, np.int64(d32[row, column]))
            elif bits == 32:
                d32[row, column] = np.uint32(get(regs, op, lane) & _FULL)
            elif write:
                put(regs, op, lane, np.int64(d32[row, column]) | np.int64(d32[row, column + 1]) << 16)
            else:
                value = get(regs, op, lane)
                d32[row, column], d32[row, column + 1] = np.uint32(value & 0xFFFF), np.uint32((value >> 16) & 0xFFFF)


@inner
def spread(regs, ops, operand_of_metadata, bits, depth, selector, scratch):
    """Spread the stored A of a sparse product over a dense one; return -1, or the place of an undefined nibble."""
    metadata = u32(scratch + _METADATA, 32)
    op = operand(ops, operand_of_metadata)
    for lane in range(32):
        metadata[lane] = np.uint32(get(regs, op, lane) & _FULL)
    stored = array_at(scratch + _STORED, (_SPARSE_ROWS, depth // 2), np.uint32)
    a = array_at(scratch + _A, (_SPARSE_ROWS, depth), np.uint32)
    present = array_at(scratch + _PRESENT, (_SPARSE_ROWS, depth), np.uint8)
    return expand_into(bits, stored, metadata, selector, a, present)


@inner
def undefined_metadata(ctx, place, bits, depth, selector):
    """Record the error of a nibble that the manual leaves undefined."""
    chunks = chunks_of(bits, depth // 2)
    row, chunk = place // chunks, place % chunks
    nibble = nibble_of(bits, chunks, u32(S.context(ctx).scratch + _METADATA, 32), selector, row, chunk)
    return fail(ctx, faults.SPARSE_METADATA, 64 * row + chunk, nibble, bits)


@inner
def step(regs, ops, ctx, selector):
    """Do one product. Operands and integers as for :func:`multiply`; ``selector`` is -1 if A is dense."""
    c, ins = S.context(ctx), current(ctx)
    rows, depth = ins.imm2, ins.imm3
    a_bits, d_bits = ins.imm4 & 0xFF, ins.imm4 >> 8
    stored = depth if selector < 0 else depth // 2
    words = 2 if a_bits == 64 else 1
    per_register = 1 if a_bits >= 32 else 32 // a_bits
    first_a = (rows // 8) * (1 if d_bits == 16 else 2)
    first_b = first_a + rows * stored // (32 * per_register)
    first_c = first_b + 8 * depth // (32 * per_register)
    gather(regs, ops, first_a, rows, stored, a_bits, words, c.scratch + (_A if selector < 0 else _STORED))
    gather(regs, ops, first_b, _COLUMNS, depth, a_bits, words, c.scratch + _B)
    move_accumulator(regs, ops, first_c, rows, d_bits, c.scratch + _D, False)
    if selector >= 0:
        metadata = first_c + (rows // 8) * (1 if d_bits == 16 else 2)
        undefined = spread(regs, ops, metadata, a_bits, depth, selector, c.scratch)
        if undefined >= 0:
            return undefined_metadata(ctx, undefined, a_bits, depth, selector)
    block = i64(c.scratch + _BLOCK, 13)
    block[0], block[1], block[2], block[3], block[4] = ins.imm0, 1, rows, _COLUMNS, depth
    block[5], block[6], block[7] = c.scratch + _A, c.scratch + _B, c.scratch + _D
    block[8] = 0 if selector < 0 else c.scratch + _PRESENT
    block[9], block[10], block[11], block[12] = 1, 0, 0, ins.imm5 & 1
    call(ins.imm1, c.scratch + _BLOCK, 0, 0, 0)
    move_accumulator(regs, ops, 0, rows, d_bits, c.scratch + _D, True)
    return S.S_NEXT


def multiply(regs, mask, ops, ctx):
    """d.., a.., b.., c..; imm0 code, imm1 address of the step, imm2 rows, imm3 depth, imm4 bits of A and D,
    imm5 satfinite."""
    c = S.context(ctx)
    if mask != _FULL:
        return fail(ctx, faults.DIVERGENT_COLLECTIVE, mask, S.warps(ctx)[c.warp].alive, 0)
    return step(regs, ops, ctx, -1) if c.values else S.S_NEXT


def multiply_sparse(regs, mask, ops, ctx):
    """d.., a.., b.., c.., metadata; as :func:`multiply`, and the sparsity selector in imm5 from bit 1 on."""
    c = S.context(ctx)
    if mask != _FULL:
        return fail(ctx, faults.DIVERGENT_COLLECTIVE, mask, S.warps(ctx)[c.warp].alive, 0)
    return step(regs, ops, ctx, current(ctx).imm5 >> 1) if c.values else S.S_NEXT


def register_counts(mma: MmaInstruction) -> tuple[int, int, int, int]:
    """Return how many registers D, A, B and C have."""
    per_lane = 64 if mma.a.bits == 64 else 32
    d = mma.m * _COLUMNS * mma.d.bits // (32 * (64 if mma.d.bits == 64 else 32))
    return d, mma.m * mma.stored_k * mma.a.bits // (32 * per_lane), _COLUMNS * mma.k * mma.b.bits // (32 * per_lane), d


def cost(rows: int, depth: int, bits: int) -> tuple[int, int]:
    """Return the cycles from the issue of a product of ``rows`` x 8 until its result is there, and those of the tensor core that it
    takes: ``depth`` columns of K that A stores, of so many ``bits``."""
    if bits == 64:
        cycles = _DOUBLE_CYCLES * (depth // _DOUBLE_STEP)
        return cycles + (_DOUBLE_TAIL if rows == 16 else _DOUBLE_HALF_TAIL), cycles
    if depth * bits > _STEP_BITS:
        return _TWO_STEPS
    return _ONE_STEP if rows == 16 else _HALF_ROWS


@machine_instruction("mma")
def lower_mma(instruction: Instruction, environment: Environment) -> MachineOp:
    try:
        mma = parse_mma(instruction.opcode)
    except PtxError as error:
        raise refuse(instruction, error.message, environment, error.rule) from None
    counts = register_counts(mma)
    name = "mma.sp" if mma.is_sparse else "mma.sync"
    if len(instruction.operands) != (6 if mma.is_sparse else 4):
        wanted = "D, A, B, C, metadata and selector" if mma.is_sparse else "D, A, B and C"
        raise refuse(instruction, f"{name} must have the operands {wanted}, not {len(instruction.operands)}", environment)
    operands = [flatten(x) for x in instruction.operands[:4]]
    for which, found, count in zip("DABC", operands, counts, strict=True):
        if len(found) != count:
            raise refuse(instruction, f"{name} {which} must have {count} registers, not {len(found)}", environment)
    d, a, b, c = operands
    wide = "b64" if mma.a.bits == 64 else "b32"
    c_type = "f64" if mma.d.bits == 64 else "f32" if mma.d.name == "f32" else "b32"
    ins = (*((x, wide) for x in (*a, *b)), *((x, c_type) for x in c))
    selector = 0
    if mma.is_sparse:
        ins = (*ins, (instruction.operands[4], "b32"))
        selector = immediate(instruction, instruction.operands[5], "sparsity selector", environment)
        if not 0 <= selector < mma.selectors:
            raise refuse(instruction, f"mma.sp selector must be from 0 to {mma.selectors - 1}, not {selector}", environment)
    is_bits = mma.a.bits == 1
    integers = (
        mma.code, address_of_step(mma.code), mma.m, mma.k // 32 if is_bits else mma.k,
        (32 if is_bits else mma.a.bits) | mma.d.bits << 8, int(mma.satfinite) | selector << 1,
    )  # fmt: skip
    handler = multiply_sparse if mma.is_sparse else multiply
    latency, issue = cost(mma.m, mma.stored_k, mma.a.bits)
    if mma.a.name in ("e4m3", "e5m2"):
        # Two products of f16, the second of which adds to the first. Measured: machine code of ptxas 13.0.
        latency, issue = 2 * latency, 2 * issue
    return MachineOp(handler, d, ins, integers, pipe="tensor", latency=latency, issue=issue)
