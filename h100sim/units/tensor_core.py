"""The tensor core of an SM and the instructions that drive it: wgmma.fence, mma_async, commit_group, wait_group.

The four warps of a warpgroup issue the same wgmma; it joins the SM's queue when the last of them has. The tensor core takes one
operation at a time for max(N/2, 16 + N/4) cycles (A from shared memory) and delivers it a fixed time later. Operands are read
and the accumulator is written at delivery: a program that is correct cannot tell, and one that is not is reported by the checks.

Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Measured: times in
h100sim/devices.py, ``TensorCore``; arithmetic in h100sim/numerics/tensor_core.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .. import faults
from .. import state as S
from ..engine import end_cta_if_done
from ..isa.machine import (
    Environment,
    MachineOp,
    first_lane,
    flatten,
    get,
    immediate,
    machine_instruction,
    operand,
    put,
    refuse,
)
from ..native import jit, u8
from ..ptx.module import Imm, Instruction, Vector
from ..services import ITEM_ASYNC, PRIORITY_UNIT, block, emit, emit_here, fail, free_async, new_async, push, wake
from ..trace import Event, Wait

_ISSUED, _STARTED, _COMPLETED = int(Event.WGMMA_ISSUED), int(Event.WGMMA_STARTED), int(Event.WGMMA_COMPLETED)
_FENCED, _COMMITTED, _WAITED = int(Event.WGMMA_FENCED), int(Event.WGMMA_COMMITTED), int(Event.WGMMA_WAITED)
_WAIT = int(Wait.WGMMA)
_FULL = 0xFFFFFFFF

#: Bits of imm2.
A_IN_REGISTERS, TRANSPOSE_A, TRANSPOSE_B, NEGATE_A, NEGATE_B, SATURATE, HALF_D = 1, 2, 4, 8, 16, 32, 64


@jit
def _whole_warpgroup(ctx, mask):
    """Check that a full warp of a full warpgroup executes; record the error otherwise."""
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    first = W.rank & ~3
    if first + 4 > c.warps_per_cta:
        fail(ctx, faults.WGMMA_WARPGROUP, W.rank, c.warps_per_cta - first - 1, 0)
        return False
    if mask != _FULL:
        fail(ctx, faults.DIVERGENT_COLLECTIVE, mask, _FULL, 0)
        return False
    return True


def fence(regs, mask, ops, ctx):
    if not _whole_warpgroup(ctx, mask):
        return S.S_ERROR
    emit_here(ctx, _FENCED, -1, 0, 0, 0, 0)
    S.context(ctx).issue = 4
    return S.S_NEXT


def multiply(regs, mask, ops, ctx):
    """d.., (a.. | descriptor a), descriptor b, scale-d; imm0 N, imm1 cycles, imm2 flags, imm3 d rows, imm4 K."""
    c = S.context(ctx)
    ins = S.instructions(ctx)[c.pc]
    if not _whole_warpgroup(ctx, mask):
        return S.S_ERROR
    W, T = S.warps(ctx)[c.warp], S.timing(ctx)
    G = S.groups(ctx)[W.group]
    sm = S.sms(ctx)[W.sm]
    rank = W.rank & 3
    sequence = G.issued[rank]
    lane = first_lane(mask)
    in_registers = ins.imm2 & A_IN_REGISTERS
    d_rows = ins.imm3
    a_rows = 4 if in_registers else 1
    if sequence == G.created:
        if sm.wgmma_open >= T.wgmma_queue_depth or sequence - G.completed >= S.WGMMA_RING - 1:
            c.retry = max(c.now + 4, sm.tensor_free - (T.wgmma_queue_depth - 1) * ins.imm1)
            return S.S_RETRY
        n = new_async(ctx, S.A_WGMMA)
        if n < 0:
            return S.S_GROW
        A = S.asyncs(ctx)[n]
        A.sequence = sequence
        A.descriptor_a = -1 if in_registers else get(regs, operand(ops, d_rows), lane)
        A.descriptor_b = get(regs, operand(ops, d_rows + a_rows), lane)
        A.scale_d = get(regs, operand(ops, d_rows + a_rows + 1), lane)
        G.ring[sequence % S.WGMMA_RING] = n
        G.created += 1
        sm.wgmma_open += 1
    n = G.ring[sequence % S.WGMMA_RING]
    A = S.asyncs(ctx)[n]
    if A.pc != c.pc:
        return fail(ctx, faults.WGMMA_MISMATCH, A.pc, 0, 0)
    A.arrived |= 1 << rank
    G.issued[rank] = sequence + 1
    c.issue = T.wgmma_issue_cycles
    emit_here(ctx, _ISSUED, A.identity, A.descriptor_a, A.descriptor_b, sequence, 0)
    if A.arrived == 15:
        start = max(c.now + T.wgmma_issue_cycles, sm.tensor_free)
        sm.tensor_free = start + ins.imm1
        sm.tensor_busy += ins.imm1
        A.state = S.A_FLYING
        A.done = start + ins.imm1 + T.wgmma_tail_cycles
        push(ctx, A.done, PRIORITY_UNIT, ITEM_ASYNC, n)
        first = S.warps(ctx)[W.cta * c.warps_per_cta + (W.rank & ~3)]
        emit(ctx, start, _STARTED, S.ctas(ctx)[W.cta].id, first.id, c.pc, mask, A.identity, ins.imm1, 0, sequence, 0)
    return S.S_NEXT


def commit(regs, mask, ops, ctx):
    if not _whole_warpgroup(ctx, mask):
        return S.S_ERROR
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    G = S.groups(ctx)[W.group]
    rank = W.rank & 3
    group = G.committed[rank]
    G.ends[group % S.WGMMA_RING] = G.issued[rank]
    G.committed[rank] = group + 1
    previous = G.ends[(group - 1) % S.WGMMA_RING] if group > 0 else 0
    last = G.issued[rank] - 1 if G.issued[rank] > previous else -1
    emit_here(ctx, _COMMITTED, -1, group, 0, last, 0)
    return S.S_NEXT


def wait_group(regs, mask, ops, ctx):
    """imm0: how many of the latest groups may still be pending."""
    if not _whole_warpgroup(ctx, mask):
        return S.S_ERROR
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    G = S.groups(ctx)[W.group]
    group = G.committed[W.rank & 3] - 1 - S.instructions(ctx)[c.pc].imm0
    if group >= 0:
        limit = G.ends[group % S.WGMMA_RING]
        if G.completed < limit:
            return block(ctx, _WAIT, W.group, group, limit)
    emit_here(ctx, _WAITED, -1, group, 0, 0, 0)
    c.issue = 6
    return S.S_NEXT


@jit
def retire(ctx, n):
    """An operation has delivered: let its waiters and its CTA go on."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    W = S.warps(ctx)[A.warp]
    G = S.groups(ctx)[W.group]
    G.completed = A.sequence + 1
    S.sms(ctx)[W.sm].wgmma_open -= 1
    first = A.cta * c.warps_per_cta + (W.rank & ~3)
    emit(ctx, c.now, _COMPLETED, S.ctas(ctx)[A.cta].id, S.warps(ctx)[first].id, A.pc, 0, A.identity, 0, 0, A.sequence, 0)
    cta = A.cta
    free_async(ctx, n)
    for w in range(first, first + 4):
        for k in range(S.NODES_PER_WARP):
            node = S.nodes(ctx)[w * S.NODES_PER_WARP + k]
            if node.state == S.BLOCKED and node.wait == _WAIT and node.wait_value <= G.completed:
                wake(ctx, w, k, c.now + 8)
    end_cta_if_done(ctx, cta)


@jit
def read_fragment_a(ctx, n, element_bits, depth, a):
    """Read A from the registers of the four warps into ``a`` (64, K) element bits."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    ins = S.instructions(ctx)[A.pc]
    first = A.cta * c.warps_per_cta + (S.warps(ctx)[A.warp].rank & ~3)
    per_register = 32 // element_bits
    lane_mask = (1 << element_bits) - 1
    for w in range(4):
        regs = S.warps(ctx)[first + w].regs
        for r in range(4):
            op = operand(ins.ops, ins.imm3 + r)
            for lane in range(32):
                word = get(regs, op, lane)
                row = 16 * w + lane // 4 + 8 * (r & 1)
                column = per_register * (lane % 4 + 4 * (r >> 1))
                for j in range(per_register):
                    a[row, column + j] = (word >> (element_bits * j)) & lane_mask


@jit
def read_accumulator(ctx, n, d):
    """Read D from the registers of the four warps into ``d`` (64, N): 32-bit elements, or 16-bit ones with HALF_D."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    ins = S.instructions(ctx)[A.pc]
    half = ins.imm2 & HALF_D
    first = A.cta * c.warps_per_cta + (S.warps(ctx)[A.warp].rank & ~3)
    for w in range(4):
        regs = S.warps(ctx)[first + w].regs
        for r in range(ins.imm3):
            op = operand(ins.ops, r)
            for lane in range(32):
                word = get(regs, op, lane)
                if half:
                    row = 16 * w + lane // 4 + 8 * (r & 1)
                    column = 8 * (r >> 1) + 2 * (lane % 4)
                    d[row, column] = word & 0xFFFF
                    d[row, column + 1] = (word >> 16) & 0xFFFF
                else:
                    d[16 * w + lane // 4 + 8 * ((r >> 1) & 1), 8 * (r >> 2) + 2 * (lane % 4) + (r & 1)] = word


@jit
def write_accumulator(ctx, n, d):
    """Write ``d`` back to the registers of the four warps."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    ins = S.instructions(ctx)[A.pc]
    half = ins.imm2 & HALF_D
    first = A.cta * c.warps_per_cta + (S.warps(ctx)[A.warp].rank & ~3)
    for w in range(4):
        regs = S.warps(ctx)[first + w].regs
        for r in range(ins.imm3):
            op = operand(ins.ops, r)
            for lane in range(32):
                if half:
                    row = 16 * w + lane // 4 + 8 * (r & 1)
                    column = 8 * (r >> 1) + 2 * (lane % 4)
                    put(regs, op, lane, np.int64(d[row, column]) | (np.int64(d[row, column + 1]) << 16))
                else:
                    row = 16 * w + lane // 4 + 8 * ((r >> 1) & 1)
                    put(regs, op, lane, np.int64(d[row, 8 * (r >> 2) + 2 * (lane % 4) + (r & 1)]))


_ = (re, Callable, u8, Imm, Vector, Instruction, Environment, MachineOp, flatten, immediate, machine_instruction, refuse)
