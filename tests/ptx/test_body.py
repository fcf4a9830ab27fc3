"""Statements of a function: operands, scopes, labels, calls, source lines."""

import pytest

from h100sim.errors import PtxError
from h100sim.ptx import (
    Address,
    Function,
    Guard,
    Imm,
    Label,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    Vector,
    parse,
)

HEADER = """.version 8.6
.target sm_90a
.address_size 64
.global .u32 table[4];
.func (.param .b32 r) callee(.param .b32 a, .param .b64 b);
"""


def function(body: str, entry: str = ".entry k(.param .u64 a, .param .u32 n)") -> Function:
    return parse(f"{HEADER}{entry} {{\n{body}\n}}").functions["k"]


def operands(statement: str, declarations: str = "") -> tuple[Operand, ...]:
    standard = ".reg .pred p, q; .reg .b32 %r<10>, d; .reg .b64 %rd<10>; .reg .v4 .f32 v;"
    return function(standard + declarations + statement).instructions[-1].operands


def show(operand: Operand) -> object:
    """Return the name of a register operand, and other operands as they are."""
    if isinstance(operand, Reg):
        return ("!" if operand.negated else "") + operand.register.name
    if isinstance(operand, Vector):
        return [show(element) for element in operand.elements]
    if isinstance(operand, Pair):
        return (show(operand.first), show(operand.second))
    if isinstance(operand, Address):
        return (operand.base and show(operand.base), operand.offset, [show(element) for element in operand.extra])
    return operand


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("mov.u32 %r1, 0x1FU;", ["%r1", Imm(31)]),
        ("mov.u32 %r1, -5;", ["%r1", Imm(-5)]),
        ("mov.f32 %r1, 0f3F800000;", ["%r1", Imm(0x3F800000, "f32")]),
        ("mov.f64 %rd1, 1.0;", ["%rd1", Imm(0x3FF0000000000000, "f64")]),
        ("mov.u32 %r1, WARP_SZ;", ["%r1", Imm(32)]),
        ("mov.u32 %r1, (1<<4)|3;", ["%r1", Imm(19)]),
        ("mov.u32 %r1, %tid.x;", ["%r1", Special("tid.x")]),
        ("mov.u32 %r1, %ctaid.g;", ["%r1", Special("ctaid.y")]),
        ("mov.u64 %rd1, %clock64;", ["%rd1", Special("clock64")]),
        ("mov.u64 %rd1, table;", ["%rd1", Symbol("table")]),
        ("mov.u64 %rd1, table+4;", ["%rd1", Symbol("table", 4)]),
        ("mov.u64 %rd1, table[3];", ["%rd1", Symbol("table", 12)]),
        ("mov.u64 %rd1, a;", ["%rd1", Symbol("a")]),
        ("ld.global.u32 %r1, [%rd1];", ["%r1", ("%rd1", 0, [])]),
        ("ld.global.u32 %r1, [ %rd1 + 16 ];", ["%r1", ("%rd1", 16, [])]),
        ("ld.global.u32 %r1, [%rd1+-516];", ["%r1", ("%rd1", -516, [])]),
        ("ld.global.u32 %r1, [%rd1+2*4];", ["%r1", ("%rd1", 8, [])]),
        ("ld.global.u32 %r1, [table+8];", ["%r1", (Symbol("table"), 8, [])]),
        ("ld.local.u32 %r1, [0x10];", ["%r1", (None, 16, [])]),
        ("st.global.b32 [%rd1], { %r1 };", [("%rd1", 0, []), ["%r1"]]),
        ("mov.b64 %rd1, {1, -2};", ["%rd1", [Imm(1), Imm(-2)]]),
        ("mov.b32 {_, d}, %r1;", [[Sink(), "d"], "%r1"]),
        ("shfl.sync.idx.b32 %r1|p, %r2, 0, 31, -1;", [("%r1", "p"), "%r2", Imm(0), Imm(31), Imm(-1)]),
        ("elect.sync _|p, -1;", [(Sink(), "p"), Imm(-1)]),
        ("setp.lt.and.s32 p|q, %r1, 3, !q;", [("p", "q"), "%r1", Imm(3), "!q"]),
        ("mbarrier.arrive.shared.b64 _, [d];", [Sink(), ("d", 0, [])]),
        ("cp.x [d], [%rd1, {%r1, 0}], [%r2];", [("d", 0, []), ("%rd1", 0, ["%r1", Imm(0)]), ("%r2", 0, [])]),
        ("mov.f32 v.y, v.r;", ["v$y", "v$x"]),
        ("mov.v4.f32 v, {0f00000000, 0f00000000, v.z, v.w};", [
            ["v$x", "v$y", "v$z", "v$w"], [Imm(0, "f32"), Imm(0, "f32"), "v$z", "v$w"],
        ]),
        ("ret;", []),
    ],
)  # fmt: skip
def test_operands(statement: str, expected: list) -> None:
    assert [show(operand) for operand in operands(statement)] == expected


def test_opcodes_are_split_into_modifiers_and_types() -> None:
    code = function("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16; ld.global.v4.f32; add .u32; cvt.rn.satfinite.e4m3x2.f32;")
    assert [(i.opcode, i.base, i.modifiers, i.types) for i in code.instructions] == [
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", "wgmma",
            ("mma_async", "sync", "aligned", "m64n8k16"), ("f32", "bf16", "bf16"),
        ),
        ("ld.global.v4.f32", "ld", ("global", "v4"), ("f32",)),
        ("add.u32", "add", (), ("u32",)),
        ("cvt.rn.satfinite.e4m3x2.f32", "cvt", ("rn", "satfinite"), ("e4m3x2", "f32")),
    ]  # fmt: skip


def test_guards_lines_and_columns() -> None:
    found = function(".reg .pred p;\n  @p ret;\n@!p  exit;").instructions
    assert [(i.guard and i.guard.negated, i.line, i.column) for i in found] == [(False, 8, 6), (True, 9, 6)]
    assert isinstance(found[0].guard, Guard) and found[0].guard.register.name == "p"


def test_scopes_shadow_registers_and_repeat_labels() -> None:
    found = function(
        """.reg .b32 %r<3>; .reg .pred p;
        LAB: mov.b32 %r1, 1;
        { add.s32 %r1, %r1, 1; .reg .b64 %r1; LAB: mov.b64 %r1, 2; @p bra LAB; { bra OUT; } }
        mov.b32 %r1, 3; bra LAB;
        OUT:"""
    )
    moved = [(i.operands[0].register.name, i.operands[0].register.type) for i in found.instructions if i.base in ("mov", "add")]  # type: ignore[union-attr]
    assert moved == [("%r1", "b32"), ("%r1", "b32"), ("%r1$2", "b64"), ("%r1", "b32")]
    assert [i.operands[0] for i in found.instructions if i.base == "bra"] == [
        Label("LAB$2", 2), Label("OUT", 7), Label("LAB", 0),
    ]  # fmt: skip
    assert found.labels == {"LAB": 0, "LAB$2": 2, "OUT": 7}


def test_a_label_declared_later_in_the_inner_scope_wins() -> None:
    found = function("L: { bra L; L: exit; } ret;")
    assert found.instructions[0].operands == (Label("L$2", 1),)


def test_calls_have_results_target_arguments_and_table() -> None:
    found = function(
        """.reg .b64 %rd<3>; .reg .b32 %r<3>;
        P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]);
        T: .calltargets callee;
        { .param .b32 x; .param .b64 y; .param .b32 z; call.uni (z), callee, (x, y); }
        { .param .b32 x; .param .b64 y; .param .b32 z; call (z), %rd1, (x, y), P; }
        call %rd1, (%r1, 5), T; call callee; call %rd2, T;"""
    )
    calls = [[show(operand) for operand in i.operands] for i in found.instructions]
    assert calls == [
        [[Symbol("z")], Symbol("callee"), [Symbol("x"), Symbol("y")]],
        [[Symbol("z$2")], "%rd1", [Symbol("x$2"), Symbol("y$2")], Symbol("P")],
        [[], "%rd1", ["%r1", Imm(5)], Symbol("T")],
        [[], Symbol("callee"), []],
        [[], "%rd2", [], Symbol("T")],
    ]
    assert [(v.name, v.space, v.size) for v in found.variables[:3]] == [
        ("x", "param", 4),
        ("y", "param", 8),
        ("z", "param", 4),
    ]
    assert found.call_targets == {"T": ("callee",)}
    prototype = found.prototypes["P"]
    assert [(p.type, p.size, p.offset) for p in (*prototype.returns, *prototype.parameters)] == [
        ("b32", 4, 0), ("b32", 4, 0), ("b8", 16, 8),
    ]  # fmt: skip


def test_indexed_branches_name_a_table_of_labels() -> None:
    found = function(".reg .b32 r; { T: .branchtargets A, B, A; brx.idx r, T; A: ret; } B: exit;")
    assert [show(operand) for operand in found.instructions[0].operands] == ["r", Symbol("T")]
    assert found.branch_targets == {"T": ("A", "B", "A")}
    assert found.labels == {"A": 1, "B": 2}


def test_reg_parameters_get_a_register() -> None:
    found = function("add.u32 r, x, 1; ret;", ".func (.reg .u32 r) k(.reg .u32 x)")
    assert [show(operand) for operand in found.instructions[0].operands] == ["r", "x", Imm(1)]
    assert found.returns[0].register is found.registers[0]


def test_source_lines_come_from_the_last_loc() -> None:
    found = function(
        """exit;
        .loc 1 10 3
        ret; { .loc 2 20 4, function_name $L__info_string0, inlined_at 1 10 3
        ret; } ret; .pragma "nounroll"; .pragma "used_bytes_mask 0xff";"""
    )
    assert [i.source for i in found.instructions] == [None, (1, 10), (2, 20), (2, 20)]


@pytest.mark.parametrize(
    ("body", "message", "line", "column"),
    [
        ("mov.b32 %r1, 0;", "register must be declared before its use or be a special register, not %r1", 7, 9),
        ("mov.b32 x, 0;", "operand must be a declared register, variable or function, or a constant, not x", 7, 9),
        ("bra L;", "branch target must be a label of this scope or one around it, not L", 7, 5),
        ("bra L; { L: ret; }", "branch target must be a label of this scope or one around it, not L", 7, 5),
        (".reg .b32 x;\n.reg .b64 x;", "name must be declared once in a scope, not again as x", 8, 11),
        (".reg .b32 x<5>; .reg .b64 x3;", "name must be declared once in a scope, not again as x3", 7, 27),
        (".reg .b32 x3, x<5>;", "registers of a range must be declared once in a scope, not again as x<5>", 7, 15),
        ("L: ret;\nL: ret;", "name must be declared once in a scope, not again as L", 8, 1),
        (".reg .b32 n;", "name must be declared once in a scope, not again as n", 7, 11),
        (".reg .b32 x; @x ret;", "guard must be a register of type .pred, not x of type .b32", 7, 15),
        ("@_ ret;", "guard must be a declared register of type .pred, not _", 7, 2),
        (".reg .pred p; ld.u32 _, [p];",
         "register of an address must be of an integer or bit type, not p of type .pred", 7, 26),
        (".reg .b32 x; ret x", "operands of ret must end with ;, not with }", 8, 1),
        ("ret\n@p", "operand must be a declared register, variable or function, or a constant, not @", 8, 1),
        (".reg .b64 x; ld.u32 _, [x-4];",
         "offset of an address must be added with +, as in [%r+-4], not with -", 7, 26),
        (".reg .b32 x; mov.b64 _, {{x, x}, x};", "element of a vector must be a register or constant, not {", 7, 26),
        (".reg .b32 x; brx.idx x, table;",
         "table of brx.idx must be a .branchtargets declared before, not table", 7, 25),
        (".reg .b33 x;", "type of register must be a PTX type such as .b32, not .b33", 7, 6),
        (".reg .b32 x<4294967296>;", "number of registers must be below 4294967296, not 4294967296", 7, 13),
        ("tex.2d {_}, [table, table, {0}];",
         "second part of an address must be a vector of coordinates, not table", 7, 21),
        (".frobnicate 3;", "statement must be an instruction or a known directive, not .frobnicate", 7, 1),
        ("{" * 200 + "}" * 200, "scopes must nest at most 128 deep, not deeper", 7, 128),
        (".shared .u32 s = 1;",
         "initialiser must belong to a .global or .const variable, not to a .shared one", 7, 18),
    ],
)  # fmt: skip
def test_errors_say_what_must_be_and_where(body: str, message: str, line: int, column: int) -> None:
    with pytest.raises(PtxError) as error:
        function("\n" + body)
    assert (error.value.message, error.value.line, error.value.column) == (message, line + 1, column)
