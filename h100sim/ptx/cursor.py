"""A position in the tokens of a text, shared by every part of the parser."""

from __future__ import annotations

from ..errors import PtxError
from .lexer import END, Tokens


class Cursor:
    """Reads tokens one after the other. ``at`` is the index of the next one."""

    __slots__ = ("at", "texts", "tokens")

    def __init__(self, tokens: Tokens, at: int = 0):
        self.tokens = tokens
        self.texts = tokens.texts
        self.at = at

    @property
    def token(self) -> str:
        """The next token, :data:`~h100sim.ptx.lexer.END` at the end."""
        return self.texts[self.at]

    def advance(self) -> str:
        """Return the next token and step over it."""
        token = self.texts[self.at]
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Step over the next token if it is ``token``, and say so."""
        if self.texts[self.at] != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str, noun: str) -> None:
        """Step over ``token``. Raises PtxError: ``noun`` must continue with it."""
        if self.texts[self.at] != token:
            raise self.error(f"{noun} must continue with {token}, not {self.shown()}")
        self.at += 1

    def name(self, noun: str) -> str:
        """Step over an identifier (a word without modifiers) and return it. Raises PtxError."""
        token = self.texts[self.at]
        if not is_identifier(token):
            raise self.error(f"{noun} must be an identifier, not {self.shown()}")
        self.at += 1
        return token

    def shown(self) -> str:
        """The next token as an error message shows it."""
        token = self.texts[self.at]
        return "the end of the file" if token == END else token if len(token) <= 80 else token[:77] + "..."

    def error(self, message: str, rule: str = "") -> PtxError:
        """Return an error about the next token."""
        return self.tokens.error(message, self.at, rule)


def is_identifier(token: str) -> bool:
    """Is a token an identifier? The sink ``_`` is none."""
    return (token[:1].isalpha() or (token[:1] in ("%", "$", "_") and len(token) > 1)) and "." not in token
