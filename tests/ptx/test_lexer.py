"""PTX text to tokens."""

from contextlib import suppress

import pytest

from h100sim.errors import PtxError
from h100sim.ptx.lexer import tokenize


def tokens(text: str) -> list[str]:
    return [token for token in tokenize(text, "<ptx>").texts if token]


def test_a_word_takes_its_modifiers() -> None:
    assert tokens("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 %tid.x, v.x;") == [
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", "%tid.x", ",", "v.x", ";",
    ]  # fmt: skip
    assert tokens("cp.async.bulk.tensor.2d.mbarrier::complete_tx::bytes") == [
        "cp.async.bulk.tensor.2d.mbarrier::complete_tx::bytes"
    ]
    assert tokens(".reg.b32 %r<10>;") == [".reg", ".b32", "%r", "<", "10", ">", ";"]


def test_comments_and_line_marks_are_skipped() -> None:
    assert tokens('# 1 "x.cu"\nret; // end\n/* a * / ** */ /**/exit;') == ["ret", ";", "exit", ";"]


def test_numbers() -> None:
    numbers = [
        "0",
        "017",
        "0x1F",
        "0X1FU",
        "0b101",
        "42U",
        "1.5",
        ".5",
        "1.",
        "1e5",
        "1.5E-3",
        "0f3F800000",
        "0dBFF0000000000000",
    ]
    assert tokens(" ".join(numbers)) == numbers
    assert tokens("[%r+-516]") == ["[", "%r", "+", "-", "516", "]"]


def test_positions_are_lines_and_columns_from_1() -> None:
    found = tokenize("a\n  b\n", "<ptx>")
    assert [found.position(k) for k in range(2)] == [(1, 1), (2, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ret; /* no end", "comment must end with */, not with the end of the file"),
        ('.file 1 "x', "string must end with a quotation mark, not with the end of the file"),
        ("mov 0x;", "number must be a PTX literal (5, 0x1f, 0b11, 1.5, 0f3F800000), not 0x"),
        ("mov 0f3F80;", "number must be a PTX literal (5, 0x1f, 0b11, 1.5, 0f3F800000), not 0f3F80"),
        ("mov é;", "text must be PTX, not 'é'"),
    ],
)
def test_what_is_no_token(text: str, message: str) -> None:
    with pytest.raises(PtxError) as error:
        tokenize(text, "<ptx>")
    assert error.value.message == message
    assert error.value.line == 1


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 300_000,
        "/*" + "*" * 600_000,
        '"' + "\\" * 600_001,
        "1" * 600_000 + "x",
        ".a" * 300_000 + "é",
        "/* */" * 100_000,
    ],
    ids=["comments", "stars", "backslashes", "digits", "modifiers", "many comments"],
)
def test_long_texts_end(text: str) -> None:
    """What is quadratic in these would take hours."""
    with suppress(PtxError):
        tokenize(text, "<ptx>")
