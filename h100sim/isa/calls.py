"""call, the return of a function, and brx.idx.

A call takes its lanes to the function with a new frame on their stacks; the linker has decided what moves between the frames
(see :mod:`h100sim.linker`). Lanes that call different functions, or that do not call at all, part and meet again behind the
call. A call of a function of the device runtime (``vprintf``, ``malloc``, ...) is done by Python, see
:mod:`h100sim.device_functions`.

Spec: PTX ISA 9.1, "Control Flow Instructions: call, ret, brx.idx".
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..lanes import DEPTH, jump, part
from ..linker import Call
from ..memory.windows import FUNCTION_BYTES, FUNCTION_WINDOW
from ..native import fill_bytes, i32, i64, inner, u8
from ..ptx.module import Instruction, Operand, Reg
from ..services import fail
from .machine import WIDE, Environment, MachineOp, current, first_lane, get, machine_instruction, operand, put

_MANY = 1 << 30


@inner
def _save(regs, op, lane, address, size):
    """Write one lane of a row to memory."""
    low = get(regs, op | WIDE if size == 16 else op, lane)
    data = u8(address, 16)
    for b in range(min(size, 8)):
        data[b] = (low >> (8 * b)) & 0xFF
    if size == 16:
        high = get(regs, (op | WIDE) + 256, lane)
        for b in range(8):
            data[8 + b] = (high >> (8 * b)) & 0xFF


@inner
def _restore(regs, op, lane, address, size):
    """Read one lane of a row from memory."""
    data = u8(address, 16)
    low = 0
    for b in range(min(size, 8)):
        low |= int(data[b]) << (8 * b)
    put(regs, op | WIDE if size == 16 else op, lane, low)
    if size == 16:
        high = 0
        for b in range(8):
            high |= int(data[8 + b]) << (8 * b)
        put(regs, (op | WIDE) + 256, lane, high)


@inner
def _copy(target, source, size):
    to, from_ = u8(target, size), u8(source, size)
    for b in range(size):
        to[b] = from_[b]


@inner
def _frame_pointer(ctx, lane, frame):
    """Return the host address of a byte of a lane's stack."""
    c = S.context(ctx)
    return c.local + (c.warp * 32 + lane) * c.local_bytes + frame


# The words of a call, at ``ops`` behind its rows (see _words): the number of arguments, results, kept registers and targets, then
# four numbers for each: (row + 1 or 0 for memory, offset in the caller's frame, offset in the callee's frame, bytes) for the first
# three, (number of the function, first instruction, bytes of the frame, 0) for targets.


@inner
def _push_frame(ctx, regs, ops, words, lane, frame_op, bytes_):
    """Make the callee's frame on a lane's stack: header, arguments, and the caller's kept registers in its own frame."""
    c = S.context(ctx)
    ins = current(ctx)
    n_arguments, n_results, n_kept = words[0], words[1], words[2]
    frame = get(regs, frame_op, lane)
    below = _frame_pointer(ctx, lane, frame)
    above = below + ins.imm1
    fill_bytes(above, S.POISON, bytes_)
    header = i64(above, 2)
    header[0], header[1] = c.pc + 1, frame
    for k in range(n_arguments):
        at = 4 + 4 * k
        row, source, target, size = words[at], words[at + 1], words[at + 2], words[at + 3]
        if row > 0:
            _save(regs, operand(ops, row - 1), lane, above + target, size)
        else:
            _copy(above + target, below + source, size)
    for k in range(n_kept):
        at = 4 + 4 * (n_arguments + n_results + k)
        _save(regs, operand(ops, words[at] - 1), lane, below + words[at + 1], words[at + 3])
    put(regs, frame_op, lane, frame + ins.imm1)


def call_function(regs, mask, ops, ctx):
    """imm0: number of rows; imm1: bytes of the caller's frame; imm2: 1 for an indirect call; imm3: the row of %frame, behind which
    is that of the target of an indirect call; imm4: the row of %dynamic, 0 if nothing takes memory from the stack."""
    c = S.context(ctx)
    ins = current(ctx)
    words = i32(ops + 4 * ins.imm0, _MANY)
    frame_op, target_op = operand(ops, ins.imm3), operand(ops, ins.imm3 + 1)
    first = 4 + 4 * (words[0] + words[1] + words[2])
    taken, chosen = mask, -1
    if ins.imm2:
        address = get(regs, target_op, first_lane(mask))
        for k in range(words[3]):
            if address == FUNCTION_WINDOW + FUNCTION_BYTES * words[first + 4 * k]:
                chosen = k
        taken = 0
        for lane in range(32):
            if (mask >> lane) & 1 and get(regs, target_op, lane) == address:
                taken |= 1 << lane
        if chosen < 0:
            return fail(ctx, faults.CALL_TARGET, address, 0, 0)
    else:
        chosen = 0
    target, bytes_ = words[first + 4 * chosen + 1], words[first + 4 * chosen + 2]
    for lane in range(32):
        if (taken >> lane) & 1:
            depth = get(regs, frame_op, lane) + ins.imm1 + bytes_
            if ins.imm4 > 0:
                depth += get(regs, operand(ops, ins.imm4), lane)
            if depth > c.local_bytes:
                return fail(ctx, faults.STACK_OVERFLOW, c.local_bytes, depth, lane)
            _push_frame(ctx, regs, ops, words, lane, frame_op, bytes_)
    c.issue = S.timing(ctx).branch_cycles
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    if taken == node.mask:
        node.pc = target
        node.reconverge += DEPTH
        return S.S_JUMPED
    following = c.pc if mask & ~taken else c.pc + 1
    n = part(ctx, c.warp, c.node, taken, target, following, c.pc + 1)
    if n < 0:
        return S.S_ERROR
    S.nodes(ctx)[c.warp * S.NODES_PER_WARP + n].reconverge += DEPTH
    return S.S_JUMPED


def return_from_function(regs, mask, ops, ctx):
    """The lanes of a group share their calls, so they all return to one place. Row 0 is %frame."""
    c = S.context(ctx)
    frame_op = operand(ops, 0)
    first = first_lane(mask)
    back = i64(_frame_pointer(ctx, first, get(regs, frame_op, first)), 2)[0]
    call = S.instructions(ctx)[back - 1]
    words = i32(call.ops + 4 * call.imm0, _MANY)
    n_arguments, n_results, n_kept = words[0], words[1], words[2]
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        above = _frame_pointer(ctx, lane, get(regs, frame_op, lane))
        frame = i64(above, 2)[1]
        below = _frame_pointer(ctx, lane, frame)
        for k in range(n_kept):
            at = 4 + 4 * (n_arguments + n_results + k)
            _restore(regs, operand(call.ops, words[at] - 1), lane, below + words[at + 1], words[at + 3])
        for k in range(n_results):
            at = 4 + 4 * (n_arguments + k)
            row, target, source, size = words[at], words[at + 1], words[at + 2], words[at + 3]
            if row > 0:
                _restore(regs, operand(call.ops, row - 1), lane, above + source, size)
            else:
                _copy(below + target, above + source, size)
        put(regs, frame_op, lane, frame)
    c.issue = S.timing(ctx).branch_cycles
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    node.pc = back
    node.reconverge -= DEPTH
    return S.S_JUMPED


def call_device_function(regs, mask, ops, ctx):
    """Wait until Python has done it for all lanes."""
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    if W.served:
        W.served = 0
        c.progress += 1
        return S.S_NEXT
    c.host = S.H_DEVICE_FUNCTION
    return S.S_HOST


def branch_indexed(regs, mask, ops, ctx):
    """Row 0 is the index; imm0 targets follow."""
    c = S.context(ctx)
    ins = current(ctx)
    targets = i32(ops + 4, ins.imm0)
    row = operand(ops, 0)
    index = get(regs, row, first_lane(mask)) & 0xFFFFFFFF
    if index >= ins.imm0:
        return fail(ctx, faults.BRANCH_INDEX, index, ins.imm0, 0)
    target = targets[index]
    taken = 0
    for lane in range(32):
        other = get(regs, row, lane) & 0xFFFFFFFF
        if (mask >> lane) & 1 and other < ins.imm0 and targets[other] == target:
            taken |= 1 << lane
    c.issue = S.timing(ctx).branch_cycles
    node = S.nodes(ctx)[c.warp * S.NODES_PER_WARP + c.node]
    if taken == node.mask:
        jump(ctx, c.warp, c.node, target)
        return S.S_JUMPED
    following = c.pc if mask & ~taken else c.pc + 1
    return S.S_JUMPED if part(ctx, c.warp, c.node, taken, target, following, ins.reconverge) >= 0 else S.S_ERROR


@machine_instruction("call")
def lower_call(instruction: Instruction, environment: Environment) -> MachineOp:
    call = environment.linked.calls[environment.pc]
    frame = Reg(environment.linked.frame)
    target = instruction.operands[0] if isinstance(instruction.operands[0], Reg) else frame
    arguments = tuple((slot.operand, f"b{8 * slot.size}") for slot, _ in call.arguments if slot.operand is not None)
    results: tuple[Operand, ...] = tuple(slot.operand for slot, _ in call.results if slot.operand is not None)
    if call.device_function:
        return MachineOp(call_device_function, results, arguments, pipe="alu")
    # %frame changes with every call: it is in no scoreboard, like the condition code.
    rows = len(results) + len(arguments) + 2 + len(call.kept)
    dynamic = rows - 1 if environment.linked.dynamic else 0  # the last of what is kept
    integers = (rows, call.frame_bytes, int(target is not frame), len(results) + len(arguments), dynamic)
    unscored = (frame, target, *(Reg(register) for register, _, _ in call.kept))
    return MachineOp(call_function, results, arguments, integers, pipe="alu", unscored=unscored, words=_words(call))


def _words(call: Call) -> tuple[int, ...]:
    """Return the numbers that a call's handler reads behind its rows."""
    words = [len(call.arguments), len(call.results), len(call.kept), len(call.targets)]
    # Rows: results, arguments, %frame, target, kept registers.
    n_results = sum(slot.operand is not None for slot, _ in call.results)
    row = n_results
    for slot, offset in call.arguments:
        words += [row + 1 if slot.operand is not None else 0, slot.offset, offset, slot.size]
        row += slot.operand is not None
    next_result = 0
    for slot, offset in call.results:
        words += [next_result + 1 if slot.operand is not None else 0, slot.offset, offset, slot.size]
        next_result += slot.operand is not None
    for k, (_, offset, size) in enumerate(call.kept):
        words += [row + 2 + k + 1, offset, 0, size]
    for number, start, bytes_ in call.targets:
        words += [number, start, bytes_, 0]
    return tuple(words)


def lower_return(instruction: Instruction, environment: Environment) -> MachineOp:
    """The one return record of a function; the linker gives it ``%frame``."""
    return MachineOp(return_from_function, (), (), pipe="alu", unscored=instruction.operands)


@machine_instruction("brx.idx")
def lower_indexed_branch(instruction: Instruction, environment: Environment) -> MachineOp:
    targets = environment.linked.jumps[environment.pc]
    return MachineOp(branch_indexed, (), ((instruction.operands[0], "u32"),), (len(targets),), pipe="alu", words=targets)
