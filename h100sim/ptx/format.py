"""Decoded PTX back to text.

The text is canonical: scopes are flat (the decoded form has unique names), constants are numbers, registers are
declared one by one in the order of their index. Parsing it gives the same module again, but for positions. Pragmas,
comments and debug sections are gone: they change neither bits nor the meaning of an instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from .module import (
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
    Special,
    Symbol,
    Variable,
    Vector,
)
from .types import SIZES


def format_operand(operand: Operand) -> str:
    """Return an operand as PTX."""
    match operand:
        case Reg(register, negated, component):
            return ("!" if negated else "") + register.name + ("" if component is None else "." + "xyzw"[component])
        case Imm(value, "f32"):
            return f"0f{value:08X}"
        case Imm(value, "f64"):
            return f"0d{value:016X}"
        case Imm(value, _):
            return str(value)
        case Special(name):
            return f"%{name}"
        case Symbol(name, offset, generic):
            return (f"generic({name})" if generic else name) + (f"+{offset}" if offset else "")
        case Address():
            return _format_address(operand)
        case Vector(elements):
            return "{" + ", ".join(map(format_operand, elements)) + "}"
        case Pair(first, second):
            return f"{format_operand(first)}|{format_operand(second)}"
        case Label(name, _):
            return name
        case Sink():
            return "_"
    raise TypeError(f"operand must be one of the classes of h100sim.ptx.module, not {type(operand).__name__}")


def _format_address(address: Address) -> str:
    if address.base is None:
        text = str(address.offset)
    else:
        text = format_operand(address.base) + (f"+{address.offset}" if address.offset else "")
    if address.extra:
        text += f", {format_operand(Vector(address.extra))}"
    return f"[{text}]"


def format_instruction(instruction: Instruction) -> str:
    """Return an instruction as PTX, with its guard and semicolon."""
    operands = _call_operands(instruction) if instruction.base == "call" else map(format_operand, instruction.operands)
    text = ", ".join(operands)
    guard = _format_guard(instruction.guard) if instruction.guard else ""
    return f"{guard}{instruction.opcode}{' ' if text else ''}{text};"


def _format_guard(guard: Guard) -> str:
    return f"@{'!' if guard.negated else ''}{guard.register.name} "


def _call_operands(call: Instruction) -> Iterator[str]:
    results, target, arguments, *table = call.operands
    assert isinstance(results, Vector) and isinstance(arguments, Vector), "results and arguments of a call are vectors"
    if results.elements:
        yield f"({', '.join(map(format_operand, results.elements))})"
    yield format_operand(target)
    if arguments.elements or table:
        yield f"({', '.join(map(format_operand, arguments.elements))})"
    yield from map(format_operand, table)


def format_module(module: Module) -> str:
    """Return a module as PTX: files, prototypes, variables, then functions with bodies."""
    functions = module.functions.values()
    target = f".target {module.target}" + ", debug" * module.is_debug
    parts = [f".version {module.version[0]}.{module.version[1]}", target, ".address_size 64", ""]
    parts += [f'.file {index} "{name}"' for index, name in module.files.items()]
    parts += [_format_header(function) + ";" for function in functions]
    parts += [_format_variable(variable) for variable in module.variables.values()]
    parts += ["\n" + format_function(function) for function in functions if function.defined]
    return "\n".join(parts) + "\n"


def format_function(function: Function) -> str:
    """Return a function with its body as PTX."""
    lines = [_format_header(function), *_format_directives(function), "{", *_format_declarations(function)]
    labels: dict[int, list[str]] = {}
    for name, index in function.labels.items():
        labels.setdefault(index, []).append(name)
    source = None
    for index, instruction in enumerate(function.instructions):
        lines += [f"{name}:" for name in labels.get(index, ())]
        if instruction.source not in (source, None):
            source = instruction.source
            assert source is not None, "the line above excludes None"
            lines.append(f"\t.loc {source[0]} {source[1]} 0")
        lines.append(f"\t{format_instruction(instruction)}")
    lines += [f"{name}:" for name in labels.get(len(function.instructions), ())]
    return "\n".join([*lines, "}"])


def _format_header(function: Function) -> str:
    kind = ".entry" if function.is_entry else ".func"
    linkage = f".{function.linkage} " if function.linkage else ""
    returns = f"{_format_parameters(function.returns)} " if function.returns else ""
    noreturn = " .noreturn" if "noreturn" in function.directives and not function.defined else ""
    return f"{linkage}{kind} {returns}{function.name}{_format_parameters(function.parameters)}{noreturn}"


def _format_parameters(parameters: Sequence[Parameter]) -> str:
    return f"({', '.join(map(_format_parameter, parameters))})"


def _format_parameter(parameter: Parameter) -> str:
    if parameter.register is not None:
        return f".reg .{parameter.type} {parameter.name}"
    element = SIZES[parameter.type]
    pointer = f" .ptr .{parameter.pointer_space} .align {parameter.pointer_align}" if parameter.pointer_space else ""
    pointer = pointer.replace(" .generic", "")
    align = "" if pointer else f" .align {parameter.align}"
    shape = f"[{parameter.size // element}]" if parameter.size != element else ""
    return f".param{align} .{parameter.type}{pointer} {parameter.name}{shape}"


def _format_directives(function: Function) -> Iterator[str]:
    for name, numbers in function.directives.items():
        yield f".{name} {', '.join(map(str, numbers))}".rstrip()


def _format_declarations(function: Function) -> Iterator[str]:
    given = {p.register.name for p in (*function.returns, *function.parameters) if p.register is not None}
    declared = [register for register in function.registers if register.name not in given]
    for type_, group in groupby(declared, key=_type_of_register):
        yield f"\t.reg .{type_} {', '.join(register.name for register in group)};"
    yield from (f"\t{_format_variable(variable)}" for variable in function.variables)
    for name, labels in function.branch_targets.items():
        yield f"{name}: .branchtargets {', '.join(labels)};"
    for name, functions in function.call_targets.items():
        yield f"{name}: .calltargets {', '.join(functions)};"
    for name, prototype in function.prototypes.items():
        yield f"{name}: .callprototype {_format_prototype(prototype)};"


def _type_of_register(register: Register) -> str:
    return register.type


def _format_prototype(prototype: Prototype) -> str:
    returns = f"{_format_parameters(prototype.returns)} " if prototype.returns else ""
    return f"{returns}_ {_format_parameters(prototype.parameters)}"


def _format_variable(variable: Variable) -> str:
    linkage = f".{variable.linkage} " if variable.linkage else ""
    element = SIZES[variable.type]
    head = f"{linkage}.{variable.space} .align {variable.align} .{variable.type} {variable.name}"
    if variable.size == 0:
        return f"{head}[];"
    is_array = variable.size != element
    if is_array:
        head += f"[{variable.size // element}]"
    if not variable.initial:
        return f"{head};"
    elements = list(_format_elements(variable, element))
    return f"{head} = {{{', '.join(elements)}}};" if is_array else f"{head} = {elements[0]};"


def _format_elements(variable: Variable, element: int) -> Iterator[str]:
    fixups: dict[int, str] = {offset: format_operand(symbol) for offset, symbol, _ in variable.fixups}
    for offset, symbol, shift in variable.byte_fixups:
        fixups[offset] = f"{hex(0xFF << shift)}({format_operand(symbol)})"
    for offset in range(0, len(variable.initial), element):
        value = int.from_bytes(variable.initial[offset : offset + element], "little")
        if offset in fixups:
            yield fixups[offset]
        elif variable.type == "f32":
            yield f"0f{value:08X}"
        elif variable.type == "f64":
            yield f"0d{value:016X}"
        else:
            yield str(value)
