"""Instructions in which lanes of a warp exchange values: elect, shfl, vote, match, redux, bar.warp.sync.

All have a member mask and wait until every member that has not ended stands at the instruction, wherever its group of lanes
was before.

Spec: PTX ISA 9.1, "Data Movement: shfl.sync", "Parallel Synchronization: elect.sync, vote.sync, match.sync, redux.sync,
bar.warp.sync". Measured: tests/data/warp_ops.npz (elect.sync picks the lowest member lane); validate/silicon/load_latency.json (latencies).
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..lanes import part
from ..native import i64, inner
from ..ptx.module import Instruction, Operand, Pair, Sink
from ..services import block, fail, gather, lanes_at, wake
from ..trace import Wait
from .machine import (
    Environment,
    MachineOp,
    current,
    first_lane,
    get,
    machine_instruction,
    operand,
    put,
    refuse,
)

_FULL = 0xFFFFFFFF
_RECONVERGENCE = int(Wait.RECONVERGENCE)
#: What lanes at a bar.warp.sync wait for; other instructions use their own number.
_ANY_WARP_BARRIER = -1
_SHUFFLES = ("idx", "up", "down", "bfly")
_VOTES = ("all", "any", "uni", "ballot")
#: Cycles of match.any for each value but the first. Measured: validate/silicon/load_latency.json, 32 values, 375 cycles with a xor.
#: Assumed: it takes value by value, and one takes as long as match.all.
_MATCH_CYCLES = 11
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor")


@inner
def members_of(ctx, regs, ops, k, mask):
    """Return the lanes that execute together, 0 if suspended, -1 after an error; operand ``k`` is the member mask."""
    members = common_members(ctx, regs, operand(ops, k), mask)
    return members if members <= 0 else gather(ctx, members)


@inner
def common_members(ctx, regs, op, mask):
    """Return the member mask of all executing lanes, or -1 after an error. Where they name different ones (the tiles of a warp),
    part them, to execute the instruction one set after the other, and return 0."""
    c = S.context(ctx)
    members = get(regs, op, first_lane(mask)) & _FULL
    same = 0
    for lane in range(32):
        if (mask >> lane) & 1 and get(regs, op, lane) & _FULL == members:
            same |= 1 << lane
    if same != mask:
        return 0 if part(ctx, c.warp, c.node, same, c.pc, c.pc, c.pc + 1) >= 0 else -1
    if mask & ~members:
        fail(ctx, faults.SHUFFLE_MASK, members, 0, 0)
        return -1
    return members


def warp_sync(regs, mask, ops, ctx):
    """members: any bar.warp.sync will do, lanes need not stand at the same one."""
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    if node.woken == 1 and node.wait == _RECONVERGENCE:
        return S.S_NEXT
    members = common_members(ctx, regs, operand(ops, 0), mask)
    if members <= 0:
        return S.S_ERROR if members < 0 else S.S_BLOCK
    if lanes_at(ctx, c.warp, _RECONVERGENCE, _ANY_WARP_BARRIER) & members != members & W.alive:
        return block(ctx, _RECONVERGENCE, _ANY_WARP_BARRIER, 0, members)
    for n in range(S.NODES_PER_WARP):
        other = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + n]
        is_waiting = other.state == S.BLOCKED and other.wait == _RECONVERGENCE and other.wait_object == _ANY_WARP_BARRIER
        if is_waiting and other.mask & members:
            wake(ctx, c.warp, n, c.now + 1)
    return S.S_NEXT


def elect(regs, mask, ops, ctx):
    """lane | p, members: the lowest member is the leader."""
    lanes = members_of(ctx, regs, ops, 2, mask)
    if lanes <= 0:
        return S.S_ERROR if lanes < 0 else S.S_BLOCK
    leader = first_lane(lanes)
    for lane in range(32):
        if (lanes >> lane) & 1:
            put(regs, operand(ops, 0), lane, leader)
            put(regs, operand(ops, 1), lane, 1 if lane == leader else 0)
    return S.S_NEXT


def shuffle(regs, mask, ops, ctx):
    """d | p, a, b, c, members; imm0: kind as in _SHUFFLES."""
    kind = current(ctx).imm0
    lanes = members_of(ctx, regs, ops, 5, mask)
    if lanes <= 0:
        return S.S_ERROR if lanes < 0 else S.S_BLOCK
    value = scratch(ctx)
    for lane in range(32):
        value[lane] = get(regs, operand(ops, 2), lane)
    for lane in range(32):
        if not (lanes >> lane) & 1:
            continue
        b = get(regs, operand(ops, 3), lane) & 31
        control = get(regs, operand(ops, 4), lane)
        clamp, segment = control & 31, (control >> 8) & 31
        high = (lane & segment) | (clamp & (31 & ~segment))
        low = lane & segment
        source = lane
        inside = True
        if kind == 0:
            source = low | (b & (31 & ~segment))
            inside = source <= high
        elif kind == 1:
            source = lane - b
            inside = source >= high
        elif kind == 2:
            source = lane + b
            inside = source <= high
        else:
            source = lane ^ b
            inside = source <= high
        if not inside:
            source = lane
        put(regs, operand(ops, 0), lane, value[source])
        put(regs, operand(ops, 1), lane, 1 if inside else 0)
    return S.S_NEXT


@inner
def scratch(ctx):
    """Return 32 words to keep values while registers change under them."""
    return i64(S.context(ctx).scratch, 32)


def vote(regs, mask, ops, ctx):
    """d, predicate, members; imm0: kind as in _VOTES."""
    kind = current(ctx).imm0
    lanes = members_of(ctx, regs, ops, 2, mask)
    if lanes <= 0:
        return S.S_ERROR if lanes < 0 else S.S_BLOCK
    ballot = 0
    for lane in range(32):
        if (lanes >> lane) & 1 and get(regs, operand(ops, 1), lane) != 0:
            ballot |= 1 << lane
    result = ballot
    if kind == 0:
        result = 1 if ballot == lanes else 0
    elif kind == 1:
        result = 1 if ballot != 0 else 0
    elif kind == 2:
        result = 1 if ballot == lanes or ballot == 0 else 0
    for lane in range(32):
        if (lanes >> lane) & 1:
            put(regs, operand(ops, 0), lane, result)
    return S.S_NEXT


def match(regs, mask, ops, ctx):
    """d | p, a, members; imm0: 1 for .all."""
    to_all = current(ctx).imm0
    lanes = members_of(ctx, regs, ops, 3, mask)
    if lanes <= 0:
        return S.S_ERROR if lanes < 0 else S.S_BLOCK
    values = 0
    for lane in range(32):
        if not (lanes >> lane) & 1:
            continue
        own = get(regs, operand(ops, 2), lane)
        same = 0
        for other in range(32):
            if (lanes >> other) & 1 and get(regs, operand(ops, 2), other) == own:
                same |= 1 << other
        values += first_lane(same) == lane
        if to_all:
            put(regs, operand(ops, 1), lane, 1 if same == lanes else 0)
            same = same if same == lanes else 0
        put(regs, operand(ops, 0), lane, same)
    if not to_all:
        S.context(ctx).latency += (values - 1) * _MATCH_CYCLES
    return S.S_NEXT


def reduce(regs, mask, ops, ctx):
    """d, a, members; imm0: operation as in _REDUCTIONS, imm1: 1 for signed."""
    ins = current(ctx)
    kind, signed = ins.imm0, ins.imm1
    lanes = members_of(ctx, regs, ops, 2, mask)
    if lanes <= 0:
        return S.S_ERROR if lanes < 0 else S.S_BLOCK
    result = 0
    first = True
    for lane in range(32):
        if not (lanes >> lane) & 1:
            continue
        value = get(regs, operand(ops, 1), lane)
        if signed and value >> 31:
            value -= 1 << 32
        if first:
            result = value
            first = False
        elif kind == 0:
            result += value
        elif kind == 1:
            result = min(result, value)
        elif kind == 2:
            result = max(result, value)
        elif kind == 3:
            result &= value
        elif kind == 4:
            result |= value
        else:
            result ^= value
    for lane in range(32):
        if (lanes >> lane) & 1:
            put(regs, operand(ops, 0), lane, result & _FULL)
    return S.S_NEXT


def _pair(operand_: Operand) -> tuple[Operand, Operand]:
    return (operand_.first, operand_.second) if isinstance(operand_, Pair) else (operand_, Sink())


@machine_instruction("bar.warp.sync")
def lower_warp_sync(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(warp_sync, (), ((instruction.operands[0], "u32"),), pipe="alu")


@machine_instruction("elect.sync")
def lower_elect(instruction: Instruction, environment: Environment) -> MachineOp:
    return MachineOp(elect, _pair(instruction.operands[0]), ((instruction.operands[1], "u32"),), pipe="alu", latency=12)


@machine_instruction("shfl.sync")
def lower_shuffle(instruction: Instruction, environment: Environment) -> MachineOp:
    kind = next((k for k in _SHUFFLES if instruction.has(k)), None)
    if kind is None:
        raise refuse(instruction, f"shfl mode must be one of {', '.join(_SHUFFLES)}, not {instruction.opcode}", environment)
    d, a, b, c, members = instruction.operands
    ins = ((a, "b32"), (b, "u32"), (c, "u32"), (members, "u32"))
    return MachineOp(shuffle, _pair(d), ins, (_SHUFFLES.index(kind),), latency=26, issue=4)


@machine_instruction("vote.sync")
def lower_vote(instruction: Instruction, environment: Environment) -> MachineOp:
    kind = next((k for k in _VOTES if instruction.has(k)), None)
    if kind is None:
        raise refuse(instruction, f"vote mode must be one of {', '.join(_VOTES)}, not {instruction.opcode}", environment)
    d, p, members = instruction.operands
    return MachineOp(vote, (d,), ((p, "pred"), (members, "u32")), (_VOTES.index(kind),), pipe="alu", latency=4)


@machine_instruction("match.any.sync", "match.all.sync", "match.sync.any", "match.sync.all")
def lower_match(instruction: Instruction, environment: Environment) -> MachineOp:
    d, a, members = instruction.operands
    ins = ((a, instruction.types[-1]), (members, "u32"))
    return MachineOp(match, _pair(d), ins, (int(instruction.has("all")),), latency=24)


@machine_instruction("redux.sync")
def lower_reduce(instruction: Instruction, environment: Environment) -> MachineOp:
    kind = next((k for k in _REDUCTIONS if instruction.has(k)), None)
    if kind is None or instruction.types[-1] not in ("u32", "s32", "b32"):
        raise refuse(instruction, f"{instruction.opcode} is not an sm_90a reduction", environment)
    d, a, members = instruction.operands
    integers = (_REDUCTIONS.index(kind), int(instruction.types[-1] == "s32"))
    return MachineOp(reduce, (d,), ((a, "b32"), (members, "u32")), integers, latency=43)
