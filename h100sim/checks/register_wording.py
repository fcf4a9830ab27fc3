"""Findings about registers of wgmmas (:mod:`.registers`) in words."""

from __future__ import annotations

import numpy as np

from ..hazard import Access, Hazard
from . import registers as r
from .wording import WGMMA_RULE, Words

_REGISTER_WORDS = {
    r.PENDING_ACCUMULATOR: (
        "register-race",
        "accumulator {name} must be left alone until wgmma.wait_group, not accessed while the wgmma is pending",
        "wgmma.wait_group that covers the wgmma (ptxas would insert it and serialise the pipeline)",
        "move this access behind wgmma.wait_group, or use another accumulator",
    ),
    r.PENDING_FRAGMENT: (
        "register-race",
        "fragment register {name} must keep its value until wgmma.wait_group, not be written while a wgmma reads it",
        "wgmma.wait_group that covers the wgmma (ptxas would insert it and serialise the pipeline)",
        "wait for the wgmma first, or alternate between two sets of registers",
    ),
    r.MISSING_FENCE: (
        "register-race",
        "register {name} must be ordered by wgmma.fence before wgmma uses it, not handed over without one",
        "wgmma.fence.sync.aligned between the last access to the register and the wgmma",
        "put wgmma.fence.sync.aligned before the first wgmma of the group",
    ),
    r.OTHER_SHAPE: (
        "register-race",
        "accumulator {name} must be ordered by wgmma.fence between wgmmas of different shapes, not chained",
        "wgmma.fence.sync.aligned between the two wgmmas (only equal shapes are ordered by the hardware)",
        "put wgmma.fence.sync.aligned (and wgmma.wait_group) between wgmmas of different shapes",
    ),
    r.UNINITIALISED_ACCUMULATOR: (
        "uninitialised",
        "accumulator {name} must be written before a wgmma adds to it, not left undefined",
        "a write to the accumulator, or scale-d = 0 on the first step",
        "pass scale-d = 0 for the first K step, or clear the accumulator",
    ),
}


def register_hazards(words: Words, found: np.ndarray, names: tuple[str, ...], times: dict[int, int]) -> list[Hazard]:
    """Return the hazards of register findings. ``times`` gives the cycle of an event row, where it is still known."""
    hazards = []
    for f in found:
        kind, message, missing, fix = _REGISTER_WORDS[int(f[0])]
        warp, cta = int(f[2]), int(f[4])
        first = None
        if f[5] >= 0:
            first = _register_access(words, warp, int(f[3]), cta, int(f[5]), times.get(int(f[5]), int(f[11])))
        second = _register_access(words, int(f[7]), int(f[8]), int(f[9]), int(f[10]), int(f[11]))
        text = message.format(name=names[int(f[1])])
        hazards.append(Hazard(kind, text, first, second, missing, WGMMA_RULE, fix, int(f[12])))
    return hazards


def _register_access(words: Words, warp: int, pc: int, cta: int, event: int, time: int) -> Access:
    opcode = words.opcode(pc)
    what = "wgmma" if opcode.startswith("wgmma.mma_async") else "access"
    return Access(what, words.role(warp), words.kernel.place(pc), opcode, "registers", -1, -1, time, warp, cta, event, pc)
