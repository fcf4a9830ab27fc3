"""Variables: where shared ones stand in the memory of a CTA, where `.global` and `.const` ones and functions lie, and what these hold
at first.

Variables of a module are allocated once per device and shared by its launches, so a kernel finds what an earlier one
left in a `.global` variable. What a function declares in these spaces lives as long, under a name of its own. Initialisers
may hold addresses of variables and functions; these are put in here, once addresses are known.

Spec: PTX ISA 9.1, "Variables: Initializers", "Constant State Space".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .devices import Limits
from .errors import PtxError, Where
from .linker import variable_key
from .memory.global_memory import GlobalMemory
from .memory.windows import CONST_WINDOW, FUNCTION_BYTES, FUNCTION_WINDOW, SHARED_START
from .ptx.module import Function, Module, Symbol, Variable, symbols_of

#: Spec: PTX ISA 9.1, "Constant State Space": 640 KiB in regions of 64 KiB, of which a module's variables get one.
CONSTANT_BYTES = 64 * 1024


@dataclass(frozen=True)
class ModuleVariables:
    """The variables of a module on one device: ``addresses`` by name, each in its own state space. The constant bank of
    ``bank_bytes`` lies at ``bank`` in global memory, where the host writes it."""

    addresses: dict[str, int]
    bank: int
    bank_bytes: int

    def constants(self, memory: GlobalMemory) -> bytes:
        """Return the bytes of the constant bank as they are now."""
        return memory.view(self.bank, self.bank_bytes).tobytes() if self.bank_bytes else b""


def place_shared(module: Module, function: Function) -> tuple[dict[str, int], int, int, bool]:
    """Lay out the shared variables that a flat function names: static ones in order from 0x400 of the window, then the dynamic
    ones, which share one start. Returns (offset by name, static bytes, start of dynamic memory, whether there is any). Raises PtxError
    where they are more than a CTA may have, those included that nothing names, as ``ptxas`` does."""
    used = {symbol.name for symbol in symbols_of(function)}
    offset = SHARED_START
    places: dict[str, int] = {}
    external: list[Variable] = []
    align = 16
    for variable in (*module.variables.values(), *function.variables):
        if variable.space != "shared" or variable.name not in used:
            continue
        if variable.extern or variable.size == 0:
            external.append(variable)
            align = max(align, variable.align)
            continue
        offset = -(-offset // variable.align) * variable.align
        places[variable.name] = offset
        offset += variable.size
    static_bytes = offset - SHARED_START
    most = Limits.shared_bytes_per_cta
    unused = sum(v.size for v in function.variables if v.space == "shared" and not v.extern and v.name not in used)
    if static_bytes + unused > most:
        message = f"shared variables of {function.name} must have at most {most:,} bytes, not {static_bytes + unused:,}"
        raise PtxError(message, Where(module.filename, function.line), 'PTX ISA 9.1, "Shared State Space"')
    dynamic = -(-offset // align) * align
    for variable in external:
        places[variable.name] = dynamic
    return places, static_bytes, dynamic, bool(external)


def function_addresses(module: Module) -> dict[str, int]:
    """Return the address of every function: the same in all kernels of a module, since variables may hold it."""
    return {name: FUNCTION_WINDOW + FUNCTION_BYTES * k for k, name in enumerate(module.functions)}


def place_variables(module: Module, memory: GlobalMemory) -> ModuleVariables:
    """Allocate and initialise the variables of a module. Raises PtxError for one without a definition or room."""
    variables = [v for v in module.variables.values() if v.space in ("global", "const")]
    for function in module.functions.values():
        variables += _variables_of(function)
    for variable in variables:
        if variable.extern:
            raise _refuse(module, variable, f"variable {variable.name} must be defined in the module, not only declared .extern")
    addresses, constant_bytes = _place([v for v in variables if v.space == "const"])
    if constant_bytes > CONSTANT_BYTES:
        raise PtxError(
            f"constant variables must fit {CONSTANT_BYTES:,} bytes, not {constant_bytes:,}",
            Where(module.filename),
            'PTX ISA 9.1, "Constant State Space"',
        )
    for variable in variables:
        if variable.space == "global":
            addresses[variable.name] = memory.allocate(max(variable.size, 1), name=variable.name)
    known = {**function_addresses(module), **addresses}
    spaces = {v.name: v.space for v in variables}
    constants = bytearray(constant_bytes)
    for variable in variables:
        image = initial_bytes(module, variable, known, spaces)
        if variable.space == "const":
            constants[addresses[variable.name] : addresses[variable.name] + len(image)] = image
        elif image:
            memory.write(addresses[variable.name], image)
    bank = memory.upload(bytes(constants), name="constant variables") if constants else 0
    return ModuleVariables(addresses, bank, len(constants))


def _variables_of(function: Function) -> list[Variable]:
    """Return the `.global` and `.const` variables that a function declares, with names that are unique in the module."""
    own = {v.name for v in function.variables if v.space in ("global", "const")}

    def renamed(symbol: Symbol) -> Symbol:
        return replace(symbol, name=variable_key(function.name, symbol.name)) if symbol.name in own else symbol

    return [
        replace(
            v,
            name=variable_key(function.name, v.name),
            fixups=tuple((offset, renamed(symbol), width) for offset, symbol, width in v.fixups),
            byte_fixups=tuple((offset, renamed(symbol), shift) for offset, symbol, shift in v.byte_fixups),
        )
        for v in function.variables
        if v.name in own
    ]


def initial_bytes(module: Module, variable: Variable, addresses: dict[str, int], spaces: dict[str, str]) -> bytes:
    """Return the bytes a variable starts with, up to the last that its initialiser gives (the others are zero), with the addresses that
    it names."""
    ends = [*(offset + width for offset, _, width in variable.fixups), *(offset + 1 for offset, _, _ in variable.byte_fixups)]
    image = bytearray(max([len(variable.initial), *ends]))
    image[: len(variable.initial)] = variable.initial

    def address(symbol: Symbol) -> int:
        if symbol.name not in addresses:
            rule = "must name a .global or .const variable or a function"
            raise _refuse(module, variable, f"initialiser of {variable.name} {rule}, not {symbol.name}")
        window = CONST_WINDOW if symbol.generic and spaces.get(symbol.name) == "const" else 0
        return window + addresses[symbol.name] + symbol.offset

    for offset, symbol, width in variable.fixups:
        image[offset : offset + width] = (address(symbol) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    for offset, symbol, shift in variable.byte_fixups:
        image[offset] = (address(symbol) >> shift) & 0xFF
    return bytes(image)


def _place(variables: list[Variable]) -> tuple[dict[str, int], int]:
    places: dict[str, int] = {}
    offset = 0
    for variable in variables:
        offset = -(-offset // variable.align) * variable.align
        places[variable.name] = offset
        offset += variable.size
    return places, offset


def _refuse(module: Module, variable: Variable, message: str) -> PtxError:
    return PtxError(message, Where(module.filename, variable.line), 'PTX ISA 9.1, "Variables"')
