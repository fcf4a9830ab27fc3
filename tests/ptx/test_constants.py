"""Literals and constant expressions, against what ptxas folded."""

import json
from pathlib import Path

import pytest

from h100sim.errors import PtxError
from h100sim.ptx.constants import parse_constant, parse_literal
from h100sim.ptx.cursor import Cursor
from h100sim.ptx.lexer import tokenize
from h100sim.ptx.module import Imm

CAPTURE = json.loads((Path(__file__).parent / "data/constant_expressions.json").read_text())


def evaluate(text: str) -> Imm:
    return parse_constant(Cursor(tokenize(text + ";", "<ptx>")))


@pytest.mark.parametrize("case", CAPTURE["integers"], ids=lambda case: case["expression"])
def test_integers_as_ptxas(case: dict) -> None:
    assert evaluate(case["expression"]).value % 2**64 == case["bits"]


@pytest.mark.parametrize("case", [c for c in CAPTURE["floats"] if "bits" in c], ids=lambda case: case["expression"])
def test_floats_as_ptxas(case: dict) -> None:
    assert evaluate(case["expression"]) == Imm(case["bits"], "f64")


@pytest.mark.parametrize(
    "text",
    ["!1.5", "1.0+2", "~1.0", "-0f3F800000", "1.0<2.0", "1/0", "1% 0", "(1", "1+", "1?2", "0x10000000000000000", "08"],
)
def test_refused(text: str) -> None:
    with pytest.raises(PtxError):
        evaluate(text)


def test_a_literal_keeps_its_kind() -> None:
    assert parse_literal("0x10U") == Imm(16)
    assert parse_literal("0f3F800000") == Imm(0x3F800000, "f32")
    assert parse_literal("1.0") == Imm(0x3FF0000000000000, "f64")
    assert parse_literal("%r1") is None


def test_depth_is_bounded() -> None:
    for text in ("(" * 10**5, "-" * 10**5 + "1", "1?" * 10**5):
        with pytest.raises(PtxError) as error:
            evaluate(text)
        assert error.value.message == "constant expression must nest at most 64 deep, not deeper"


def test_a_chain_of_any_length_is_no_depth() -> None:
    assert evaluate("+".join(["1"] * 10**4)) == Imm(10**4)
