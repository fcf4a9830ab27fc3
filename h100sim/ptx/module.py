"""The decoded form of a PTX text: modules, functions, instructions and operands, all immutable.

Names are resolved: a :class:`Register` is one declared variable (two scopes that declare the same name give two
registers), a :class:`Label` is an instruction index of its function, a :class:`Symbol` names a variable, parameter or
function. Names are unique in their function: what an inner scope declares again gets a suffix ("DONE", "DONE$2"). A
``.v2`` or ``.v4`` register is decoded into scalar registers ("v$x", "v$y"). Nothing here knows what an instruction
does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """One declared register. ``index`` counts the registers of its function; ``type`` is without the dot ("b32",
    "pred"). Of a range ``%r<100>`` only the registers that the function uses become one."""

    index: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Reg:
    """A register operand. ``negated`` for ``!p``. ``component`` is None: the parser makes ``%v.x`` a register of its
    own."""

    register: Register
    negated: bool = False
    component: int | None = None


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate. ``value`` is an ``int`` for integers; for ``kind`` "f32" and "f64" it holds the IEEE bits."""

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``, ``%clock64``, ``%laneid``; ``name`` has no percent sign."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, parameter or function, plus a byte offset; or the name of a table of the function
    (the last operand of ``brx.idx`` and of indirect ``call``). ``generic`` for ``generic(x)`` in an initialiser."""

    name: str
    offset: int = 0
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; ``base`` is a register, a symbol or None (absolute). ``extra`` holds the coordinate vector
    of a tensor operand ``[map, {c0, c1}]`` and is empty otherwise."""

    base: Reg | Symbol | None
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: two destinations (shfl, elect, match, setp)."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target: the index of an instruction in its function (equal to the number of instructions at the end)."""

    name: str
    target: int


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: the result is not wanted."""


Operand = Reg | Imm | Special | Symbol | Address | Vector | Pair | Label | Sink


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p`` in front of an instruction."""

    register: Register
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``opcode`` is the text as written without operands; ``base`` the part before the first dot;
    ``modifiers`` the parts that are not types, in order ("sync", "aligned", "m64n256k16", "L2::cache_hint");
    ``types`` the element types in order ("f32", "bf16", "bf16"). ``line`` and ``column`` are of the opcode in the PTX
    text, ``source`` an index into ``Module.files`` with a line, from the last ``.loc``, or None.

    ``call`` always has the operands (Vector of results, Symbol or Reg to call, Vector of arguments), and for an
    indirect call a Symbol that names the table of ``.callprototype`` or ``.calltargets``."""

    opcode: str
    base: str
    modifiers: tuple[str, ...]
    types: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    column: int
    source: tuple[int, int] | None = None

    def has(self, *modifiers: str) -> bool:
        """Is every one of ``modifiers`` present?"""
        return all(m in self.modifiers for m in modifiers)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space. ``size`` is in bytes, 0 for ``.extern .shared x[]``. ``initial`` holds the bytes of
    its initialiser and may be shorter than the variable: the rest is zero. ``fixups`` are the (byte offset, symbol,
    width) places where the address of a symbol goes; ``byte_fixups`` the (byte offset, symbol, shift) places of one
    byte where bits shift to shift + 7 of an address go (``0xff00(x)``). ``linkage`` is "", "visible", "extern", "weak"
    or "common"."""

    name: str
    space: str
    type: str
    size: int
    align: int
    initial: bytes = b""
    fixups: tuple[tuple[int, Symbol, int], ...] = ()
    extern: bool = False
    line: int = 0
    byte_fixups: tuple[tuple[int, Symbol, int], ...] = ()
    linkage: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A formal parameter. ``offset`` in the parameter space, in bytes; ``pointer_space`` and ``pointer_align`` from
    ``.ptr .global .align 16``; ``register`` for a ``.reg`` parameter of a ``.func``, which takes no parameter space."""

    name: str
    type: str
    size: int
    align: int
    offset: int
    pointer_space: str = ""
    pointer_align: int = 0
    register: Register | None = None


@dataclass(frozen=True, slots=True)
class Prototype:
    """The signature that a ``.callprototype`` gives to an indirect call."""

    returns: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Function:
    """An ``.entry`` or ``.func``. ``labels`` maps names to instruction indices; ``directives`` holds "maxntid",
    "reqntid", "minnctapersm", "maxnreg", "reqnctapercluster", "explicitcluster", "maxclusterrank" with tuples of
    integers (empty for those that take none). ``branch_targets`` and ``call_targets`` hold the tables of
    ``.branchtargets`` (names of labels) and ``.calltargets``, ``prototypes`` those of ``.callprototype``. ``defined``
    is False for a prototype without a body. ``linkage`` is "", "visible", "extern" or "weak"."""

    name: str
    is_entry: bool
    parameters: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    registers: tuple[Register, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int] = field(default_factory=dict)
    variables: tuple[Variable, ...] = ()
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    call_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    line: int = 0
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    defined: bool = True
    linkage: str = ""


@dataclass(frozen=True)
class Module:
    """A whole PTX text. ``files`` maps ``.file`` indices to names. ``is_debug``: ``.target`` says so, and ptxas does not optimise."""

    text: str
    filename: str
    version: tuple[int, int]
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str] = field(default_factory=dict)
    is_debug: bool = False


def registers_in(operands: Iterable[Operand]) -> list[int]:
    """Return the numbers of the registers that operands hold, also in vectors, pairs and addresses."""
    found: list[int] = []
    for operand in operands:
        if isinstance(operand, Reg):
            found.append(operand.register.index)
        elif isinstance(operand, Vector):
            found += registers_in(operand.elements)
        elif isinstance(operand, Pair):
            found += registers_in((operand.first, operand.second))
        elif isinstance(operand, Address):
            found += registers_in(operand.extra if operand.base is None else (operand.base, *operand.extra))
    return found


def symbols_of(function: Function, with_callees: bool = True) -> Iterator[Symbol]:
    """Yield the symbols that the instructions of a function name."""
    for instruction in function.instructions:
        operands = instruction.operands
        if instruction.base == "call" and not with_callees and len(operands) > 2:
            operands = (operands[0], operands[2])
        for operand in operands:
            yield from _symbols(operand)


def _symbols(operand: Operand | None) -> Iterator[Symbol]:
    if isinstance(operand, Symbol):
        yield operand
    elif isinstance(operand, Address):
        yield from _symbols(operand.base)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _symbols(element)
