"""Tensor maps in memory: the decoded plans that copies use, tensormap.replace, and the fences of the tensormap proxy.

A copy decodes its map on first use, and the plan is kept until a fence.proxy.tensormap acquires the address: like the engine's
own cache, it does not see what a kernel writes to the map in between. A map that a kernel builds from zeroes with
tensormap.replace is as good as one that the driver encoded.

Spec: PTX ISA 9.1, "tensormap.replace", "tensormap.cp_fenceproxy", "membar, fence: fence.proxy.tensormap". Measured: which bits of
the map each field is, in validate/silicon/tensor_map_fields.json.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..isa.machine import (
    Environment,
    MachineOp,
    current,
    first_lane,
    get,
    immediate,
    machine_instruction,
    operand,
    refuse,
)
from ..layouts.banks import STORE
from ..memory.windows import CODES, GLOBAL, PARAM_WINDOW, SHARED, WINDOW_BYTES, WINDOWS, pointer
from ..native import copy_bytes, i64, inner, u32
from ..ptx.module import Imm, Instruction, Operand, Symbol
from ..services import emit_here, fail
from ..tma.plan import PLAN_WORDS
from ..trace import Access, Event, Fence
from .global_path import lines_out
from .load_store import address_operand, record, shared_time, space_name
from .tma_engine import map_is_there

_FENCED = int(Event.FENCED)
_ACQUIRED, _RELEASED = int(Fence.PROXY_TENSORMAP_ACQUIRE), int(Fence.PROXY_TENSORMAP_RELEASE)
_READ, _WRITE = int(Access.READ), int(Access.WRITE)

#: The address of a plan that no copy finds any more; its place is used again once no copy in flight needs it.
FORGOTTEN = -1

FIELDS = (
    "global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
    "elemtype", "interleave_layout", "swizzle_mode", "fill_mode",
)  # fmt: skip
_GLOBAL_ADDRESS, _RANK, _BOX_DIM, _GLOBAL_DIM, _GLOBAL_STRIDE, _ELEMENT_STRIDE, _ELEMTYPE, _INTERLEAVE, _SWIZZLE, _FILL = range(10)
#: How many ordinals a field has, and how many values an immediate field. Spec: "tensormap.replace", Table 33.
_ORDINALS = {"box_dim": 5, "global_dim": 5, "global_stride": 4, "element_stride": 5}
_VALUES = {"elemtype": 13, "interleave_layout": 3, "swizzle_mode": 4, "fill_mode": 2}
#: Element types 11 and 12 (tf32, tf32.ftz) are f32 and f32.ftz with the rounding bit.
_TF32, _ROUNDS_BIT = 11, 16


# --- plans ------------------------------------------------------------------------------------------------------------


@inner
def plan_of(ctx, address):
    """Return the number of the decoded tensor map at a generic address, or -1: the host then decodes it."""
    c = S.context(ctx)
    addresses = i64(c.plan_addresses, c.n_plans)
    for k in range(c.n_plans):
        if addresses[k] == address:
            return k
    c.host, c.error_a = S.H_TENSOR_MAP, address
    return -1


@inner
def plan(ctx, k):
    return i64(S.context(ctx).plans + k * PLAN_WORDS * 8, PLAN_WORDS)


@inner
def forget(ctx, address):
    """Let the next copy that uses the map at an address decode it anew."""
    c = S.context(ctx)
    addresses = i64(c.plan_addresses, c.n_plans)
    for k in range(c.n_plans):
        if addresses[k] == address:
            addresses[k] = FORGOTTEN


# --- changing a map ---------------------------------------------------------------------------------------------------


@inner
def put_bits(words, word, shift, bits, value):
    """Write a field of a map."""
    ones = ((1 << bits) - 1) << shift
    words[word] = np.uint32((np.int64(words[word]) & ~ones) | ((value << shift) & ones))


@inner
def write_field(words, field, ordinal, value):
    """Write one field of the 32 words of a map, as the layout in h100sim/tma/encoding.py says."""
    if field == _GLOBAL_ADDRESS:
        put_bits(words, 0, 0, 32, value & 0xFFFFFFFF)
        put_bits(words, 1, 0, 32, (value >> 32) & 0xFFFFFFFF)
    elif field == _RANK:
        put_bits(words, 2, 4, 3, value)
    elif field == _BOX_DIM:
        put_bits(words, 14 if ordinal else 13, 8 * (ordinal - 1) if ordinal else 24, 8, value - 1)
    elif field == _GLOBAL_DIM:
        put_bits(words, 8 + ordinal, 0, 32, value - 1)
    elif field == _GLOBAL_STRIDE:
        put_bits(words, 3 + ordinal, 0, 32, (value >> 4) & 0xFFFFFFFF)
        put_bits(words, 7, 4 * ordinal, 4, value >> 36)
    elif field == _ELEMENT_STRIDE:
        put_bits(words, 13, 3 * ordinal, 3, value - 1)
    elif field == _ELEMTYPE:
        put_bits(words, 2, 7, 4, value - 4 if value >= _TF32 else value)
        if value >= _TF32:  # Silicon never clears the bit: see the module's Measured.
            put_bits(words, 2, _ROUNDS_BIT, 1, 1)
    elif field == _INTERLEAVE:
        put_bits(words, 2, 11, 2, value)
    elif field == _SWIZZLE:
        put_bits(words, 2, 13, 2, value)
        put_bits(words, 2, 22, 1, 0)  # The third bit of later chips' swizzles.
    else:
        put_bits(words, 2, 15, 1, value)


def replace(regs, mask, ops, ctx):
    """[map], value; imm0 offset, imm1 space, imm2 field, imm3 ordinal."""
    c, ins = S.context(ctx), current(ctx)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        address = get(regs, operand(ops, 0), lane) + ins.imm0
        first = pointer(ctx, c.warp, lane, ins.imm1, address, 64)
        if first == 0 or pointer(ctx, c.warp, lane, ins.imm1, address + 64, 64) == 0:
            return S.S_ERROR
        write_field(u32(first, 32), ins.imm2, ins.imm3, get(regs, operand(ops, 1), lane))
    c.progress += 1
    if ins.imm1 == SHARED:
        shared_time(ctx, regs, ops, 0, ins.imm0, mask & -mask, 4, False, STORE)
    else:
        c.issue = S.timing(ctx).shared_issue_cycles
    record(ctx, regs, ops, 0, ins.imm0, mask, 128, ins.imm1, _READ | _WRITE)
    return S.S_NEXT


def copy_and_fence(regs, mask, ops, ctx):
    """[global], [shared]; imm0, imm1 address offsets: copy a map and release it to the tensormap proxy."""
    c, ins = S.context(ctx), current(ctx)
    alive = S.warps(ctx)[c.warp].alive
    if mask != alive:
        return fail(ctx, faults.DIVERGENT_COLLECTIVE, mask, alive, 0)
    lane = first_lane(mask)
    to, source = get(regs, operand(ops, 0), lane) + ins.imm0, get(regs, operand(ops, 1), lane) + ins.imm1
    for half in range(2):
        target = pointer(ctx, c.warp, lane, GLOBAL, to + 64 * half, 64)
        if target == 0:
            return S.S_ERROR
        held = pointer(ctx, c.warp, lane, SHARED, source + 64 * half, 64)
        if held == 0:
            return S.S_ERROR
        copy_bytes(target, held, 64)
    c.progress += 1
    record(ctx, regs, ops, 1, ins.imm1, 1 << lane, 128, SHARED, _READ)
    record(ctx, regs, ops, 0, ins.imm0, 1 << lane, 128, GLOBAL, _WRITE)
    emit_here(ctx, _FENCED, -1, _RELEASED, 0, 0, 0)
    c.issue = lines_out(ctx, to, 128, 1, 128) - c.now
    return S.S_NEXT


def acquire(regs, mask, ops, ctx):
    """[map]; imm0 offset: what was released at the map's address is seen by the copies that follow."""
    ins = current(ctx)
    for lane in range(32):
        if (mask >> lane) & 1:
            forget(ctx, get(regs, operand(ops, 0), lane) + ins.imm0)
    emit_here(ctx, _FENCED, -1, _ACQUIRED, 0, 0, 0)
    S.context(ctx).issue = S.timing(ctx).fence_cycles
    return S.S_NEXT


# --- lowering ---------------------------------------------------------------------------------------------------------


def map_operand(instruction: Instruction, address: Operand, environment: Environment) -> tuple[Operand, int]:
    """Return the generic address of a tensor map, as an operand and an offset."""
    base, offset = address_operand(instruction, address, environment, "tensor map")
    if isinstance(base, Symbol) and environment.space_of(base) in ("param", "const"):
        offset += WINDOWS[environment.space_of(base)]
    return base, offset


@machine_instruction("tensormap.replace")
def lower_replace(instruction: Instruction, environment: Environment) -> MachineOp:
    name = next((m for m in instruction.modifiers if m in FIELDS), None)
    if name is None or not instruction.has("tile"):
        raise refuse(instruction, f"{instruction.opcode} must name a field of sm_90a: {', '.join(FIELDS)}", environment)
    space = space_name(instruction)
    if space not in ("", "global", "shared"):
        raise refuse(instruction, f"{instruction.opcode} state space must be global or shared::cta, not {space}", environment)
    operands = list(instruction.operands)
    base, offset = address_operand(instruction, operands.pop(0), environment, "tensor map")
    ordinal = 0
    if name in _ORDINALS:
        ordinal = immediate(instruction, operands.pop(0), "ordinal", environment)
        if not 0 <= ordinal < _ORDINALS[name]:
            raise refuse(
                instruction,
                f"{instruction.base} {name} ordinal must be from 0 to {_ORDINALS[name] - 1}, not {ordinal}",
                environment,
            )
    value = operands.pop(0)
    if name in _VALUES:
        code = immediate(instruction, value, name, environment)
        if not 0 <= code < _VALUES[name]:
            raise refuse(
                instruction, f"{instruction.base} {name} must be from 0 to {_VALUES[name] - 1} on sm_90a, not {code}", environment
            )
    ins = ((base, "u64"), (value, instruction.types[-1]))
    return MachineOp(replace, (), ins, (offset, CODES[space], FIELDS.index(name), ordinal))


@machine_instruction("tensormap.cp_fenceproxy")
def lower_copy_and_fence(instruction: Instruction, environment: Environment) -> MachineOp:
    dst, dst_offset = address_operand(instruction, instruction.operands[0], environment)
    src, src_offset = address_operand(instruction, instruction.operands[1], environment)
    _require_size(instruction, environment)
    return MachineOp(copy_and_fence, (), ((dst, "u64"), (src, "u64")), (dst_offset, src_offset))


@machine_instruction("fence.proxy.tensormap::generic.acquire")
def lower_acquire(instruction: Instruction, environment: Environment) -> MachineOp:
    if len(instruction.operands) != 2:
        raise refuse(instruction, f"{instruction.opcode} must have the address of a tensor map and its size, 128", environment)
    base, offset = map_operand(instruction, instruction.operands[0], environment)
    _require_size(instruction, environment)
    return MachineOp(acquire, (), ((base, "u64"),), (offset,))


def _require_size(instruction: Instruction, environment: Environment) -> None:
    size = instruction.operands[-1]
    if not isinstance(size, Imm) or size.value != 128:
        found = size.value if isinstance(size, Imm) else "a register"
        raise refuse(instruction, f"{instruction.opcode} size must be 128, that of a tensor map, not {found}", environment)


def fetch_map(regs, mask, ops, ctx):
    """[map]; imm0 address offset: let the engine know a map that is a parameter before the first copy that uses it."""
    c = S.context(ctx)
    address = get(regs, operand(ops, 0), first_lane(mask)) + current(ctx).imm0
    if address < PARAM_WINDOW or address >= PARAM_WINDOW + WINDOW_BYTES:
        return S.S_NEXT
    k = plan_of(ctx, address)
    if k < 0:
        return S.S_HOST
    map_is_there(ctx, c.now, k, S.timing(ctx).tma_descriptor_cycles)
    return S.S_NEXT


@machine_instruction("prefetch.tensormap", "prefetch.param.tensormap", "prefetch.const.tensormap")
def lower_prefetch(instruction: Instruction, environment: Environment) -> MachineOp:
    base, offset = map_operand(instruction, instruction.operands[0], environment)
    return MachineOp(fetch_map, (), ((base, "u64"),), (offset,))
