"""The tensor core of an SM and the instructions that drive it: wgmma.fence, mma_async, commit_group, wait_group.

The four warps of a warpgroup issue the same wgmma; it joins the SM's queue when the last of them has. The tensor core takes one
operation at a time for max(N/2, 16 + N/4) cycles (A from shared memory) and delivers it a fixed time later. Operands are read
and the accumulator is written at delivery: a program that is correct cannot tell, and one that is not is reported by the checks.
A sparse wgmma keeps half of A, which the metadata in a register of each thread places, and reads twice as much of B.

Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Measured: times in
h100sim/devices.py, ``TensorCore``; arithmetic in h100sim/numerics/tensor_core.py.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..ctas import end_cta_if_done
from ..errors import PtxError
from ..isa.machine import (
    Environment,
    MachineOp,
    first_lane,
    flatten,
    get,
    immediate,
    machine_instruction,
    operand,
    refuse,
)
from ..layouts.descriptor import gather_operand
from ..native import array_at, call, i64, inner, u8, u32
from ..numerics.sparse import chunks_of, expand_into, nibble_of
from ..numerics.tensor_core import address_of_step, step_of
from ..numerics.wgmma import WgmmaInstruction, parse_wgmma
from ..ptx.module import Imm, Instruction, Operand
from ..serialised import INJECTED_WAIT
from ..services import ITEM_ASYNC, PRIORITY_UNIT, block, emit, emit_here, fail, free_async, new_async, push, unit_time, wake
from ..trace import Event, Wait
from .shared_port import multiplied

_ISSUED, _STARTED, _COMPLETED = int(Event.WGMMA_ISSUED), int(Event.WGMMA_STARTED), int(Event.WGMMA_COMPLETED)
_FENCED, _COMMITTED, _WAITED = int(Event.WGMMA_FENCED), int(Event.WGMMA_COMMITTED), int(Event.WGMMA_WAITED)
_WAIT, _ROOM = int(Wait.WGMMA), int(Wait.WARPGROUP)
_FULL = 0xFFFFFFFF

#: The least cycles of a sparse wgmma with A in registers (two less for N 8). Measured: validate/silicon/sparse_wgmma_rate.json.
_SPARSE_FLOOR = 18

#: Places in the scratch memory: A (64, 64), B (256, 64), D (64, 256) 32-bit elements, the argument block of a step.
_A, _B, _D, _BLOCK = 0, 1 << 14, 5 << 14, 9 << 14
#: Of a sparse one: the stored A (64, 32), which elements of A are there (64, 64), the metadata of 128 threads.
_STORED, _PRESENT, _METADATA = 10 << 14, 11 << 14, 12 << 14

#: Bits of imm2.
A_IN_REGISTERS, TRANSPOSE_A, TRANSPOSE_B, NEGATE_A, NEGATE_B, SATURATE, HALF_D, SPARSE, SELECTOR = (1 << k for k in range(9))


@inner
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
    S.context(ctx).issue = S.timing(ctx).wgmma_fence_cycles
    return S.S_NEXT


@inner
def port_cycles_of(ctx, ins):
    """Return how long one wgmma reads operands from shared memory."""
    of_a = 0 if ins.imm2 & A_IN_REGISTERS else S.timing(ctx).wgmma_operand_cycles
    return of_a + ins.imm0 // (2 if ins.imm2 & SPARSE else 4)


@inner
def cycles_of(ctx, ins):
    """Return how long the tensor core takes for one wgmma. A sparse one reads twice as much of B, at 128 bytes a cycle."""
    T = S.timing(ctx)
    if ins.imm2 & A_IN_REGISTERS:
        floor = T.wgmma_floor_cycles if ins.imm2 & SPARSE == 0 else _SPARSE_FLOOR if ins.imm0 > 8 else _SPARSE_FLOOR - 2
        return max(ins.imm1, floor)
    return max(ins.imm1, port_cycles_of(ctx, ins))


@inner
def tail_of(ctx, ins):
    """Return how long after N/2 cycles from its start a wgmma is done."""
    T = S.timing(ctx)
    return T.wgmma_tail_cycles - (T.wgmma_registers_cycles if ins.imm2 & A_IN_REGISTERS else 0)


def multiply(regs, mask, ops, ctx):
    """d.., (a.. | descriptor a), descriptor b, scale-d, metadata (of a sparse one); imm0 N, imm1 cycles at full rate, imm2 flags,
    imm3 d rows, imm4 K."""
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
    cycles = cycles_of(ctx, ins)
    if sequence == G.created:
        if sm.wgmma_open >= T.wgmma_queue_depth or sequence - G.completed >= S.WGMMA_RING - 1:
            c.retry = max(c.now + 4, sm.tensor_free + tail_of(ctx, ins) - (T.wgmma_queue_depth - 1) * cycles)
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
    emit_here(ctx, _ISSUED, A.identity, A.descriptor_a, A.descriptor_b, sequence, A.scale_d)
    if A.arrived == 15:
        start = max(c.now + T.wgmma_issue_cycles, sm.tensor_free)
        sm.tensor_free = start + cycles
        multiplied(sm, cycles, port_cycles_of(ctx, ins))
        sm.tensor_busy += cycles
        A.state = S.A_FLYING
        # Wgmmas of a warpgroup deliver in order, whatever the schedule.
        A.done = max(unit_time(ctx, start + ins.imm1 + tail_of(ctx, ins)), G.last_done)
        G.last_done = A.done
        push(ctx, A.done, PRIORITY_UNIT, ITEM_ASYNC, n)
        first = S.warps(ctx)[W.cta * c.warps_per_cta + (W.rank & ~3)]
        emit(ctx, start, _STARTED, S.ctas(ctx)[W.cta].id, first.id, c.pc, mask, A.identity, cycles, 0, sequence, 0)
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
    c.issue = 4
    return S.S_NEXT


def wait_for_all(regs, mask, ops, ctx):
    """Wait for every wgmma that was issued, without an event."""
    if not _whole_warpgroup(ctx, mask):
        return S.S_ERROR
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    G = S.groups(ctx)[W.group]
    rank = W.rank & 3
    if G.completed < G.issued[rank]:
        return block(ctx, _WAIT, W.group, G.committed[rank], G.issued[rank])
    c.issue = 4
    return S.S_NEXT


@inner
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
                wake(ctx, w, k, c.now + 4)
    let_issue(ctx, S.warps(ctx)[first].sm)
    end_cta_if_done(ctx, cta)


@inner
def let_issue(ctx, sm):
    """Let warps of an SM that were suspended because there was no room for their wgmma try again."""
    if S.sms(ctx)[sm].wgmma_held == 0:
        return
    c = S.context(ctx)
    S.sms(ctx)[sm].wgmma_held = 0
    for w in range(c.n_slots * c.warps_per_cta):
        W = S.warps(ctx)[w]
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + W.node]
        if W.state == S.W_BLOCKED and W.sm == sm and node.state == S.BLOCKED and node.wait == _ROOM:
            wake(ctx, w, W.node, c.now + 4)


@inner
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


@inner
def move_accumulator(ctx, n, d, write):
    """Copy D between the registers of the four warps and ``d`` (64, N): 32-bit elements, or 16-bit ones with HALF_D."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    ins = S.instructions(ctx)[A.pc]
    half = ins.imm2 & HALF_D
    first = A.cta * c.warps_per_cta + (S.warps(ctx)[A.warp].rank & ~3)
    for w in range(4):
        regs = S.warps(ctx)[first + w].regs
        for r in range(ins.imm3):
            held = u32(regs + (operand(ins.ops, r) & ~63), 32)
            # A 16-bit accumulator has two neighbouring columns in one register, a 32-bit one has one.
            k = r if half else r >> 1
            top, left = 16 * w + 8 * (k & 1), 8 * (k >> 1)
            for lane in range(32):
                row, column = top + (lane >> 2), left + 2 * (lane & 3)
                if half and write:
                    held[lane] = d[row, column] | (d[row, column + 1] << np.uint32(16))
                elif half:
                    d[row, column] = held[lane] & np.uint32(0xFFFF)
                    d[row, column + 1] = held[lane] >> np.uint32(16)
                elif write:
                    held[lane] = d[row, column + (r & 1)]
                else:
                    d[row, column + (r & 1)] = held[lane]


@inner
def spread(ctx, n, element_bits, depth):
    """Spread the stored A (64, depth / 2) of a sparse wgmma over the dense one, as the metadata of its 128 threads says, and
    mark what is there. Returns a status."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    ins = S.instructions(ctx)[A.pc]
    first = A.cta * c.warps_per_cta + (S.warps(ctx)[A.warp].rank & ~3)
    metadata = u32(c.scratch + _METADATA, 128)
    row_of_metadata = ins.imm3 + (4 if ins.imm2 & A_IN_REGISTERS else 1) + 2
    for w in range(4):
        op = operand(ins.ops, row_of_metadata)
        for lane in range(32):
            metadata[32 * w + lane] = np.uint32(get(S.warps(ctx)[first + w].regs, op, lane) & _FULL)
    selector = 1 if ins.imm2 & SELECTOR else 0
    stored = array_at(c.scratch + _STORED, (64, depth // 2), np.uint32)
    a = array_at(c.scratch + _A, (64, depth), np.uint32)
    present = array_at(c.scratch + _PRESENT, (64, depth), np.uint8)
    place = expand_into(element_bits, stored, metadata, selector, a, present)
    if place < 0:
        return S.S_NEXT
    chunks = chunks_of(element_bits, depth // 2)
    row, chunk = place // chunks, place % chunks
    nibble = nibble_of(element_bits, chunks, metadata, selector, row, chunk)
    return fail(ctx, faults.SPARSE_METADATA, 64 * row + chunk, nibble, element_bits)


def complete(n, time, unused, ctx):
    """Read the operands of a finished operation, multiply, write the accumulator."""
    c = S.context(ctx)
    A = S.asyncs(ctx)[n]
    c.warp, c.pc = A.warp, A.pc
    ins = S.instructions(ctx)[A.pc]
    if c.values:
        columns, flags = ins.imm0, ins.imm2
        element_bits, depth = ins.imm4 & 0xFF, ins.imm4 >> 8
        is_sparse = flags & SPARSE != 0
        a = array_at(c.scratch + (_STORED if is_sparse else _A), (64, depth // 2 if is_sparse else depth), np.uint32)
        b = array_at(c.scratch + _B, (columns, depth), np.uint32)
        d = array_at(c.scratch + _D, (64, columns), np.uint32)
        shared = u8(S.ctas(ctx)[A.cta].shared, c.shared_size)
        if flags & A_IN_REGISTERS:
            read_fragment_a(ctx, n, element_bits, depth, a)
        else:
            outside = gather_operand(A.descriptor_a, flags & TRANSPOSE_A != 0, element_bits // 8, shared, a)
            if outside >= 0:
                return fail(ctx, faults.DESCRIPTOR_OUT_OF_RANGE, outside, 0, c.shared_size)
        outside = gather_operand(A.descriptor_b, flags & TRANSPOSE_B != 0, element_bits // 8, shared, b)
        if outside >= 0:
            return fail(ctx, faults.DESCRIPTOR_OUT_OF_RANGE, outside, 1, c.shared_size)
        if is_sparse and spread(ctx, n, element_bits, depth) != S.S_NEXT:
            return S.S_ERROR
        if A.scale_d:
            move_accumulator(ctx, n, d, False)
        words = i64(c.scratch + _BLOCK, 13)
        words[0], words[1], words[2], words[3], words[4] = ins.imm5 & 0xFFFFFFFF, 1, 64, columns, depth
        words[5], words[6], words[7], words[8] = (
            c.scratch + _A,
            c.scratch + _B,
            c.scratch + _D,
            c.scratch + _PRESENT if is_sparse else 0,
        )
        words[9] = A.scale_d
        words[10] = 1 if flags & NEGATE_A else 0
        words[11] = 1 if flags & NEGATE_B else 0
        words[12] = 1 if flags & SATURATE else 0
        call(i64(c.step_functions, 3)[ins.imm5 >> 32], c.scratch + _BLOCK, 0, 0, 0)
        move_accumulator(ctx, n, d, True)
    retire(ctx, n)
    return S.S_NEXT


# --- lowering ---------------------------------------------------------------------------------------------------------

_FLOATS = ("f16", "bf16", "tf32", "e4m3", "e5m2")
#: A type code per family (float, integer, bits) that some decoded program uses.
_codes: dict[int, int] = {}


def step_addresses() -> np.ndarray:
    """Return the addresses of the compiled arithmetic by family, 0 where none is used."""
    return np.array([address_of_step(_codes[f]) if f in _codes else 0 for f in range(3)], np.int64)


def parse(instruction: Instruction, environment: Environment) -> WgmmaInstruction:
    """Return the shape, types and modifiers of a wgmma. PtxError names what is wrong and where."""
    try:
        return parse_wgmma(instruction.opcode)
    except PtxError as error:
        raise refuse(instruction, error.message, environment, error.rule) from None


@machine_instruction("wgmma.mma_async")
def lower_multiply(instruction: Instruction, environment: Environment) -> MachineOp:
    wgmma = parse(instruction, environment)
    n, a_type = wgmma.n, wgmma.a.name
    operands = list(instruction.operands)
    d = flatten(operands.pop(0))
    rows = n // 4 if wgmma.d.name == "f16" else n // 2
    if len(d) != rows:
        raise refuse(instruction, f"wgmma.mma_async D must have {rows} registers, not {len(d)}", environment)
    a = flatten(operands.pop(0))
    in_registers = len(a) == 4
    if len(a) not in (1, 4):
        raise refuse(instruction, f"wgmma.mma_async A must be a descriptor or 4 registers, not {len(a)}", environment)
    b: Operand = operands.pop(0)
    flags = A_IN_REGISTERS if in_registers else 0
    metadata: tuple[tuple[Operand, str], ...] = ()
    if wgmma.is_sparse:
        metadata = ((operands.pop(0), "b32"),)
        flags |= SPARSE | (SELECTOR if _selector(instruction, operands.pop(0), wgmma, environment) else 0)
    scale_d: Operand = operands.pop(0) if operands else Imm(1)
    flags |= HALF_D if wgmma.d.name == "f16" else 0
    flags |= SATURATE if wgmma.satfinite else 0
    values = [immediate(instruction, o, "scale or transpose", environment) for o in operands]
    # Only 16-bit types have transposes, only floating-point types signs. Measured: ptxas 13.0 refuses more ("arguments mismatch").
    most = 0 if a_type not in _FLOATS else 2 if a_type not in ("f16", "bf16") else 3 if in_registers else 4
    if len(values) > most:
        what = f"at most {most} immediates after scale-d (operands of {a_type} must be K-major)"
        raise refuse(instruction, f"wgmma.mma_async of {a_type} must have {what}, not {len(values)}", environment)
    if a_type in _FLOATS:
        for value, bit in zip(values, (NEGATE_A, NEGATE_B), strict=False):
            if value not in (1, -1):
                raise refuse(instruction, f"wgmma.mma_async imm-scale must be 1 or -1, not {value}", environment)
            flags |= bit if value == -1 else 0
    for value, bit in zip(values[2:], (TRANSPOSE_B,) if in_registers else (TRANSPOSE_A, TRANSPOSE_B), strict=False):
        flags |= bit if value else 0
    family = 0 if a_type in _FLOATS else 2 if a_type == "b1" else 1
    # The elements that go through the machine are words of 32 for b1.
    width, depth = (32, 8) if a_type == "b1" else (wgmma.a.bits, wgmma.k)
    code = wgmma.code
    _codes[family] = code
    ins = (*((x, "b32") for x in a),) if in_registers else ((a[0], "b64"),)
    ins = (*ins, (b, "b64"), (scale_d, "pred"), *metadata)
    integers = (n, n // 2, flags, rows, width | depth << 8, code | family << 32)
    # Until the next one issues, besides the cycles that this one takes itself. Measured: validate/silicon/wgmma_issue.json (4 cycles
    # from one to the next up to N 64, N/8 - 4 above).
    latency = max(1, n // 8 - 7)
    uses = (step_of(code),)
    return MachineOp(multiply, d, ins, integers, pipe="tensor", latency=latency, scored=False, completion=complete, uses=uses)


def _selector(instruction: Instruction, given: Operand, wgmma: WgmmaInstruction, environment: Environment) -> int:
    selector = immediate(instruction, given, "sparsity selector", environment)
    legal = (0,) if wgmma.a.bits == 8 else (0, 1)
    if selector not in legal:
        choice = "0" if legal == (0,) else "0 or 1"
        raise refuse(instruction, f"wgmma.mma_async sparsity selector of {wgmma.a} must be {choice}, not {selector}", environment)
    return selector


@machine_instruction("wgmma.fence")
def lower_fence(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(fence, pipe="tensor", latency=1)


@machine_instruction("wgmma.commit_group")
def lower_commit(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(commit)


@machine_instruction("wgmma.wait_group")
def lower_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    count = immediate(instruction, instruction.operands[0], "count", environment)
    if count < 0:
        raise refuse(instruction, f"wgmma.wait_group count must be a non-negative immediate, not {count}", environment)
    return MachineOp(wait_group, (), (), (min(count, 7),), pipe="tensor", latency=1)


@machine_instruction(INJECTED_WAIT)
def lower_injected_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(wait_for_all, pipe="tensor", latency=1)
