"""A PTX text as a whole: header, module-level variables, and functions.

Two passes over the tokens: the first reads everything but the bodies of functions, the second reads those. So a body
knows every name of the module (to keep its own names apart from them), and still may use only what is declared above
it.

Spec: PTX ISA 9.1, "PTX Module Directives", "Specifying Kernel Entry Points and Functions", "Linking Directives",
"Performance-Tuning Directives", "Cluster Dimension Directives".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .body import Body, ModuleNames
from .constants import parse_integer_literal
from .cursor import Cursor
from .declarations import MODULE_SPACES, REFUSED_SPACES, parse_parameters, parse_variables, skip_attributes
from .directives import skip_pragma
from .lexer import tokenize
from .module import Function, Module, Parameter, Reg, Symbol, Variable
from .names import FunctionNames

#: The newest PTX version that is understood, and the newest ``.target``.
NEWEST_VERSION = (9, 5)
NEWEST_TARGET = 90
_LINKAGES = (".visible", ".extern", ".weak", ".common")
_TARGET_OPTIONS = ("debug", "texmode_unified", "texmode_independent")
#: Those whose numbers an assembler takes from 1 on. Measured: ptxas 13.0.
_POSITIVE = (".maxnreg", ".maxntid", ".reqntid", ".minnctapersm")
#: Parameters of an entry. Spec: PTX ISA 9.1, "Parameter State Space". Measured: ptxas 13.0.
_PARAMETER_BYTES = 32_764
_NUMBERED = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank",
    ".abi_preserve", ".abi_preserve_control",
)  # fmt: skip
_PLAIN = (".explicitcluster", ".noreturn", ".blocksareclusters")


def parse(text: str, filename: str = "<ptx>") -> Module:
    """Parse a PTX text for sm_90a into a Module.

    Raises PtxError, with line and column, for what ptxas would refuse in any instruction: syntax, names that are not
    declared or declared twice, a wrong ``.version`` or ``.target``. Which operands and modifiers an instruction takes
    is not checked here.
    """
    return _ModuleParser(Cursor(tokenize(text, filename))).parse()


@dataclass
class _Pending:
    """A function whose body is still to be read: its header, its names, and the token of the opening brace."""

    function: Function
    names: FunctionNames
    body_at: int


@dataclass
class _ModuleParser:
    cursor: Cursor
    is_debug: bool = False
    symbols: dict[str, tuple[Symbol, int]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    bodies: list[_Pending] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict)

    def parse(self) -> Module:
        cursor = self.cursor
        version = self._version()
        target = self._target()
        while cursor.token:
            self._statement()
        for pending in self.bodies:
            self._body(pending)
        tokens = cursor.tokens
        return Module(tokens.text, tokens.filename, version, target, self.functions, self.variables, self.files, self.is_debug)

    # Header.
    def _version(self) -> tuple[int, int]:
        cursor = self.cursor
        if not cursor.accept(".version"):
            raise cursor.error(f"PTX text must start with .version, not with {cursor.shown()}")
        major, dot, minor = cursor.token.partition(".")
        if not (dot and major.isdigit() and minor.isdigit() and len(cursor.token) <= 8):
            raise cursor.error(f".version must be a number such as 8.6, not {cursor.shown()}")
        version = int(major), int(minor)
        if version > NEWEST_VERSION:
            raise cursor.error(f".version must be at most {NEWEST_VERSION[0]}.{NEWEST_VERSION[1]}, not {cursor.token}")
        cursor.advance()
        return version

    def _target(self) -> str:
        cursor = self.cursor
        cursor.expect(".target", ".version")
        target = ""
        while True:
            name = cursor.token
            number = name[3:].rstrip("af")
            if name.startswith("sm_") and number.isdigit() and len(number) <= 4:
                suffix = name[3 + len(number) :]
                if int(number) > NEWEST_TARGET or (suffix and name != "sm_90a"):
                    raise cursor.error(f".target must be sm_90a, sm_90 or an older architecture that runs on it, not {name}")
                target = name
            elif name not in _TARGET_OPTIONS:
                raise cursor.error(f".target must be sm_90a, sm_90 or an older architecture that runs on it, not {cursor.shown()}")
            self.is_debug |= name == "debug"
            cursor.advance()
            if not cursor.accept(","):
                break
        if not target:
            raise cursor.error(".target must name an architecture such as sm_90a, not options alone")
        return target

    # Module level.
    def _statement(self) -> None:
        cursor = self.cursor
        token = cursor.token
        linkage_at, linkage = cursor.at, ""
        if token in _LINKAGES:
            linkage = cursor.advance()[1:]
        if cursor.token in (".entry", ".func"):
            self._function(linkage)
        elif cursor.token in MODULE_SPACES:
            self._variables(linkage)
        elif linkage:
            raise cursor.error(f"{token} must be followed by .entry, .func or a state space, not {cursor.shown()}")
        elif token == ".address_size":
            cursor.advance()
            size_at = cursor.at
            if (size := parse_integer_literal(cursor, ".address_size")) != 64:
                raise cursor.tokens.error(f".address_size must be 64, not {size}", size_at)
        elif token == ".file":
            self._file()
        elif token == ".section":
            self._section()
        elif token == ".pragma":
            skip_pragma(cursor)
        elif token == ".alias":
            self._alias()
        elif token in REFUSED_SPACES:
            raise cursor.error(f"variable must be memory or a register: {REFUSED_SPACES[token]} are not supported")
        elif token in (".reg", ".local", ".param"):
            raise cursor.error(f"variable of a module must be in .global, .const or .shared, not in {token}")
        else:
            raise cursor.tokens.error(f"statement of a module must be a directive such as .entry, not {cursor.shown()}", linkage_at)

    def _file(self) -> None:
        """Read ``.file 1 "name"``, with or without time stamp and size."""
        cursor = self.cursor
        cursor.advance()
        index = parse_integer_literal(cursor, "index of .file")
        if cursor.token[:1] != '"':
            raise cursor.error(f"name of .file must be a string, not {cursor.shown()}")
        self.files[index] = cursor.advance()[1:-1]
        while cursor.accept(","):
            parse_integer_literal(cursor, "time stamp or size of .file")

    def _section(self) -> None:
        """Step over a debug section, whatever is in it."""
        cursor = self.cursor
        cursor.advance()
        cursor.advance()
        if cursor.token != "{":
            raise cursor.error(f".section must continue with {{, not {cursor.shown()}")
        self._skip_braces(".section")

    def _skip_braces(self, noun: str) -> None:
        cursor, texts = self.cursor, self.cursor.texts
        start = at = cursor.at
        depth = 0
        while True:
            token = texts[at]
            at += 1
            if token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
                if not depth:
                    break
            elif not token:
                raise cursor.tokens.error(f"{noun} must end with }}, not with the end of the file", start)
        cursor.at = at

    def _variables(self, linkage: str) -> None:
        for variable, at in parse_variables(self.cursor, linkage, self._resolve):
            known = self.variables.get(variable.name)
            if variable.name in self.symbols and (known is None or not (known.extern or variable.extern)):
                raise self.cursor.tokens.error(f"name must be declared once in a module, not again as {variable.name}", at)
            if known is not None and (known.space, known.type) != (variable.space, variable.type):
                raise self.cursor.tokens.error(f"variable {variable.name} must be declared alike each time, not differently", at)
            if known is None or known.extern:
                self.variables[variable.name] = variable
            self.symbols.setdefault(variable.name, (Symbol(variable.name), at))

    def _resolve(self, name: str, at: int) -> Symbol | None:
        """Return the symbol of a name in an initialiser: its address must be known when the module is loaded."""
        symbol, _ = self.symbols.get(name, (None, 0))
        variable = self.variables.get(name)
        return symbol if variable is None or variable.space != "shared" else None

    def _alias(self) -> None:
        """Read ``.alias name, function;``: another name for a function that has a body."""
        cursor = self.cursor
        cursor.advance()
        name_at = cursor.at
        name = cursor.name(".alias")
        cursor.expect(",", ".alias")
        target_at = cursor.at
        target = cursor.name(".alias")
        cursor.expect(";", ".alias")
        prototype, function = self.functions.get(name), self.functions.get(target)
        if prototype is None or prototype.defined or prototype.is_entry:
            raise cursor.tokens.error(f".alias must name a function declared without a body, not {name}", name_at)
        if function is None or function.is_entry or not function.defined:
            raise cursor.tokens.error(f".alias must stand for a function with a body, not for {target}", target_at)
        body = next(p for p in self.bodies if p.function.name == target)
        self.functions[name] = alias = replace(function, name=name, linkage=prototype.linkage)
        names = FunctionNames(self.symbols)
        self._declare_parameters(alias, names)
        self.bodies.append(_Pending(alias, names, body.body_at))

    # Functions.
    def _function(self, linkage: str) -> None:
        cursor = self.cursor
        start = cursor.at
        is_entry = cursor.advance() == ".entry"
        directives: dict[str, tuple[int, ...]] = {}
        self._directives(directives)
        returns: list[tuple[Parameter, int]] = []
        if cursor.token == "(" and not is_entry:
            returns = parse_parameters(cursor, "results of .func")
        name_at = cursor.at
        name = cursor.name("function")
        noun = "parameters of .entry" if is_entry else "parameters of .func"
        parameters = parse_parameters(cursor, noun) if cursor.token == "(" else []
        size = max((p.offset + p.size for p, _ in parameters), default=0)
        if is_entry and size > _PARAMETER_BYTES:
            raise cursor.tokens.error(f"parameters of an entry must fit {_PARAMETER_BYTES:,} bytes, not {size:,}", name_at)
        self._directives(directives)
        function = Function(
            name, is_entry, tuple(p for p, _ in parameters), tuple(p for p, _ in returns), (), (),
            directives=directives, line=cursor.tokens.position(start)[0], defined=cursor.token == "{", linkage=linkage,
        )  # fmt: skip
        self._add_function(function, name_at)
        if not function.defined:
            cursor.expect(";", "function")
            return
        names = FunctionNames(self.symbols)
        function = self._declare_parameters(function, names, [*returns, *parameters])
        self.functions[name] = function
        self.bodies.append(_Pending(function, names, cursor.at))
        self._skip_braces("body of a function")

    def _directives(self, found: dict[str, tuple[int, ...]]) -> None:
        """Read the directives between the header of a function and its body."""
        cursor = self.cursor
        while cursor.token[:1] == ".":
            directive = cursor.token
            if directive == ".pragma":
                skip_pragma(cursor)
            elif directive == ".attribute":
                skip_attributes(cursor)
            elif directive in _PLAIN:
                cursor.advance()
                found[directive[1:]] = ()
            elif directive in _NUMBERED:
                at = cursor.at
                cursor.advance()
                numbers = [parse_integer_literal(cursor, directive)]
                while cursor.accept(","):
                    numbers.append(parse_integer_literal(cursor, directive))
                for number in numbers if directive in _POSITIVE else ():
                    if not 1 <= number < 1 << 32:
                        raise cursor.tokens.error(f"value of {directive} must be from 1 to 4,294,967,295, not {number:,}", at)
                found[directive[1:]] = tuple(numbers)
            else:
                raise cursor.error(f"directive of a function must be one such as .maxntid or .reqntid, not {cursor.shown()}")

    def _add_function(self, function: Function, at: int) -> None:
        name = function.name
        known = self.functions.get(name)
        if known is None:
            if name in self.symbols:
                raise self.cursor.tokens.error(f"name must be declared once in a module, not again as {name}", at)
            self.symbols[name] = (Symbol(name), at - 1)
        elif known.defined and function.defined:
            raise self.cursor.tokens.error(f"function must have one body, not a second one of {name}", at)
        elif _signature(known) != _signature(function):
            raise self.cursor.tokens.error(f"parameters of {name} must be the same in every declaration, not different ones", at)
        if known is None or not known.defined:
            self.functions[name] = function

    def _declare_parameters(
        self, function: Function, names: FunctionNames, placed: list[tuple[Parameter, int]] | None = None
    ) -> Function:
        """Declare parameters in the outermost scope; give ``.reg`` parameters a register."""
        tokens = self.cursor.tokens
        where = {p.name: at for p, at in placed or ()}
        lists = []
        for parameters in (function.returns, function.parameters):
            declared = []
            for parameter in parameters:
                if names.has(parameter.name):
                    raise tokens.error(
                        f"name must be declared once in a scope, not again as {parameter.name}", where[parameter.name]
                    )
                if parameter.size:
                    unique = names.unique(parameter.name)
                    names.declare(parameter.name, Symbol(unique))
                    parameter = replace(parameter, name=unique)
                else:
                    entry = names.declare_register(parameter.name, parameter.type, 1)
                    assert isinstance(entry, Reg), "a scalar register is a Reg"
                    parameter = replace(parameter, register=entry.register)
                declared.append(parameter)
            lists.append(tuple(declared))
        return replace(function, returns=lists[0], parameters=lists[1])

    def _body(self, pending: _Pending) -> None:
        body = Body(Cursor(self.cursor.tokens, pending.body_at), pending.names, ModuleNames(self.symbols, self.variables))
        body.parse()
        self.functions[pending.function.name] = replace(
            pending.function,
            registers=tuple(body.names.registers),
            instructions=tuple(body.instructions),
            labels=body.labels,
            variables=tuple(body.variables.values()),
            branch_targets={name: tuple(entries) for name, entries in body.branch_targets.items()},
            call_targets=body.call_targets,
            prototypes=body.prototypes,
        )


def _signature(function: Function) -> tuple:
    shape = [[(p.type, p.size, p.align) for p in group] for group in (function.returns, function.parameters)]
    return function.is_entry, shape
