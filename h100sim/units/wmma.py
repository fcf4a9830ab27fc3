"""wmma: load, mma and store of whole matrices by one warp, the older way to the tensor core that C++ compilers emit.

A fragment is opaque to programs but not to the machine: each lane holds the elements that silicon gives it, so that kernels which
look at their registers find the same. The product is that of mma.sync over the same elements. C of f16 that goes with D of f32 is
widened before the product; D of f16 that goes with C of f32 is the product in f32, rounded to nearest (machine code of ptxas 13.0).

Spec: PTX ISA 9.1, "Warp-level Matrix Instructions: wmma.load", "wmma.mma", "wmma.store". Measured: fragments of every shape, type
and layout, and bits of products, in validate/silicon/wmma_bits.json. Assumed: a product takes as long as two mma.sync of 16x8x16;
a matrix is loaded as fast as 32 lanes load 16 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, flatten, get, machine_instruction, operand, put, refuse
from ..memory.windows import CODES, GENERIC, GLOBAL, SHARED, pointer, space_of_generic
from ..native import array_at, call, i64, inner, u8, u32
from ..numerics.conversions import f16_from_f32, f16_value
from ..numerics.host_float import f32_bits, f32_value
from ..numerics.tensor_core import ROUNDINGS, address_of_step, code_of, step_of
from ..ptx.module import Imm, Instruction
from ..services import emit, fail
from ..trace import Access, Event
from .global_path import lines_out
from .load_store import address_operand, check_address, space_name
from .shared_port import reserve

_MEMORY = int(Event.MEMORY)
_READ, _WRITE = int(Access.READ), int(Access.WRITE)
_FULL = 0xFFFFFFFF
#: Places in the scratch memory: A, B and D of at most 2048 bytes each, the argument block.
_A, _B, _D, _BLOCK = 0, 1 << 12, 2 << 12, 3 << 12
_LATENCY, _ISSUE = 49, 32
#: K of the steps of a tf32 product, one after the other; all others are one step. Measured: validate/silicon/wmma_bits.json.
_TF32_DEPTH = 4

#: C of f16 is widened to the f32 of D; D of f16 is what C of f32 gives, narrowed (bits of what a product is told).
_WIDENS, _NARROWS = 1 << 57, 1 << 58

#: What a fragment is for the tensor core: its left operand, its right one, or an accumulator.
LEFT, RIGHT, ACCUMULATOR = 0, 1, 2

#: Shape -> (M, N, K), and the shapes and accumulators of each type. Spec: "wmma.mma", the tables of shapes and types.
_SHAPES = {
    "m16n16k16": (16, 16, 16),
    "m8n32k16": (8, 32, 16),
    "m32n8k16": (32, 8, 16),
    "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4),
    "m8n8k32": (8, 8, 32),
    "m8n8k128": (8, 8, 128),
}
_TALL = ("m16n16k16", "m8n32k16", "m32n8k16")
_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (_TALL, ("f32", "f16")),
    "bf16": (_TALL, ("f32",)),
    "s8": (_TALL, ("s32",)),
    "u8": (_TALL, ("s32",)),
    "tf32": (("m16n16k8",), ("f32",)),
    "f64": (("m8n8k4",), ("f64",)),
    "s4": (("m8n8k32",), ("s32",)),
    "u4": (("m8n8k32",), ("s32",)),
    "b1": (("m8n8k128",), ("s32",)),
}
_BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "tf32": 32, "f64": 64, "f32": 32, "s32": 32, "s4": 4, "u4": 4, "b1": 1}


@dataclass(frozen=True)
class Fragment:
    """The fragment of an operand "a", "b", "c" or "d" of a shape.

    It is seen as ``lines`` of ``depth`` elements: rows of A, columns of B, rows of C; for m8n32k16, whose product silicon
    computes transposed, columns of C.
    """

    which: str
    shape: str
    type: str

    @property
    def is_transposed(self) -> bool:
        return self.shape == "m8n32k16"

    @property
    def role(self) -> int:
        if self.which in "cd":
            return ACCUMULATOR
        return LEFT if (self.which == "a") != self.is_transposed else RIGHT

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        m, n, k = _SHAPES[self.shape]
        return {"a": (m, k), "b": (k, n)}.get(self.which, (m, n))

    @property
    def has_row_lines(self) -> bool:
        return self.which == "a" or (self.which in "cd" and not self.is_transposed)

    @property
    def lines(self) -> int:
        return self.size[0 if self.has_row_lines else 1]

    @property
    def depth(self) -> int:
        return self.size[1 if self.has_row_lines else 0]

    @property
    def per_register(self) -> int:
        return max(1, 32 // _BITS[self.type])

    @property
    def distinct(self) -> int:
        """Registers with different contents; f16 has eight in any case, which repeat them."""
        width = 64 if self.type == "f64" else 32
        return self.lines * self.depth * _BITS[self.type] // (32 * width)

    @property
    def registers(self) -> int:
        return 8 if self.type == "f16" and self.role != ACCUMULATOR else self.distinct

    @property
    def packed(self) -> int:
        """The fragment as one integer for the product, see :func:`position`; of single bits, a word is an element."""
        return self._packed(32 if self.type == "b1" else _BITS[self.type])

    @property
    def packed_in_memory(self) -> int:
        """The same for moves: what is smaller than a byte moves by words."""
        return self._packed(32 if _BITS[self.type] < 8 else _BITS[self.type])

    def _packed(self, bits: int) -> int:
        depth, per = self.depth * _BITS[self.type] // bits, max(1, 32 // bits)
        halves = max(1, depth // (4 * per))
        return self.role | self.lines << 8 | halves << 16 | per << 24 | bits << 32 | self.distinct << 40

    def is_along(self, layout: str) -> bool:
        """Do the elements of a line lie next to each other in memory?"""
        return (layout == "row") == self.has_row_lines


@inner
def position(packed, register, j, lane):
    """Return (line, place in it) of the j-th element of a register."""
    role, lines, halves = packed & 0xFF, (packed >> 8) & 0xFF, (packed >> 16) & 0xFF
    per, distinct = (packed >> 24) & 0xFF, (packed >> 40) & 0xFF
    r, line, quad = register % distinct, lane >> 2, lane & 3
    if role == ACCUMULATOR:
        e = r * per + j
        place = 2 * quad + (e & 1)
        line += 8 * ((e >> 1) & 1)
        if lines == 32:
            return line + 16 * (e >> 2), place
        return line, place + 8 * (e >> 2)
    if role == LEFT:
        block = r // (2 * halves)
        return line + 8 * (r & 1) + 16 * block, per * quad + j + 4 * per * ((r >> 1) % halves)
    return line + 8 * (r // halves), per * quad + j + 4 * per * (r % halves)


@inner
def bits_of(packed):
    return (packed >> 32) & 0xFF


@inner
def is_whole(ctx, mask):
    """Check that all lanes of the warp execute together; record the error otherwise."""
    if mask == _FULL:
        return True
    fail(ctx, faults.DIVERGENT_COLLECTIVE, mask, S.warps(ctx)[S.context(ctx).warp].alive, 0)
    return False


@inner
def take_time(ctx, base, line_step, lines, line_bytes, space, access):
    """Charge the memory that a matrix is moved through and record its lines: ``lines`` pieces of ``line_bytes``."""
    c, T = S.context(ctx), S.timing(ctx)
    kind = space_of_generic(base) if space == GENERIC else space
    if kind == SHARED:
        sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
        _, end = reserve(ctx, sm, max(1, lines * line_bytes // 128))
        c.latency = int(end) - c.now + (T.shared_load_latency if access == _READ else T.shared_store_latency)
    elif access == _READ:
        c.latency = lines_out(ctx, base, line_step, lines, line_bytes) - c.now
    else:
        c.issue = T.shared_issue_cycles
    c.progress += 1
    if c.trace_level == 0 or (kind != GLOBAL and kind != SHARED):
        return
    row = i64(c.lanes + c.n_lanes * 256, 32)
    for k in range(32):
        address = base + k * line_step
        row[k] = (address & ((1 << 40) - 1) if kind == SHARED else address) if k < lines else -1
    w = S.warps(ctx)[c.warp]
    emit(
        ctx,
        c.now,
        _MEMORY,
        S.ctas(ctx)[w.cta].id,
        w.id,
        c.pc,
        (1 << lines) - 1,
        -1,
        c.lanes_total + c.n_lanes,
        line_bytes,
        kind,
        access,
    )
    c.n_lanes += 1


def move(regs, mask, ops, ctx):
    """fragment.., [a], stride; imm0 offset, imm1 space, imm2 packed fragment, imm3 registers, imm4 bytes of a line or of what is
    across lines | along lines << 16 | bits of what the stride counts << 17, imm5 access: between memory and the registers of a
    fragment."""
    c, ins = S.context(ctx), current(ctx)
    if not is_whole(ctx, mask):
        return S.S_ERROR
    packed, bits = ins.imm2, bits_of(ins.imm2)
    per, size = (packed >> 24) & 0xFF, bits_of(ins.imm2) >> 3
    lines, depth, is_along = (packed >> 8) & 0xFF, (ins.imm4 & 0xFFFF) // size, (ins.imm4 >> 16) & 1
    base = get(regs, operand(ops, ins.imm3), 0) + ins.imm0
    stride = (get(regs, operand(ops, ins.imm3 + 1), 0) * (ins.imm4 >> 17)) >> 3
    for r in range(ins.imm3):
        op = operand(ops, r)
        for lane in range(32):
            value = get(regs, op, lane) if ins.imm5 == _WRITE else 0
            for j in range(per):
                line, place = position(packed, r, j, lane)
                at = base + (line * stride + size * place if is_along else place * stride + size * line)
                found = pointer(ctx, c.warp, lane, ins.imm1, at, size)
                if found == 0:
                    return S.S_ERROR
                data = u8(found, size)
                for b in range(size):
                    if ins.imm5 == _WRITE:
                        data[b] = (value >> (bits * j + 8 * b)) & 0xFF
                    else:
                        value |= np.int64(data[b]) << (bits * j + 8 * b)
            if ins.imm5 == _READ:
                put(regs, op, lane, value)
    if is_along:
        take_time(ctx, base, stride, lines, size * depth, ins.imm1, ins.imm5)
    else:
        take_time(ctx, base, stride, depth, size * lines, ins.imm1, ins.imm5)
    return S.S_NEXT


@inner
def gather(regs, ops, first, packed, registers, start, depth, to, is_lines_first):
    """Copy a fragment between registers ``first`` onwards and a matrix of elements, (lines, depth) or (depth, lines): of every line
    the ``depth`` places from ``start`` on."""
    lines, per, bits = (packed >> 8) & 0xFF, (packed >> 24) & 0xFF, bits_of(packed)
    rows, columns = (lines, depth) if is_lines_first else (depth, lines)
    a32, a64 = array_at(to, (rows, columns), np.uint32), array_at(to, (rows, columns), np.uint64)
    for r in range(registers):
        op = operand(ops, first + r)
        for lane in range(32):
            value = get(regs, op, lane)
            for j in range(per):
                line, place = position(packed, r, j, lane)
                place -= start
                if place < 0 or place >= depth:
                    continue
                row, column = (line, place) if is_lines_first else (place, line)
                if bits == 64:
                    a64[row, column] = np.uint64(value)
                else:
                    a32[row, column] = np.uint32((value >> (bits * j)) & ((1 << bits) - 1))


@inner
def scatter(regs, ops, packed, registers, depth, source, is_lines_first):
    """Copy a matrix to the accumulator in registers 0 onwards."""
    lines, per, bits = (packed >> 8) & 0xFF, (packed >> 24) & 0xFF, bits_of(packed)
    rows, columns = (lines, depth) if is_lines_first else (depth, lines)
    d32, d64 = array_at(source, (rows, columns), np.uint32), array_at(source, (rows, columns), np.uint64)
    for r in range(registers):
        op = operand(ops, r)
        for lane in range(32):
            value = 0
            for j in range(per):
                line, place = position(packed, r, j, lane)
                row, column = (line, place) if is_lines_first else (place, line)
                if bits == 64:
                    value = np.int64(d64[row, column])  # type: ignore[assignment]
                else:
                    value |= np.int64(d32[row, column]) << (bits * j)
            put(regs, op, lane, value)


@inner
def change_type(at, count, widens):
    """Change the f16 in the first ``count`` words to f32, or the f32 to f16."""
    words = u32(at, count)
    for i in range(count):
        if widens:
            words[i] = f32_bits(f16_value(words[i]))
        else:
            words[i] = f16_from_f32(f32_value(words[i]))


@inner
def with_bits(packed, bits):
    """Return a packed accumulator of 16 or 32 bits as one of other bits."""
    count = ((packed >> 40) & 0xFF) * bits // bits_of(packed)
    return (packed & 0xFFFFFF) | (32 // bits) << 24 | bits << 32 | count << 40


def multiply(regs, mask, ops, ctx):
    """d.., a.., b.., c..; imm0 code, imm1 address of the step, imm2 to imm4 packed fragments A, B and C, imm5 satfinite, M << 8,
    N << 16, K << 24, registers of C << 32, of A << 40, of B << 48, rows are lines of C << 56, C or D changes its type."""
    c, ins = S.context(ctx), current(ctx)
    if not is_whole(ctx, mask):
        return S.S_ERROR
    if c.values == 0:
        return S.S_NEXT
    m, n, k = (ins.imm5 >> 8) & 0xFF, (ins.imm5 >> 16) & 0xFF, (ins.imm5 >> 24) & 0xFF
    count_c, count_a, count_b = (ins.imm5 >> 32) & 0xFF, (ins.imm5 >> 40) & 0xFF, (ins.imm5 >> 48) & 0xFF
    count_d, packed_d = count_c, ins.imm4
    if ins.imm5 & _WIDENS:
        count_d, packed_d = 2 * count_c, with_bits(ins.imm4, 32)
    elif ins.imm5 & _NARROWS:
        count_d, packed_d = count_c // 2, with_bits(ins.imm4, 16)
    has_rows = (ins.imm5 >> 56) & 1 == 1
    depth = n if has_rows else m
    gather(regs, ops, count_d + count_a + count_b, ins.imm4, count_c, 0, depth, c.scratch + _D, has_rows)
    if ins.imm5 & _WIDENS:
        change_type(c.scratch + _D, m * n, True)
    block = i64(c.scratch + _BLOCK, 13)
    step_depth = _TF32_DEPTH if bits_of(ins.imm2) == 32 else k
    for start in range(0, k, step_depth):
        gather(regs, ops, count_d, ins.imm2, count_a, start, step_depth, c.scratch + _A, True)
        gather(regs, ops, count_d + count_a, ins.imm3, count_b, start, step_depth, c.scratch + _B, True)
        block[0], block[1], block[2], block[3], block[4] = ins.imm0, 1, m, n, step_depth
        block[5], block[6], block[7], block[8] = c.scratch + _A, c.scratch + _B, c.scratch + _D, 0
        block[9], block[10], block[11], block[12] = 1, 0, 0, ins.imm5 & 1
        call(ins.imm1, c.scratch + _BLOCK, 0, 0, 0)
    if ins.imm5 & _NARROWS:
        change_type(c.scratch + _D, m * n, False)
    scatter(regs, ops, packed_d, count_d, depth, c.scratch + _D, has_rows)
    return S.S_NEXT


# --- lowering ---------------------------------------------------------------------------------------------------------


def _shape(instruction: Instruction, environment: Environment) -> str:
    found = next((m for m in instruction.modifiers if m in _SHAPES), None)
    if found is None:
        raise refuse(instruction, f"{instruction.opcode} shape must be one of {', '.join(_SHAPES)}", environment)
    return found


def _layouts(instruction: Instruction, count: int, environment: Environment) -> tuple[str, ...]:
    found = tuple(m for m in instruction.modifiers if m in ("row", "col"))
    if len(found) != count:
        raise refuse(instruction, f"{instruction.opcode} must name {count} layouts, .row or .col, not {len(found)}", environment)
    return found


def _fragment(instruction: Instruction, which: str, shape: str, type_: str, environment: Environment) -> Fragment:
    kinds = [t for t, (shapes, d) in _TYPES.items() if shape in shapes and (type_ in d if which in "cd" else type_ == t)]
    if not kinds:
        legal = [t for t, (shapes, _) in _TYPES.items() if shape in shapes]
        rule = "accumulator" if which in "cd" else "type"
        raise refuse(instruction, f"wmma {rule} of {shape} must be one that goes with {', '.join(legal)}, not {type_}", environment)
    return Fragment(which, shape, type_)


@machine_instruction("wmma.load", "wmma.store")
def lower_move(instruction: Instruction, environment: Environment) -> MachineOp:
    is_load = instruction.has("load")
    which = instruction.opcode.split(".")[2]
    if which not in (("a", "b", "c") if is_load else ("d",)):
        raise refuse(instruction, f"{instruction.opcode} must name a matrix, {'.a, .b or .c' if is_load else '.d'}", environment)
    shape = _shape(instruction, environment)
    (layout,) = _layouts(instruction, 1, environment)
    f = _fragment(instruction, which, shape, instruction.types[-1], environment)
    bits = _BITS[f.type]
    if bits < 8 and not f.is_along(layout):
        wanted = "row" if which == "a" else "col"
        raise refuse(instruction, f"wmma.load.{which} layout of {f.type} must be .{wanted}, not .{layout}", environment)
    operands = list(instruction.operands)
    if not is_load:
        operands[0], operands[1] = operands[1], operands[0]
    held = flatten(operands[0])
    if len(held) != f.registers:
        raise refuse(instruction, f"{instruction.opcode} must have {f.registers} registers, not {len(held)}", environment)
    base, offset = address_operand(instruction, operands[1], environment)
    check_address(instruction, base, environment)
    rows, columns = f.size
    stride = operands[2] if len(operands) > 2 else Imm(columns if layout == "row" else rows)
    wide = "b64" if f.type == "f64" else "f32" if f.type == "f32" else "b32"
    packed = f.depth * bits // 8 | int(f.is_along(layout)) << 16 | bits << 17
    access = _READ if is_load else _WRITE
    integers = (offset, CODES[space_name(instruction)], f.packed_in_memory, f.registers, packed, access)
    address = ((base, "u64"), (stride, "u32"))
    if is_load:
        return MachineOp(move, held, address, integers, latency=30, issue=4)
    return MachineOp(move, (), (*((x, wide) for x in held), *address), integers, issue=4)


@machine_instruction("wmma.mma")
def lower_multiply(instruction: Instruction, environment: Environment) -> MachineOp:
    shape = _shape(instruction, environment)
    layouts = _layouts(instruction, 2, environment)
    d_type, a_type, c_type = _types(instruction, layouts, environment)
    fragments = [
        _fragment(instruction, w, shape, t, environment) for w, t in zip("dabc", (d_type, a_type, a_type, c_type), strict=True)
    ]
    operands = [flatten(x) for x in instruction.operands]
    for found, f in zip(operands, fragments, strict=True):
        if len(found) != f.registers:
            what = f"wmma.mma {f.which.upper()} must have {f.registers} registers"
            raise refuse(instruction, f"{what}, not {len(found)}", environment)
    _, a, b, c = fragments
    wide = "b64" if a_type == "f64" else "b32"
    ins = (
        *((x, wide) for x in (*operands[1], *operands[2])),
        *((x, {"f32": "f32", "f64": "f64"}.get(c_type, "b32")) for x in operands[3]),
    )
    both = "f32" if d_type != c_type else d_type
    rounding = next((m for m in instruction.modifiers if m in ROUNDINGS and a_type == "f64"), "rn")
    code, (m, n, k) = code_of(both, a_type, a_type, xor=instruction.has("xor"), rounding=rounding), _SHAPES[shape]
    packed = int(instruction.has("satfinite")) | m << 8 | n << 16 | (k // 32 if a_type == "b1" else k) << 24
    packed |= c.registers << 32 | a.registers << 40 | b.registers << 48 | int(c.has_row_lines) << 56
    packed |= 0 if d_type == c_type else _WIDENS if d_type == "f32" else _NARROWS
    integers = (code, address_of_step(code), a.packed, b.packed, c.packed, packed)
    return MachineOp(multiply, operands[0], ins, integers, pipe="tensor", latency=_LATENCY, issue=_ISSUE, uses=(step_of(code),))


def _types(instruction: Instruction, layouts: tuple[str, ...], environment: Environment) -> tuple[str, str, str]:
    """Return the types of D, of A and B, and of C, which must go together. Raises PtxError."""
    types = instruction.types
    if len(types) == 2:
        types = (types[0], "f16", "f16", types[1])
    if len(types) != 4 or types[1] not in _TYPES or types[2] != types[1] or (types[3] != types[0] and types[1] != "f16"):
        rule = f"have A and B of one type ({', '.join(_TYPES)}) and C of the type of D, but for f16"
        raise refuse(instruction, f"wmma.mma must {rule}, not {'.'.join(types)}", environment)
    d_type, a_type, _, c_type = types
    for which, type_ in (("D", d_type), ("C", c_type)):
        if type_ not in (legal := _TYPES[a_type][1]):
            raise refuse(instruction, f"wmma.mma {which} of {a_type} must be {' or '.join(legal)}, not {type_}", environment)
    if _BITS[a_type] < 8 and layouts != ("row", "col"):
        raise refuse(instruction, f"wmma.mma layouts of {a_type} must be .row.col, not .{'.'.join(layouts)}", environment)
    has_operation = instruction.has("popc") and (instruction.has("xor") or instruction.has("and"))
    if has_operation != (a_type == "b1"):
        raise refuse(
            instruction, f"wmma.mma of {a_type} must {'' if a_type == 'b1' else 'not '}name .xor.popc or .and.popc", environment
        )
    return d_type, a_type, c_type
