"""Whole texts: headers, functions, what ptxas accepts and refuses, and texts made to do harm."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from h100sim.errors import PtxError
from h100sim.ptx import parse

DATA = Path(__file__).parent / "data"
HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
VERDICTS = json.loads((DATA / "ptxas_verdicts.json").read_text())["cases"]

#: Where the parser and ptxas differ on purpose.
DIFFERENT = {
    "addr imm": "which state spaces take an immediate address is the instruction's own rule",
    "brx negative": "the type of the index is the instruction's own rule",
    "shadow wrong type": "the width of the operand of mov is the instruction's own rule",
    "vec comp out": "ptxas takes v.z of a .v2 register; what it would read is not defined",
}


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case["name"])
def test_accepts_and_refuses_as_ptxas(case: dict) -> None:
    try:
        parse(case["text"])
        accepted = True
    except PtxError as error:
        assert error.line > 0 and error.column > 0
        accepted = False
    assert accepted == (case["accepted"] != (case["name"] in DIFFERENT))


def test_a_module_of_several_functions() -> None:
    module = parse(
        HEADER + ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
        ".func f(.param .b32 x);\n"
        ".visible .entry first(.param .u64 p) .maxntid 384, 1, 1 .minnctapersm 1 .maxnreg 168 { call f, (p); ret; }\n"
        ".weak .entry second() .reqntid 128 .reqnctapercluster 2, 1, 1 .explicitcluster { ret; }\n"
        ".func f(.param .b32 x) { ret; }\n"
        ".func g(.param .b32 x); .alias g, f;\n"
        '.file 1 "a.py"\n.file 2 "b.py", 123, 456\n.section .debug_str { L: .b8 1 .b64 L+4 .b32 .debug_info }\n',
        "kernels.ptx",
    )
    assert (module.version, module.target, module.filename) == ((8, 6), "sm_90a", "kernels.ptx")
    assert module.files == {1: "a.py", 2: "b.py"}
    functions = module.functions
    assert [(f.name, f.is_entry, f.defined, f.linkage, len(f.instructions)) for f in functions.values()] == [
        ("vprintf", False, False, "extern", 0),
        ("f", False, True, "", 1),
        ("first", True, True, "visible", 2),
        ("second", True, True, "weak", 1),
        ("g", False, True, "", 1),
    ]
    assert functions["first"].directives == {"maxntid": (384, 1, 1), "minnctapersm": (1,), "maxnreg": (168,)}
    assert functions["second"].directives == {"reqntid": (128,), "reqnctapercluster": (2, 1, 1), "explicitcluster": ()}


@pytest.mark.parametrize("name", ["scalars", "memories", "hopper", "hopper_lineinfo", "scalars_debug", "triton_like"])
def test_compiler_output_parses(name: str) -> None:
    module = parse((DATA / f"{name}.ptx").read_text())
    assert any(function.is_entry and function.instructions for function in module.functions.values())


def test_the_debug_build_knows_its_lines() -> None:
    module = parse((DATA / "hopper_lineinfo.ptx").read_text())
    code = module.functions["_Z9gemm_tile14CUtensorMap_stS_Pfi"].instructions
    wgmma = next(i for i in code if i.opcode.startswith("wgmma.mma_async"))
    assert wgmma.source is not None and module.files[wgmma.source[0]] == "hopper.cu"
    source = (DATA / "hopper.cu").read_text().splitlines()
    assert '"l"(da), "l"(db), "r"(k)' in source[wgmma.source[1] - 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "PTX text must start with .version, not with the end of the file"),
        (".target sm_90a", "PTX text must start with .version, not with .target"),
        (".version 9.6", ".version must be at most 9.5, not 9.6"),
        (".version 8", ".version must be a number such as 8.6, not 8"),
        (".version 8.6 .target sm_100a",
         ".target must be sm_90a, sm_90 or an older architecture that runs on it, not sm_100a"),
        (".version 8.6 .target sm_80a",
         ".target must be sm_90a, sm_90 or an older architecture that runs on it, not sm_80a"),
        (".version 8.6 .target sm_90a .visible .entry k() .maxnreg 0 { ret; }",
         "value of .maxnreg must be from 1 to 4,294,967,295, not 0"),
        (".version 8.6 .target sm_90a .visible .entry k() .maxntid 64, 99999999999 { ret; }",
         "value of .maxntid must be from 1 to 4,294,967,295, not 99,999,999,999"),
        (".version 8.6 .target sm_90a .visible .entry k(.param .u64 a, .param .b8 b[32757]) { ret; }",
         "parameters of an entry must fit 32,764 bytes, not 32,765"),
        (".version 8.6 .target debug", ".target must name an architecture such as sm_90a, not options alone"),
        (".version 8.6 .target sm_90a .address_size 32", ".address_size must be 64, not 32"),
        (HEADER + ".entry k() { ret;", "body of a function must end with }, not with the end of the file"),
        (HEADER + ".entry k() { ret; } }", "statement of a module must be a directive such as .entry, not }"),
        (HEADER + ".entry k() .frob 3 { }",
         "directive of a function must be one such as .maxntid or .reqntid, not .frob"),
        (HEADER + ".entry k() { } .entry k() { }", "function must have one body, not a second one of k"),
        (HEADER + ".func f(.param .b32 a); .func f(.param .b64 a) { }",
         "parameters of f must be the same in every declaration, not different ones"),
        (HEADER + ".global .u32 x; .global .u32 x;", "name must be declared once in a module, not again as x"),
        (HEADER + ".entry k() { mov.b64 _, x; } .global .u32 x;",
         "operand must be a declared register, variable or function, or a constant, not x"),
        (HEADER + ".section .debug_str { .b8 1", ".section must end with }, not with the end of the file"),
    ],
)  # fmt: skip
def test_errors_of_a_module(text: str, message: str) -> None:
    with pytest.raises(PtxError) as error:
        parse(text)
    assert error.value.message == message


def test_an_older_target_runs() -> None:
    for target in ("sm_90", "sm_80", "sm_52", "sm_90a, debug"):
        assert parse(f".version 7.8 .target {target} .entry k() {{ ret; }}").functions["k"].defined


BODY = HEADER + ".entry k() {\n"


@pytest.mark.parametrize(
    "text",
    [
        BODY + ".reg .b32 %r<4000000000>; mov.b32 %r3999999999, 0; }",
        BODY + "{" * 100_000,
        BODY + "".join(f".reg .b32 %r{k}<5>;" for k in range(20_000)) + "}",
        BODY + ".reg .b32 x" + "9" * 100_000 + ";}",
        BODY + "{" * 120 + "bra L;" * 20_000 + "}" * 120 + "L: }",
        BODY + "{" * 120 + "".join(f"mov.b32 x{k}, 0;" for k in range(9)) + "}" * 121,
        BODY + "".join("{ .reg .b32 t; L: }" for _ in range(20_000)) + "}",
        BODY + "mov.b32 _, {" + "0," * 200_000 + "0}; }",
        HEADER + ".global .b8 x[] = {" + "{" * 100_000,
        HEADER + ".global .b8 x" + "[2]" * 10_000 + ";",
        HEADER + ".entry k(" + ".param .u32 a," * 50_000,
        HEADER + '.file 1 "' + "x" * 10**6 + '"' + ".pragma " * 10_000,
    ],
    ids=[
        "range",
        "scopes",
        "ranges",
        "name",
        "pending",
        "undeclared",
        "unique",
        "vector",
        "initialiser",
        "shape",
        "parameters",
        "strings",
    ],
)
def test_hostile_texts_end(text: str) -> None:
    """What is quadratic in these, or worse, would take hours."""
    with suppress(PtxError):
        parse(text)
