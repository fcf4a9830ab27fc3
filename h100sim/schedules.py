"""Other orders in which the hardware might have done the same work, each named by a seed.

Silicon promises no order between warps, nor when a copy or a wgmma that nobody waits for is done. Seed 0 is the order
that the timing model gives; every other seed is another order that the rules allow, the same one each time:

* 1: units finish at once;
* 2: units finish as late as possible, after whatever warps do without them;
* from 3 on: warps are held up at random (some often), a ``try_wait`` may return False early, and units finish at random
  times (3, 6, ...), at once (4, 7, ...) or late (5, 8, ...).

A program whose result depends on the seed depends on luck. The cycles of a seed other than 0 mean nothing.
"""

from __future__ import annotations

from .services import UNITS_EAGER, UNITS_LATE, UNITS_RANDOM, WARPS_DELAYED

#: How much longer than the usual order another one may take before it counts as endless.
SLOWDOWN = 64
#: Seeds are below this.
SEEDS = 1 << 31

_UNITS = (UNITS_RANDOM, UNITS_EAGER, UNITS_LATE)
_UNIT_WORDS = {UNITS_RANDOM: "at random times", UNITS_EAGER: "at once", UNITS_LATE: "as late as possible"}


def bits(seed: int) -> int:
    """Return a schedule in the form that compiled code reads."""
    if seed < 3:
        return (0, UNITS_EAGER, UNITS_LATE)[seed]
    return WARPS_DELAYED | _UNITS[seed % 3] | seed << 8


def describe(seed: int) -> str:
    """Return a schedule in words."""
    if seed == 0:
        return "the usual order"
    units = f"units finish {_UNIT_WORDS[bits(seed) & 3]}"
    return units if seed < 3 else f"warps are held up, {units}"
