"""A small writer of SVG text: rectangles, labels and tooltips, with a title and captions around the drawing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

#: Eight tints that stay apart for common forms of colour blindness, and dark enough text on them.
#: Spec: M. Okabe and K. Ito, "Color Universal Design" (2008), lightened.
TINTS = ("#9fc9e8", "#f6d08a", "#a8dcc6", "#efb59a", "#d9c2e3", "#f4ec9e", "#c9c9c9", "#b9d98a")
WARNING = "#d55e00"

_LINE = 16
_MARGIN = 16
#: Every rule is scoped: a notebook applies the style of a picture to the whole page.
_STYLE = "".join(
    f".h100sim {rule}"
    for rule in (
        "text{font:11px sans-serif;fill:#1b1f24}",
        ".h{font-size:15px;font-weight:bold}",
        ".s{fill:#4b5563}",
        "g text{text-anchor:middle}",
        "g .l{text-anchor:start}",
        "g .e{text-anchor:end}",
        "g rect{stroke:#fff;stroke-width:.6}",
        *(f".c{i}{{fill:{tint}}}" for i, tint in enumerate(TINTS)),
    )
)


@dataclass
class Drawing:
    """An SVG picture in the making. Coordinates are pixels from the corner below the captions."""

    title: str
    captions: tuple[str, ...]
    parts: list[str] = field(default_factory=list)
    boxes: set[tuple[int, int]] = field(default_factory=set)
    width: float = 0
    height: float = 0

    def cell(self, x: float, y: float, width: float, height: float, label: str, tooltip: str, style: str) -> None:
        """Draw a rectangle with a label in its middle and a tooltip. ``style``: a class, or attributes (with =)."""
        self._reach(x + width, y + height)
        look = style if "=" in style else f'class="{style}"'
        text = f'<text x="{x + width / 2:g}" y="{y + height / 2 + 4:g}">{escape(label)}</text>' if label else ""
        box = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {look}/>'
        self.parts.append(f"<g><title>{escape(tooltip)}</title>{box}{text}</g>" if tooltip else box + text)

    def row(self, y: float, width: int, height: int, cells: Iterable[tuple[float, str, str, str]]) -> None:
        """Draw a row of equal cells, each (x, label, tooltip, class), in few bytes."""
        self.boxes.add((width, height))
        box, drawn = f'<use href="#h{width}x{height}" x="', []
        for x, label, tooltip, style in cells:
            self._reach(x + width, y + height)
            text = f'<text x="{x + width / 2:g}">{label}</text>' if label else ""
            drawn.append(f'<g><title>{tooltip}</title>{box}{x:g}" class="{style}"/>{text}</g>')
        self.parts.append(f'<g transform="translate(0,{y + height / 2 + 4:g})">{"".join(drawn)}</g>')

    def legend(self, x: float, y: float, entries: Iterable[tuple[str, str]]) -> None:
        """Draw what colours mean: (class or fill, words), from left to right."""
        for style, words in entries:
            self.cell(x, y, 14, 14, "", "", style)
            self.text(x + 19, y + 11, words)
            x += 19 + 6.2 * len(words) + 18

    def text(self, x: float, y: float, text: str, anchor: str = "l") -> None:
        """Write subdued text with its base line at ``y``. ``anchor``: l starts at x, m is centred, e ends at x."""
        self._reach(x + {"l": 6.2, "m": 3.1, "e": 0}[anchor] * len(text), y + 4)
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="s {anchor}">{escape(text)}</text>')

    def shape(self, svg: str, right: float, bottom: float) -> None:
        """Add an element given as SVG text that reaches to (right, bottom)."""
        self._reach(right, bottom)
        self.parts.append(svg)

    def _reach(self, right: float, bottom: float) -> None:
        self.width, self.height = max(self.width, right), max(self.height, bottom)

    def to_svg(self) -> str:
        """Return the picture as the text of an SVG file."""
        top = _MARGIN + 22 + _LINE * len(self.captions) + 6
        lines = [f'<text x="{_MARGIN}" y="{_MARGIN + 12}" class="h">{escape(self.title)}</text>']
        for i, caption in enumerate(self.captions):
            lines.append(f'<text x="{_MARGIN}" y="{_MARGIN + 32 + _LINE * i}" class="s">{escape(caption)}</text>')
        longest = max([len(self.title) * 8.5, *(len(c) * 5.8 for c in self.captions)])
        width, height = max(self.width, longest) + 2 * _MARGIN, self.height + top + _MARGIN
        boxes = "".join(
            f'<rect id="h{w}x{h}" y="{-h / 2 - 4:g}" width="{w}" height="{h}" stroke="#fff" stroke-width=".6"/>'
            for w, h in sorted(self.boxes)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="h100sim" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style>'
            f"{f'<defs>{boxes}</defs>' if boxes else ''}"
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(lines)}'
            f'<g transform="translate({_MARGIN},{top})">{"".join(self.parts)}</g></svg>\n'
        )
