"""docs/checks.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from h100sim import schedules
from h100sim.checks import KINDS, tables

TEXT = (Path(__file__).parents[2] / "docs" / "checks.md").read_text()


def test_every_kind_of_hazard_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)`", TEXT, re.MULTILINE)
    assert set(rows) == set(KINDS)


def test_the_bounds_of_memory_are_those_of_the_tables() -> None:
    for number in (tables.RECORDS_MAX, tables.ENTRIES_MAX, tables.PAGES_MAX, tables.FINDINGS_MAX):
        assert f"{number:,}" in TEXT, number
    assert f"{8 * tables.ENTRY_COLUMNS} bytes" in TEXT and f"{round(tables.GRANULES * 8 / 1000)} KB" in TEXT


def test_seeds_are_described_as_they_are() -> None:
    assert schedules.describe(3).endswith("at random times") and "random times (3, 6, ...)" in TEXT
    assert schedules.describe(4).endswith("at once") and "at once (4, 7, ...)" in TEXT
    assert schedules.describe(5).endswith("late as possible") and "late\n(5, 8, ...)" in TEXT
