"""``h100sim lesson``: a page of prose with a question, a run that measures the answer, and the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError

if TYPE_CHECKING:
    from tk_programs.lessons import Lesson


def lesson(
    number: Annotated[int | None, typer.Argument(help="Which lesson, 1 to 6; see --list.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the lessons and their questions.")] = False,
    pictures: Annotated[Path | None, typer.Option(help="A folder for the lesson's pictures.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Teach a lesson: its page, what it measures now, and the answer to its question."""
    from tk_programs import lessons

    known = lessons.catalog()
    if list_ or number is None:
        return _list(known, json)
    if not 1 <= number <= len(known):
        raise UsageError(f"lesson must be from 1 to {len(known)}, not {number}")
    if pictures is not None and pictures.exists() and not pictures.is_dir():
        raise UsageError(f"--pictures must name a folder, not the file {pictures}")
    return _teach(known[number - 1], pictures, json)


def _list(known: list[Lesson], json: bool) -> int:
    if json:
        from .output import as_json

        rows = [{"number": x.number, "name": x.name, "title": x.title, "question": x.question} for x in known]
        as_json({"command": "lesson", "status": "clean", "exit_status": 0, "lessons": rows})
        return 0
    for x in known:
        print(f"{x.number}  {x.title}\n   {x.question}")
    return 0


def _teach(lesson: Lesson, pictures: Path | None, json: bool) -> int:
    if json:
        from .output import as_json

        figures = lesson.module.measure(pictures)
        said = {"number": lesson.number, "name": lesson.name, "title": lesson.title, "question": lesson.question}
        answer = lesson.module.answer(figures)
        as_json({"command": "lesson", "status": "clean", "exit_status": 0, **said, "measured": figures, "answer": answer})
        return 0
    from . import _working

    _show(lesson.page)
    with _working(f"Measuring for lesson {lesson.number} (a first run compiles for about a minute)", quiet=False):
        figures = lesson.module.measure(pictures)
    _show(f"## Measured\n\n{lesson.module.report(figures)}\n\n## Answer\n\n{lesson.module.answer(figures)}")
    return 0


def _show(text: str) -> None:
    """Print Markdown: drawn on a terminal, as it is into a file or a pipe."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        print(text)
        return
    from rich.markdown import Markdown

    console.print(Markdown(text))
