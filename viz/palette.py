"""The colours of all views, safe for the common forms of colour blindness, and the names under which legends list them.

Spec: M. Okabe and K. Ito, "Color Universal Design" (2008), eight colours; pale tints of them for waiting, so that a
role's own colour always means that it issues instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

#: One colour per role, in the order of their first warps; more roles than colours begin again.
ROLE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#8a6d00", "#56b4e9", "#666666", "#882255")


class Category(IntEnum):
    """What a bar of the timeline stands for."""

    RUNNING = 0
    MBARRIER_WAIT = 1
    BARRIER_WAIT = 2
    WGMMA_WAIT = 3
    BULK_WAIT = 4
    OTHER_WAIT = 5
    TMA_QUEUED = 6
    TMA_LOAD = 7
    TMA_STORE = 8
    WGMMA_QUEUED = 9
    WGMMA_RUNNING = 10
    PHASE_EVEN = 11
    PHASE_ODD = 12
    OTHER_CTA = 13


@dataclass(frozen=True)
class Style:
    """How a category looks: fill (None: the role's colour) and text colour; its words in legend and tooltip."""

    fill: str | None
    ink: str
    legend: str
    words: str


STYLES: dict[Category, Style] = {
    Category.RUNNING: Style(None, "#ffffff", "issues", "issues instructions"),
    Category.MBARRIER_WAIT: Style("#f7e8a4", "#4d4200", "waits: mbarrier", "waits for an mbarrier"),
    Category.BARRIER_WAIT: Style("#d9d9d9", "#333333", "named barrier", "waits for a named barrier"),
    Category.WGMMA_WAIT: Style("#f3cdb5", "#5c2600", "wgmma", "waits for wgmma groups"),
    Category.BULK_WAIT: Style("#c3e6da", "#00422f", "bulk group", "waits for bulk groups"),
    Category.OTHER_WAIT: Style("#e6d3e3", "#43153d", "other", "waits"),
    Category.TMA_QUEUED: Style("#d3eaf8", "#0b3b59", "copy: queued", "is queued"),
    Category.TMA_LOAD: Style("#56b4e9", "#00283f", "load", "is in flight"),
    Category.TMA_STORE: Style("#117a65", "#ffffff", "store", "is in flight"),
    Category.WGMMA_QUEUED: Style("#f6dcc9", "#5c2600", "wgmma: queued", "is queued"),
    Category.WGMMA_RUNNING: Style("#c0504d", "#ffffff", "executes", "executes"),
    Category.PHASE_EVEN: Style("#eceff3", "#3a4652", "phase: parity 0", "is in a phase of parity 0"),
    Category.PHASE_ODD: Style("#b4c0cd", "#1c2630", "1", "is in a phase of parity 1"),
    Category.OTHER_CTA: Style("#f0f0f0", "#777777", "other CTA", "works for another CTA of this SM"),
}


def role_colours(roles: list[str]) -> dict[str, str]:
    """Return a colour for each role name, in order of first appearance."""
    names = list(dict.fromkeys(roles))
    return {name: ROLE_COLOURS[i % len(ROLE_COLOURS)] for i, name in enumerate(names)}
