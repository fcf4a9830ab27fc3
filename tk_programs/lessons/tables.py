"""Text tables for the reports of lessons."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as a Markdown table with columns as wide as their widest cell; numbers stand on the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (head, *cells)) for i in range(len(head))]
    right = [all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    return "\n".join([line(list(head)), rule, *map(line, cells)])
