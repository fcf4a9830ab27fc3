"""Every module says what it is, and every number of a device says where it comes from, naming files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("h100sim", "tk_programs", "viz", "validate")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

MARKS = ("Spec:", "Measured:", "Assumed:", "Published")


def code_of(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_has_a_docstring(path: Path) -> None:
    module = ast.parse(path.read_text())
    assert not module.body or ast.get_docstring(module), "a module docstring must say what is modelled and what is left out"


def test_every_table_of_numbers_of_a_device_has_a_source() -> None:
    tables = [node for node in code_of(ROOT / "h100sim/devices.py") if isinstance(node, ast.ClassDef)]
    numbers = [node for node in tables if any(isinstance(item, ast.AnnAssign) and item.value for item in node.body)]
    text = (ROOT / "h100sim/devices.py").read_text().splitlines()
    unmarked = [
        node.name for node in numbers if not any(mark in line for line in text[node.lineno - 1 : node.end_lineno] for mark in MARKS)
    ]
    assert unmarked == []


def test_measured_numbers_name_files_that_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for mark in re.findall(r"Measured:[^\n]*(?:\n[^\n]*)?", path.read_text())
        for name in re.findall(r"(?:validate/silicon|tests/data)/[\w./-]+\.(?:json|npz)", mark)
        if not (ROOT / name).exists()
    }
    assert missing == set()
