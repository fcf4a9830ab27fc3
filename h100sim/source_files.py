"""Names of source files in PTX text: short and the same on every machine, and back from a name to the file."""

from __future__ import annotations

import sys
from pathlib import Path


def portable_name(path: str) -> str:
    """Return a file's name relative to the folder of the import path that holds it ("tk_programs/gemm.py"), with slashes;
    a file outside of all keeps its path."""
    file = Path(path)
    roots = [Path(entry).resolve() for entry in sys.path if entry] + [Path.cwd(), _HOME]
    holders = [root for root in roots if file.is_relative_to(root)]
    # The shortest name: "gemm.py" beside a script that is run, "tk_programs/gemm.py" from an installed tree.
    best = max(holders, key=lambda root: len(root.parts), default=None)
    return file.relative_to(best).as_posix() if best else path


def read_source(name: str) -> str | None:
    """Return the text of a file that a PTX text names, or None if it is not here."""
    for root in (Path(), _HOME, *map(Path, sys.path)):
        try:
            return (root / name).read_text()
        except (OSError, UnicodeDecodeError):
            continue
    return None


_HOME = Path(__file__).resolve().parents[1]
