"""How long does it take two warps to hand work to each other and back through barriers?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import per_repetition, timed_kernel

QUESTION = "How many cycles does a round trip between two warps take, through mbarriers and through named barriers?"
SETTLES = "h100sim/devices.py, Barriers: mbarrier_arrive_cycles, mbarrier_wake_cycles, named_*_cycles"

_REGISTERS = ".reg .b64 %state; .reg .b32 %phase;"

#: Two mbarriers of one arrival each, at the start of shared memory.
_SETUP = """setp.ne.u32 %p0, %lane, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [%smem], 1;
    @!%p0 mbarrier.init.shared::cta.b64 [%smem+8], 1;
    setp.eq.u32 %p1, %warp, 0;"""

#: One thread per warp. A warp waits on one mbarrier and arrives on the other, warp 0 the other way round.
_MBARRIER_ROUND = """@%p1 mbarrier.arrive.shared::cta.b64 %state, [%smem];
    @%p1 bra FIRST_{k};
WAIT_A_{k}:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%smem], {parity};
    @!%p2 bra WAIT_A_{k};
    mbarrier.arrive.shared::cta.b64 %state, [%smem+8];
    bra NEXT_{k};
FIRST_{k}:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%smem+8], {parity};
    @!%p2 bra FIRST_{k};
NEXT_{k}:"""

_NAMED_ROUND = """@%p1 bar.arrive 1, 64;
    @%p1 bar.sync 2, 64;
    @!%p1 bar.sync 1, 64;
    @!%p1 bar.arrive 2, 64;"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return cycles per round of each kind of barrier."""

    def mbarriers(n: int) -> str:
        rounds = [_MBARRIER_ROUND.format(k=k, parity=k & 1) for k in range(n)]
        body = "\n    ".join(["@%p0 bra ALL_DONE;", *rounds, "\nALL_DONE: bar.warp.sync 0xffffffff;"])
        return timed_kernel(body, _REGISTERS, _SETUP)

    def named(n: int) -> str:
        return timed_kernel("\n    ".join([_NAMED_ROUND] * n), _REGISTERS, _SETUP)

    def sync(n: int) -> str:
        return timed_kernel("\n    ".join(["bar.sync 3, 64;"] * n), _REGISTERS, _SETUP)

    return {
        "mbarrier_round_trip": per_repetition(launch, mbarriers, few=8, many=40, warps=2),
        "named_barrier_round_trip": per_repetition(launch, named, few=8, many=40, warps=2),
        "bar_sync_of_two_warps": per_repetition(launch, sync, few=8, many=40, warps=2),
    }
