"""The body of a function: statements to instructions with resolved operands.

One loop over tokens with an explicit stack of scopes, so that neither depth nor length of a text can exhaust the
Python stack. Labels may be used before they are declared: a scope resolves its branches when it closes and hands the
rest to the scope around it.

Spec: PTX ISA 9.1, "Statements", "Instruction Operands", "Control Flow Directives", "Debugging Directives".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .constants import OPERATORS, parse_constant, parse_integer, parse_literal
from .cursor import Cursor, is_identifier
from .declarations import BODY_SPACES, REFUSED_SPACES, parse_registers, parse_variables
from .directives import parse_location, parse_prototype, skip_pragma
from .module import (
    Address,
    Guard,
    Imm,
    Instruction,
    Label,
    Operand,
    Pair,
    Prototype,
    Reg,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from .names import MAX_DEPTH, FunctionNames, Scope, Table
from .types import FLOATS, SIZES, split_opcode

_SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)(?:\.[xyzwrgba])?|laneid|n?warpid|n?smid|gridid|is_explicit_cluster"
    r"|cluster_n?ctarank|lanemask_(?:eq|le|lt|ge|gt)|clock(?:64|_hi)?|pm[0-7](?:_64)?|envreg(?:[12]?\d|3[01])"
    r"|globaltimer(?:_lo|_hi)?|reserved_smem_offset_(?:begin|end|cap|[01])|(?:total|aggr|dynamic)_smem_size"
    r"|current_graph_exec)"
)
_COLOUR_TO_COMPONENT = {".r": ".x", ".g": ".y", ".b": ".z", ".a": ".w"}
_STARTS_OF_CONSTANTS = frozenset("0123456789.+-~(")
_SINK = Sink()
#: Types of registers that may stand in front of ``+4`` as an operand. Measured: ptxas 13.0.
_SUMMED = frozenset(f"{kind}{width}" for kind in "bus" for width in (16, 32, 64))
_TABLES = (".branchtargets", ".calltargets", ".callprototype")


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """What the module declares: the symbol of a name, the token after which it is known, and variables for their
    types."""

    symbols: Mapping[str, tuple[Symbol, int]]
    variables: Mapping[str, Variable]


@dataclass
class Body:
    """Reads the statements of one function. After :meth:`parse` the fields hold the decoded function."""

    cursor: Cursor
    names: FunctionNames
    module: ModuleNames
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    branch_targets: dict[str, list[str]] = field(default_factory=dict)
    call_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    source: tuple[int, int] | None = None
    opcodes: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)

    def parse(self) -> None:
        """Read from the opening brace of the body to its closing one. Raises PtxError."""
        cursor, texts = self.cursor, self.cursor.texts
        cursor.expect("{", "function")
        while True:
            token = texts[cursor.at]
            first = token[:1]
            if first == "." or first == "{" or first == "}" or not first:
                if self._directive(token):
                    return
            elif texts[cursor.at + 1] == ":":
                self._label()
            else:
                self._instruction()

    def _directive(self, token: str) -> bool:
        """Read what starts with a brace or a dot; return whether the body has ended."""
        cursor = self.cursor
        if token == "{":
            if len(self.names.scopes) >= MAX_DEPTH:
                raise cursor.error(f"scopes must nest at most {MAX_DEPTH} deep, not deeper")
            self.names.scopes.append(Scope())
            cursor.at += 1
        elif token == "}":
            cursor.at += 1
            return self._close_scope()
        elif token == ".reg":
            cursor.at += 1
            self._registers()
        elif token == ".loc":
            cursor.at += 1
            self.source = parse_location(cursor)
        elif token == ".pragma":
            skip_pragma(cursor)
        elif token in BODY_SPACES:
            self._variables()
        elif token in REFUSED_SPACES:
            raise cursor.error(f"variable must be memory or a register: {REFUSED_SPACES[token]} are not supported")
        else:
            raise cursor.error(f"statement must be an instruction or a known directive, not {cursor.shown()}")
        return False

    # Scopes and declarations.
    def _close_scope(self) -> bool:
        scope = self.names.scopes[-1]
        outer = self.names.scopes[-2] if len(self.names.scopes) > 1 else None
        for name, at, place in scope.pending:
            unique = scope.labels.get(name)
            if unique is not None:
                self._set_label(place, unique)
            elif outer is not None:
                outer.pending.append((name, at, place))
            else:
                raise self.cursor.tokens.error(f"branch target must be a label of this scope or one around it, not {name}", at)
        if outer is None:
            return True
        self.names.scopes.pop()
        return False

    def _set_label(self, place: tuple, unique: str) -> None:
        if isinstance(place[0], str):
            table, k = place
            self.branch_targets[table][k] = unique
            return
        index, k = place
        instruction = self.instructions[index]
        operands = list(instruction.operands)
        operands[k] = Label(unique, self.labels[unique])
        self.instructions[index] = replace(instruction, operands=tuple(operands))

    def _registers(self) -> None:
        names = self.names
        for found in parse_registers(self.cursor):
            if found.count is None:
                self._require_new(found.name, found.at)
                names.declare_register(found.name, found.type, found.width)
            elif names.overlaps(found.name, found.count):
                shown = f"{found.name}<{found.count}>"
                raise self.cursor.tokens.error(
                    f"registers of a range must be declared once in a scope, not again as {shown}", found.at
                )
            else:
                names.declare_range(found.name, found.type, found.width, found.count)

    def _require_new(self, name: str, at: int) -> None:
        if self.names.has(name):
            raise self.cursor.tokens.error(f"name must be declared once in a scope, not again as {name}", at)

    def _variables(self) -> None:
        for variable, at in parse_variables(self.cursor, "", self._resolve_constant):
            self._require_new(variable.name, at)
            unique = self.names.unique(variable.name)
            self.variables[unique] = replace(variable, name=unique)
            self.names.declare(variable.name, Symbol(unique))

    def _resolve(self, name: str, at: int) -> Symbol | None:
        found = self.names.find(name)
        return found if isinstance(found, Symbol) else self._module_symbol(name, at) if found is None else None

    def _resolve_constant(self, name: str, at: int) -> Symbol | None:
        """Return the symbol of a name in an initialiser: its address must be known when the module is loaded."""
        symbol = self._resolve(name, at)
        variable = symbol and (self.variables.get(symbol.name) or self.module.variables.get(symbol.name))
        return symbol if not variable or variable.space in ("global", "const") else None

    def _module_symbol(self, name: str, at: int) -> Symbol | None:
        symbol, declared_at = self.module.symbols.get(name, (None, 0))
        return symbol if symbol is not None and declared_at < at else None

    def _label(self) -> None:
        cursor, at = self.cursor, self.cursor.at
        name = cursor.name("label")
        self._require_new(name, at)
        cursor.at += 1
        if cursor.token in _TABLES:
            self._table(name)
            return
        self.labels[self.names.declare_label(name)] = len(self.instructions)

    def _table(self, name: str) -> None:
        """Read the directive behind ``name:`` up to the semicolon."""
        cursor = self.cursor
        unique = self.names.unique(name)
        self.names.declare(name, Table(unique))
        directive = cursor.advance()
        if directive == ".callprototype":
            self.prototypes[unique] = parse_prototype(cursor)
        else:
            entries: list[str] = []
            while not entries or cursor.accept(","):
                at = cursor.at
                entry = cursor.name(f"entry of {directive}")
                if directive == ".branchtargets":
                    self.names.scope.pending.append((entry, at, (unique, len(entries))))
                elif (symbol := self._resolve(entry, at)) is not None:
                    entry = symbol.name
                else:
                    raise cursor.tokens.error(f"entry of .calltargets must be a function declared before, not {entry}", at)
                entries.append(entry)
            if directive == ".branchtargets":
                self.branch_targets[unique] = entries
            else:
                self.call_targets[unique] = tuple(entries)
        cursor.expect(";", directive)

    # Instructions.
    def _instruction(self) -> None:
        cursor, texts = self.cursor, self.cursor.texts
        guard = self._guard() if texts[cursor.at] == "@" else None
        at = cursor.at
        opcode = texts[at]
        if not opcode[:1].isalpha():
            raise cursor.error(f"statement must start with an instruction, not {cursor.shown()}")
        cursor.at = at + 1
        while texts[cursor.at][:1] == ".":  # "add .u32" is legal
            opcode += texts[cursor.at]
            cursor.at += 1
        parts = self.opcodes.get(opcode)
        if parts is None:
            parts = self.opcodes[opcode] = split_opcode(opcode)
        base = parts[0]
        if base == "call":
            operands = self._call_operands()
        elif base == "bra":
            operands = [self._label_operand()]
        elif base == "brx":
            operands = self._indexed_branch_operands()
        else:
            operands = self._operands()
        if texts[cursor.at] != ";":
            raise cursor.error(f"operands of {base} must end with ;, not with {cursor.shown()}")
        cursor.at += 1
        line, column = cursor.tokens.position(at)
        self.instructions.append(Instruction(opcode, *parts, tuple(operands), guard, line, column, self.source))

    def _guard(self) -> Guard:
        cursor = self.cursor
        cursor.at += 1
        negated = cursor.accept("!")
        return Guard(self._predicate("guard").register, negated)

    def _predicate(self, noun: str) -> Reg:
        cursor = self.cursor
        found = self.names.find(cursor.token)
        if not isinstance(found, Reg):
            raise cursor.error(f"{noun} must be a declared register of type .pred, not {cursor.shown()}")
        if found.register.type != "pred":
            raise cursor.error(f"{noun} must be a register of type .pred, not {cursor.shown()} of type .{found.register.type}")
        cursor.at += 1
        return found

    def _operands(self) -> list[Operand]:
        cursor, texts = self.cursor, self.cursor.texts
        operands: list[Operand] = []
        if texts[cursor.at] == ";":
            return operands
        while True:
            scope = self.names.scopes[-1]
            token = texts[cursor.at]
            found = scope.names.get(token) or scope.inherited.get(token)
            following = texts[cursor.at + 1]
            if (following == "," or following == ";") and found.__class__ is Reg:
                cursor.at += 2
                operands.append(found)  # type: ignore[arg-type]
                if following == ",":
                    continue
                cursor.at -= 1
                return operands
            operands.append(self._operand(bool(operands)))
            if texts[cursor.at] != ",":
                return operands
            cursor.at += 1

    def _operand(self, may_add: bool) -> Operand:
        """Read one operand; ``may_add``: it may be a register and a constant, as a destination may not."""
        cursor = self.cursor
        token = cursor.token
        if token == "{":
            return self._vector()
        if token == "[":
            return self._address()
        operand = self._atom()
        if cursor.token == "+" and isinstance(operand, Reg) and may_add:
            return self._sum(operand)
        if cursor.token == "|" and isinstance(operand, Reg | Sink):
            cursor.at += 1
            return Pair(operand, self._atom())
        return operand

    def _sum(self, register: Reg) -> Reg:
        """Read ``+4`` behind a register: the sum is computed in front of the instruction, as ptxas does."""
        cursor, at = self.cursor, self.cursor.at
        type_ = register.register.type
        if type_ not in _SUMMED:
            raise cursor.error(f"register in front of + must be an integer of 16 to 64 bits, not one of type .{type_}")
        cursor.at += 1
        constant = Imm(parse_integer(cursor, "constant behind a register"))
        name = f"%sum{len(self.instructions)}_{at}"
        found = self.names.declare_register(name, type_, 1)
        assert isinstance(found, Reg), "one register has no components"
        opcode = f"add.u{8 * SIZES[type_]}"
        line, column = cursor.tokens.position(at)
        self.instructions.append(
            Instruction(opcode, *split_opcode(opcode), (found, register, constant), None, line, column, self.source)
        )
        return found

    def _atom(self) -> Operand:
        """Read a register, constant, special register, symbol with an offset, or sink."""
        cursor = self.cursor
        token = cursor.token
        found = self.names.find(token)
        if found is not None:
            if isinstance(found, Symbol):
                return self._symbol()
            if isinstance(found, Table):
                raise cursor.error(f"operand must be a register, constant or address, not the table {token}")
            cursor.at += 1
            return found
        if token == "_":
            cursor.at += 1
            return _SINK
        if token == "!":
            cursor.at += 1
            return replace(self._predicate("operand of !"), negated=True)
        if token[:1] == "%" and _SPECIAL.fullmatch(token):
            cursor.at += 1
            return Special(token[1:-2] + _COLOUR_TO_COMPONENT.get(token[-2:], token[-2:]))
        if token == "WARP_SZ" or token[:1] in _STARTS_OF_CONSTANTS:
            return self._constant()
        return self._symbol()

    def _constant(self) -> Imm:
        cursor = self.cursor
        literal = parse_literal(cursor.token)
        if literal is not None and cursor.texts[cursor.at + 1] not in OPERATORS:
            cursor.at += 1
            return literal
        return parse_constant(cursor)

    def _symbol(self, with_index: bool = True) -> Symbol:
        """Read ``x``, ``x+4`` or ``x[1]``, which is the address of an element."""
        cursor, at = self.cursor, self.cursor.at
        if not is_identifier(cursor.token):
            raise self._undeclared()
        symbol = self._resolve(cursor.token, at)
        if symbol is None:
            raise self._undeclared()
        cursor.at += 1
        if cursor.accept("+"):
            return replace(symbol, offset=parse_integer(cursor, "offset of an address"))
        if with_index and cursor.accept("["):
            index = parse_integer(cursor, "index of an element")
            cursor.expect("]", "index of an element")
            variable = self.variables.get(symbol.name) or self.module.variables.get(symbol.name)
            if variable is None:
                raise cursor.tokens.error(f"name in front of an index must be a variable, not {symbol.name}", at)
            return replace(symbol, offset=index * SIZES[variable.type])
        return symbol

    def _undeclared(self) -> Exception:
        cursor = self.cursor
        if cursor.token[:1] == "%":
            return cursor.error(f"register must be declared before its use or be a special register, not {cursor.shown()}")
        return cursor.error(f"operand must be a declared register, variable or function, or a constant, not {cursor.shown()}")

    def _vector(self) -> Vector:
        cursor, texts = self.cursor, self.cursor.texts
        cursor.expect("{", "vector")
        elements: list[Operand] = []
        names, inherited = self.names.scope.names, self.names.scope.inherited
        while True:
            token = texts[cursor.at]
            found = names.get(token) or inherited.get(token)
            if found.__class__ is Reg:  # by far the most frequent: the 128 accumulators of a wgmma
                elements.append(found)  # type: ignore[arg-type]
                cursor.at += 1
            elif token in ("{", "["):
                raise cursor.error(f"element of a vector must be a register or constant, not {token}")
            else:
                elements.append(self._atom())
            if texts[cursor.at] != ",":
                break
            cursor.at += 1
        cursor.expect("}", "vector")
        return Vector(tuple(elements))

    def _address(self) -> Address:
        """Read ``[base+offset]`` or ``[base, {coordinates}]``."""
        cursor = self.cursor
        cursor.expect("[", "address")
        at = cursor.at
        found = self.names.find(cursor.token)
        base: Reg | Symbol | None = None
        offset = 0
        if isinstance(found, Reg):
            if found.register.type == "pred" or found.register.type in FLOATS:
                type_ = found.register.type
                raise cursor.error(
                    f"register of an address must be of an integer or bit type, not {cursor.shown()} of type .{type_}"
                )
            cursor.at += 1
            base = found
            if cursor.accept("+"):
                offset = parse_integer(cursor, "offset of an address")
            elif cursor.token == "-":
                raise cursor.error("offset of an address must be added with +, as in [%r+-4], not with -")
        elif is_identifier(cursor.token) and cursor.token != "WARP_SZ":
            symbol = self._symbol(with_index=False)
            base, offset = Symbol(symbol.name), symbol.offset
        elif found is not None:
            raise cursor.tokens.error(f"base of an address must be a register or a symbol, not {cursor.texts[at]}", at)
        else:
            offset = parse_integer(cursor, "address")
        extra: tuple[Operand, ...] = ()
        if cursor.accept(","):
            if cursor.token != "{":
                raise cursor.error(f"second part of an address must be a vector of coordinates, not {cursor.shown()}")
            extra = self._vector().elements
        cursor.expect("]", "address")
        return Address(base, offset, extra)

    # Branches and calls.
    def _label_operand(self) -> Label:
        cursor, at = self.cursor, self.cursor.at
        name = cursor.name("branch target")
        self.names.scope.pending.append((name, at, (len(self.instructions), 0)))
        return Label(name, -1)

    def _table_operand(self, noun: str, tables: tuple[Mapping[str, object], ...]) -> Symbol:
        cursor = self.cursor
        found = self.names.find(cursor.token)
        if not isinstance(found, Table) or not any(found.name in table for table in tables):
            raise cursor.error(f"{noun} declared before, not {cursor.shown()}")
        cursor.at += 1
        return Symbol(found.name)

    def _indexed_branch_operands(self) -> list[Operand]:
        index = self._atom()
        self.cursor.expect(",", "brx.idx")
        return [index, self._table_operand("table of brx.idx must be a .branchtargets", (self.branch_targets,))]

    def _call_operands(self) -> list[Operand]:
        """Read ``(results), function, (arguments), table``; only the function is always there."""
        cursor = self.cursor
        results = Vector(())
        if cursor.token == "(":
            results = self._call_list("result")
            cursor.expect(",", "call")
        target = self._atom()
        if not isinstance(target, Reg | Symbol):
            raise cursor.tokens.error("target of call must be a function or a register, not a constant", cursor.at - 1)
        operands: list[Operand] = [results, target, Vector(())]
        if cursor.accept(","):
            has_arguments = cursor.token == "("
            if has_arguments:
                operands[2] = self._call_list("argument")
            if not has_arguments or cursor.accept(","):
                noun = "last operand of call must be a .callprototype or .calltargets"
                operands.append(self._table_operand(noun, (self.prototypes, self.call_targets)))
        return operands

    def _call_list(self, noun: str) -> Vector:
        cursor = self.cursor
        cursor.expect("(", "call")
        elements: list[Operand] = []
        while not cursor.accept(")"):
            if elements:
                cursor.expect(",", f"{noun}s of call")
            elements.append(self._atom())
        return Vector(tuple(elements))
