"""mbarriers: phase, pending count, tx-count, and the instructions that touch them.

State stands beside shared memory, not in it: the 64-bit word that silicon keeps there is opaque to programs. A failed try_wait
suspends its lanes until the phase completes; if nothing else in the launch can happen any more, it returns False, as it does on
silicon after its time limit.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: mbarrier". Measured: suspension and wake-up
times in h100sim/devices.py, ``Barriers``.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..isa.machine import (
    Environment,
    MachineOp,
    current,
    get,
    machine_instruction,
    operand,
    put,
    refuse,
)
from ..memory.windows import SHARED_WINDOW, WINDOW_BYTES, shared_cta, shared_offset
from ..native import i32, inner
from ..ptx.module import Address, Imm, Instruction, Operand, Sink
from ..services import WARPS_DELAYED, block, draw, emit, emit_here, fail, wake_waiters
from ..trace import Event, Wait
from .load_store import address_operand, check_address

_INITIALISED, _INVALIDATED = int(Event.MBARRIER_INITIALISED), int(Event.MBARRIER_INVALIDATED)
_ARRIVED, _EXPECTED, _COMPLETED_TX = int(Event.MBARRIER_ARRIVED), int(Event.MBARRIER_EXPECTED), int(Event.MBARRIER_COMPLETED_TX)
_FLIPPED, _WAITED, _DROPPED = int(Event.MBARRIER_FLIPPED), int(Event.MBARRIER_WAITED), int(Event.MBARRIER_DROPPED)
_WAIT = int(Wait.MBARRIER)

#: Spec: "Contents of the mbarrier object": counts and the magnitude of the tx-count are below 2**20.
RANGE = 1 << 20


@inner
def cta_and_offset(ctx, cta, address):
    """Return (CTA slot, byte offset) of a shared address, generic or not; the slot is -1 if there is no such CTA."""
    if address & ~(WINDOW_BYTES - 1) == SHARED_WINDOW:
        address &= WINDOW_BYTES - 1
    if address < 0 or address >= WINDOW_BYTES:
        return -1, address
    return shared_cta(ctx, cta, address), address & 0xFFFFFF


@inner
def find(ctx, slot, offset):
    """Return the number of the live mbarrier at a shared offset of a CTA, or -1."""
    c = S.context(ctx)
    if slot < 0 or offset < 0 or offset + 8 > c.shared_size or offset & 7:
        return -1
    return i32(c.mbarrier_index + slot * (c.shared_stride // 8) * 4, c.shared_stride // 8)[offset >> 3]


@inner
def require(ctx, address):
    """Return the number of the live mbarrier that the executing warp names by ``address``, or -1 after recording the error."""
    c = S.context(ctx)
    cta = S.warps(ctx)[c.warp].cta
    slot, offset = cta_and_offset(ctx, cta, address)
    if slot < 0:
        fail(ctx, faults.OUT_OF_RANGE_SHARED, address, 8, c.shared_size)
        return -1
    if offset & 7:
        fail(ctx, faults.MBARRIER_MISALIGNED, offset, 0, 0)
        return -1
    if offset + 8 > c.shared_size:
        fail(ctx, faults.OUT_OF_RANGE_SHARED, offset, 8, c.shared_size)
        return -1
    m = find(ctx, slot, offset)
    if m < 0:
        fail(ctx, faults.MBARRIER_UNINITIALISED, offset, 0, 0)
    return m


@inner
def flip_if_complete(ctx, m):
    """Complete the phase if nothing is pending: the next phase begins and suspended waiters are woken."""
    c = S.context(ctx)
    M = S.mbarriers(ctx)[m]
    if M.pending != 0 or M.tx != 0:
        return
    emit(ctx, c.now, _FLIPPED, S.ctas(ctx)[M.cta].id, -1, -1, 0, -1, M.identity, M.phase, 0, 0)
    M.phase += 1
    M.pending = M.expected
    c.progress += 1
    T = S.timing(ctx)
    wake_waiters(ctx, M.cta, _WAIT, M.identity, c.now + T.mbarrier_wake_cycles, T.mbarrier_wake_parted_cycles)


@inner
def arrive(ctx, m, count):
    """Count arrivals. Returns a status."""
    c = S.context(ctx)
    M = S.mbarriers(ctx)[m]
    if M.pending < count:
        return fail(ctx, faults.MBARRIER_ARRIVALS, M.identity, count, M.pending)
    M.pending -= count
    c.progress += 1
    emit_here(ctx, _ARRIVED, -1, M.identity, count, M.pending, M.phase)
    flip_if_complete(ctx, m)
    return S.S_NEXT


@inner
def expect(ctx, m, size_bytes):
    """Raise the tx-count by bytes that copies will complete. Returns a status."""
    c = S.context(ctx)
    M = S.mbarriers(ctx)[m]
    M.tx += size_bytes
    c.progress += 1
    emit_here(ctx, _EXPECTED, -1, M.identity, size_bytes, M.tx, M.phase)
    if M.tx >= RANGE or M.tx <= -RANGE:
        return fail(ctx, faults.MBARRIER_OVERFLOW, M.identity, M.tx, 1)
    return S.S_NEXT


@inner
def complete_tx(ctx, m, size_bytes, warp, pc, op):
    """Lower the tx-count by bytes that a copy wrote, and complete the phase if that was the last thing missing."""
    c = S.context(ctx)
    M = S.mbarriers(ctx)[m]
    M.tx -= size_bytes
    c.progress += 1
    emit(ctx, c.now, _COMPLETED_TX, S.ctas(ctx)[M.cta].id, warp, pc, 0, op, M.identity, size_bytes, M.tx, M.phase)
    flip_if_complete(ctx, m)


@inner
def state_word(M):
    """Return the 64-bit state as sm_90 encodes it. Measured: from the machine code of arrive and pending_count: phase in bit
    63, 2**20 - pending in 62:43, 2**20 - expected in 20:1."""
    return ((M.phase & 1) << 63) | (((RANGE - M.pending) & (RANGE - 1)) << 43) | (((RANGE - M.expected) & (RANGE - 1)) << 1)


def init(regs, mask, ops, ctx):
    """[a], count."""
    c = S.context(ctx)
    w = S.warps(ctx)[c.warp]
    offset = current(ctx).imm0
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        address = get(regs, operand(ops, 0), lane) + offset
        count = get(regs, operand(ops, 1), lane)
        slot, at = cta_and_offset(ctx, w.cta, address)
        if at & 7:
            return fail(ctx, faults.MBARRIER_MISALIGNED, at, 0, 0)
        if slot != w.cta or at + 8 > c.shared_size:
            return fail(ctx, faults.OUT_OF_RANGE_SHARED, address, 8, c.shared_size)
        if count < 1 or count >= RANGE:
            return fail(ctx, faults.MBARRIER_COUNT, count, 0, 0)
        m = find(ctx, slot, at)
        if m < 0:
            C = S.ctas(ctx)[slot]
            if C.mbarriers >= c.mbarriers_per_cta:
                return fail(ctx, faults.MBARRIER_TOO_MANY, c.mbarriers_per_cta, 0, 0)
            m = slot * c.mbarriers_per_cta + C.mbarriers
            C.mbarriers += 1
            i32(c.mbarrier_index + slot * (c.shared_stride // 8) * 4, c.shared_stride // 8)[at >> 3] = m
        M = S.mbarriers(ctx)[m]
        M.identity, M.live, M.cta, M.offset = c.next_mbarrier, 1, slot, at
        M.pending, M.expected, M.phase, M.tx, M.init_pc = count, count, 0, 0, c.pc
        c.next_mbarrier += 1
        c.progress += 1
        emit_here(ctx, _INITIALISED, -1, M.identity, S.ctas(ctx)[slot].id, count, shared_offset(ctx, slot, at))
    return S.S_NEXT


def invalidate(regs, mask, ops, ctx):
    """[a]."""
    c = S.context(ctx)
    for lane in range(32):
        if (mask >> lane) & 1:
            m = require(ctx, get(regs, operand(ops, 0), lane) + current(ctx).imm0)
            if m < 0:
                return S.S_ERROR
            M = S.mbarriers(ctx)[m]
            M.live = 0
            i32(c.mbarrier_index + M.cta * (c.shared_stride // 8) * 4, c.shared_stride // 8)[M.offset >> 3] = -1
            emit_here(ctx, _INVALIDATED, -1, M.identity, 0, 0, 0)
    return S.S_NEXT


def arrive_handler(regs, mask, ops, ctx):
    """state, [a], count or bytes; imm1: 0 arrive, 1 arrive.expect_tx, 2 arrive_drop, 3 arrive_drop.expect_tx, 4 noComplete."""
    c = S.context(ctx)
    ins = current(ctx)
    kind = ins.imm1
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        m = require(ctx, get(regs, operand(ops, 1), lane) + ins.imm0)
        if m < 0:
            return S.S_ERROR
        M = S.mbarriers(ctx)[m]
        value = get(regs, operand(ops, 2), lane)
        put(regs, operand(ops, 0), lane, state_word(M))
        count = value
        if kind == 1 or kind == 3:
            count = 1
            if expect(ctx, m, value) != S.S_NEXT:
                return S.S_ERROR
        if kind == 2 or kind == 3:
            M.expected -= count
            emit_here(ctx, _DROPPED, -1, M.identity, count, M.expected, M.phase)
        if count < 1 or count >= RANGE:
            return fail(ctx, faults.MBARRIER_COUNT, count, 0, 0)
        if arrive(ctx, m, count) != S.S_NEXT:
            return S.S_ERROR
    c.latency = S.timing(ctx).mbarrier_arrive_cycles
    c.issue = S.timing(ctx).mbarrier_expect_cycles if kind == 1 or kind == 3 else 2
    return S.S_NEXT


def expect_tx(regs, mask, ops, ctx):
    """[a], bytes."""
    for lane in range(32):
        if (mask >> lane) & 1:
            m = require(ctx, get(regs, operand(ops, 0), lane) + current(ctx).imm0)
            if m < 0:
                return S.S_ERROR
            if expect(ctx, m, get(regs, operand(ops, 1), lane)) != S.S_NEXT:
                return S.S_ERROR
    return S.S_NEXT


def complete_tx_handler(regs, mask, ops, ctx):
    """[a], bytes: what a copy does when it has written."""
    c = S.context(ctx)
    for lane in range(32):
        if (mask >> lane) & 1:
            m = require(ctx, get(regs, operand(ops, 0), lane) + current(ctx).imm0)
            if m < 0:
                return S.S_ERROR
            complete_tx(ctx, m, get(regs, operand(ops, 1), lane), S.warps(ctx)[c.warp].id, c.pc, -1)
    return S.S_NEXT


@inner
def parity_of(given, is_parity):
    """Return the parity that a wait asks for. Triton gives a truth value of all ones; silicon looks at the lowest bit alone. Measured:
    validate/silicon/tma_limits.json."""
    if is_parity == 0:
        return (given >> 63) & 1
    return 1 if given == 0xFFFFFFFF else given


def wait(regs, mask, ops, ctx):
    """p, [a], parity or state; imm1: 1 try_wait (may suspend), imm2: 1 the operand is a parity, 0 a state."""
    c = S.context(ctx)
    ins = current(ctx)
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    missing = -1
    missing_parity = 0
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        m = require(ctx, get(regs, operand(ops, 1), lane) + ins.imm0)
        if m < 0:
            return S.S_ERROR
        parity = parity_of(get(regs, operand(ops, 2), lane), ins.imm2)
        if parity != 0 and parity != 1:
            return fail(ctx, faults.MBARRIER_PARITY, parity, 0, 0)
        M = S.mbarriers(ctx)[m]
        done = (M.phase & 1) != parity
        put(regs, operand(ops, 0), lane, 1 if done else 0)
        if not done and missing < 0:
            missing, missing_parity = m, parity
    # A suspension may end at any time: some schedules let it end at once.
    is_suspended = missing >= 0 and ins.imm1 == 1 and node.expired == 0
    if is_suspended and not (c.schedule & WARPS_DELAYED and draw(ctx, 4) == 0):
        M = S.mbarriers(ctx)[missing]
        return block(ctx, _WAIT, M.identity, missing_parity, M.phase)
    last = -1
    for lane in range(32):
        if (mask >> lane) & 1:
            m = require(ctx, get(regs, operand(ops, 1), lane) + ins.imm0)
            if m != last:
                M = S.mbarriers(ctx)[m]
                done = get(regs, operand(ops, 0), lane)
                parity = parity_of(get(regs, operand(ops, 2), lane), ins.imm2)
                emit_here(ctx, _WAITED, -1, M.identity, parity, done, M.phase - 1 if done else -1)
            last = m
    node.expired = 0
    c.latency = S.timing(ctx).mbarrier_wait_latency
    c.issue = 2
    return S.S_NEXT


def pending_count(regs, mask, ops, ctx):
    """count, state."""
    for lane in range(32):
        if (mask >> lane) & 1:
            state = get(regs, operand(ops, 1), lane)
            put(regs, operand(ops, 0), lane, (RANGE - ((state >> 43) & (RANGE - 1))) & (RANGE - 1))
    return S.S_NEXT


def barrier_operand(instruction: Instruction, address: Operand, environment: Environment) -> tuple[Operand, int]:
    """Return the address of an mbarrier, as an operand and an offset."""
    base, offset = address_operand(instruction, address, environment, "mbarrier")
    check_address(instruction, base, environment)
    order = next((m for m in instruction.modifiers if m in ("release", "acquire", "relaxed")), None)
    scope = next((m for m in instruction.modifiers if m in ("cta", "cluster")), None)
    if (order is None) != (scope is None):
        rule = f"a scope, .cta or .cluster, after .{order}" if order else f"an order, such as .relaxed, before .{scope}"
        raise refuse(instruction, f"{instruction.opcode} must have {rule}", environment)
    return base, offset


@machine_instruction("mbarrier.init")
def lower_init(instruction: Instruction, environment: Environment) -> MachineOp:
    base, offset = barrier_operand(instruction, instruction.operands[0], environment)
    count = instruction.operands[1]
    if isinstance(count, Imm) and not 1 <= count.value < RANGE:
        raise refuse(instruction, f"mbarrier count must be from 1 to 1,048,575, not {count.value:,}", environment)
    return MachineOp(init, (), ((base, "u64"), (count, "u32")), (offset,))


@machine_instruction("mbarrier.inval")
def lower_inval(instruction: Instruction, environment: Environment) -> MachineOp:
    base, offset = barrier_operand(instruction, instruction.operands[0], environment)
    return MachineOp(invalidate, (), ((base, "u64"),), (offset,))


@machine_instruction("mbarrier.arrive", "mbarrier.arrive_drop")
def lower_arrive(instruction: Instruction, environment: Environment) -> MachineOp:
    operands = instruction.operands
    has_state = len(operands) > 1 and not _is_address(operands[0])
    state = operands[0] if has_state else Sink()
    rest = operands[1:] if has_state else operands
    base, offset = barrier_operand(instruction, rest[0], environment)
    value = rest[1] if len(rest) > 1 else Imm(1)
    drop = instruction.opcode.startswith("mbarrier.arrive_drop")
    kind = (2 if drop else 4) if instruction.has("noComplete") else (2 if drop else 0) + (1 if instruction.has("expect_tx") else 0)
    if kind in (1, 3) and len(rest) < 2:
        raise refuse(instruction, f"{instruction.opcode} must have a byte count", environment)
    return MachineOp(arrive_handler, (state,), ((base, "u64"), (value, "u32")), (offset, kind), latency=8)


@machine_instruction("mbarrier.expect_tx", "mbarrier.complete_tx")
def lower_tx(instruction: Instruction, environment: Environment) -> MachineOp:
    base, offset = barrier_operand(instruction, instruction.operands[0], environment)
    handler = expect_tx if instruction.has("expect_tx") else complete_tx_handler
    return MachineOp(handler, (), ((base, "u64"), (instruction.operands[1], "u32")), (offset,))


@machine_instruction("mbarrier.test_wait", "mbarrier.try_wait")
def lower_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    done, address, phase = instruction.operands[:3]
    base, offset = barrier_operand(instruction, address, environment)
    parity = instruction.has("parity")
    suspends = int(instruction.opcode.startswith("mbarrier.try_wait"))
    ins = ((base, "u64"), (phase, "u32" if parity else "u64"))
    return MachineOp(wait, (done,), ins, (offset, suspends, int(parity)), latency=40)


@machine_instruction("mbarrier.pending_count")
def lower_pending_count(instruction: Instruction, environment: Environment) -> MachineOp:
    count, state = instruction.operands
    return MachineOp(pending_count, (count,), ((state, "u64"),), pipe="alu")


def _is_address(thing: object) -> bool:
    return isinstance(thing, Address)
