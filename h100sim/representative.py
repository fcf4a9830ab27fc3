"""One SM for the whole GPU: the CTAs that one SM (or the SMs of one cluster) gets, wave after wave, with its share of L2 and HBM.

CTAs go to SMs in the order of the grid, one each before a second one, so the first SM gets every n-th cluster and never fewer
than another one: how long it takes is the estimate of the whole launch. It is good where the CTAs of a wave do the same work. What
it cannot show: CTAs that are longer on other SMs, how bursts of all SMs meet in L2 and HBM, and in which order lines leave L2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from . import report
from .devices import DeviceModel
from .errors import UsageError
from .placement import places
from .ptx.module import Instruction
from .trace import Event, Trace
from .words import counted

if TYPE_CHECKING:
    from .machine import Launch, Machine

#: From which share of the time on, at the full rate of the tensor cores, a launch counts as one that computes. Assumed: it parts the
#: launches below.
BUSY = 0.25
#: Error of the estimate in percent of what the whole GPU takes, both on h100-sxm with ``values="none"``, for CTAs of equal work
#: that compute most of the time. Measured: this simulator; tests/test_representative.py repeats some.
COMPARED: dict[str, float] = {
    "gemm_4_pipeline 2048^3": -3.78,
    "gemm_5_two_consumers 2048^3": -1.81,
    "gemm_6_multicast 2048^3": -2.53,
    "gemm_8_tma_store 2048^3": -2.73,
    "gemm 2048^3": -1.9,
    "gemm_5_two_consumers 4096x4096x1024": -2.25,
    "attention batch=2 heads=16 n=1024": -6.83,
}
#: The same for kernels that move data most of the time: how the SMs meet in L2 and HBM, one SM does not show.
COMPARED_MEMORY: dict[str, float] = {"softmax rows=16384": -11.6, "layernorm rows=16384": -26.4}


def machine(build: Callable[[Launch, DeviceModel], Machine], launch: Launch, model: DeviceModel, used_bytes: int) -> Machine:
    """Return the machine that runs the sample of a launch. ``used_bytes``: what is allocated in global memory.

    What fits into L2 is there when the launch starts. Else the SMs share what one of them has fetched: the sample runs a first time
    for what it fetches. Assumed: the launch reads what is allocated once, and each of its SMs fetches as much as the sample.
    """
    cluster = int(np.prod(launch.cluster))
    stride = len(places(model, cluster, 1))
    active = min(stride, int(np.prod(launch.grid)) // cluster) * cluster
    launch = replace(launch, stride=stride)
    small = replace(model, sms=cluster, gpcs=(cluster,), lone_tpcs=0)
    users = 1.0
    if used_bytes > model.memory.l2_bytes:
        first = build(replace(launch, trace_level=0), _with_share(small, cluster / active, 1.0))
        first.start()
        first.run()
        users = max(1.0, int(first.context["hbm_fetched"]) * active / cluster / used_bytes)
    return build(launch, _with_share(small, cluster / active, users))


def _with_share(model: DeviceModel, share: float, users: float) -> DeviceModel:
    """Return a device with a share of L2 and HBM, each fetched line of which so many SMs use."""
    memory = model.memory
    # What L2 reads for all SMs stays whole: most of it several of them share, which one SM does not show.
    names = ("l2_shared_bytes_per_cycle", "l2_write_bytes_per_cycle")
    shared = {name: getattr(memory, name) * share for name in names}
    shared["hbm_bytes_per_cycle"] = memory.hbm_bytes_per_cycle * min(1.0, share * users)
    return replace(model, memory=replace(memory, **shared))


def require_independent(instructions: Sequence[Instruction]) -> None:
    """Raise UsageError for a kernel whose CTAs may wait for each other: one that reads global memory in ways that only another
    CTA's write makes sense of (an atomic operation with a result, an acquire, a volatile or relaxed load)."""
    for instruction in instructions:
        words = {instruction.base, *instruction.opcode.split(".")}
        if words & {"shared", "shared::cta", "shared::cluster", "local", "const", "param"}:
            continue
        strong = words & {"acquire", "relaxed", "volatile"} and not words & {"cta", "cluster"}
        if instruction.base == "atom" or (instruction.base == "ld" and strong):
            raise UsageError(
                "sms must be all for a kernel whose CTAs may wait for each other through global memory, "
                f"not representative ({instruction.opcode} in line {instruction.line})"
            )


def renumbered(trace: Trace) -> Trace:
    """Return the trace of a sample with its CTAs and warps numbered from 0 on, in the order of the grid. Those that did not run,
    whose SM is -1, are left out."""
    ran = trace.ctas["sm"] >= 0
    warps_ran = np.repeat(ran, len(trace.warps) // max(len(ran), 1))
    cta, warp = np.cumsum(ran) - 1, np.cumsum(warps_ran) - 1
    events, ctas, warps = trace.events.copy(), trace.ctas[ran], trace.warps[warps_ran]
    for name, number in (("cta", cta), ("warp", warp)):
        events[name] = np.where(events[name] >= 0, number[events[name]], -1)
    owned = events["kind"] == Event.MBARRIER_INITIALISED
    events["b"][owned] = cta[events["b"][owned]]
    ctas["cta"], warps["cta"] = np.arange(len(ctas)), cta[warps["cta"]]
    return replace(trace, events=events, ctas=ctas, warps=warps)


@dataclass(frozen=True)
class Accuracy:
    """What is known of an estimate: the ``errors`` of ``launches`` like it, in percent, the tensor cores' share of the time, and the
    cycles that all SMs take if it is as wrong as these were."""

    is_compute: bool
    of_peak: float
    errors: dict[str, float]
    cycles: int
    least: int
    most: int


def accuracy(trace: Trace) -> Accuracy:
    """Return what is known of the error of the estimate in a trace: that of kernels whose tensor cores are about as busy."""
    of_peak = report.tensor_cores(trace, len(np.unique(trace.ctas["sm"]))).of_peak
    errors = COMPARED if of_peak >= BUSY else COMPARED_MEMORY
    ends = [trace.cycles / (1 + error / 100) for error in (*errors.values(), 0)]
    return Accuracy(of_peak >= BUSY, of_peak, dict(errors), int(trace.cycles), round(min(ends)), round(max(ends)))


def as_text(trace: Trace) -> str:
    """Return what ran, how far off the estimate may be and why."""
    ran, grid = len(trace.ctas), int(np.prod(trace.kernel.grid))
    sms = counted(len(np.unique(trace.ctas["sm"])), "SM")
    known = accuracy(trace)
    low, high = (
        f"{known.errors[name]:+.1f} % ({name})" for name in (of(known.errors, key=known.errors.__getitem__) for of in (min, max))
    )
    often = "at least" if known.is_compute else "less than"
    return (
        f"An estimate: {ran:,} of {grid:,} CTAs ran, those of {sms}. All SMs (--sms all) take {known.least:,} to {known.most:,} cycles if "
        f"it is as far off as launches are whose tensor cores are busy {often} {BUSY:.0%} of the "
        f"time (here {known.of_peak:.0%}): {low} to {high}, all listed by --json.\n"
        "Where the work of CTAs differs, those of one SM do not stand for all."
    )
