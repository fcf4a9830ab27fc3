"""Instructions about caches: prefetch, applypriority, discard.

None but discard changes a value. Discarded bytes have no value until they are written: they are filled with a pattern, so that a program that reads them
is not right by luck.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: prefetch", "applypriority", "discard".
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, get, machine_instruction, operand, refuse
from ..memory.windows import GLOBAL, global_pointer, space_of_generic
from ..native import fill_bytes
from ..ptx.module import Imm, Instruction
from ..services import fail
from ..trace import Access
from .load_store import address_operand, record

_LINE = 128
_WRITE = int(Access.WRITE)
#: What discarded bytes hold until they are written.
DISCARDED = 0xCD


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
