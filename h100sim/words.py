"""Words for people: numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return "1 CTA" or "1,024 CTAs"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
