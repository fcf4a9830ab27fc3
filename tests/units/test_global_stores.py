"""The way of register stores out of an SM, against an H200."""

from __future__ import annotations

import numpy as np
import pytest

from validate import probes
from validate.probes import global_stores

SILICON = probes.silicon_answer("global_stores")


@pytest.mark.parametrize(
    "pattern",
    [
        "one line",
        "four lines, 16 bytes",
        "8 rows of 64 bytes",
        "8 rows of 16 bytes",
        "8 rows of 32 bytes, neighbours",
        "32 rows of 4 bytes",
    ],
)
def test_stores_leave_by_sectors_and_queue_as_on_silicon(pattern: str) -> None:
    assert SILICON is not None
    ask, _ = probes._launcher("sim")
    here = [global_stores.cycles(ask, pattern, count, 4, repeats=1)[0] for count in (32, 64)]
    there = [SILICON["results"][f"{pattern}, {count} x 4"][0] for count in (32, 64)]
    assert np.diff(here)[0] == pytest.approx(np.diff(there)[0], rel=0.03)
    assert here[0] == pytest.approx(there[0], rel=0.1)
