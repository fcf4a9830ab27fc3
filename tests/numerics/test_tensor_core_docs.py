"""Every number in docs/arithmetic.md is what the code computes."""

import doctest
from pathlib import Path

ARITHMETIC = Path(__file__).parents[2] / "docs" / "arithmetic.md"


def test_the_numbers_in_the_page_on_arithmetic():
    failed, attempted = doctest.testfile(str(ARITHMETIC), module_relative=False)
    assert attempted > 20 and failed == 0
