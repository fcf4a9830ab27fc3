"""Compile what a kernel needs on two cores: a newcomer's first run should not wait for one.

Functions that are not in the disk cache yet are split in two; a second process compiles one half while this one compiles the
other. Where that is not possible (one core, no way to start a process) everything is compiled here, as it is needed.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from .code_cache import object_file
from .isa.lane import function_in
from .native import Entry, address_of

#: Functions that weigh less than this, some seconds of compiling, are not worth a second process (about a second to start).
_WORTHWHILE = 20_000
#: Weight of a lane operation. Measured: a twentieth of what most handlers take.
_LANE_WEIGHT = 500
#: New objects between two collections of garbage while compiling: with Python's own 700, collections that find little take a
#: tenth of the time.
_GARBAGE_THRESHOLD = 50_000


def compile_ahead(functions: Iterable[Callable]) -> None:
    """Put the compiled form of functions into the disk cache: handlers with the instruction signature and functions made by
    ``native.entry``, both of modules, and lane operations, which stand in files of their own."""
    missing = sorted({f for f in functions if not is_cached(f)}, key=lambda f: (-_weight(f), _name(f)))
    if sum(map(_weight, missing)) < _WORTHWHILE or (os.cpu_count() or 1) < 2:
        return
    shares: tuple[list[Callable], list[Callable]] = ([], [])
    for function in missing:
        min(shares, key=lambda share: sum(map(_weight, share))).append(function)
    try:
        other = subprocess.Popen([sys.executable, "-m", __name__, *map(_name, shares[1])], env=_environment())
    except OSError:
        return
    with few_collections():
        for function in shares[0]:
            compile_one(function)
    # A failure there is no loss: the function is then compiled here when it is needed.
    other.wait()


@contextmanager
def few_collections() -> Iterator[None]:
    """Collect garbage less often: a compiler makes many objects that live."""
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def compile_one(function: Callable) -> None:
    """Compile one function now."""
    if isinstance(function, Entry):
        _ = function.address
    else:
        address_of(function)


def is_cached(function: Callable) -> bool:
    """Is there a compiled form of the function in the disk cache?"""
    return object_file(getattr(function, "py_func", function)).exists()


def _weight(function: Callable) -> int:
    """Return a rough measure of how long compiling takes: the size of the file's dependencies counts as much as the code."""
    code = getattr(function, "py_func", function).__code__
    if _is_lane_operation(function):
        return _LANE_WEIGHT
    return len(code.co_code) + 400 * len(code.co_names)


def _is_lane_operation(function: Callable) -> bool:
    return function.__module__ == function_in.__module__


def _name(function: Callable) -> str:
    if _is_lane_operation(function):
        return function.__code__.co_filename
    return f"{function.__module__}:{getattr(function, 'py_func', function).__name__}"


def _named(name: str) -> Callable:
    """Return the function that :func:`_name` gave a name."""
    if name.endswith(".py"):
        return function_in(name)
    module, _, function_name = name.partition(":")
    return getattr(importlib.import_module(module), function_name)


def _environment() -> dict[str, str]:
    """Return the environment of the second process: the same modules must be found there."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


if __name__ == "__main__":
    with few_collections():
        for name in sys.argv[1:]:
            compile_one(_named(name))
