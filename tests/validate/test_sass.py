"""Comparison with real machine code: what it needs is said, with what there is of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from h100sim.errors import UsageError
from validate import sass


@pytest.mark.parametrize(("there", "found"), [((), "none of them"), (("ptxas",), "only ptxas"), (("nvdisasm",), "only nvdisasm")])
def test_missing_tools_are_named(there: tuple[str, ...], found: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).touch(mode=0o755)
    with pytest.raises(UsageError, match=f"^comparison with machine code must have ptxas and nvdisasm on PATH, not {found}$"):
        sass.disassemble("", tools=str(tmp_path))
