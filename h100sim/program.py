"""From decoded PTX to a program that the machine runs: one record per instruction, operands as rows of a register file.

The register file of a warp is a block of rows, one value per lane. First come rows that are the same for every warp
(immediates, addresses of symbols, launch constants) and rows that are filled when a CTA starts (%tid, %laneid, ...), then the
registers. So an instruction sees only rows, whatever its operands were.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from . import engine, outline, schedule
from . import state as S
from .compile_ahead import compile_ahead
from .contraction import contract
from .ctas import FILLS, RANK, WIDE_RANK
from .devices import DeviceModel, Issue
from .errors import PtxError, Where
from .hazard import UnwrittenRead
from .isa import calls, collective, control, lane, stack  # noqa: F401  (registers its instructions)
from .isa.machine import NEGATED, PREDICATE, WIDE, MachineOp, lowering_of
from .isa.operands import wrong_immediate, wrong_operand
from .isa.refused import is_refused, reason_of
from .isa.targets import missing_target
from .linker import Linked, link
from .native import address_of
from .ptx.module import Function, Imm, Instruction, Label, Module, Operand, Reg, Sink, Special, Symbol, Variable, Vector
from .ptx.places import Places
from .units import (  # noqa: F401  (registers their instructions)
    async_stores,
    atomics,
    bulk_copies,
    bulk_groups,
    cache_hints,
    clusters,
    cp_async,
    fences,
    load_store,
    matrix_moves,
    mbarriers,
    mma_sync,
    named_barriers,
    tensor_copies,
    tensor_core,
    tensor_maps,
    wmma,
)
from .unwritten import unwritten_reads
from .variables import place_shared

#: Special registers that are the same for every thread of a launch.
LAUNCH_CONSTANTS = (
    "ntid.x", "ntid.y", "ntid.z", "nctaid.x", "nctaid.y", "nctaid.z", "nwarpid", "nsmid", "gridid",
    "cluster_nctaid.x", "cluster_nctaid.y", "cluster_nctaid.z", "cluster_nctarank",
    "nclusterid.x", "nclusterid.y", "nclusterid.z", "is_explicit_cluster",
    "total_smem_size", "dynamic_smem_size", "aggr_smem_size", "reserved_smem_offset_begin", "reserved_smem_offset_end",
    "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1", "WARP_SZ", "current_graph_exec",
    *(f"{name}.w" for name in (
        "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid",
    )),
)  # fmt: skip

_SCRATCH_BYTES = 512


@dataclass
class Program:
    """A kernel ready to launch: ``function`` is flat, with all that it calls (see :mod:`h100sim.linker`). Row offsets are bytes
    from the start of a warp's register file. ``local_bytes`` is the stack of a lane, without room for recursion."""

    module: Module
    function: Function
    instructions: np.ndarray
    ops: np.ndarray
    slots: np.ndarray
    template_bytes: int
    register_bytes: int
    ready_slots: int
    fills: list[tuple[int, int]]
    constants: list[tuple[int, Operand | tuple[str, str], int]]
    registers: dict[int, int]
    static_shared: dict[str, int]
    static_shared_bytes: int
    dynamic_shared_offset: int
    has_dynamic_shared: bool
    local_offsets: dict[str, int]
    local_bytes: int
    linked: Linked
    outline: outline.Outline | None = None
    #: Reads of registers that nothing can have written.
    unwritten: tuple[UnwrittenRead, ...] = ()
    #: The numbers that the schedule in ``instructions`` was made for.
    scheduled_for: tuple[Issue, tuple[int, ...]] | None = None

    @cached_property
    def lines(self) -> tuple[int, ...]:
        return tuple(i.line for i in self.function.instructions)

    @cached_property
    def opcodes(self) -> tuple[str, ...]:
        return tuple(i.opcode for i in self.function.instructions)

    @cached_property
    def sources(self) -> tuple[tuple[str, int] | None, ...]:
        files = self.module.files
        return tuple((files.get(i.source[0], "?"), i.source[1]) if i.source else None for i in self.function.instructions)


def width_of_type(type_: str) -> int:
    """Return the width in bits of a PTX type name ("pred" is 1)."""
    if type_ == "pred":
        return 1
    found = re.match(r"[a-z]+?(\d+)(?:x(\d))?$", type_)
    if not found:
        return 32
    return int(found[1]) * int(found[2] or 1)


def immediate_bits(operand: Imm, type_: str) -> int:
    """Return the bits of an immediate as an operand of a type."""
    width = max(width_of_type(type_), 1)
    value = operand.value
    if operand.kind == "f64" and type_ in ("f32", "b32"):
        value = struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", value))[0]))[0]
    elif operand.kind == "f32" and type_ in ("f64", "b64"):
        value = struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", value))[0]))[0]
    elif type_ == "pred":
        return 1 if value else 0
    return value & ((1 << width) - 1)


class _Decoder:
    """Turns one function into a Program; it is the environment that lowerings ask."""

    def __init__(self, module: Module, linked: Linked):
        function = linked.function
        self.module, self.function, self.filename, self.linked = module, function, module.filename, linked
        #: The instruction that is being lowered.
        self.pc = 0
        self.places = Places(function.instructions, linked.joins)
        self.ops: list[int] = []
        self.slots: list[int] = []
        self.constants: list[tuple[int, Operand | tuple[str, str], int]] = []
        self.constant_rows: dict[object, int] = {}
        self.fills: list[tuple[int, int]] = []
        self.template_bytes = _SCRATCH_BYTES
        self.registers: dict[int, int] = {}
        self.register_types: dict[int, str] = {}
        self.slot_of: dict[int, int] = {}
        self.static_shared, self.static_bytes, self.dynamic_offset, self.dynamic = place_shared(module, function)

    # What lowerings ask.
    def space_of(self, symbol: Symbol) -> str:
        variable = self.variable(symbol.name)
        if variable is not None:
            return variable.space
        return "param" if any(p.name == symbol.name for p in self.function.parameters) else "func"

    def variable(self, name: str) -> Variable | None:
        for variable in self.function.variables:
            if variable.name == name:
                return variable
        return self.module.variables.get(name)

    # Rows.
    def constant_row(self, key: object, value: Operand | tuple[str, str], width: int) -> int:
        if key not in self.constant_rows:
            self.constant_rows[key] = self.template_bytes
            self.constants.append((self.template_bytes, value, width))
            if isinstance(value, Symbol) and value.name and self.space_of(value) == "shared":
                self.fills.append((WIDE_RANK if width == 64 else RANK, self.template_bytes))
            self.template_bytes += 64 if width == 1 else 128 if width <= 32 else 256
        return self.constant_rows[key]

    def fill_row(self, name: str) -> int:
        key = ("fill", name)
        if key not in self.constant_rows:
            self.constant_rows[key] = self.template_bytes
            self.fills.append((FILLS.index(name), self.template_bytes))
            self.template_bytes += 128
        return self.constant_rows[key]

    def row(self, operand: Operand, type_: str, wide: bool, instruction: Instruction) -> tuple[int, int]:
        """Return (offset or ~register index, flags) of an operand; register rows get their place later."""
        if isinstance(operand, Reg):
            if operand.component is not None:
                raise self.refuse(instruction, "vector register components are not supported")
            self.register_types[operand.register.index] = operand.register.type
            width = width_of_type(operand.register.type)
            flags = WIDE if width >= 64 else PREDICATE if width == 1 else 0
            return ~operand.register.index, flags | (NEGATED if operand.negated else 0)
        if isinstance(operand, Sink):
            return 0, WIDE if wide else PREDICATE if type_ == "pred" else 0
        if isinstance(operand, Imm):
            if wrong := wrong_immediate(operand, type_):
                raise self.refuse(instruction, f"{instruction.base} {wrong}")
            bits = immediate_bits(operand, type_)
            width = 64 if wide else 1 if type_ == "pred" else 32
            return self.constant_row(("imm", bits, width), Imm(bits), width), self.flags(width)
        if isinstance(operand, Symbol):
            width = 64 if wide else 32
            return self.constant_row(("sym", operand, width), operand, width), self.flags(width)
        if isinstance(operand, Special):
            if operand.name == "cc":
                # A row of its own that starts as 0; it is not in the scoreboard, since carry chains issue in order.
                return self.constant_row("cc", Imm(0), 1), PREDICATE
            if operand.name in FILLS:
                return self.fill_row(operand.name), 0
            if operand.name in LAUNCH_CONSTANTS or operand.name.startswith("envreg"):
                width = 64 if wide else 1 if type_ == "pred" else 32
                return self.constant_row(("launch", operand.name, width), ("launch", operand.name), width), self.flags(width)
            raise self.refuse(instruction, f"special register %{operand.name} is not supported")
        raise self.refuse(instruction, f"operand {operand} is not supported here")

    @staticmethod
    def flags(width: int) -> int:
        return WIDE if width == 64 else PREDICATE if width == 1 else 0

    def refuse(self, instruction: Instruction, message: str, rule: str = "") -> PtxError:
        return PtxError(message, Where(self.filename, instruction.line, instruction.column), rule)

    # Decoding.
    def decode(self) -> Program:
        code = self.function.instructions
        table = np.zeros(len(code) + 1, S.INSTRUCTION)
        table["at"] = -1
        joins = self.linked.joins
        plans: list[tuple[list[tuple[int, int]], list[int], list[int]]] = []
        lowered = self.lower_all()
        unwritten = unwritten_reads(self.linked, lowered)
        if not self.module.is_debug:
            kept = contract(self.function, lowered)
            self.function = replace(self.function, registers=(*self.function.registers, *kept))
        compile_ahead(handlers(lowered))
        for k, instruction in enumerate(code):
            record = table[k]
            record["reconverge"], record["target"], record["guard"] = joins[k], -1, -1
            plans.append(self.decode_one(instruction, lowered[k], record))
        # A last record ends lanes that run off the end, as ptxas does.
        last = table[len(code)]
        last["kind"], last["function"], last["guard"], last["latency"] = S.MACHINE, address_of(control.end_lanes), -1, 1
        last["target"] = last["reconverge"] = -1
        self.place_registers()
        for k, (rows, inputs, outputs) in enumerate(plans):
            record = table[k]
            record["ops"] = len(self.ops) * 4
            self.ops.extend(self.offset(row) | row[1] for row in rows)
            record["slots"], record["inputs"], record["outputs"] = len(self.slots), len(inputs), len(outputs)
            self.slots.extend(self.slot(r) for r in inputs)
            self.slots.extend(self.slot(r) for r in outputs)
            guard = code[k].guard
            if guard is not None:
                record["guard"] = self.registers[guard.register.index]
                record["guard_negated"] = int(guard.negated)
        return Program(
            self.module,
            self.function,
            table,
            np.array(self.ops or [0], np.int32),
            np.array(self.slots or [0], np.int32),
            self.template_bytes,
            self.register_bytes,
            len(self.slot_of) + 1,
            self.fills,
            self.constants,
            self.registers,
            self.static_shared,
            self.static_bytes,
            self.dynamic_offset,
            self.dynamic,
            self.linked.offsets,
            self.linked.stack_bytes,
            self.linked,
            outline.outline(self.function, lowered),
            unwritten,
        )

    def lower_all(self) -> list[lane.LaneOp | MachineOp | None]:
        """Lower every instruction; None is a branch."""
        found: list[lane.LaneOp | MachineOp | None] = []
        code = self.function.instructions
        for self.pc, instruction in enumerate(code):
            found.append(None if instruction.base == "bra" else self.lower(instruction))
        return found

    def decode_one(
        self, instruction: Instruction, op: lane.LaneOp | MachineOp | None, record: np.void
    ) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """Fill the record of one instruction; return its operand rows and its scoreboard inputs and outputs."""
        guard_input = []
        if instruction.guard is not None:
            register = instruction.guard.register
            self.register_types[register.index] = register.type
            guard_input = [register.index]
        if op is None:
            target = instruction.operands[0]
            assert isinstance(target, Label)
            record["kind"], record["target"], record["latency"] = S.BRANCH, target.target, 1
            record["pipe"] = S.PIPES.index("alu")
            return [], guard_input, []
        if isinstance(op, MachineOp):
            return self.decode_machine(instruction, op, record, guard_input)
        form = op.form
        record["kind"], record["function"] = S.LANE, lane.compile_form(form)
        pipe = _PIPE_OF.get(form.pipe, "alu")
        record["pipe"], record["latency"], record["issue"] = S.PIPES.index(pipe), 0, 0
        rows = []
        for operand, kind in zip(op.outs, form.outs, strict=True):
            if not isinstance(operand, Reg | Sink) and operand != Special("cc"):
                raise self.refuse(instruction, f"result of {instruction.opcode} must go to a register, not to a constant")
            rows.append(self.lane_row(operand, kind, kind, instruction))
        for (operand, type_), kind in zip(op.ins, form.ins, strict=True):
            rows.append(self.lane_row(operand, type_, kind, instruction))
        outputs = [~r for r, _ in rows[: len(op.outs)] if r < 0]
        inputs = [~r for r, _ in rows[len(op.outs) :] if r < 0]
        return [(r, 0) for r, _ in rows], guard_input + inputs, outputs

    def lane_row(self, operand: Operand, type_: str, kind: str, instruction: Instruction) -> tuple[int, int]:
        return self.row(operand, "pred" if kind == "pred" else type_, kind in ("u64", "u128"), instruction)

    def lower(self, instruction: Instruction) -> lane.LaneOp | MachineOp:
        if needed := missing_target(instruction, self.module.target):
            raise self.refuse(
                instruction, f"instruction {instruction.opcode} must be for .target {needed}, not {self.module.target}"
            )
        if is_refused(instruction.opcode):
            raise self.refuse(instruction, reason_of(instruction.opcode))
        if wrong := wrong_operand(instruction):
            raise self.refuse(instruction, wrong)
        try:
            return self.lowered(instruction)
        except (IndexError, ValueError, TypeError, AttributeError, AssertionError):
            # A lowering takes its operands as the manual lists them: some are missing here, or are of another kind.
            message = f"operands of {instruction.opcode} must be those that the manual lists, not these {len(instruction.operands)}"
            raise self.refuse(instruction, message, f'PTX ISA 9.1, "{instruction.base}"') from None

    def lowered(self, instruction: Instruction) -> lane.LaneOp | MachineOp:
        if instruction.base == "mov" and isinstance(instruction.operands[1], Special):
            name = instruction.operands[1].name
            if name in control.CLOCKS:
                return control.lower_clock(instruction, name)
            if instruction.has("v4"):
                axes = Vector(tuple(Special(f"{name}.{axis}") for axis in "xyzw"))
                instruction = replace(instruction, operands=(instruction.operands[0], axes))
        if instruction.has("return"):
            return calls.lower_return(instruction, self)
        if lowering := lowering_of(instruction):
            return lowering(instruction, self)
        if op := lane.lower(instruction):
            return op
        raise self.refuse(instruction, reason_of(instruction.opcode))

    def lower_and_check(self, instruction: Instruction) -> lane.LaneOp | MachineOp:
        """Lower an instruction and look for a row for each of its operands."""
        op = self.lower(instruction)
        if isinstance(op, MachineOp):
            for operand, type_ in (*((out, "") for out in op.outs), *op.ins):
                self.row(operand, type_, width_of_type(type_) == 64, instruction)
        else:
            for (operand, type_), kind in zip(op.ins, op.form.ins, strict=True):
                self.lane_row(operand, type_, kind, instruction)
        return op

    def decode_machine(
        self, instruction: Instruction, op: MachineOp, record: np.void, guard_input: list[int]
    ) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        record["kind"], record["function"] = S.MACHINE, address_of(op.handler)
        if op.completion is not None:
            record["completion"] = address_of(op.completion)
        record["pipe"], record["latency"], record["issue"] = S.PIPES.index(op.pipe), op.latency, op.issue
        record["ends_lanes"] = int(op.handler is control.end_lanes and instruction.guard is None)
        for k, value in enumerate(op.integers):
            record[f"imm{k}"] = np.int64(value - (1 << 64) if value >= 1 << 63 else value)
        rows = [self.row(o, "", True, instruction) for o in op.outs]
        rows += [self.row(o, t, width_of_type(t) == 64, instruction) for o, t in op.ins]
        behind = [self.row(o, "", True, instruction) for o in op.unscored] + [(word, 0) for word in op.words]
        if not op.scored:
            return rows + behind, guard_input, []
        outputs = [~r for r, _ in rows[: len(op.outs)] if r < 0]
        inputs = [~r for r, _ in rows[len(op.outs) :] if r < 0]
        return rows + behind, guard_input + inputs, outputs

    def place_registers(self) -> None:
        offset = self.template_bytes = (self.template_bytes + 63) & ~63
        for index, type_ in sorted(self.register_types.items()):
            self.registers[index] = offset
            self.slot_of[index] = len(self.slot_of)
            width = width_of_type(type_)
            offset += 64 if width == 1 else 128 if width <= 32 else 256 if width == 64 else 512
        self.register_bytes = offset

    def offset(self, row: tuple[int, int]) -> int:
        return row[0] if row[0] >= 0 else self.registers[~row[0]]

    def slot(self, index: int) -> int:
        return self.slot_of[index]


def handlers(lowered: Sequence[lane.LaneOp | MachineOp | None]) -> set[Callable]:
    """Return every function that a program needs compiled, the engine's included."""
    found: set[Callable] = {engine.run, control.end_lanes}
    for op in lowered:
        if isinstance(op, lane.LaneOp):
            found.add(lane.function_of(op.form))
        elif isinstance(op, MachineOp):
            found |= {op.handler, *op.uses, *([op.completion] if op.completion else [])}
    return found


_PIPE_OF = {
    "alu": "alu",
    "fma": "fma",
    "fmaheavy": "imad",
    "imad": "imad",
    "mufu": "mufu",
    "cvt": "cvt",
    "f64": "f64",
    "half": "half",
}


def decode(module: Module, function: Function) -> Program:
    """Decode an entry function. Raises PtxError naming an instruction that is not supported."""
    try:
        return _Decoder(module, link(module, function)).decode()
    except PtxError as error:
        # What lowers an operation does not know which file it came from.
        error.where = replace(error.where, file=error.where.file or module.filename)
        raise


def lower_program(module: Module, linked: Linked) -> list[lane.LaneOp | MachineOp | None]:
    """Return how the instructions of a linked entry are run, without compiling anything; None is a branch."""
    return _Decoder(module, linked).lower_all()


def lower_by_line(module: Module, function: Function) -> dict[int, lane.LaneOp | MachineOp | PtxError | None]:
    """Return how the instructions of an entry are run, by their lines, without compiling anything: None is a branch, a PtxError
    says why one is refused. Raises PtxError if the function cannot be linked."""
    decoder = _Decoder(module, link(module, function))
    found: dict[int, lane.LaneOp | MachineOp | PtxError | None] = {}
    for pc, instruction in enumerate(decoder.function.instructions):
        decoder.pc = pc
        try:
            found[instruction.line] = None if instruction.base == "bra" else decoder.lower_and_check(instruction)
        except PtxError as error:
            found[instruction.line] = error
    return found


def set_latencies(program: Program, model: DeviceModel) -> None:
    """Schedule a program for a device model: fill in when its instructions issue and how long they take their pipes."""
    loads = {
        "shared": model.shared.load_latency,
        "global": model.memory.l2_latency,
        "local": model.shared.load_latency,
        "param": 8,
        "const": 8,
    }
    numbers = model.issue, tuple(loads.values())
    if program.outline is None or program.scheduled_for == numbers:
        return
    predicates = {index for index, register in enumerate(program.function.registers) if register.type == "pred"}
    schedule.place(program.outline, predicates, model.issue, loads)
    schedule.fill(program.instructions, program.outline, model.issue)
    program.scheduled_for = numbers
