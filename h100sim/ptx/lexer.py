"""PTX text to tokens: one compiled expression, run once over the whole text.

A word takes the modifiers behind it ("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "%tid.x"), so most
instructions are an opcode token and their operands. Comments and ``# line`` marks are skipped.

Spec: PTX ISA 9.1, "Syntax" ("Source Format", "Comments", "Identifiers", "Constants").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from ..errors import PtxError, Where

_SKIP = r"(?:[ \t\r\n\f\v]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/|\#[^\n]*)*+"
_MODIFIERS = r"(?:\.\w+(?:::\w+)*+)*+"
# Possessive quantifiers: no text makes the expression go back, so time is linear in the length of the text.
_TOKEN = re.compile(
    _SKIP
    + r"(?:([A-Za-z][\w$]*+"
    + _MODIFIERS
    + r"|[%$_][\w$]++"
    + _MODIFIERS
    + r"|_|[;,{}()\[\]@:]"
    + r"|0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)"
    + r"|(?:\d++\.\d*+|\.\d++)(?:[eE][+-]?\d++)?(?!\w)|\d++[eE][+-]?\d++(?!\w)"
    + r"|0[xX][0-9a-fA-F]++U?(?!\w)|0[bB][01]++U?(?!\w)|\d++U?(?!\w)"
    + r"|\.\w++(?:::\w++)*+"
    + r'|"(?:[^"\\]|\\.)*+"'
    + r"|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>=?](?<!/(?=\*)))|(\Z)|(\S))",
    re.ASCII | re.DOTALL,
)

#: What the end of the text looks like to the parser.
END = ""


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, ended by several :data:`END`, and where each starts (an offset into the text)."""

    text: str
    filename: str
    texts: list[str]
    offsets: list[int]
    line_starts: list[int] = field(repr=False)

    def position(self, index: int) -> tuple[int, int]:
        """Return (line, column), from 1, of a token."""
        offset = self.offsets[index]
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def error(self, message: str, index: int, rule: str = "") -> PtxError:
        """Return the error about a token."""
        return PtxError(message, Where(self.filename, *self.position(index)), rule)


def tokenize(text: str, filename: str) -> Tokens:
    """Split a text into tokens. Raises PtxError for what is no token."""
    texts: list[str] = []
    offsets: list[int] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastindex
        if kind == 1:
            texts.append(match[1])
            offsets.append(match.start(1))
        elif kind == 2:
            break
        else:
            raise _bad_token(text, filename, match.start(3))
    texts += [END] * 4
    offsets += [len(text)] * 4
    return Tokens(text, filename, texts, offsets, _line_starts(text))


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _bad_token(text: str, filename: str, offset: int) -> PtxError:
    starts = _line_starts(text)
    line = bisect_right(starts, offset)
    where = Where(filename, line, offset - starts[line - 1] + 1)
    if text.startswith("/*", offset):
        return PtxError("comment must end with */, not with the end of the file", where)
    if text[offset] == '"':
        return PtxError("string must end with a quotation mark, not with the end of the file", where)
    if text[offset].isdigit():
        number = re.compile(r"[\w.]{1,40}").match(text, offset)
        assert number, "a digit starts a number"
        return PtxError(f"number must be a PTX literal (5, 0x1f, 0b11, 1.5, 0f3F800000), not {number[0]}", where, _RULE)
    return PtxError(f"text must be PTX, not {text[offset]!r}", where)


_RULE = 'PTX ISA 9.1, "Constants"'
