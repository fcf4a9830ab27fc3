"""What an assembler makes of a kernel's instructions: which of them become machine instructions, and how many.

A program runs in the order of its text, but a GPU runs what ``ptxas`` has made of it: dead and repeated computations are
gone, moves and address arithmetic are folded into their users, what a loop does not change stands in front of it. This
module predicts that for one function, as an :class:`Outline` of steps and basic blocks; :mod:`h100sim.schedule` orders it.
``validate/sass.py`` compares the number of instructions with real machine code.

Measured: machine code of ptxas 13.0 (validate/silicon/sass.json).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import state as S
from .isa.lane import LaneOp
from .isa.machine import MachineOp
from .ptx.module import Address, Function, Imm, Instruction, Label, Operand, Reg, Special, Symbol, registers_in

#: Bytes of a machine instruction. Spec: CUDA Binary Utilities, "Instruction Set Reference" (128 bits since Volta).
INSTRUCTION_BYTES = 16
#: Bytes of code that are fetched together. Assumed: a line of the caches.
LINE_BYTES = 128

LANE, SOFT, HARD, BRANCH = "lane", "soft", "hard", "branch"

#: Machine instructions that depend on nothing but their operands: they are ordered like arithmetic.
_SOFT = ("shfl", "elect", "vote", "redux", "match", "movmatrix", "activemask", "mapa", "getctarank", "isspacep", "cvta")
#: Opcodes that vanish: renamings of registers and address spaces, and halves of wide registers.
_RENAMES = ("mov", "cvta", "cvt.u64.u32", "cvt.u32.u64", "cvt.s32.u32", "cvt.u32.s32", "cvt.s64.u32", "cvt.u32.s64", "cvt.s32.s64")
#: How many machine instructions an opcode becomes, by its start, where that is not one. Measured: ptxas 13.0.
_EXPANSIONS = {
    "div.u32": 14, "div.s32": 20, "rem.u32": 16, "rem.s32": 22, "div.u64": 60, "div.s64": 70, "rem.u64": 60, "rem.s64": 70,
    "div.full.f32": 9, "div.full.ftz.f32": 6, "div.approx.f32": 6, "div.approx.ftz.f32": 2, "div.rn.f32": 9, "div.rn.ftz.f32": 9,
    "sqrt.rn.f32": 8, "rcp.rn.f32": 7, "ex2.approx.f32": 5, "lg2.approx.f32": 5, "rcp.approx.f32": 8, "sqrt.approx.f32": 5,
    "rsqrt.approx.f32": 5, "sin.approx": 2, "cos.approx": 2, "bfi": 3, "add.s64": 2, "add.u64": 2, "sub.s64": 2, "sub.u64": 2,
    "and.b64": 2, "xor.b64": 2, "shl.b64": 3, "shr.u64": 3, "shr.s64": 3, "selp.b64": 2, "mul.lo.s64": 4,
    "mul.lo.u64": 4, "min.s64": 4, "max.s64": 4, "bfe": 2,
    "mbarrier.try_wait": 5, "mbarrier.test_wait": 2, "mbarrier.init": 2, "cp.async.bulk.tensor": 10, "elect": 4,
    "fence.proxy.async": 2, "setmaxnreg": 4, "wgmma.mma_async": 2, "wgmma.commit_group": 0,
}  # fmt: skip
#: How many instructions a division by what its block has divided by before becomes: all but the reciprocal. Measured: the same.
_DIVISIONS = {"div.approx.ftz.f32": 1, "div.approx.f32": 2, "div.full.ftz.f32": 2, "div.full.f32": 3}
#: Cycles that the instructions around a special function take in front of it and behind it, by the start of its opcode: comparisons,
#: what they guard, corrections of the result. Measured: validate/silicon/load_latency.json (div.rn, sqrt.rn, lg2.approx, div.full by what
#: was divided by before); others by the stall counts of ptxas 13.0 for the same chain.
_AROUND = {
    "div.full.f32": 28, "div.full.ftz.f32": 24, "div.approx.f32": 24, "div.approx.ftz.f32": 4, "div.rn.f32": 27, "div.rn.ftz.f32": 27,
    "sqrt.rn.f32": 25, "sqrt.rn.ftz.f32": 25, "rcp.rn.f32": 41, "rcp.rn.ftz.f32": 41,
    "rcp.approx.f32": 24, "ex2.approx.f32": 22, "lg2.approx.f32": 22, "sqrt.approx.f32": 22,
    "rsqrt.approx.f32": 22, "sin.approx": 4, "cos.approx": 4,
}  # fmt: skip
#: What is never below 0, so that ex2.approx.f32 needs nothing around it.
_NEVER_NEGATIVE = ("abs", "ex2")
_LOGIC = ("and", "or", "xor", "not", "lop3")


@dataclass(slots=True)
class Step:
    """One PTX instruction as the scheduler sees it. ``count`` is how many machine instructions it becomes; ``at`` the cycle
    in its block at which the first of them issues, ``hold`` the cycles until the next instruction of the text issues, ``beside``
    the same beside wgmma.
    ``idle``: cycles in front of it that it is planned to wait for a load; ``hidden``: the part of its latency that is over before the text
    comes to it.
    ``space``: of a load whose result this block uses ("" otherwise): its latency is part of the schedule, and it may come forward past
    arithmetic. ``stores``: the only space that it writes to or orders.
    ``latency``: until its results are there, of an instruction of the units; of arithmetic, what the instructions around a special function
    add to that.
    ``busy``: cycles of its pipe, of an instruction of the units. ``wall``: nothing moves across it (volatile accesses, reads of the clock).
    ``books``: the steps whose pipes are taken there, which the schedule has at that time; ``address``: where its code is."""

    kind: str
    pipe: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    count: float = 1.0
    special: bool = False
    space: str = ""
    stores: str = ""
    busy: int = 1
    wall: bool = False
    latency: int = 0
    at: int = 0
    hold: int = 0
    beside: int = 0
    idle: int = 0
    hidden: int = 0
    books: tuple[int, ...] = ()
    address: int = 0


@dataclass
class Block:
    """A basic block: instructions ``first`` up to ``end``, and how many loops it stands in."""

    first: int
    end: int
    depth: int = 0


@dataclass
class Outline:
    """What a function looks like to the scheduler; made once, scheduled for the numbers of each device."""

    steps: list[Step]
    blocks: list[Block]


# --- what each instruction reads, writes and becomes ------------------------------------------------------------------


def outline(function: Function, lowered: Sequence[LaneOp | MachineOp | None]) -> Outline:
    """Return the steps and blocks of a function whose instructions were lowered (None for a branch)."""
    code = function.instructions
    steps = [_step(instruction, op) for instruction, op in zip(code, lowered, strict=True)]
    blocks = _blocks(function)
    accumulators = tuple({r for i, s in zip(code, steps, strict=True) if i.opcode.startswith("wgmma.mma") for r in s.writes})
    for k, instruction in enumerate(code):
        # Results of wgmma are there behind a wait, and a fence stands between them and everything before.
        if instruction.opcode.startswith(("wgmma.wait_group", "wgmma.fence")):
            steps[k].reads, steps[k].writes = accumulators, accumulators
    _fold(code, steps, blocks)
    _find_loads(code, steps, blocks)
    address = 0.0
    for step in steps:
        step.address = int(address * INSTRUCTION_BYTES)
        address += step.count
    return Outline(steps, blocks)


def _step(instruction: Instruction, op: LaneOp | MachineOp | None) -> Step:
    guard = (instruction.guard.register.index,) if instruction.guard is not None else ()
    count = float(_expansion(instruction.opcode))
    if op is None:
        return Step(BRANCH, "alu", guard, (), 1.0)
    if isinstance(op, LaneOp):
        ins: tuple[Operand, ...] = tuple(operand for operand, _ in op.ins)
        reads, writes = (*registers_in(ins), *guard), tuple(registers_in(op.outs))
        # A guarded instruction keeps what it does not write.
        reads = (*reads, *writes) if guard else reads
        special = any(isinstance(operand, Special) for operand in ins)
        around = _by_start(_AROUND, instruction.opcode) or 0
        return Step(LANE, _pipe(instruction, op), reads, writes, count, special, latency=around)
    reads = (*registers_in(operand for operand, _ in op.ins), *guard)
    writes = tuple(registers_in(op.outs))
    if instruction.opcode.startswith("wgmma.mma"):
        reads = (*reads, *writes)
    kind = SOFT if instruction.base in _SOFT or instruction.base == "mma" else HARD
    wall = "volatile" in instruction.modifiers or instruction.base == "mov"
    return Step(kind, op.pipe, reads, writes, count, busy=op.issue, wall=wall, latency=op.latency)


def _find_loads(code: Sequence[Instruction], steps: list[Step], blocks: Sequence[Block]) -> None:
    """Mark the loads whose results are used in their own block: an assembler places them so that they are there in time."""
    for block in blocks:
        used: set[int] = set()
        for k in range(block.end - 1, block.first - 1, -1):
            step, instruction = steps[k], code[k]
            is_load = instruction.base in ("ld", "ldmatrix") and step.kind == HARD and not step.wall and step.writes
            if is_load and all(register in used for register in step.writes[:1]):
                step.kind, step.space = SOFT, _space(instruction)
                step.busy = 8 if len(step.writes) >= 4 else 4
            elif instruction.base in ("st", "stmatrix") and step.kind == HARD and not step.wall:
                step.stores = _space(instruction)
            elif instruction.opcode.startswith("fence.proxy.async.shared"):
                # Loads of other spaces come forward past it, too. Measured: ptxas 13.0, gemm_1_mma_sync and gemm_2_wgmma.
                step.stores = "shared"
            used -= set(step.writes)
            used |= set(step.reads)


def _space(instruction: Instruction) -> str:
    if instruction.base in ("ldmatrix", "stmatrix"):
        return "shared"
    return next((m for m in ("shared", "global", "param", "const", "local") if _names(instruction, m)), "global")


def _names(instruction: Instruction, space: str) -> bool:
    return any(modifier == space or modifier.startswith(space + "::") for modifier in instruction.modifiers)


def _expansion(opcode: str) -> int:
    parts = opcode.split(".")
    if parts[0] in ("setp", "set") and parts[-1] in ("s64", "u64", "b64"):
        return 2
    found = _by_start(_EXPANSIONS, opcode)
    return 1 if found is None else found


def _by_start(table: Mapping[str, int], opcode: str) -> int | None:
    """Return the entry of a table with the longest start of an opcode."""
    parts = opcode.split(".")
    return next((table[start] for n in range(len(parts), 0, -1) if (start := ".".join(parts[:n])) in table), None)


def _pipe(instruction: Instruction, op: LaneOp) -> str:
    pipe = {"fmaheavy": "imad"}.get(op.form.pipe, op.form.pipe)
    if instruction.base == "cvt" and pipe == "cvt" and any(t in ("bf16x2", "f16x2") for t in instruction.types):
        return "alu"
    return pipe if pipe in S.PIPES else "alu"


def _blocks(function: Function) -> list[Block]:
    code = function.instructions
    leaders = {0} | set(function.labels.values())
    for k, instruction in enumerate(code):
        if instruction.base in ("bra", "brx", "ret", "exit", "trap", "call"):
            leaders.add(k + 1)
            leaders |= {o.target for o in instruction.operands if isinstance(o, Label)}
    starts = sorted(k for k in leaders if k < len(code))
    blocks = [Block(a, b) for a, b in zip(starts, [*starts[1:], len(code)], strict=True)]
    for first, last in _loops(code):
        for block in blocks:
            if first <= block.first and block.end <= last + 1:
                block.depth += 1
    return blocks


def _loops(code: Sequence[Instruction]) -> list[tuple[int, int]]:
    """Return (first, last instruction) of each loop: what a branch backwards encloses."""
    found = []
    for k, instruction in enumerate(code):
        if instruction.base == "bra":
            target = instruction.operands[0]
            if isinstance(target, Label) and target.target <= k:
                found.append((target.target, k))
    return found


# --- what an assembler removes ----------------------------------------------------------------------------------------


def _fold(code: Sequence[Instruction], steps: list[Step], blocks: Sequence[Block]) -> None:
    uses: dict[int, list[int]] = defaultdict(list)
    definitions: dict[int, list[int]] = defaultdict(list)
    for k, step in enumerate(steps):
        for register in set(step.reads):
            uses[register].append(k)
        for register in set(step.writes):
            definitions[register].append(k)
    _drop_dead(steps, uses, definitions)
    _drop_renames(code, steps)
    _drop_repeats(code, steps, blocks)
    _merge(code, steps, uses, definitions)
    _hoist(code, steps, definitions)
    _find_uniform(code, steps, uses, definitions)


def _drop_dead(steps: list[Step], uses: dict[int, list[int]], definitions: dict[int, list[int]]) -> None:
    """Give nothing to computations whose results nobody reads."""
    remaining = {register: len(users) for register, users in uses.items()}
    work = [k for k, s in enumerate(steps) if s.kind in (LANE, SOFT)]
    while work:
        k = work.pop()
        step = steps[k]
        others = [r for r in step.writes if r not in step.reads]
        if step.count and step.kind == LANE and others and all(not remaining.get(r) for r in step.writes):
            step.count = 0.0
            for register in set(step.reads):
                remaining[register] -= 1
                work += [j for j in definitions.get(register, ()) if not remaining[register]]


def _drop_renames(code: Sequence[Instruction], steps: list[Step]) -> None:
    for instruction, step in zip(code, steps, strict=True):
        if step.kind not in (LANE, SOFT) or instruction.guard is not None:
            continue
        if not any(instruction.opcode == r or instruction.opcode.startswith(r + ".") for r in _RENAMES):
            continue
        source = instruction.operands[-1]
        if isinstance(source, Imm) and source.value == 0 and instruction.types[-1:] == ("f32",):
            step.count = min(step.count, 0.5)  # two accumulators are cleared at once
        elif isinstance(source, Special):
            step.count = min(step.count, 1.0)
        else:
            step.count = 0.0


def _drop_repeats(code: Sequence[Instruction], steps: list[Step], blocks: Sequence[Block]) -> None:
    """Give nothing to a computation that its block has done already with the same values."""
    for block in blocks:
        version: dict[int, int] = {}
        known: set[tuple] = set()
        never_negative: set[int] = set()
        for k in range(block.first, block.end):
            step = steps[k]
            if (
                step.kind == LANE
                and step.count
                and code[k].base != "mov"
                and not step.special
                and not set(step.reads) & set(step.writes)
            ):
                values = tuple((r, version.get(r, 0)) for r in step.reads)
                key = (code[k].opcode, values, tuple(_constant(o) for o in code[k].operands[1:]))
                if key in known:
                    step.count = 0.0
                known.add(key)
            if code[k].opcode in _DIVISIONS and step.count:
                divisor = code[k].operands[-1]
                by = version.get(divisor.register.index, 0) if isinstance(divisor, Reg) else 0
                inverse = (code[k].opcode, divisor, by)
                if inverse in known:
                    # They follow each other.
                    step.count, step.pipe = float(_DIVISIONS[code[k].opcode]), "fma"
                    step.latency = 4 * (_DIVISIONS[code[k].opcode] - 1)
                known.add(inverse)
            if code[k].opcode == "ex2.approx.f32" and not never_negative.isdisjoint(step.reads[:1]):
                step.count, step.latency = min(step.count, 1.0), 0
            never_negative -= set(step.writes)
            never_negative |= set(step.writes) if code[k].base in _NEVER_NEGATIVE and code[k].guard is None else set()
            for register in step.writes:
                version[register] = k + 1


def _constant(operand: Operand) -> object:
    return operand if isinstance(operand, Imm | Symbol) else None


def _merge(code: Sequence[Instruction], steps: list[Step], uses: dict[int, list[int]], definitions: dict[int, list[int]]) -> None:
    """Fold what one machine instruction does together: offsets into addresses, shifts into sums, logic of three inputs."""
    for instruction, step in zip(code, steps, strict=True):
        if step.kind != LANE or not step.count or len(step.writes) != 1 or instruction.guard is not None:
            continue
        register = step.writes[0]
        users = uses.get(register, [])
        if len(definitions[register]) != 1 or not users:
            continue
        is_offset = instruction.base in ("add", "sub") and isinstance(instruction.operands[-1], Imm)
        if is_offset and all(steps[u].kind == HARD and _is_base(code[u], register) for u in users):
            step.count = 0.0
        elif len(users) == 1 and steps[users[0]].kind == LANE:
            user, with_ = code[users[0]].base, code[users[0]]
            power = isinstance(instruction.operands[-1], Imm)
            is_scaled = instruction.base in ("shl", "mul") and power and user == "add" and with_.guard is None
            inputs = set(step.reads) | set(steps[users[0]].reads)
            if is_scaled or (instruction.base in _LOGIC and user in _LOGIC and len(inputs) <= 4):
                step.count = 0.0


def _is_base(instruction: Instruction, register: int) -> bool:
    return any(
        isinstance(o, Address) and isinstance(o.base, Reg) and o.base.register.index == register for o in instruction.operands
    )


def _hoist(code: Sequence[Instruction], steps: list[Step], definitions: dict[int, list[int]]) -> None:
    """Give nothing to what a loop does not change: it is computed in front of it."""
    for first, last in _loops(code):
        inside = range(first, last + 1)
        fixed: set[int] = set()
        for k in inside:
            step = steps[k]
            if step.kind != LANE or code[k].guard is not None or len(step.writes) != 1:
                continue
            constant = all(r in fixed or not any(d in inside for d in definitions[r]) for r in step.reads)
            if constant and len(definitions[step.writes[0]]) == 1:
                fixed.add(step.writes[0])
                step.count = 0.0


def _find_uniform(
    code: Sequence[Instruction], steps: list[Step], uses: dict[int, list[int]], definitions: dict[int, list[int]]
) -> None:
    """Give arithmetic that makes nothing but descriptors of wgmma to the uniform datapath, which adds 64 bits at once.
    Measured: ptxas 13.0, ``UIADD3.64``."""
    descriptors = {
        operand.register.index
        for instruction in code
        if instruction.opcode.startswith("wgmma.mma")
        for operand in instruction.operands
        if isinstance(operand, Reg) and operand.register.type.endswith("64")
    }
    makers = [
        s.kind == LANE and i.opcode.endswith(("64", "64.u32")) and len(s.writes) == 1 and i.guard is None
        for i, s in zip(code, steps, strict=True)
    ]
    found = {register for register, places in definitions.items() if all(makers[k] for k in places)}

    def serves(register: int, user: int) -> bool:
        if steps[user].pipe == "tensor":
            return register in descriptors
        return makers[user] and steps[user].writes[0] in found

    while wrong := {register for register in found if not all(serves(register, user) for user in uses.get(register, ()))}:
        found -= wrong
    for register in found:
        for k in definitions[register]:
            steps[k].pipe = "uniform"
            if code[k].base in ("add", "sub"):
                steps[k].count = min(steps[k].count, 1.0)


def machine_instructions(outlined: Outline) -> float:
    """Return how many machine instructions a function is predicted to become."""
    return sum(step.count for step in outlined.steps)
