"""A prepared launch and what it gave: the machine, the listeners that keep its trace and check it, and its Run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .device_functions import DeviceText
from .trace import Event, Trace
from .words import counted

if TYPE_CHECKING:
    from .checks import Hazard, ScrambledOperand
    from .host import Device
    from .machine import Machine

#: Events after which trace="auto" keeps no more ISSUED events (72 bytes each).
_MOST_INSTRUCTION_EVENTS = 1 << 24
#: Events that the checks get at a time, while the machine makes the next ones.
_CHECKED_AT_ONCE = 1 << 15


@dataclass(repr=False)
class Run:
    """What a launch did. ``cycles`` is the duration of the kernel in SM cycles, ``hazards`` what it was not allowed to do,
    ``warnings`` what only some hold to be wrong and what it read that nothing writes (hazards with ``checks="strict"``), ``texts`` what
    it printed
    (strings that know their ``block`` and ``thread``)."""

    cycles: int
    ctas: np.ndarray
    hazards: list[Hazard]
    trace: Trace
    instructions: int
    device: str
    statistics: dict[str, Any] = field(default_factory=dict)
    texts: list[DeviceText] = field(default_factory=list)
    warnings: list[Hazard] = field(default_factory=list)

    def __repr__(self) -> str:
        ctas, hazards = counted(len(self.ctas), "CTA"), counted(len(self.hazards), "hazard") if self.hazards else "no hazards"
        return f"<Run of {self.trace.kernel.name} on {self.device}: {counted(self.cycles, 'cycle')}, {ctas}, {hazards}>"

    @cached_property
    def scrambled(self) -> tuple[ScrambledOperand, ...]:
        """Operands of wgmma that do not lie as they were copied: why a tile looks scrambled, and what to change."""
        from .checks import scrambled_operands

        return scrambled_operands(self.trace)


class Session:
    """A prepared launch: the machine, the listeners that keep its trace and check it, and the arrays to write back."""

    def __init__(
        self, machine: Machine, device: Device, copies: list[tuple[np.ndarray, int]], checks: str, keep: bool, thin: bool = False
    ):
        self.machine, self.device, self.copies = machine, device, copies
        self.events: list[np.ndarray] = []
        self.lanes: list[np.ndarray] = []
        self.checker = None
        self.room = _MOST_INSTRUCTION_EVENTS if thin else -1
        machine.kept = self.events
        if keep or checks != "off":
            machine.listeners.append(self._keep)
        if checks != "off":
            from .checks import Background, Checker

            program, sees_all = machine.program, machine.launch.trace_level > 1
            checker = Checker(machine.kernel, program.function.instructions, checks, sees_all, program.unwritten)
            self.checker = Background(checker)
            machine.context["event_capacity"] = min(_CHECKED_AT_ONCE, machine.context["event_capacity"])
            machine.listeners.append(self._check)

    def _keep(self, events: np.ndarray, lanes: np.ndarray, lanes_start: int) -> None:
        if self.room == 0:
            events = events[events["kind"] != int(Event.ISSUED)]
        elif self.room > 0:
            self.room = max(0, self.room - len(events))
        self.events.append(events)
        self.lanes.append(lanes)

    def _check(self, events: np.ndarray, lanes: np.ndarray, lanes_start: int) -> None:
        assert self.checker is not None
        tables = self.machine.tables
        self.checker.feed(events, lanes, tables["warp_info"], tables["cta_info"], lanes_start=lanes_start)

    def write_back(self) -> None:
        """Copy arrays that were given as arguments back to the host and free their device memory."""
        for array, address in self.copies:
            array[...] = self.device.memory.download(address, like=array)
            self.device.memory.free(address)
        self.copies = []

    def findings(self) -> tuple[list[Hazard], list[Hazard]]:
        """Return the hazards and the warnings that the checks have found so far."""
        return self.checker.finish() if self.checker else ([], [])

    def result(self) -> Run:
        """Return the Run of a launch that has ended."""
        machine = self.machine
        sms = machine.tables["sms"]
        hazards, warnings = self.findings()
        trace = machine.trace(self.events, self.lanes)
        if self.checker:
            trace = replace(trace, hazards=tuple(hazards))
        ctas = np.zeros(len(trace.ctas), [("cta", "i4"), ("sm", "i4"), ("start", "i8"), ("end", "i8")])
        for name in ctas.dtype.names or ():
            ctas[name] = trace.ctas[name]
        return Run(
            cycles=machine.cycles,
            ctas=ctas,
            hazards=hazards,
            trace=trace,
            instructions=int(machine.context["instructions_issued"]),
            device=self.device.name,
            statistics={"tensor_busy_cycles": sms["tensor_busy"].copy(), "tma_bytes": sms["tma_bytes"].copy()},
            texts=list(machine.runtime.texts),
            warnings=warnings,
        )
