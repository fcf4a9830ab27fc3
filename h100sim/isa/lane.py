"""Lane instructions: what an instruction does to the registers of a warp, lane by lane, without memory, time or other
lanes.

A family (integer, logic, compare, ...) has a table of opcodes in the manual's notation, ``add[.rn|.rz|][.ftz|].f32``,
and a function from an opcode to an :class:`Operation`: the PTX types of its operands and one expression for each
result. :func:`lower` binds an operation to the operands of an instruction. :func:`compile_form` writes a small
function over the rows of a register file, compiles it on first use and returns its address; :func:`interpret` runs
the same text in plain Python.

Left out, for the machine: memory, control flow, barriers, exchange between lanes, address spaces (cvta, isspacep,
mapa).

Spec: PTX ISA 9.1, "Instructions". Which opcodes exist: ptxas 13.0 for sm_90a.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

from ..code_cache import cache_root
from ..errors import PtxError, Where
from ..native import address_of
from ..ptx.module import Imm, Instruction, Operand, Pair, Reg, Sink, Special, Symbol, Vector
from .lane_rows import plain_rows
from .lane_text import Slot, function_text, width_of_type

#: What executes a lane operation; each has its own rate and latency.
PIPES = ("alu", "fma", "fmaheavy", "imad", "half", "f64", "mufu", "cvt")

#: How many legal forms an error names.
_NAMED_FORMS = 6

_FAMILIES = (
    "move",
    "integer",
    "carry",
    "logic",
    "bit",
    "compare",
    "float",
    "double",
    "half",
    "special_function",
    "convert",
)


@dataclass(frozen=True, slots=True)
class LaneForm:
    """What is compiled: a unique readable ``key``, the row kinds ("u32", "u64", "pred", "u128") of outputs and
    inputs, the ``pipe`` that executes it and the ``text`` of its function."""

    key: str
    outs: tuple[str, ...]
    ins: tuple[str, ...]
    pipe: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LaneOp:
    """A form with its operands: ``outs`` are registers or sinks, ``ins`` operands with the PTX type of an immediate
    there."""

    form: LaneForm
    outs: tuple[Operand, ...]
    ins: tuple[tuple[Operand, str], ...]


@dataclass(frozen=True, slots=True)
class Opcode:
    """An opcode split at its dots, with what a family may need to know of the operands: how many destinations there
    are and the flattened sources (empty when only the opcode is known)."""

    text: str
    base: str
    parts: tuple[str, ...]
    destinations: int = 1
    sources: tuple[Operand, ...] = ()

    @property
    def type(self) -> str:
        """The last part: the type of most instructions."""
        return self.parts[-1]

    def has(self, part: str) -> bool:
        return part in self.parts

    def choose(self, *choices: str) -> str | None:
        """Return which of ``choices`` the opcode names, None if none."""
        return next((part for part in self.parts if part in choices), None)


@dataclass(frozen=True, slots=True)
class Operation:
    """What an opcode computes. ``outs`` and ``ins`` are PTX types; an input "#" is an immediate that the expressions
    contain. Expressions name the inputs a, b, c, ... as values of their types and give values of the types of
    ``outs``; ``let`` are statements before them. ``style``: "vector" (every lane is computed, active ones are
    stored), "serial" (only active lanes are computed) or "mask" (whole predicate masks). ``carry_in`` and
    ``carry_out`` add the condition code as last input and output. ``wide``: registers may be wider than the types.
    ``constants`` are the immediates in the expressions, ``variable`` says that the number of operands varies: both
    make a form's key unique."""

    outs: tuple[str, ...]
    ins: tuple[str, ...]
    body: tuple[str, ...]
    pipe: str
    let: tuple[str, ...] = ()
    style: str = "vector"
    carry_in: bool = False
    carry_out: bool = False
    wide: bool = False
    constants: tuple[int, ...] = ()
    variable: bool = False


Family = Callable[[Opcode], Operation]
_opcodes: dict[str, Family] = {}
#: The patterns of each family function, as they are written.
PATTERNS: dict[Family, list[str]] = {}


def expand(pattern: str) -> Iterator[str]:
    """Yield the opcodes of a pattern: ``[x|y|]`` is a choice, the empty choice included where written."""
    pieces = [piece.split("|") for piece in re.split(r"[\[\]]", pattern)]
    for choice in itertools.product(*pieces):
        yield "".join(choice)


def lane_instruction(*patterns: str) -> Callable[[Family], Family]:
    """Register a family function for every opcode of the patterns."""

    def register(family: Family) -> Family:
        PATTERNS.setdefault(family, []).extend(patterns)
        for opcode in itertools.chain.from_iterable(map(expand, patterns)):
            assert opcode not in _opcodes, f"opcode {opcode} is in two tables"
            _opcodes[opcode] = family
        return family

    return register


@cache
def _table() -> dict[str, Family]:
    for name in _FAMILIES:
        import_module(f".{name}", __package__)
    return _opcodes


@cache
def forms() -> dict[str, tuple[str, ...]]:
    """Return every opcode there is, by base mnemonic."""
    table: dict[str, list[str]] = {}
    for opcode in _table():
        table.setdefault(opcode.split(".")[0], []).append(opcode)
    return {base: tuple(opcodes) for base, opcodes in sorted(table.items())}


@cache
def operation(text: str, destinations: int = 1, sources: tuple[Operand, ...] = ()) -> Operation:
    """Return what an opcode computes. PtxError, which names the forms most like it, if sm_90a has no such form.

    ptxas takes rounding, .ftz and .sat in any order, so an opcode that is not in the table is looked up without its
    order.
    """
    name = text if text in _table() else _any_order().get(_unordered(text))
    base = text.split(".")[0]
    if name is None:
        raise PtxError(_no_such_form(base, text))
    return _table()[name](Opcode(name, base, tuple(name.split(".")[1:]), destinations, sources))


def _no_such_form(base: str, text: str) -> str:
    """Return the message for an opcode that is not there: all forms of its base if they are few, else the likest."""
    legal = forms().get(base)
    if legal is None:
        return f"opcode must be one that works on registers alone ({', '.join(forms())}), not {text}"
    named = legal if len(legal) <= _NAMED_FORMS else difflib.get_close_matches(text, legal, _NAMED_FORMS, 0)
    like = "" if len(named) == len(legal) else f"{len(legal)}, among them "
    return f"opcode must be a form of {base} that sm_90a has ({like}{', '.join(named)}), not {text}"


#: Modes of prmt that end in a number.
_NOT_TYPES = ("rc8", "rc16")


def _unordered(text: str) -> tuple[str, ...]:
    """Return the parts of an opcode sorted, except for its types (the parts that end in their width)."""
    base, *parts = text.split(".")
    types = [part for part in parts if part == "pred" or (part[-1].isdigit() and part not in _NOT_TYPES)]
    return (base, *types, *sorted(part for part in parts if part not in types))


@cache
def _any_order() -> dict[tuple[str, ...], str]:
    return {_unordered(opcode): opcode for opcode in _table()}


def lower(instruction: Instruction) -> LaneOp | None:
    """Bind an instruction's operands to what its opcode computes; None if it is not a lane instruction.

    Raises PtxError naming an opcode that sm_90a does not have or an operand of the wrong width or kind.
    """
    if instruction.base not in forms():
        return None
    try:
        return _bind(instruction)
    except PtxError as error:
        raise PtxError(error.message, Where(line=instruction.line, column=instruction.column), error.rule) from None


def _bind(instruction: Instruction) -> LaneOp:
    opcode = instruction.opcode
    if not instruction.operands:
        raise PtxError(f"{opcode} must have a destination, not no operands")
    outs = list(_atoms(instruction.operands[0]))
    sources = [atom for operand in instruction.operands[1:] for atom in _atoms(operand)]
    op = operation(opcode, len(outs), _shape(opcode, sources))
    if len(outs) != len(op.outs) or len(sources) != len(op.ins):
        wanted, given = (len(op.outs), len(op.ins)), (len(outs), len(sources))
        raise PtxError(f"{opcode} must have {wanted[0]} destinations and {wanted[1]} sources, not {given[0]} and {given[1]}")
    ins = [(source, type_) for source, type_ in zip(sources, op.ins, strict=True) if type_ != "#"]
    for operand, type_ in [*zip(outs, op.outs, strict=True), *ins]:
        _check(opcode, operand, type_, op.wide)
    condition_code = Special("cc")
    if op.carry_out:
        outs.append(condition_code)
    if op.carry_in:
        ins.append((condition_code, "pred"))
    return LaneOp(_form(opcode, op, tuple(outs), tuple(ins)), tuple(outs), tuple(ins))


def bound(name: str, op: Operation, outs: tuple[Operand, ...], ins: tuple[tuple[Operand, str], ...]) -> LaneOp:
    """Bind operands to an operation that no opcode has: what an assembler makes of several. ``name`` is its own."""
    return LaneOp(_form(name, op, outs, ins), outs, ins)


def _atoms(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Vector):
        for element in operand.elements:
            yield from _atoms(element)
    elif isinstance(operand, Pair):
        yield from _atoms(operand.first)
        yield from _atoms(operand.second)
    else:
        yield operand


def _check(opcode: str, operand: Operand, type_: str, wide: bool) -> None:
    """Refuse what ptxas refuses: a register of the wrong width or kind. Conversions of bf16 take no wider ones."""
    if not isinstance(operand, Reg):
        if not isinstance(operand, Imm | Special | Symbol | Sink):
            raise PtxError(f"operand of {opcode} must be a register or a constant, not {operand}")
        return
    declared = operand.register.type
    if wide and "bf16" not in opcode.split("."):
        fits = width_of_type(declared) >= width_of_type(type_) and (declared == "pred") == (type_ == "pred")
    else:
        type_ = _written_type(opcode, type_)
        fits = width_of_type(declared) == width_of_type(type_) and _may_hold(declared, type_)
    if not fits:
        raise PtxError(f"register {operand.register.name} of {opcode} must hold .{type_}, not .{declared}")


def _written_type(opcode: str, type_: str) -> str:
    """Return the type that the opcode names for an operand which the operation takes as plain bits."""
    last = opcode.rpartition(".")[2]
    if type_[0] != "b" or type_.startswith("bf") or not last[-1].isdigit() or opcode.startswith(("set.", "slct.", "cvt.")):
        return type_
    return last if width_of_type(last) == width_of_type(type_) else type_


def _may_hold(declared: str, type_: str) -> bool:
    """May a register be used where an instruction wants a type of the same width?

    Follows ptxas 13.0, but takes an .f16x2 register for every 32-bit integer, where ptxas takes it for some. Untyped
    goes with all; signs do not matter; bf16 has no registers of its own.
    """
    untyped = {"b16", "b32", "b64", "b128"}
    if declared in untyped or type_ in untyped or declared == type_:
        return True
    return type_[0] in "su" and (declared[0] in "su" or declared == "f16x2")


def _shape(opcode: str, sources: Sequence[Operand]) -> tuple[Operand, ...]:
    """Return sources reduced to what an operation may depend on, their number and lop3's table: it is cached."""
    return tuple(atom if isinstance(atom, Imm) and opcode.startswith("lop3") else Sink() for atom in sources)


def _form(opcode: str, op: Operation, outs: tuple[Operand, ...], ins: tuple[tuple[Operand, str], ...]) -> LaneForm:
    """Fit an operation to the widths of its operands' registers."""
    out_types = (*op.outs, "pred") if op.carry_out else op.outs
    targets = tuple(Slot(t, _width(o, t)) for o, t in zip(outs, out_types, strict=True))
    sources = tuple(Slot(t, _width(o, t), isinstance(o, Reg) and o.negated) for o, t in ins)
    return _form_of(opcode, op, targets, sources)


@cache
def _form_of(opcode: str, op: Operation, targets: tuple[Slot, ...], sources: tuple[Slot, ...]) -> LaneForm:
    text = function_text(op.style, op.let, op.body, targets, sources)
    return LaneForm(
        _key(opcode, op, targets, sources),
        tuple(slot.kind for slot in targets),
        tuple(slot.kind for slot in sources),
        op.pipe,
        text,
    )


def _width(operand: Operand, type_: str) -> int:
    return width_of_type(operand.register.type if isinstance(operand, Reg) else type_)


def _key(opcode: str, op: Operation, targets: tuple[Slot, ...], sources: tuple[Slot, ...]) -> str:
    """Return the opcode, with what distinguishes this form of it: constants, pairs, negation, wider registers."""
    notes = [f"={text}" for text in op.constants]
    notes += [f" {len(targets)}<-{len(sources)}"] if len(targets) > 1 or op.variable else []
    notes += [f" !{name}" for name, slot in zip("abcdefgh", sources, strict=False) if slot.negated]
    for slots, arrow in ((targets, "to"), (sources, "from")):
        if any(slot.is_wide for slot in slots):
            notes.append(f" {arrow} " + ",".join(f"b{slot.width}" for slot in slots))
    return opcode + "".join(notes)


def natural_form(opcode: str, sources: tuple[Operand, ...] = (), destinations: int = 1) -> LaneForm:
    """Return the form of an opcode whose registers have exactly the widths of its types.

    ``sources`` is needed only where an immediate is part of the form (lop3).
    """
    op = operation(opcode, destinations, sources)
    condition_code = Special("cc")
    outs = [Sink()] * len(op.outs) + [condition_code] * op.carry_out
    ins = [(Sink(), type_) for type_ in op.ins if type_ != "#"] + [(condition_code, "pred")] * op.carry_in
    return _form(opcode, op, tuple(outs), tuple(ins))


_functions: dict[str, Callable] = {}


def compile_form(form: LaneForm) -> int:
    """Return the address of a form's compiled function; compiled on first use, then kept on disk and for the process."""
    return address_of(function_of(form))


def function_of(form: LaneForm) -> Callable:
    """Return the function of a form, not compiled yet; always the same one.

    Numba caches functions that stand in a file, so the text is written to one in the cache folder, whose name says
    which sources it was made from.
    """
    if form.text not in _functions:
        _functions[form.text] = _load(form.text, str(_write(form)), {})
    return _functions[form.text]


def function_in(path: str) -> Callable:
    """Return the function of the form that :func:`function_of` wrote to a file."""
    return _load(Path(path).read_text(), path, {})


def interpret(form: LaneForm, regs: np.ndarray, mask: int, ops: np.ndarray) -> None:
    """Run a form's text in plain Python on a register file held in a uint8 array."""
    with np.errstate(all="ignore"):
        _load(form.text, "<lane>", plain_rows(regs))(0, mask, ops, 0)


def _write(form: LaneForm) -> Path:
    """Write a form's text into the cache folder unless it is there; a reader never sees half a file."""
    folder = cache_root() / "lane"
    folder.mkdir(exist_ok=True)
    name = re.sub(r"\W+", "_", form.key)[:60]
    path = folder / f"{name}_{hashlib.sha256(form.text.encode()).hexdigest()[:12]}.py"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(form.text)
        part.replace(path)
    return path


def _load(text: str, filename: str, rows: dict) -> Callable:
    """Execute a form's text and return its function; ``rows`` replaces the accessors that the text imports."""
    space: dict = {"__name__": __name__}
    imports, body = text.split("\n\n\n", 1)
    exec(compile(imports, filename, "exec"), space)
    space.update(rows)
    exec(compile("\n" * (imports.count("\n") + 3) + body, filename, "exec"), space)
    return space[re.findall(r"^def (\w+)", body, re.MULTILINE)[0]]
