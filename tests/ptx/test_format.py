"""Decoded PTX to text and back: the same module, for compilers' output and for modules that Hypothesis builds."""

from __future__ import annotations

import string
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim.ptx import (
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
    Reg,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
    format_instruction,
    format_module,
    parse,
)
from h100sim.ptx.types import ELEMENT_TYPES, SIZES, split_opcode

DATA = Path(__file__).parent / "data"


def structure(module: Module) -> Module:
    """Return a module without positions in its text."""
    functions = {
        name: replace(
            function,
            line=0,
            instructions=tuple(replace(i, line=0, column=0) for i in function.instructions),
            variables=tuple(replace(v, line=0) for v in function.variables),
        )
        for name, function in module.functions.items()
    }
    variables = {name: replace(variable, line=0) for name, variable in module.variables.items()}
    return replace(module, text="", filename="", functions=functions, variables=variables)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.ptx")), ids=lambda path: path.stem)
def test_compiler_output_survives(path: Path) -> None:
    module = parse(path.read_text(), path.name)
    assert structure(parse(format_module(module))) == structure(module)


def test_a_formatted_text_is_its_own_format() -> None:
    text = format_module(parse((DATA / "hopper.ptx").read_text()))
    assert format_module(parse(text)) == text


def test_an_instruction_reads_as_people_write_it() -> None:
    text = """.version 8.6
.target sm_90a
.entry k() { .reg .pred p; .reg .b32 %r<5>; .reg .b64 %rd1;
@!p  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [ %r1 +8 ],[%rd1,{%r2,0}],[%r3]; }"""
    assert format_instruction(parse(text).functions["k"].instructions[0]) == (
        "@!p cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+8], [%rd1, {%r2, 0}], [%r3];"
    )


def test_everything_that_compilers_seldom_write_survives() -> None:
    text = """.version 8.6
.target sm_90a
.address_size 64
.global .u32 x[4];
.func (.reg .u32 r) f(.reg .u32 a) { add.u32 r, a, 1; ret; }
.global .u64 t[6] = {7, x+8, generic(x)+4, f};
.global .u8 bytes[3] = {0xff(x), 0xff00(generic(x)), 5};
.const .f32 c[2] = {1.5, -0.0};
.global .b128 wide;
.func g(.param .align 16 .b8 s[20]);
.alias g, h;
"""
    text = (
        text.replace(".alias g, h;", ".func h(.param .align 16 .b8 s[20]) { ret; } .alias g, h;")
        + """
.entry k(.param .u64 .ptr .shared .align 8 p, .param .u64 .ptr q, .param .u16 z[3]) .maxntid 64 .pragma "nounroll"; {
    .reg .v4 .f32 v<2>; .reg .b64 %rd<3>; .reg .b32 x; .local .align 8 .b8 depot[32]; .shared .f64 s;
    T: .branchtargets A, B; C: .calltargets f; P: .callprototype (.param .b32 _) _ (.param .b64 _);
    ld.v4.f32 v0, [%rd1+-16]; mov.f32 v1.y, v0.w; ld.local.u32 x, [16]; mov.u64 %rd1, depot+4; mov.u64 %rd2, x;
    A: call (x), f, (x); call (x), %rd1, (%rd2), P; call %rd1, C; brx.idx x, T;
    { .reg .b16 x; A: mov.b16 x, -1; bra A; B: }
    B: .loc 1 2 3
    ret;
    END: }
"""
    )
    module = parse(text)
    assert structure(parse(format_module(module))) == structure(module)


NAMES = st.text(string.ascii_letters, min_size=1, max_size=3).map(lambda name: f"%{name}_")
MODIFIERS = st.sampled_from(["sync", "aligned", "shared::cta", "2d", "m64n8k16", "mbarrier::complete_tx::bytes", "rn", "v4"])
BASES = st.sampled_from(["add", "ld", "st", "wgmma", "cp", "mov", "setp"])
OPCODES = st.builds(
    lambda base, parts: ".".join([base, *parts]),
    BASES,
    st.lists(MODIFIERS | st.sampled_from(sorted(ELEMENT_TYPES)), max_size=5),
)
OFFSETS = st.integers(-(2**31), 2**31)
IMMEDIATES = (
    st.builds(Imm, st.integers(-(2**63) + 1, 2**64 - 1))
    | st.builds(Imm, st.integers(0, 2**32 - 1), st.just("f32"))
    | st.builds(Imm, st.integers(0, 0x7FEFFFFFFFFFFFFF), st.just("f64"))
)
SPECIALS = st.sampled_from(["tid.x", "ctaid.z", "laneid", "clock64", "envreg31", "cluster_ctarank"]).map(Special)
REGISTER_TYPES = ("pred", "b16", "b32", "b64", "f32", "u32", "b128")


@dataclass
class Frame:
    """What the instructions of a function may name."""

    registers: tuple[Register, ...]
    labels: dict[str, int]
    symbols: tuple[str, ...]
    predicates: list[Register] = field(default_factory=list)


@st.composite
def atoms(draw: st.DrawFn, frame: Frame) -> Operand:
    kinds = [st.just(Sink()), IMMEDIATES, SPECIALS, st.builds(Symbol, st.sampled_from(frame.symbols), OFFSETS)]
    if frame.registers:
        kinds.append(st.builds(Reg, st.sampled_from(frame.registers)))
    if frame.predicates:
        kinds.append(st.builds(Reg, st.sampled_from(frame.predicates), st.just(True)))
    return draw(st.one_of(kinds))


@st.composite
def operands(draw: st.DrawFn, frame: Frame) -> Operand:
    kind = draw(st.integers(0, 9))
    plain = [register for register in frame.registers if register.type[0] in "bu"]
    if kind == 0:
        return Vector(tuple(draw(st.lists(atoms(frame), min_size=1, max_size=5))))
    if kind == 1 and frame.predicates:
        first = draw(st.just(Sink()) | st.builds(Reg, st.sampled_from(frame.registers)))
        return Pair(first, Reg(draw(st.sampled_from(frame.predicates))))
    if kind <= 4:
        extra = tuple(draw(st.lists(atoms(frame), max_size=3)))
        base: Reg | Symbol | None = draw(st.none() | st.sampled_from(frame.symbols).map(Symbol))
        if plain and draw(st.booleans()):
            base = Reg(draw(st.sampled_from(plain)))
        return Address(base, draw(OFFSETS), extra)
    return draw(atoms(frame))


@st.composite
def instructions(draw: st.DrawFn, frame: Frame) -> Instruction:
    guard = None
    if frame.predicates and draw(st.booleans()):
        guard = Guard(draw(st.sampled_from(frame.predicates)), draw(st.booleans()))
    if frame.labels and draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(sorted(frame.labels)))
        return Instruction("bra.uni", "bra", ("uni",), (), (Label(name, frame.labels[name]),), guard, 0, 0)
    opcode = draw(OPCODES)
    found = tuple(draw(st.lists(operands(frame), max_size=5)))
    return Instruction(opcode, *split_opcode(opcode), found, guard, 0, 0)


@st.composite
def functions(draw: st.DrawFn, name: str, symbols: tuple[str, ...]) -> Function:
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    registers = tuple(Register(k, n, draw(st.sampled_from(REGISTER_TYPES))) for k, n in enumerate(names))
    parameters = []
    offset = 0
    for k, (type_, count) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from(["b8", "u32", "u64"]), st.integers(1, 40)), max_size=4))
    ):
        align = draw(st.sampled_from([SIZES[type_], 16, 64]))
        offset = -(-offset // align) * align
        parameters.append(Parameter(f"{name}_param_{k}", type_, SIZES[type_] * count, align, offset))
        offset += parameters[-1].size
    count = draw(st.integers(0, 8))
    labels = {f"$L{k}": draw(st.integers(0, count)) for k in range(draw(st.integers(0, 3)))}
    frame = Frame(registers, labels, (*symbols, *(p.name for p in parameters)), [r for r in registers if r.type == "pred"])
    code = []
    source = None
    for _ in range(count):
        source = draw(st.just(source) | st.tuples(st.integers(1, 3), st.integers(1, 999)))
        code.append(replace(draw(instructions(frame)), source=source))
    directives = draw(
        st.dictionaries(st.sampled_from(["maxntid", "reqntid"]), st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple))
    )
    return Function(name, True, tuple(parameters), (), registers, tuple(code), labels, directives=directives, linkage="visible")


@st.composite
def variables(draw: st.DrawFn, name: str, before: tuple[str, ...]) -> Variable:
    type_ = draw(st.sampled_from(["b8", "u16", "b32", "f32", "u64", "f64"]))
    space = draw(st.sampled_from(["global", "const", "shared"]))
    size = SIZES[type_]
    count = draw(st.integers(1, 6))
    if space == "shared" or draw(st.booleans()):
        return Variable(name, space, type_, size * count, draw(st.sampled_from([size, 16])))
    initial = bytearray(draw(st.binary(min_size=size * count, max_size=size * count)))
    fixups = []
    if before and type_ == "u64":
        symbol = Symbol(draw(st.sampled_from(before)), draw(st.integers(0, 99)), draw(st.booleans()))
        fixups.append((0, symbol, 8))
        initial[:8] = bytes(8)
    return Variable(name, space, type_, size * count, size, bytes(initial), tuple(fixups))


@st.composite
def modules(draw: st.DrawFn) -> Module:
    found: dict[str, Variable] = {}
    for k in range(draw(st.integers(1, 4))):
        addressable = tuple(name for name, variable in found.items() if variable.space != "shared")
        found[f"var{k}"] = draw(variables(f"var{k}", addressable))
    kernels = [draw(functions(f"kernel{k}", tuple(found))) for k in range(draw(st.integers(1, 2)))]
    files = {k: f"file{k}.py" for k in range(1, draw(st.integers(1, 4)))}
    return Module("", "", (8, 6), "sm_90a", {kernel.name: kernel for kernel in kernels}, found, files)


@settings(max_examples=40, deadline=None)
@given(modules())
def test_any_module_survives(module: Module) -> None:
    assert structure(parse(format_module(module))) == module
