"""ld, st: loads and stores of every state space, width and vector length; cvta, isspacep, mapa, getctarank.

Left out: textures and surfaces (refused). Cache operators, eviction priorities and prefetch sizes are accepted and have no
effect on time.

Spec: PTX ISA 9.1, "Data Movement and Conversion Instructions: ld", "st", "cvta", "isspacep", "mapa", "getctarank".
"""

from __future__ import annotations

from .. import state as S
from ..isa.machine import (
    HIGH_HALF,
    Environment,
    MachineOp,
    current,
    flatten,
    get,
    machine_instruction,
    operand,
    put,
    refuse,
    width_of,
)
from ..layouts.banks import LOAD, MATRIX, SCRATCH_WORDS, STORE
from ..layouts.banks import count as count_wavefronts
from ..memory.windows import (
    CODES,
    CONST,
    GENERIC,
    GLOBAL,
    LOCAL,
    PARAM,
    SHARED,
    WINDOW_BYTES,
    WINDOWS,
    pointer,
    space_of_generic,
)
from ..native import i32, i64, inner, u8
from ..ptx.module import Address, Instruction, Operand, Reg, Symbol
from ..services import emit
from ..trace import Access, Event
from .global_path import is_elsewhere, load_out, network_load, network_time, store_out
from .shared_port import reserve

_MEMORY, _BANK_CONFLICT, _PORT_HELD = int(Event.MEMORY), int(Event.BANK_CONFLICT), int(Event.PORT_HELD)
_READ, _WRITE, _ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
_UNCHANGED = int(Access.UNCHANGED)
_RELEASE, _ACQUIRE, _VOLATILE = int(Access.RELEASE), int(Access.ACQUIRE), int(Access.VOLATILE)

_SPACES = ("global", "shared", "local", "const", "param")

#: Where host addresses of lanes lie in the scratch table: behind those for the count of wavefronts and the lanes' own.
POINTERS = 4 * SCRATCH_WORDS + 256


def space_name(instruction: Instruction) -> str:
    """Return the state space an instruction names ("" for generic); sub-spaces like shared::cta count as their space."""
    for modifier in instruction.modifiers:
        name = modifier.split("::")[0]
        if name in _SPACES:
            return name
    return ""


def address_operand(
    instruction: Instruction, address: Operand, environment: Environment, what: str = "address"
) -> tuple[Operand, int]:
    """Split ``[base + offset]`` into the operand that becomes a register row and the byte offset."""
    if not isinstance(address, Address):
        raise refuse(instruction, f"{instruction.base} {what} must be in brackets", environment)
    if address.base is None:
        return Symbol("", address.offset), 0
    if isinstance(address.base, Symbol):
        return Symbol(address.base.name, address.base.offset + address.offset), 0
    return address.base, address.offset


def element_bytes(instruction: Instruction) -> tuple[int, bool]:
    """Return the size in bytes and the signedness of the element type of a load or store."""
    type_ = instruction.types[-1]
    return int("".join(ch for ch in type_ if ch.isdigit()).replace("16x2", "32")) // 8, type_[0] == "s"


def vector_length(instruction: Instruction) -> int:
    """Return the number of elements that a load or store moves per lane."""
    for modifier in instruction.modifiers:
        if modifier in ("v2", "v4", "v8"):
            return int(modifier[1:])
    return 1


@inner
def record(ctx, regs, ops, k, offset, mask, size, space, access):
    """Append a memory event with the addresses of all lanes; operand ``k`` is the address."""
    c = S.context(ctx)
    if c.trace_level == 0:
        return
    row = i64(c.lanes + c.n_lanes * 256, 32)
    op = operand(ops, k)
    w = S.warps(ctx)[c.warp]
    kind = space
    for lane in range(32):
        row[lane] = -1
        if (mask >> lane) & 1:
            address = get(regs, op, lane) + offset
            if space == GENERIC:
                kind = space_of_generic(address)
                if kind != GLOBAL:
                    address &= (1 << 40) - 1
            row[lane] = address
    if kind in (CONST, PARAM, LOCAL):
        return
    emit(ctx, c.now, _MEMORY, S.ctas(ctx)[w.cta].id, w.id, c.pc, mask, -1, c.lanes_total + c.n_lanes, size, kind, access)
    c.n_lanes += 1


@inner
def lane_addresses(ctx, regs, ops, k, offset, mask):
    """Return the addresses that operand ``k`` gives, int64 (32,), -1 for lanes that take no part, in the scratch table."""
    op = operand(ops, k)
    addresses = i64(S.context(ctx).scratch + 4 * SCRATCH_WORDS, 32)
    for lane in range(32):
        addresses[lane] = get(regs, op, lane) + offset if (mask >> lane) & 1 else -1
    return addresses


@inner
def targets(ctx, regs, ops, k, offset, mask, space, size):
    """Return (space, host addresses): the state space of the addresses of operand ``k`` and, int64 (32,) in the scratch table,
    where each lane's ``size`` bytes lie; the space is -1 after an error. Whoever loads asks first and times and records the access
    before it writes registers: the address may be one of them."""
    c = S.context(ctx)
    op = operand(ops, k)
    found = i64(c.scratch + POINTERS, 32)
    kind = space
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        address = get(regs, op, lane) + offset
        found[lane] = pointer(ctx, c.warp, lane, space, address, size)
        if found[lane] == 0:
            return -1, found
        if space == GENERIC:
            kind = space_of_generic(address)
    return kind, found


@inner
def shared_time(ctx, regs, ops, k, offset, mask, size, is_load, kind):
    """Charge the shared-memory port and set the latency of the instruction being executed. ``kind``: how its lanes are
    served together (:mod:`h100sim.layouts.banks`); the rows of a matrix are those of the first lanes."""
    c, T = S.context(ctx), S.timing(ctx)
    addresses = lane_addresses(ctx, regs, ops, k, offset, mask)
    first = 0
    while addresses[first] < 0:
        first += 1
    if is_elsewhere(ctx, addresses[first]):
        c.latency = (network_load(ctx, addresses, size) if is_load else network_time(ctx, addresses, size)) - c.now
        return
    lanes = 32
    while kind == MATRIX and addresses[lanes - 1] < 0:
        lanes -= 1
    passes, ideal = count_wavefronts(addresses, lanes, size, kind, i32(c.scratch, SCRATCH_WORDS))
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    _, end = reserve(ctx, sm, passes)
    c.latency = int(end) - c.now - 1 + (T.shared_load_latency if is_load else T.shared_store_latency)
    # A full queue in front of the port holds the warp.
    least = T.shared_wide_issue_cycles if size > 8 or kind == MATRIX else T.shared_issue_cycles
    c.issue = max(least, int(end) - c.now - T.shared_queue_cycles)
    w = S.warps(ctx)[c.warp]
    if passes > ideal and c.trace_level:
        emit(ctx, c.now, _BANK_CONFLICT, S.ctas(ctx)[w.cta].id, w.id, c.pc, mask, -1, passes, ideal, 0, 0)
    waited = int(end) - c.now - passes
    if c.trace_level > 1 and (waited > 0 or c.issue > least):
        emit(ctx, c.now, _PORT_HELD, S.ctas(ctx)[w.cta].id, w.id, c.pc, mask, -1, waited, c.issue - least, 0, 0)


def load(regs, mask, ops, ctx):
    c = S.context(ctx)
    ins = current(ctx)
    offset, space, size, count, signed, access = ins.imm0, ins.imm1, ins.imm2, ins.imm3, ins.imm4, ins.imm5
    total = size * count
    kind, sources = targets(ctx, regs, ops, count, offset, mask, space, total)
    if kind < 0:
        return S.S_ERROR
    if kind == SHARED:
        shared_time(ctx, regs, ops, count, offset, mask, total, True, LOAD)
        record(ctx, regs, ops, count, offset, mask, total, space, access)
    elif kind == LOCAL:
        c.latency = S.timing(ctx).l1_latency
        record(ctx, regs, ops, count, offset, mask, total, space, access)
    elif kind == GLOBAL:
        cached = signed >> 1 == 1
        c.latency = load_out(ctx, lane_addresses(ctx, regs, ops, count, offset, mask), total, cached) - c.now
        record(ctx, regs, ops, count, offset, mask, total, space, access)
    for lane in range(32):
        if not (mask >> lane) & 1:
            continue
        source = sources[lane]
        if size == 16:
            words = i64(source, 2)
            low, high = words[0], words[1]
            put(regs, operand(ops, 0), lane, low)
            put(regs, operand(ops, 0) + HIGH_HALF, lane, high)
            continue
        for k in range(count):
            data = u8(source + k * size, size)
            value = 0
            for b in range(size):
                value |= int(data[b]) << (8 * b)
            if signed & 1 and size < 8 and (value >> (8 * size - 1)) & 1:
                value -= 1 << (8 * size)
            put(regs, operand(ops, k), lane, value)
    return S.S_NEXT


def load_uniform(regs, mask, ops, ctx):
    """A parameter or constant at a fixed address: one read, the same value for all lanes."""
    c = S.context(ctx)
    ins = current(ctx)
    size, count, signed = ins.imm2, ins.imm3, ins.imm4
    address = get(regs, operand(ops, count), 0) + ins.imm0
    source = pointer(ctx, c.warp, 0, ins.imm1, address, size * count)
    if source == 0:
        return S.S_ERROR
    for k in range(count):
        data = u8(source + k * size, size)
        value = 0
        for b in range(size):
            value |= int(data[b]) << (8 * b)
        if signed and size < 8 and (value >> (8 * size - 1)) & 1:
            value -= 1 << (8 * size)
        op = operand(ops, k)
        for lane in range(32):
            if (mask >> lane) & 1:
                put(regs, op, lane, value)
    return S.S_NEXT


@inner
def first_fault(regs, mask, ctx, where):
    """Record the error of the lowest lane that may not store; one may not."""
    c, ins = S.context(ctx), current(ctx)
    for lane in range(32):
        if (mask >> lane) & 1 and pointer(ctx, c.warp, lane, ins.imm1, get(regs, where, lane) + ins.imm0, ins.imm2 * ins.imm3) == 0:
            break
    return S.S_ERROR


def store(regs, mask, ops, ctx):
    """[a], value..; imm0 offset, imm1 space, imm2 bytes of a value, imm3 how many, imm5 access.

    Of lanes that store to the same bytes the lowest has the last word, in each part of the warp that stores 128 bytes together (all
    lanes up to 4 bytes each, halves of 8, quarters of 16), and a later part has it over an earlier one. Measured:
    validate/silicon/store_conflicts.json.
    """
    c = S.context(ctx)
    ins = current(ctx)
    offset, space, size, count, access = ins.imm0, ins.imm1, ins.imm2, ins.imm3, ins.imm5
    where = operand(ops, 0)
    total = size * count
    kind = space
    changed = 0
    last = 31 if total <= 4 else 128 // total - 1
    for step in range(32):
        lane = step ^ last
        if not (mask >> lane) & 1:
            continue
        address = get(regs, where, lane) + offset
        target = pointer(ctx, c.warp, lane, space, address, total)
        if target == 0:
            return first_fault(regs, mask, ctx, where)
        if space == GENERIC:
            kind = space_of_generic(address)
        if size == 16:
            words = i64(target, 2)
            low, high = get(regs, operand(ops, 1), lane), get(regs, operand(ops, 1) + HIGH_HALF, lane)
            changed |= int(words[0] != low or words[1] != high)
            words[0], words[1] = low, high
            continue
        for k in range(count):
            value = get(regs, operand(ops, 1 + k), lane)
            data = u8(target + k * size, size)
            for b in range(size):
                byte = (value >> (8 * b)) & 0xFF
                changed |= data[b] ^ byte
                data[b] = byte
    if kind != LOCAL:
        c.progress += changed != 0
    if changed == 0:
        access |= _UNCHANGED
    if kind == SHARED:
        shared_time(ctx, regs, ops, 0, offset, mask, total, False, STORE)
        record(ctx, regs, ops, 0, offset, mask, total, space, access)
    elif kind == LOCAL:
        c.issue = S.timing(ctx).shared_issue_cycles
        record(ctx, regs, ops, 0, offset, mask, total, space, access)
    elif kind == GLOBAL:
        store_out(ctx, lane_addresses(ctx, regs, ops, 0, offset, mask), total, ins.imm4)
        record(ctx, regs, ops, 0, offset, mask, total, space, access)
    return S.S_NEXT


def add_constant(regs, mask, ops, ctx):
    """d = a + imm0, for conversions between the windows of state spaces."""
    add = current(ctx).imm0
    d, a = operand(ops, 0), operand(ops, 1)
    for lane in range(32):
        if (mask >> lane) & 1:
            put(regs, d, lane, get(regs, a, lane) + add)
    return S.S_NEXT


def is_in_window(regs, mask, ops, ctx):
    """p = the generic address a lies in space imm0; imm1 1: of shared addresses only those of the own CTA."""
    c, ins = S.context(ctx), current(ctx)
    own = S.ctas(ctx)[S.warps(ctx)[c.warp].cta].cluster_rank
    p, a = operand(ops, 0), operand(ops, 1)
    for lane in range(32):
        if (mask >> lane) & 1:
            address = get(regs, a, lane)
            is_inside = space_of_generic(address) == ins.imm0
            if ins.imm1:
                is_inside = is_inside and (address & (WINDOW_BYTES - 1)) >> 24 == own
            put(regs, p, lane, 1 if is_inside else 0)
    return S.S_NEXT


def map_rank(regs, mask, ops, ctx):
    """d = the shared address a with the CTA rank b (imm0: window of generic addresses, 0 for shared addresses)."""
    window = current(ctx).imm0
    d, a, b = operand(ops, 0), operand(ops, 1), operand(ops, 2)
    for lane in range(32):
        if (mask >> lane) & 1:
            put(regs, d, lane, window + ((get(regs, a, lane) & 0xFFFFFF) | ((get(regs, b, lane) & 0xFF) << 24)))
    return S.S_NEXT


def rank_of(regs, mask, ops, ctx):
    """d = the CTA rank in the shared address a."""
    d, a = operand(ops, 0), operand(ops, 1)
    for lane in range(32):
        if (mask >> lane) & 1:
            put(regs, d, lane, (get(regs, a, lane) >> 24) & 0xFF)
    return S.S_NEXT


def _flags(instruction: Instruction, access: int) -> int:
    for modifier, bit in (("release", _RELEASE), ("acquire", _ACQUIRE), ("acq_rel", _RELEASE | _ACQUIRE)):
        if instruction.has(modifier):
            access |= bit
    if instruction.has("volatile") or instruction.has("relaxed"):
        access |= _VOLATILE
    return access


def check_width(instruction: Instruction, size_bytes: int, environment: Environment) -> None:
    """Refuse what sm_90a cannot move in one access."""
    if size_bytes > 16:
        rule = f"must move at most 16 bytes on sm_90a, not {size_bytes} (which needs sm_100)"
        raise refuse(instruction, f"{instruction.opcode} {rule}", environment)


_OPERATORS = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")


def check_modifiers(instruction: Instruction, environment: Environment) -> None:
    """Refuse modifiers that ptxas does not combine, and addresses of 32 bits where they need 64."""
    space = space_name(instruction)
    if instruction.has("volatile") and space in ("local", "const", "param"):
        raise refuse(instruction, f"{instruction.opcode} must not be volatile in the {space} space", environment)
    operator = next((m for m in instruction.modifiers if m in _OPERATORS), None)
    priority = next((m for m in instruction.modifiers if m.startswith("L1::")), None)
    if operator and priority:
        raise refuse(instruction, f"{instruction.opcode} must have .{operator} or .{priority}, not both", environment)


def check_address(instruction: Instruction, base: Operand, environment: Environment) -> None:
    """Refuse a generic or global address in a register of 32 bits."""
    if space_name(instruction) in ("", "global") and isinstance(base, Reg) and width_of(base) < 64:
        rule = f"must be 64 bits wide outside shared memory, not {width_of(base)}"
        raise refuse(instruction, f"{instruction.opcode} address {rule}", environment)


@machine_instruction("ld", "ldu")
def lower_load(instruction: Instruction, environment: Environment) -> MachineOp:
    space = space_name(instruction)
    size, signed = element_bytes(instruction)
    count = vector_length(instruction)
    check_width(instruction, size * count, environment)
    outs = flatten(instruction.operands[0])
    if len(outs) != count:
        raise refuse(instruction, f"ld destination must have {count} elements, not {len(outs)}", environment)
    base, offset = address_operand(instruction, instruction.operands[1], environment)
    check_modifiers(instruction, environment)
    check_address(instruction, base, environment)
    uniform = space in ("param", "const") and isinstance(base, Symbol)
    access = _flags(instruction, _READ)
    # What asks for the newest value, or for none in L1, goes to L2.
    is_cached = (
        space in ("", "global")
        and access == _READ
        and not any(instruction.has(word) for word in ("cg", "cv", "L1::no_allocate", "mmio"))
    )
    integers = (offset, CODES[space], size, count, int(signed) | int(is_cached) << 1, access)
    latency = 8 if uniform else 30
    return MachineOp(load_uniform if uniform else load, outs, ((base, "u64"),), integers, latency=latency)


@machine_instruction("st")
def lower_store(instruction: Instruction, environment: Environment) -> MachineOp:
    space = space_name(instruction)
    size, _ = element_bytes(instruction)
    count = vector_length(instruction)
    check_width(instruction, size * count, environment)
    values = flatten(instruction.operands[1])
    if len(values) != count:
        raise refuse(instruction, f"st source must have {count} elements, not {len(values)}", environment)
    if space == "const":
        raise refuse(instruction, "st state space must be writable, not const", environment)
    base, offset = address_operand(instruction, instruction.operands[0], environment)
    if space == "param" and isinstance(base, Symbol):
        raise refuse(instruction, f"st state space must be writable, not a parameter of the entry ({base.name})", environment)
    check_modifiers(instruction, environment)
    check_address(instruction, base, environment)
    type_ = instruction.types[-1]
    ins = ((base, "u64"), *((v, type_) for v in values))
    integers = (offset, CODES[space], size, count, int(environment.pc in environment.places.repeated), _flags(instruction, _WRITE))
    return MachineOp(store, (), ins, integers)


@machine_instruction("cvta")
def lower_cvta(instruction: Instruction, environment: Environment) -> MachineOp:
    space = space_name(instruction)
    if not space:
        raise refuse(instruction, f"state space of {instruction.opcode} must be given, not left out", environment)
    if instruction.types != ("u64",):
        raise refuse(instruction, f"type of {instruction.opcode} must be .u64, the size of an address", environment)
    window = WINDOWS[space]
    if instruction.has("to"):
        window = -window
    source, offset = instruction.operands[1], 0
    if isinstance(source, Address):
        source, offset = address_operand(instruction, source, environment)
    ins = ((source, instruction.types[-1]),)
    return MachineOp(add_constant, (instruction.operands[0],), ins, (window + offset,), pipe="alu")


@machine_instruction("isspacep")
def lower_isspacep(instruction: Instruction, environment: Environment) -> MachineOp:
    space = CODES[space_name(instruction)]
    is_own = space == SHARED and not instruction.has("shared::cluster")
    p, a = instruction.operands
    return MachineOp(is_in_window, (p,), ((a, "u64"),), (space, int(is_own)), pipe="alu")


@machine_instruction("mapa")
def lower_mapa(instruction: Instruction, environment: Environment) -> MachineOp:
    window = 0 if space_name(instruction) else WINDOWS["shared"]
    d, a, b = instruction.operands
    if isinstance(a, Address):
        a, _ = address_operand(instruction, a, environment)
    return MachineOp(map_rank, (d,), ((a, instruction.types[-1]), (b, "u32")), (window,), pipe="alu")


@machine_instruction("getctarank")
def lower_getctarank(instruction: Instruction, environment: Environment) -> MachineOp:
    d, a = instruction.operands
    return MachineOp(rank_of, (d,), ((a, instruction.types[-1]),), pipe="alu")
