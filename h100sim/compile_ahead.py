"""Compile what a kernel needs on two cores: a newcomer's first run should not wait for one.

Functions that are not in the disk cache yet stand in a row. A second process compiles from its end and this one from its beginning
until they meet. Where that is not possible (one core, no way to start a process) everything is compiled here, as it is needed.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

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

_wanted: set[Callable] = set()


def want(*functions: Callable) -> None:
    """Have functions compiled, besides those of its instructions, when a program is next decoded."""
    _wanted.update(functions)


def compile_ahead(functions: Iterable[Callable]) -> None:
    """Put the compiled form of functions into the disk cache: handlers with the instruction signature and functions made by
    ``native.entry``, both of modules, and lane operations, which stand in files of their own."""
    missing = sorted({f for f in {*functions, *_wanted} if not is_cached(f)}, key=_place)
    _wanted.clear()
    if sum(map(_weight, missing)) < _WORTHWHILE or (os.cpu_count() or 1) < 2:
        return
    try:
        other = subprocess.Popen(
            [sys.executable, "-m", __name__], env=_environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError:
        return
    row = deque(missing)
    feeder = Thread(target=_feed, args=(other, row), daemon=True)
    feeder.start()
    with few_collections():
        while row:
            try:
                function = row.popleft()
            except IndexError:  # the other process took it
                break
            compile_one(function)
    feeder.join()


def _feed(other: subprocess.Popen, row: deque[Callable]) -> None:
    """Give a process functions from the end of a row, one at a time. A failure there is no loss: what it was to compile is
    compiled here when it is needed."""
    assert other.stdin and other.stdout
    with other, suppress(IndexError, OSError):
        while row:
            print(_name(row.pop()), file=other.stdin, flush=True)
            if not other.stdout.readline():
                break


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


def _place(function: Callable) -> tuple:
    """Return where in the row a function stands: handlers and the engine, which share much, at its beginning, then lane operations,
    then what comes after the machine (the checks), always in the same order."""
    is_late = isinstance(function, Entry) and function.__module__ != f"{__package__}.engine"
    return is_late, _is_lane_operation(function), -_weight(function), _name(function)


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
        for line in sys.stdin:
            compile_one(_named(line.strip()))
            print(flush=True)
