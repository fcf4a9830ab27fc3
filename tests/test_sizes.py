"""The thermometer: how large files and functions are. It is printed with the test results, not a target to golf."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("h100sim", "tk_programs", "viz", "validate")

#: Above this a file is two files.
MOST_LINES_OF_A_FILE = 900


def measure() -> tuple[dict[str, int], dict[str, int]]:
    """Return the lines of every source file, and of every function as ``file:name``."""
    files, functions = {}, {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            text = path.read_text()
            files[name] = text.count("\n")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    functions[f"{name}:{node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
    return files, functions


def thermometer() -> str:
    """Return the sizes as a few lines of text."""
    files, functions = measure()
    sized = {name: lines for name, lines in files.items() if lines}
    longest = sorted(functions.items(), key=lambda item: -item[1])[:3]
    largest = sorted(sized.items(), key=lambda item: -item[1])[:3]
    return "\n".join(
        (
            f"{sum(sized.values()):,} lines in {len(sized)} files (median {median(sized.values()):.0f}), "
            f"{len(functions):,} functions (median {median(functions.values()):.0f})",
            "largest files: " + ", ".join(f"{name} {lines}" for name, lines in largest),
            "longest functions: " + ", ".join(f"{name} {lines}" for name, lines in longest),
        )
    )


def test_files_stay_readable(record_property: Any) -> None:
    files, _ = measure()
    record_property("thermometer", thermometer())
    assert {name: lines for name, lines in files.items() if lines > MOST_LINES_OF_A_FILE} == {}


if __name__ == "__main__":
    print(thermometer())
