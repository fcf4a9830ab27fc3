"""Whole numbers that a caller gives: NumPy's are taken as Python's, everything else is refused and never rounded."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from .errors import H100SimError, UsageError


def integer(
    noun: str, value: Any, lowest: int | None = None, below: int | None = None, error: type[H100SimError] = UsageError
) -> int:
    """Return ``value`` as an int in [lowest, below). Raises ``error``, which calls it ``noun``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise error(f"{noun} must be an integer, not {value!r}") from None
    if (lowest is not None and number < lowest) or (below is not None and number >= below):
        rule = f"at least {lowest:,}" if below is None else f"from {lowest:,} to {below - 1:,}"
        raise error(f"{noun} must be {rule}, not {number:,}")
    return number


def integers(noun: str, values: Any, error: type[H100SimError] = UsageError) -> tuple[int, ...]:
    """Return ``values`` as a tuple of ints. Raises ``error``, which calls them ``noun``."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise error(f"{noun} must be a sequence of integers, not {values!r}")
    return tuple(integer(f"{noun}[{i}]", value, error=error) for i, value in enumerate(values))
