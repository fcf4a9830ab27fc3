"""Variables, initialisers and parameters."""

import json
from pathlib import Path

import pytest

from h100sim.errors import PtxError
from h100sim.ptx import Module, Symbol, parse

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
CAPTURE = json.loads((Path(__file__).parent / "data/initialisers.json").read_text())


def module(text: str) -> Module:
    return parse(HEADER + text)


@pytest.mark.parametrize("case", CAPTURE["declarations"], ids=lambda case: case["declaration"])
def test_declarations_as_ptxas(case: dict) -> None:
    if not case["accepted"]:
        with pytest.raises(PtxError):
            module(case["declaration"])
        return
    found = module(case["declaration"])
    if "bytes" in case:
        variable = found.variables.get("g") or found.variables["x"]
        assert variable.initial.ljust(variable.size, b"\0").hex() == case["bytes"]


def test_addresses_become_fixups() -> None:
    found = module(
        ".global .u32 x[4]; .func f() { ret; }"
        ".global .u64 table[4] = {7, x+8, generic(x)+4, f}; .global .u8 bytes[3] = {0xff(x), 0xff00(generic(x)), 5};"
    ).variables
    assert found["table"].fixups == ((8, Symbol("x", 8), 8), (16, Symbol("x", 4, True), 8), (24, Symbol("f"), 8))
    assert found["table"].initial == (7).to_bytes(32, "little")
    assert found["bytes"].byte_fixups == ((0, Symbol("x"), 0), (1, Symbol("x", generic=True), 8))
    assert found["bytes"].initial == b"\0\0\5"


def test_spaces_alignment_and_linkage() -> None:
    found = module(
        ".extern .shared .align 1024 .b8 smem[]; .visible .const .v4 .f32 v[2];.weak .global .attribute(.managed) .f64 d;"
    ).variables
    smem, v, d = found["smem"], found["v"], found["d"]
    assert (smem.space, smem.size, smem.align, smem.extern) == ("shared", 0, 1024, True)
    assert (v.space, v.size, v.align, v.linkage) == ("const", 32, 16, "visible")
    assert (d.space, d.type, d.size, d.align, d.linkage) == ("global", "f64", 8, 8, "weak")


def test_parameters_are_laid_out_by_the_abi() -> None:
    entry = module(
        ".entry k(.param .u8 a, .param .u64 .ptr .global .align 16 b, .param .align 64 .b8 map[128], .param .u16 c[3],"
        " .param .u32 d) { ret; }"
    ).functions["k"]
    assert [(p.name, p.offset, p.size, p.align) for p in entry.parameters] == [
        ("a", 0, 1, 1), ("b", 8, 8, 8), ("map", 64, 128, 64), ("c", 192, 6, 2), ("d", 200, 4, 4),
    ]  # fmt: skip
    assert (entry.parameters[1].pointer_space, entry.parameters[1].pointer_align) == ("global", 16)


def test_a_huge_variable_costs_nothing() -> None:
    assert module(".global .b8 x[1099511627776] = {1};").variables["x"].initial == b"\1"
    with pytest.raises(PtxError, match="size of a variable must be at most 1099511627776 bytes, not more"):
        module(".global .b64 x[1099511627776];")


def test_textures_are_refused_by_name() -> None:
    with pytest.raises(PtxError, match=r"variable must be memory or a register: textures are not supported"):
        module(".global .texref t;")
