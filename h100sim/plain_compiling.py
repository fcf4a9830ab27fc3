"""Numba as it is, for versions without what :mod:`.compiling` needs: compiling takes twice as long, and all else is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.typing.templates import Signature


def entered(function: Callable, **options: bool) -> Any:
    """Return Numba's dispatcher for a function that Python calls."""
    settings: Any = {"cache": True, **options}
    return numba.njit(**settings)(function)


def linked(function: Callable) -> Any:
    """Return the same for a function that only compiled code calls; both forms of a function are one to Numba's cache."""
    return entered(function)


def callback(function: Callable, signature: Signature) -> Any:
    """Compile a function that is called through its address, which the result has."""
    return numba.cfunc(signature)(function)
