"""Numba as it is, for versions without what :mod:`.compiling` needs: compiling takes twice as long, and all else is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.typing.templates import Signature


def entered(function: Callable, **options: bool) -> Any:
    """Return Numba's dispatcher for a function that Python calls."""
    settings: Any = {"cache": True, "error_model": "numpy", **options}
    return numba.njit(**settings)(function)


def linked(function: Callable) -> Any:
    """Return the same for a function that only compiled code calls; both forms of a function are one to Numba's cache."""
    return entered(function)


def callback(function: Callable, signature: Signature, loops: str) -> tuple[str, bytes]:
    """Compile a function that is called through its address: return its name and an object file."""
    made: Any = numba.cfunc(signature, error_model="numpy")(function)
    return made.native_name, made._library.serialize_using_object_code()[2][0]
