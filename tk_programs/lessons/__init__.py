"""Lessons: each a page of prose with a question, and a module that runs programs and measures the answer.

A lesson's module has ``measure(pictures)``, which runs and returns figures as plain values (``pictures`` is a folder for
SVG files, or None), ``report(figures)``, which shows them as text, and ``answer(figures)``, one paragraph that they
support. Its page is the Markdown file beside it: the first line is the title, the first quotation is the question.
``h100sim lesson 3`` or ``python -m tk_programs.lessons.wgmma_layout`` teaches one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Modules in the order of teaching.
ORDER = ("gemm_in_ptx", "stages", "wgmma_layout", "tma_by_hand", "ping_pong", "triton_and_tk")


@dataclass(frozen=True)
class Lesson:
    """A lesson: its number, counted from 1, the name of its module, and its page in Markdown."""

    number: int
    name: str
    page: str

    @property
    def title(self) -> str:
        return self.page.partition("\n")[0].removeprefix("# ")

    @property
    def question(self) -> str:
        lines = [line for line in self.page.splitlines() if line.startswith(">")]
        return " ".join(line.removeprefix(">").strip() for line in lines)

    @property
    def module(self) -> Any:
        """The module with ``measure``, ``report`` and ``answer``."""
        return importlib.import_module(f"{__name__}.{self.name}")


def catalog() -> list[Lesson]:
    """Return every lesson in order. Nothing is run or imported."""
    folder = Path(__file__).parent
    return [Lesson(number, name, (folder / f"{name}.md").read_text(encoding="utf-8")) for number, name in enumerate(ORDER, 1)]


def teach(name: str, pictures: Path | None = None) -> None:
    """Print a lesson: its page, what was measured just now, and the answer."""
    (lesson,) = (lesson for lesson in catalog() if lesson.name == name)
    print(lesson.page)
    figures = lesson.module.measure(pictures)
    print(f"## Measured\n\n{lesson.module.report(figures)}\n\n## Answer\n\n{lesson.module.answer(figures)}")
