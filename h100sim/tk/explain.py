"""What each Python line of a kernel became: the PTX of a kernel, gathered by the line that asked for it."""

from __future__ import annotations

import html
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

#: A list of at least four registers is shown by its ends.
_LONG_LIST = re.compile(r"\{(%[\w$]+)(?:, %[\w$]+){2,}, (%[\w$]+)\}")
#: From so many on, instructions of one opcode in a row are shown by the first of them.
_MANY = 4


@dataclass(frozen=True)
class ExplainedLine:
    """A Python line and its instructions, in the order of the text. ``numbers``: their lines in the PTX."""

    file: str
    line: int
    numbers: tuple[int, ...]
    instructions: tuple[str, ...]

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def shown(self, full: bool) -> Iterator[str]:
        """Yield the instructions as people read them; unless ``full``, many of one opcode as one."""
        for opcode, found in groupby(self.instructions, key=_opcode):
            run = list(found)
            if full or len(run) < _MANY:
                yield from (x if full else _shortened(x) for x in run)
            else:
                yield f"{_shortened(run[0])}  // and {len(run) - 1} more {opcode}"


@dataclass(frozen=True)
class Explanation:
    """The lines of a kernel. ``str()`` is the text; notebooks show a table."""

    kernel: str
    lines: tuple[ExplainedLine, ...]
    full: bool = False

    def __repr__(self) -> str:
        count = sum(len(line.instructions) for line in self.lines)
        return f"<Explanation of {self.kernel}: {len(self.lines)} Python lines, {count} PTX instructions>"

    def __str__(self) -> str:
        text = []
        for line in self.lines:
            text.append(f"{Path(line.file).name}:{line.line}: {line.source}")
            text += [f"    {instruction}" for instruction in line.shown(self.full)]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        rows = []
        for line in self.lines:
            where = html.escape(f"{Path(line.file).name}:{line.line}")
            ptx = "\n".join(html.escape(instruction) for instruction in line.shown(self.full))
            source = html.escape(line.source)
            rows.append(f"<tr><td>{where}</td><td><code>{source}</code></td><td><pre>{ptx}</pre></td></tr>")
        head = "<tr><th>line</th><th>Python</th><th>PTX</th></tr>"
        return f"<table><caption>{html.escape(self.kernel)}</caption>{head}{''.join(rows)}</table>"


def explain(
    kernel: str, ptx: str, source_map: dict[int, tuple[str, int]], line: int | None = None, full: bool = False
) -> Explanation:
    """Gather the instructions of a text by Python line, files in the order in which they first appear."""
    text = ptx.split("\n")
    found: dict[tuple[str, int], list[int]] = {}
    for number, where in sorted(source_map.items()):
        if not text[number - 1].rstrip().endswith(":"):
            found.setdefault(where, []).append(number)
    files = list(dict.fromkeys(file for file, _ in found))
    lines = [
        ExplainedLine(file, at, tuple(numbers), tuple(text[n - 1].strip() for n in numbers))
        for (file, at), numbers in sorted(found.items(), key=lambda item: (files.index(item[0][0]), item[0][1]))
        if line is None or at == line
    ]
    return Explanation(kernel, tuple(lines), full)


def _opcode(instruction: str) -> str:
    """Return the opcode of an instruction, without its guard."""
    words = instruction.rstrip(";").split()
    return words[1] if words[0].startswith("@") else words[0]


def _shortened(instruction: str) -> str:
    return _LONG_LIST.sub(r"{\1 ... \2}", instruction)
