"""Instructions about caches: prefetch, createpolicy, applypriority, discard.

None but discard changes a value. A cache policy is an opaque 64-bit word, here as sm_90 encodes it; copies and loads take it and
ignore it. Discarded bytes have no value until they are written: they are filled with a pattern, so that a program that reads them
is not right by luck. Refused: createpolicy.cvt, whose operand comes from the runtime.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: prefetch", "createpolicy", "applypriority", "discard". Measured:
words of every priority, with many fractions and ranges, in validate/silicon/cache_policies.json. Assumed: a range of more than 127
blocks is cut to 127.
"""

from __future__ import annotations

import numpy as np

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, get, machine_instruction, operand, put, refuse
from ..memory.windows import GLOBAL, global_pointer, space_of_generic
from ..native import fill_bytes
from ..numerics.host_float import f32_value
from ..ptx.module import Imm, Instruction
from ..services import fail
from ..trace import Access
from .load_store import address_operand, record

_LINE = 128
_WRITE = int(Access.WRITE)
#: What discarded bytes hold until they are written.
DISCARDED = 0xCD

#: Bits of a policy: its kind in 63:60, 59 a range, 58:57 the priority of the primary part, 56 the others first.
_POLICY, _RANGE, _OTHERS_FIRST = 1 << 60, 1 << 59, 1 << 56
_PRIORITIES = {"L2::evict_unchanged": 0, "L2::evict_first": 1, "L2::evict_last": 2, "L2::evict_normal": 3}
#: A fraction is held as sixteenths less one; a range as numbers of blocks, 128 of which hold all of it.
_FRACTION_SHIFT, _BLOCK_SHIFT, _START_SHIFT, _COUNT_SHIFT = 52, 52, 44, 37
_SMALLEST_BLOCK_BITS, _BLOCKS_BITS = 12, 7


def nothing(regs, mask, ops, ctx):
    return S.S_NEXT


def on_line(regs, mask, ops, ctx):
    """[a]; imm0 offset, imm1 1 for discard: both need a whole line of global memory that is allocated."""
    c, ins = S.context(ctx), current(ctx)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        address = get(regs, operand(ops, 0), lane) + ins.imm0
        if address & (_LINE - 1):
            return fail(ctx, faults.MISALIGNED, address, _LINE, GLOBAL)
        line = global_pointer(ctx, address, _LINE) if space_of_generic(address) == GLOBAL else 0
        if line == 0:
            return fail(ctx, faults.OUT_OF_RANGE_GLOBAL, address, _LINE, GLOBAL)
        if ins.imm1 and c.values:
            fill_bytes(line, DISCARDED, _LINE)
    if ins.imm1:
        c.progress += 1
        record(ctx, regs, ops, 0, ins.imm0, mask, _LINE, GLOBAL, _WRITE)
    return S.S_NEXT


def fractional_policy(regs, mask, ops, ctx):
    """d, fraction (f32); imm0: the word without it."""
    ins = current(ctx)
    for lane in range(32):
        if (mask >> lane) & 1:
            sixteenths = np.ceil(f32_value(np.uint32(get(regs, operand(ops, 1), lane))) * np.float32(16))
            code = np.int64(min(max(np.int64(sixteenths) - 1, 0), 15))  # type: ignore[arg-type]
            put(regs, operand(ops, 0), lane, ins.imm0 | code << _FRACTION_SHIFT)
    return S.S_NEXT


def range_policy(regs, mask, ops, ctx):
    """d, [a], bytes of the primary part, bytes in all; imm0: the word without them, imm1 address offset."""
    ins = current(ctx)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        address = get(regs, operand(ops, 1), lane) + ins.imm1
        primary, total = get(regs, operand(ops, 2), lane), get(regs, operand(ops, 3), lane)
        scale = 0
        while total > 1 << (_SMALLEST_BLOCK_BITS + _BLOCKS_BITS + scale):
            scale += 1
        bits = _SMALLEST_BLOCK_BITS + scale
        blocks = ((address + primary - 1) >> bits) - (address >> bits) + 1 if primary > 0 else 0
        start = (address >> bits) & ((1 << _BLOCKS_BITS) - 1)
        word = ins.imm0 | scale << _BLOCK_SHIFT | start << _START_SHIFT | min(blocks, 127) << _COUNT_SHIFT
        put(regs, operand(ops, 0), lane, word)
    return S.S_NEXT


@machine_instruction("prefetch", "prefetchu")
def lower_prefetch(instruction: Instruction, environment: Environment) -> MachineOp:
    """A hint: an address that is not allocated does no harm."""
    return MachineOp(nothing, pipe="alu")


@machine_instruction("applypriority", "discard")
def lower_on_line(instruction: Instruction, environment: Environment) -> MachineOp:
    size = instruction.operands[-1]
    if not isinstance(size, Imm) or size.value != _LINE:
        raise refuse(instruction, f"{instruction.opcode} size must be {_LINE}", environment)
    base, offset = address_operand(instruction, instruction.operands[0], environment)
    return MachineOp(on_line, (), ((base, "u64"),), (offset, int(instruction.base == "discard")))


@machine_instruction("createpolicy.fractional", "createpolicy.range")
def lower_policy(instruction: Instruction, environment: Environment) -> MachineOp:
    priorities = [m for m in instruction.modifiers if m in _PRIORITIES]
    if (
        not priorities
        or len(priorities) > 2
        or (len(priorities) == 2 and priorities[1] not in ("L2::evict_first", "L2::evict_unchanged"))
    ):
        raise refuse(
            instruction,
            f"{instruction.opcode} must have a primary priority, and .L2::evict_first or .L2::evict_unchanged",
            environment,
        )
    word = _POLICY | _PRIORITIES[priorities[0]] << 57 | (_OTHERS_FIRST if priorities[1:] == ["L2::evict_first"] else 0)
    d, *rest = instruction.operands
    if instruction.has("fractional"):
        fraction = rest[0] if rest else Imm(0x3F800000, "f32")
        return MachineOp(fractional_policy, (d,), ((fraction, "f32"),), (word,), pipe="alu")
    base, offset = address_operand(instruction, rest[0], environment)
    ins = ((base, "u64"), (rest[1], "u32"), (rest[2], "u32"))
    return MachineOp(range_policy, (d,), ins, (word | _RANGE, offset), pipe="alu")
