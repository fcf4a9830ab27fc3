"""Where compiled code is kept on disk: in folders whose names carry a digest of the source file and of everything it imports.

Numba notices when the file of a function changes, but not when a function that it calls does.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from .machine_code import processor

_PACKAGE = Path(__file__).parent
#: How functions are compiled.
_COMPILERS = [
    _PACKAGE / name
    for name in (
        "native.py",
        "compiling.py",
        "numba_contexts.py",
        "numba_lowering.py",
        "numba_passes.py",
        "numba_tables.py",
        "plain_compiling.py",
    )
]
#: Imports at the start of a line: what code of the module may call. Imports inside functions never reach compiled code.
_IMPORT = re.compile(r"^from\s+([.\w]+)\s+import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE)


@cache
def cache_root() -> Path:
    """Return the folder that all compiled code is kept in: H100SIM_CACHE_DIR or one in the user's cache folder."""
    if root := os.environ.get("H100SIM_CACHE_DIR"):
        base = Path(root)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "h100sim"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "h100sim"
    base.mkdir(parents=True, exist_ok=True)
    return base


@cache
def cache_dir(source: str) -> Path:
    """Return the folder for code compiled from a source file: its name has a digest of all that it is made of and of how."""
    folder = cache_root() / _digest(source, _content)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(source: str, content: Callable[[Path], bytes]) -> str:
    digest = hashlib.sha256(_versions().encode())
    for file in sorted({*source_closure(Path(source)), *_COMPILERS}):
        digest.update(content(file))
    return digest.hexdigest()[:16]


def is_unchanged(source: str) -> bool:
    """Is a source file, with everything it imports, still what :func:`cache_dir` found? If not, what this process has compiled
    may be of either text."""
    return cache_dir(source).name == _digest(source, _content_now)


@cache
def _versions() -> str:
    return f"{metadata.version('numba')} {metadata.version('llvmlite')} {np.__version__} {sys.version}"


def _content_now(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()


#: A file's digest when it was first asked for, which is when it was imported: it may be edited while the process runs.
_content = cache(_content_now)


def object_file(function: Callable) -> Path:
    """Return where the machine code of a function is kept that :func:`address_of` or :func:`entry` compiles."""
    code = function.__code__
    name = f"{Path(code.co_filename).stem}.{code.co_name}-{code.co_firstlineno}.{processor()}.o"
    return cache_dir(code.co_filename) / name


def source_closure(source: Path) -> set[Path]:
    """Return a source file and every file of this package that it imports, directly or not."""
    found, todo = set(), [source]
    while todo:
        file = todo.pop()
        if file not in found and file.exists():
            found.add(file)
            todo.extend(imported_files(file))
    return found


@cache
def imported_files(source: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports at the start of a line."""
    files = []
    for module, names in _IMPORT.findall(source.read_text()):
        dots = len(module) - len(module.lstrip("."))
        parts = [part for part in module.lstrip(".").split(".") if part]
        if dots:
            folder = source.parents[dots - 1]
        elif parts[:1] == ["h100sim"]:
            folder, parts = _PACKAGE, parts[1:]
        else:
            continue
        home = folder.joinpath(*parts)
        names_found = re.findall(r"(\w+)(?:\s+as\s+\w+)?", re.sub(r"#[^\n]*", "", names))
        files += [home.with_suffix(".py"), *(home / f"{name}.py" for name in names_found)]
    return tuple(file for file in files if file.is_file())
