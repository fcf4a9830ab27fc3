"""The hazard checker: listens to the events of a run, chunk by chunk, and says what was not allowed.

It knows the trace and the instructions, not the machine. Happens-before is decided with vector clocks over the warps
of a cluster and the counters of asynchronous operations, each of which has an identity of its own (:mod:`.clocks`);
two proxies (generic, async) and the tensormap proxy need the fences that the manual asks for; an edge exists only
where the manual gives one. A fence counts anywhere on the way from the access to the later one. A warp is one thread
until its lanes act apart (:mod:`.strands`).

``docs/checks.md`` lists every check, what is assumed and what is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import numpy as np

from ..errors import UsageError
from ..hazard import WARNINGS, Hazard, UnwrittenRead
from ..layouts.descriptor import operand_addresses
from ..ptx.module import Imm, Instruction, Vector
from ..trace import CTA_INFO, EVENT, Event, KernelInfo
from . import accesses, barriers, registers
from . import launch as launch_module
from . import tables as t
from .arrivals import Arrivals
from .choosing import Choice, choose
from .first_reads import FirstReads
from .reading import COPIES, FOOTPRINTS_MAX, Footprint, reading_of
from .register_wording import register_hazards
from .registers import follow
from .shadow import close_shared, new_entry, touch_lanes, touch_operands, touch_rows
from .strands import lanes_in_conflict
from .wording import Words, hazards_of

_HANDLERS = {
    Event.EXITED: barriers.exited,
    Event.CTA_ENDED: barriers.cta_ended,
    Event.MBARRIER_INITIALISED: barriers.mbarrier_initialised,
    Event.MBARRIER_INVALIDATED: barriers.mbarrier_invalidated,
    Event.MBARRIER_ARRIVED: barriers.mbarrier_arrived,
    Event.MBARRIER_EXPECTED: barriers.mbarrier_expected,
    Event.MBARRIER_COMPLETED_TX: barriers.mbarrier_completed_tx,
    Event.MBARRIER_RAISED: barriers.mbarrier_raised,
    Event.MBARRIER_FLIPPED: barriers.mbarrier_flipped,
    Event.MBARRIER_WAITED: barriers.mbarrier_waited,
    Event.MBARRIER_DROPPED: barriers.mbarrier_dropped,
    Event.BARRIER_ARRIVED: barriers.barrier_arrived,
    Event.BARRIER_RELEASED: barriers.barrier_released,
    Event.BARRIER_SYNCED: barriers.barrier_synced,
    Event.CLUSTER_ARRIVED: barriers.cluster_arrived,
    Event.CLUSTER_WAITED: barriers.cluster_waited,
    Event.FENCED: barriers.fenced,
    Event.TMA_GLOBAL: accesses.copy_global,
    Event.TMA_SOURCE: accesses.copy_source,
    Event.TMA_COMPLETED: accesses.copy_completed,
    Event.BULK_COMMITTED: accesses.bulk_committed,
    Event.BULK_WAITED: accesses.bulk_waited,
    Event.WGMMA_ISSUED: accesses.wgmma_issued,
    Event.WGMMA_COMMITTED: accesses.wgmma_committed,
    Event.WGMMA_WAITED: accesses.wgmma_waited,
    Event.MEMORY: accesses.memory,
}

#: Findings of rules that projects do not agree on.
_CONTESTED = (t.STRICT_WAR, t.STRICT_INIT)


def compiled_functions(opcodes: Collection[str]) -> list[Callable]:
    """Return the compiled functions that checking a kernel with these opcodes calls."""
    found: list[Callable] = [choose, new_entry, touch_lanes, close_shared]
    if any(opcode.startswith("cp.async.bulk") for opcode in opcodes):
        found.append(touch_rows)
    if any(opcode.startswith("wgmma") for opcode in opcodes):
        found += [touch_operands, follow]
    if any(opcode.startswith(("ld.", "st.")) and "shared" in opcode for opcode in opcodes):
        found.append(lanes_in_conflict)
    return found


class Checker:
    """Checks one launch. What breaks a contested rule is a warning where ``mode`` is "on", a hazard where it is "strict";
    ``unwritten``: reads of registers that nothing writes.

    Feed it every chunk of events in order, then :meth:`finish`. Memory: see :mod:`.tables` and :mod:`.launch`.
    """

    def __init__(
        self,
        kernel: KernelInfo,
        instructions: tuple[Instruction, ...],
        mode: str = "on",
        sees_instructions: bool = True,
        unwritten: tuple[UnwrittenRead, ...] = (),
    ):
        if mode not in ("on", "strict"):
            raise UsageError(f"checks must be on or strict, not {mode!r}")
        self.kernel, self.instructions, self.is_strict = kernel, instructions, mode == "strict"
        text = self.text = reading_of(instructions)
        self.launch = launch_module.Launch(
            int(np.prod(kernel.grid)), int(np.prod(kernel.cluster)), int(np.prod(kernel.block)), text, self.is_strict
        )
        self.launch.sees_instructions = sees_instructions
        self.arrivals = Arrivals(text.arrivals, text.waits)
        self.first_reads = FirstReads(unwritten)
        self.registers = registers.RegisterState(text.uses)
        self._handlers = {int(kind): handler for kind, handler in _HANDLERS.items()}
        self._handlers[int(Event.ISSUED)] = _issued
        self._handlers[int(Event.TMA_ISSUED)] = _copy_issued
        self._handlers[int(Event.CTA_STARTED)] = self._cta_started
        self._choice = Choice(text, [*_HANDLERS, Event.TMA_ISSUED, Event.CTA_STARTED], registers.KINDS)
        self._times: dict[int, int] = {}
        self._places = np.zeros(0, CTA_INFO)
        self.events = 0

    def feed(self, events: np.ndarray, lanes: np.ndarray, warps: np.ndarray, ctas: np.ndarray, lanes_start: int = 0) -> None:
        """Check the next events (EVENT).

        ``lanes``: the rows of addresses from ``lanes_start`` on that MEMORY events of this chunk name; ``warps``,
        ``ctas``: WARP_INFO and CTA_INFO of the launch, filled for those that have started.
        """
        first = self.events
        self.events += len(events)
        wanted, touching = self._choice.of(events)
        chosen = events[wanted]
        self._find_footprints(chosen)
        self.launch.lanes, self.launch.lanes_start = lanes, lanes_start
        self._places = ctas
        columns = [chosen[name].tolist() for name in EVENT.names or ()]
        launch, handlers = self.launch, self._handlers
        for e in map(_happening, zip(*columns, (wanted + first).tolist(), strict=True)):
            handlers[e[1]](launch, e)
        if len(touching):
            self._feed_registers(events, touching, first)
        for cta in chosen["cta"][chosen["kind"] == Event.CTA_ENDED].tolist():
            self.registers.forget(range(cta * self.launch.warps_per_cta, (cta + 1) * self.launch.warps_per_cta))
        self.arrivals.feed(chosen, wanted + first)
        self.first_reads.feed(events, self.events - len(events))

    def _cta_started(self, launch: launch_module.Launch, e: launch_module.Happening) -> None:
        place = self._places[e.cta]
        barriers.cta_started(launch, e, int(place["cluster"]), int(place["cluster_rank"]))

    def finish(self) -> tuple[list[Hazard], list[Hazard]]:
        """Return the hazards and the warnings (see :data:`WARNINGS`), each in the order of the second access."""
        words = Words(self.kernel, self.launch.warps_per_cta, self.launch.mbarrier_addresses)
        tables = self.launch.tables
        findings = tables.findings[: int(tables.scalars[t.FINDS])]
        # A waiter that may be lapped is news only where the order of accesses is right.
        if not np.isin(findings[:, t.F_CODE], (t.LAPPED, *_CONTESTED)).all():
            findings = findings[findings[:, t.F_CODE] != t.LAPPED]
        found = hazards_of(words, findings)
        r = self.registers
        found += register_hazards(words, r.found[: int(r.count[0])], r.uses.names, self._times)
        found += self.first_reads.hazards(words)
        # What a longer run would suffer from is news only where this one went well.
        if all(hazard.kind in WARNINGS for hazard in found):
            found += self.arrivals.hazards(words)
        found = merged([self._with_scope(words, h) for h in sorted(found, key=lambda h: h.second.event)])
        warnings = [] if self.is_strict else [hazard for hazard in found if hazard.kind in WARNINGS]
        return [hazard for hazard in found if hazard not in warnings], warnings

    def _with_scope(self, words: Words, hazard: Hazard) -> Hazard:
        """Return a race with a better fix if there was a release, and an acquire that it did not reach."""
        pc = self.launch.narrow.get((hazard.first.cta, hazard.second.cta), -1) if hazard.first else -1
        if hazard.kind != "race" or pc < 0:
            return hazard
        what = f"{words.opcode(pc)} at {words.kernel.place(pc)}"
        if self.launch.flags[pc] >> launch_module.PC_SCOPE == launch_module.WHOLE_GPU:
            return replace(
                hazard, fix=f"give the fences before {what} and behind the load that reads it a scope that holds both CTAs"
            )
        return replace(hazard, fix=f"give {what} and the acquire that reads it a scope that holds both CTAs")

    def _feed_registers(self, events: np.ndarray, touching: np.ndarray, first: int) -> None:
        before = int(self.registers.count[0])
        self.registers.feed(events, touching, first)
        for row in self.registers.found[before : int(self.registers.count[0]), 5].tolist():
            if row >= first:
                self._times[row] = int(events["time"][row - first])

    def _find_footprints(self, events: np.ndarray) -> None:
        """Find, for every new wgmma operand in shared memory, which granules it covers."""
        at = np.flatnonzero(events["kind"] == Event.WGMMA_ISSUED)
        if not len(at):
            return
        footprints = self.text.footprints
        if len(footprints) > FOOTPRINTS_MAX:
            footprints.clear()
        for which, field in enumerate("ab"):
            for pc, bits in set(zip(events["pc"][at].tolist(), events[field][at].tolist(), strict=True)):
                if (pc, which, bits) in footprints or (which == 0 and bits == -1):
                    continue
                instruction = self.instructions[pc]
                transpose = is_transposed(instruction, which)
                addresses = operand_addresses(instruction.opcode, "ab"[which], bits & (1 << 64) - 1, transpose)
                footprints[pc, which, bits] = Footprint.of(_runs(np.unique(addresses >> 4)))


#: Makes a Happening of a tuple: twice as quick as ``_make``, which checks its length.
_happening = partial(tuple.__new__, launch_module.Happening)


def merged(hazards: list[Hazard]) -> list[Hazard]:
    """Return the hazards with those of the same kind between the same source lines as one."""
    found: dict[tuple, Hazard] = {}
    for h in hazards:
        ends = tuple((a.where, a.what, a.space) if a else None for a in (h.first, h.second))
        key = (h.kind, h.missing, ends)
        before = found.get(key)
        found[key] = h if before is None else replace(before, count=before.count + h.count)
    return list(found.values())


def _runs(granules: np.ndarray) -> np.ndarray:
    """Return the spans (first byte, bytes) that sorted granules of 16 bytes make."""
    starts = np.flatnonzero(np.diff(granules, prepend=granules[0] - 2) != 1)
    ends = np.append(starts[1:], len(granules)) - 1
    return np.stack((granules[starts] * 16, (granules[ends] - granules[starts] + 1) * 16), axis=1).astype(np.int64)


def _issued(launch: launch_module.Launch, e: launch_module.Happening) -> None:
    """An instruction that has no event of its own: cp.async and what waits for it, and everything .aligned."""
    flags = launch.flags[e.pc]
    if e.mask == 0:
        return
    if flags & launch_module.PC_ALIGNED:
        barriers.aligned_by_some(launch, e)
    if flags & launch_module.PC_SYNC:
        barriers.lanes_synced(launch, e)
    if flags & launch_module.PC_CP_ARRIVE:
        accesses.cp_async_arrives(launch, e)
    elif flags & COPIES:
        accesses.cp_async(launch, e)


def _copy_issued(launch: launch_module.Launch, e: launch_module.Happening) -> None:
    barriers.copy_completes_on(launch, e)
    accesses.copy_issued(launch, e)


def is_transposed(instruction: Instruction, which: int) -> bool:
    """Return the value of imm-trans-a (``which`` 0) or imm-trans-b of a wgmma; False where it has none."""
    if not set(instruction.types[1:]) <= {"f16", "bf16"}:
        return False
    trailing = [o.value for o in instruction.operands if isinstance(o, Imm)]
    in_registers = isinstance(instruction.operands[1], Vector)
    transposes = trailing[-1:] if in_registers else trailing[-2:]
    position = 0 if in_registers else which
    return bool(transposes[position]) if len(transposes) > position else False
