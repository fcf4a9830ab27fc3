"""What an NVIDIA H200 said to the lessons: the cycles of the same kernels.

Measured: validate/silicon/lesson_times.json (median cycles of a CTA, by ``h100sim validate lessons``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import validate

FILE = Path(validate.__file__).parent / "silicon" / "lesson_times.json"


def times() -> dict[str, Any]:
    """Return the measured cycles."""
    answer: dict[str, Any] = json.loads(FILE.read_text())
    return answer
