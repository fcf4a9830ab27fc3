"""Linking: an entry and every function that it can reach become one flat function.

The functions are put one behind the other with registers, labels and variables of their own. What the machine needs beyond
that is decided here, too:

- *Frames.* Each call gets a frame on the stack of every calling lane, which lies in local memory: a header (where to return,
  the caller's frame), the ``.param`` space of the signature (results, then parameters), then the ``.local`` variables and the
  ``.param`` variables that the body declares for its own calls, then registers. The hidden register ``%frame`` holds its
  address; the entry's frame is at 0. So the parameter space of a device function is memory of the lane, as the ABI of CUDA has
  it, and an address taken there is a local one.
- *Recursion.* Registers belong to a function, not to a call. Where a call may come back to its own function, it keeps the
  registers of its lanes in the frame until it returns.
- *Memory that a function takes* (``alloca``) lies at the other end of the stack. How much it is stands in the hidden register
  ``%dynamic``, which every call keeps, so that a return gives it back.
- *Returns.* A ``ret`` of a function is a branch to its one return record, where its lanes meet.
- *Indirect calls.* The candidates are the functions of the module whose address is taken and whose signature fits.

Spec: PTX ISA 9.1, "Control Flow Instructions: call, ret", "Parameter State Space", "Abstracting the ABI".
Measured: ptxas 13.0 (CUDA 13.0) decides what is legal: the address of a parameter of a ``.func`` is a local address, results
cannot be read nor parameters written, and functions that are only declared do not link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .control_flow import branch_targets, meeting_points
from .device_functions import DEVICE_FUNCTIONS
from .errors import PtxError, Where
from .frames import Frame, alignment, deepest_chain, lay_out, signature_layout, size_of
from .graphs import components
from .lanes import DEPTH
from .ptx.module import (
    Address,
    Function,
    Guard,
    Imm,
    Instruction,
    Label,
    Module,
    Operand,
    Pair,
    Parameter,
    Prototype,
    Reg,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
    symbols_of,
)
from .ptx.types import SIZES
from .serialised import serialised

_STACK = ("alloca", "stacksave", "stackrestore")
_CALL = 'PTX ISA 9.1, "Control Flow Instructions: call"'


@dataclass(frozen=True)
class Slot:
    """A piece of data that a call moves: an operand of the caller, or (None) memory at ``offset`` in the caller's frame."""

    operand: Operand | None
    offset: int
    size: int


@dataclass(frozen=True)
class Call:
    """A call instruction, resolved. ``arguments`` and ``results`` pair the caller's slot with the offset in the callee's frame;
    ``kept`` are (register, offset in the caller's frame, bytes); ``targets`` (number of the function, first instruction, bytes
    of its frame). ``device_function`` names one that the simulator provides."""

    arguments: tuple[tuple[Slot, int], ...]
    results: tuple[tuple[Slot, int], ...]
    kept: tuple[tuple[Register, int, int], ...]
    targets: tuple[tuple[int, int, int], ...]
    frame_bytes: int
    device_function: str = ""


@dataclass(frozen=True)
class Linked:
    """The flat ``function``. ``joins`` holds, for every instruction, where a branch's lanes meet again (-1: nowhere);
    ``calls`` and ``jumps`` (targets of ``brx.idx``) by instruction. ``offsets`` places what the entry declares in its frame of
    ``frame_bytes``; ``stack_bytes`` suffice for every chain of calls without recursion.
    ``dynamic`` holds what a lane has taken with ``alloca``, None where nothing does."""

    function: Function
    joins: list[int]
    calls: dict[int, Call]
    jumps: dict[int, tuple[int, ...]]
    frame: Register
    offsets: dict[str, int]
    frame_bytes: int
    stack_bytes: int
    is_recursive: bool
    dynamic: Register | None = None


@dataclass
class _Part:
    """A function that is linked: its place in the flat one, and the layout of its frame."""

    function: Function
    is_root: bool
    prefix: str
    frame: Frame = field(default_factory=Frame)
    first_register: int = 0
    start: int = 0
    index: list[int] = field(default_factory=list)
    return_at: int = 0


def link(module: Module, function: Function) -> Linked:
    """Return an entry with all that it reaches. Raises PtxError for calls that ptxas would refuse."""
    return _Linker(module, function).link()


def variable_key(function: str, name: str) -> str:
    """Return the name, unique in the module, of a variable that a function declares."""
    return f"{function}::{name}"


class _Linker:
    def __init__(self, module: Module, root: Function):
        self.module, self.root = module, root
        self.numbers = {name: k for k, name in enumerate(module.functions)}
        self.parts: dict[str, _Part] = {}
        self.callees: dict[str, set[str]] = {}
        self.code: list[Instruction] = []
        self.joins: list[int] = []
        self.calls: dict[int, Call] = {}
        self.jumps: dict[int, tuple[int, ...]] = {}
        self.component: dict[str, int] = {}
        self.recursive: set[str] = set()
        self._taken: list[str] | None = None

    def link(self) -> Linked:
        self._collect()
        callees = {name: self.callees.get(name, set()) for name in self.parts}
        cycles = components(callees)
        component = {name: k for k, names in enumerate(cycles) for name in names}
        count = 0
        for part in self.parts.values():
            part.first_register = count
            count += len(part.function.registers)
        self.frame = Register(count, "%frame", "b64")
        takes = any(i.base in _STACK for part in self.parts.values() for i in part.function.instructions)
        self.dynamic = Register(count + 1, "%dynamic", "b64") if takes else None
        self.recursive = {n for n, found in self.callees.items() if any(component[other] == component[n] for other in found)}
        self.component = component
        align = max(alignment(part.function) for part in self.parts.values())
        for name, part in self.parts.items():
            kept = self._registers(part) if name in self.recursive else ()
            part.frame = lay_out(part.function, part.is_root, (*kept, *self._hidden()[1:]), align)
        self._place()
        for part in self.parts.values():
            self._write(part)
        if len(self.code) >= DEPTH - 1:
            rule = f"must have fewer than {DEPTH - 1:,} instructions, not {len(self.code):,}"
            raise PtxError(f"kernel {self.root.name} {rule}", Where(self.module.filename))
        root = self.parts[self.root.name]
        return Linked(
            self._flat(), self.joins, self.calls, self.jumps, self.frame, root.frame.offsets, root.frame.size,
            deepest_chain(callees, cycles, {name: part.frame.size for name, part in self.parts.items()}, self.root.name),
            bool(self.recursive), self.dynamic,
        )  # fmt: skip

    def _hidden(self) -> tuple[Register, ...]:
        """Return the registers that the machine needs beside those of the text: ``%frame``, then ``%dynamic`` if there is any."""
        return (self.frame, self.dynamic) if self.dynamic else (self.frame,)

    # --- what is reached ----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Find the functions that the entry reaches, and who calls whom."""
        waiting = [self.root.name]
        while waiting:
            name = waiting.pop(0)
            if name in self.parts:
                continue
            function = serialised(self.module.functions[name])
            is_root = name == self.root.name
            self.parts[name] = _Part(function, is_root, "" if is_root else f"{name}::")
            self._check_registers(function, is_root)
            found: dict[str, None] = {}
            for instruction in function.instructions:
                if instruction.base == "call":
                    found.update(dict.fromkeys(self._targets(function, instruction)))
            self.callees[name] = set(found)
            waiting.extend(found)

    def _check_registers(self, function: Function, is_entry: bool) -> None:
        for parameter in () if is_entry else _register_parameters((*function.returns, *function.parameters)):
            if SIZES[parameter.type] < 4:
                rule = f"must have at least 32 bits, not the type .{parameter.type}"
                message = f"register parameter {parameter.name} of {function.name} {rule}"
                raise PtxError(message, Where(self.module.filename, function.line), _CALL)

    def _targets(self, function: Function, instruction: Instruction) -> list[str]:
        """Return the defined functions that a call may reach; none for a device function. Raises PtxError."""
        results, target, arguments = instruction.operands[:3]
        assert isinstance(results, Vector) and isinstance(arguments, Vector)
        counts = len(results.elements), len(arguments.elements)
        if isinstance(target, Symbol):
            callee = self.module.functions.get(target.name)
            if callee is None or callee.is_entry:
                raise self._refuse(instruction, f"target of call must be a device function, not {target.name}")
            self._check_counts(instruction, counts, (len(callee.returns), len(callee.parameters)))
            if callee.defined:
                return [target.name]
            if target.name in DEVICE_FUNCTIONS:
                return []
            raise self._refuse(instruction, f"function {target.name} must be defined in the module, not only declared")
        signature = self._signature(function, instruction)
        self._check_counts(instruction, counts, (len(signature.returns), len(signature.parameters)))
        wanted = signature_layout(signature.returns, signature.parameters)[0]
        names: tuple[str, ...] | list[str] = self._address_taken()
        if (table := instruction.operands[3]) and isinstance(table, Symbol) and table.name in function.call_targets:
            names = function.call_targets[table.name]
        functions = self.module.functions
        return [n for n in names if signature_layout(functions[n].returns, functions[n].parameters)[0] == wanted]

    def _check_counts(self, instruction: Instruction, given: tuple[int, int], wanted: tuple[int, int]) -> None:
        for noun, have, must in zip(("results", "arguments"), given, wanted, strict=True):
            if have != must:
                raise self._refuse(instruction, f"number of {noun} of call must be {must}, not {have}")

    def _signature(self, function: Function, instruction: Instruction) -> Prototype | Function:
        """Return what an indirect call says of its target: a prototype, or the first of its targets."""
        table = instruction.operands[3] if len(instruction.operands) > 3 else None
        if not isinstance(table, Symbol):
            raise self._refuse(instruction, "indirect call must name a .callprototype or .calltargets, not nothing")
        if table.name in function.prototypes:
            return function.prototypes[table.name]
        return self.module.functions[function.call_targets[table.name][0]]

    def _address_taken(self) -> list[str]:
        """Return the functions of the module whose address some instruction or initialiser holds, in the order of the text."""
        if self._taken is None:
            names = {symbol.name for v in self._all_variables() for _, symbol, _ in (*v.fixups, *v.byte_fixups)}
            for function in self.module.functions.values():
                names |= {symbol.name for symbol in symbols_of(function, with_callees=False)}
            self._taken = [f.name for f in self.module.functions.values() if f.name in names and f.defined and not f.is_entry]
        return self._taken

    def _all_variables(self) -> Iterator[Variable]:
        yield from self.module.variables.values()
        for function in self.module.functions.values():
            yield from function.variables

    # --- the flat function --------------------------------------------------------------------------------------------

    def _registers(self, part: _Part) -> tuple[Register, ...]:
        return tuple(self._register(part, register) for register in part.function.registers)

    def _register(self, part: _Part, register: Register) -> Register:
        if part.is_root:
            return register
        return Register(part.first_register + register.index, part.prefix + register.name, register.type)

    def _place(self) -> None:
        """Decide where the instructions of every part go."""
        at = 0
        alone = len(self.parts) == 1
        for part in self.parts.values():
            code = part.function.instructions
            part.start = at
            at += len(_register_parameters(part.function.parameters))
            part.index = list(range(at, at + len(code) + 1))
            at += len(code)
            part.return_at = at
            if _ends_with_return(part.function):
                part.return_at, at = at - 1, at - 1
            # The last record of a program ends lanes, so an entry without functions needs nothing behind its code.
            if not part.is_root:
                at += len(_register_parameters(part.function.returns)) + 1
            elif not alone:
                at += 1

    def _write(self, part: _Part) -> None:
        """Append the instructions of a part."""
        function = part.function
        for parameter in _register_parameters(function.parameters):
            self._append(self._move(part, parameter, "ld"))
        n = len(function.instructions)
        joins = meeting_points(function)
        last = n - 1 if _ends_with_return(function) and (not part.is_root or len(self.parts) > 1) else n
        for k, instruction in enumerate(function.instructions[:last]):
            join = joins[k]
            # The end of an entry is no place to meet: lanes end there.
            to = -1 if join < 0 or (part.is_root and join == n) else part.return_at if join == n else part.index[join]
            self._append(self._instruction(part, instruction), to)
        if part.is_root:
            if len(self.parts) > 1:
                self._append(function.instructions[last] if last < n else _synthetic("ret", function))
            return
        for parameter in _register_parameters(function.returns):
            self._append(self._move(part, parameter, "st"))
        end = function.instructions[last] if last < n else _synthetic("ret", function)
        self._append(replace(end, modifiers=("return",), operands=(Reg(self.frame),)))

    def _append(self, instruction: Instruction, join: int = -1) -> None:
        self.code.append(instruction)
        self.joins.append(join)

    def _move(self, part: _Part, parameter: Parameter, base: str) -> Instruction:
        """Return the load or store that moves a ``.reg`` parameter between its register and the frame."""
        assert parameter.register is not None
        register = Reg(self._register(part, parameter.register))
        place = Address(Reg(self.frame), part.frame.offsets[parameter.name])
        type_ = f"b{8 * size_of(parameter)}"
        operands: tuple[Operand, ...] = (register, place) if base == "ld" else (place, register)
        return replace(_synthetic(f"{base}.local.{type_}", part.function), modifiers=("local",), types=(type_,), operands=operands)

    def _instruction(self, part: _Part, instruction: Instruction) -> Instruction:
        """Return an instruction with the registers, labels and addresses of the flat function."""
        guard = instruction.guard
        if guard is not None:
            guard = Guard(self._register(part, guard.register), guard.negated)
        if instruction.base == "call":
            return self._call(part, instruction, guard)
        if instruction.base == "brx":
            names = branch_targets(part.function, instruction)
            self.jumps[len(self.code)] = tuple(part.index[part.function.labels[name]] for name in names)
            return replace(instruction, operands=(self._operand(part, instruction, instruction.operands[0]),), guard=guard)
        if instruction.base == "ret" and not part.is_root:
            return replace(instruction, base="bra", operands=(Label(f"{part.prefix}return", part.return_at),), guard=guard)
        if self.dynamic and instruction.base in _STACK:
            given = (self._operand(part, instruction, operand) for operand in instruction.operands)
            hidden = (Reg(self.dynamic), Reg(self.frame), Imm(part.frame.size))
            return replace(instruction, operands=(*given, *hidden), guard=guard)
        if part.is_root and not part.frame.offsets and not part.function.variables:
            return instruction
        if instruction.base in ("mov", "cvta") and self._in_frame(part, instruction.operands[-1]) and not part.is_root:
            return self._address_of(part, instruction, guard)
        modifiers = instruction.modifiers
        if instruction.base in ("ld", "ldu", "st", "cvta") and self._is_local(part, instruction):
            modifiers = tuple("local" if m.split("::")[0] == "param" else m for m in modifiers)
        operands = tuple(self._operand(part, instruction, operand) for operand in instruction.operands)
        return replace(instruction, operands=operands, modifiers=modifiers, guard=guard)

    def _is_local(self, part: _Part, instruction: Instruction) -> bool:
        """Does an instruction that says ``.param`` mean the stack?"""
        if not part.is_root:
            return True
        return any(isinstance(o, Address) and self._in_frame(part, o.base) for o in instruction.operands)

    @staticmethod
    def _in_frame(part: _Part, operand: object) -> bool:
        return isinstance(operand, Symbol) and operand.name in part.frame.offsets

    def _address_of(self, part: _Part, instruction: Instruction, guard: Guard | None) -> Instruction:
        """``mov`` or ``cvta`` of what lies in the frame of a call."""
        target, symbol = instruction.operands
        assert isinstance(symbol, Symbol)
        offset = part.frame.offsets[symbol.name] + symbol.offset
        target = self._operand(part, instruction, target)
        if instruction.base == "cvta":
            return replace(instruction, modifiers=("local",), operands=(target, Address(Reg(self.frame), offset)), guard=guard)
        if SIZES.get(instruction.types[0]) != 8:
            raise self._refuse(instruction, f"mov of the address of {symbol.name} must have 64 bits, not .{instruction.types[0]}")
        operands = (target, Reg(self.frame), Imm(offset))
        return replace(instruction, opcode="add.s64", base="add", modifiers=(), types=("s64",), operands=operands, guard=guard)

    def _operand(self, part: _Part, instruction: Instruction, operand: Operand) -> Operand:
        if part.is_root:
            return self._symbol(part, operand) if isinstance(operand, Symbol) else self._root_operand(part, operand)
        if isinstance(operand, Reg):
            return replace(operand, register=self._register(part, operand.register))
        if isinstance(operand, Address):
            extra = tuple(self._operand(part, instruction, o) for o in operand.extra)
            if isinstance(operand.base, Symbol) and operand.base.name in part.frame.offsets:
                return Address(Reg(self.frame), operand.offset + operand.base.offset + part.frame.offsets[operand.base.name], extra)
            base = operand.base and self._operand(part, instruction, operand.base)
            return Address(base, operand.offset, extra)  # type: ignore[arg-type]
        if isinstance(operand, Vector):
            return Vector(tuple(self._operand(part, instruction, o) for o in operand.elements))
        if isinstance(operand, Pair):
            return Pair(self._operand(part, instruction, operand.first), self._operand(part, instruction, operand.second))
        if isinstance(operand, Label):
            return Label(part.prefix + operand.name, part.index[operand.target])
        if isinstance(operand, Symbol):
            if operand.name in part.frame.offsets:
                rule = f"must be a register or a constant, not {operand.name}"
                raise self._refuse(instruction, f"operand of {instruction.base} {rule}")
            return self._symbol(part, operand)
        return operand

    def _root_operand(self, part: _Part, operand: Operand) -> Operand:
        """The entry comes first, so only names of what it declares in .global and .const change."""
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
            return replace(operand, base=self._symbol(part, operand.base))
        return operand

    def _symbol(self, part: _Part, symbol: Symbol) -> Symbol:
        for variable in part.function.variables:
            if variable.name == symbol.name and (not part.is_root or variable.space in ("global", "const")):
                return replace(symbol, name=variable_key(part.function.name, symbol.name))
        return symbol

    def _flat(self) -> Function:
        root = self.root
        registers = [register for part in self.parts.values() for register in self._registers(part)]
        labels = {part.prefix + name: part.index[at] for part in self.parts.values() for name, at in part.function.labels.items()}
        variables = []
        for part in self.parts.values():
            for variable in part.function.variables:
                if (variable.space == "shared" and not part.is_root) or variable.space in ("global", "const"):
                    variables.append(replace(variable, name=variable_key(part.function.name, variable.name)))
                elif part.is_root:
                    variables.append(replace(variable, space="local") if variable.space == "param" else variable)
        return replace(
            root, registers=(*registers, *self._hidden()), instructions=tuple(self.code), labels=labels, variables=tuple(variables)
        )

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(self, part: _Part, instruction: Instruction, guard: Guard | None) -> Instruction:
        function = part.function
        results, target, arguments = instruction.operands[:3]
        assert isinstance(results, Vector) and isinstance(arguments, Vector)
        names = self._targets(function, instruction)
        known = target.name if isinstance(target, Symbol) else ""
        signature = self.module.functions[known] if known else self._signature(function, instruction)
        _, (result_offsets, parameter_offsets), _ = signature_layout(signature.returns, signature.parameters)
        taken = [
            (self._slot(part, instruction, operand, parameter), offset)
            for operand, parameter, offset in zip(arguments.elements, signature.parameters, parameter_offsets, strict=True)
        ]
        given = [
            (self._slot(part, instruction, operand, parameter), offset)
            for operand, parameter, offset in zip(results.elements, signature.returns, result_offsets, strict=True)
            if not isinstance(operand, Sink)
        ]
        for slot, _ in given:
            if slot.operand is not None and not isinstance(slot.operand, Reg):
                raise self._refuse(instruction, "result of call must be a register or a .param variable, not a constant")
        may_return_here = any(self.component[n] == self.component[function.name] for n in names)
        self.calls[len(self.code)] = Call(
            tuple(taken),
            tuple(given),
            part.frame.kept if may_return_here else tuple(k for k in part.frame.kept if k[0] is self.dynamic),
            tuple((self.numbers[n], self.parts[n].start, self.parts[n].frame.size) for n in names),
            part.frame.size,
            "" if names else known,
        )
        if isinstance(target, Reg):
            target = self._operand(part, instruction, target)
        return replace(instruction, operands=(target,), guard=guard)

    def _slot(self, part: _Part, instruction: Instruction, operand: Operand, parameter: Parameter) -> Slot:
        """Return the caller's side of an argument or result."""
        size = size_of(parameter)
        if isinstance(operand, Symbol) and operand.name in part.frame.offsets:
            variable = next((v for v in part.function.variables if v.name == operand.name), None)
            if variable is None or variable.space != "param":
                raise self._refuse(instruction, f"argument of call must be a .param variable, not {operand.name}")
            if variable.size != size:
                rule = f"must have the {size} bytes of the parameter, not {variable.size}"
                raise self._refuse(instruction, f"argument {operand.name} of call {rule}")
            return Slot(None, part.frame.offsets[operand.name], size)
        if isinstance(operand, Reg) and max(SIZES[operand.register.type], 1) != size:
            name, type_ = operand.register.name, operand.register.type
            rule = f"must have the {size} bytes of the parameter, not those of .{type_}"
            raise self._refuse(instruction, f"argument {name} of call {rule}")
        if not isinstance(operand, Reg | Imm | Symbol):
            raise self._refuse(instruction, "argument of call must be a register, a constant or a .param variable")
        return Slot(self._operand(part, instruction, operand), 0, size)

    def _refuse(self, instruction: Instruction, message: str) -> PtxError:
        return PtxError(message, Where(self.module.filename, instruction.line, instruction.column), _CALL)


def _synthetic(opcode: str, function: Function) -> Instruction:
    """Return an instruction that the linker adds; its place in the text is that of the function."""
    return Instruction(opcode, opcode.partition(".")[0], (), (), (), None, function.line, 1)


def _ends_with_return(function: Function) -> bool:
    """Is the last instruction an unguarded ``ret``, with no label behind it?"""
    code = function.instructions
    return bool(code) and code[-1].base == "ret" and code[-1].guard is None and len(code) not in function.labels.values()


def _register_parameters(parameters: tuple[Parameter, ...]) -> list[Parameter]:
    return [p for p in parameters if p.register is not None]
