"""Stepping through a launch, forwards and backwards.

A launch is deterministic, so going back is going to an earlier checkpoint (a copy of the tables) and running forward again.
A *step* is one instruction of one warp or one event of a unit.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import state as S
from .errors import KernelError, UsageError
from .integers import integer
from .intervals import mbarrier_name
from .trace import Trace, Wait
from .words import counted

if TYPE_CHECKING:
    from .session import Session

#: Steps between checkpoints; going back runs at most this many steps again.
CHECKPOINT_STEPS = 4096
#: Cycles and events are counted in 63 bits.
_MOST = 1 << 62


@dataclass(frozen=True)
class WarpView:
    """Where the lanes of a warp are: one entry per group of lanes in ``groups`` (mask, pc, place, waits for what)."""

    warp: int
    cta: int
    rank: int
    role: str
    groups: tuple[tuple[int, int, str, str], ...]


@dataclass(frozen=True)
class BarrierView:
    """An mbarrier: phases completed so far, arrivals and bytes that the current phase still lacks."""

    name: str
    cta: int
    offset: int
    phase: int
    pending: int
    expected: int
    tx_count: int


class Debugger:
    """A launch stopped between two steps. ``trace`` is what happened up to here."""

    def __init__(self, session: Session):
        self.session, self.machine = session, session.machine
        self.machine.start()
        self.ended = False
        self._checkpoints: list[tuple[int, dict[str, Any], int, int]] = []
        self._save()

    def __repr__(self) -> str:
        where = "ended" if self.ended else "stopped"
        return f"<Debugger of {self.machine.kernel.name}: {where} at cycle {self.cycle:,}, after {counted(self.position, 'step')}>"

    @property
    def position(self) -> int:
        """Steps done so far."""
        return int(self.machine.context["steps"])

    @property
    def cycle(self) -> int:
        return int(self.machine.context["now"])

    @property
    def event_count(self) -> int:
        """Trace events so far."""
        return self.machine.event_count

    @property
    def trace(self) -> Trace:
        self.machine.flush()
        return self.machine.trace(self.session.events, self.session.lanes)

    def step(self, n: int = 1) -> bool:
        """Do ``n`` steps; return False once the kernel has ended."""
        return self._forward(self.position + integer("number of steps", n, 0))

    def step_back(self, n: int = 1) -> None:
        """Undo ``n`` steps (or all, if there are fewer)."""
        self.go_to(max(0, self.position - integer("number of steps", n, 0)))

    def go_to(self, position: int) -> None:
        """Go to the state after ``position`` steps."""
        position = integer("position", position, 0)
        if position < self.position:
            at = bisect_right([p for p, *_ in self._checkpoints], position) - 1
            self._restore(at)
        self._forward(position)

    def run_to(self, *, cycle: int | None = None, line: int | None = None, event: int | None = None) -> bool:
        """Run forward (or back) to a cycle or to just after an event, or forward until some warp is about to execute the PTX
        ``line``; return False if the kernel ended first."""
        if sum(x is not None for x in (cycle, line, event)) != 1:
            raise UsageError("run_to must be given exactly one of cycle, line and event")
        if event is not None:
            event = integer("event", event, 0, _MOST)
            if event + 1 < self.event_count:
                self._restore(bisect_right([e for *_, e in self._checkpoints], event + 1) - 1)
            return self._run(max_events=event + 1)
        if cycle is not None:
            cycle = integer("cycle", cycle, 0, _MOST)
            if cycle < self.cycle:
                times = [int(kept["ctx"][0]["now"]) for _, kept, *_ in self._checkpoints]
                self._restore(max(0, bisect_right(times, cycle) - 1))
            return self._run(until=cycle)
        wanted = {pc for pc, at in enumerate(self.machine.program.lines) if at == line}
        if not wanted:
            raise UsageError(f"line must be one with an instruction, not {line}")
        while self.step():
            if any(group[1] in wanted for warp in self.warps for group in warp.groups):
                return True
        return False

    # --- the state ----------------------------------------------------------------------------------------------------

    @property
    def warps(self) -> list[WarpView]:
        """The warps of all resident CTAs."""
        tables, kernel = self.machine.tables, self.machine.kernel
        views = []
        for w, warp in enumerate(tables["warps"]):
            if warp["state"] in (S.W_UNUSED, S.W_EXITED) or not tables["ctas"][warp["cta"]]["state"]:
                continue
            groups = []
            for node in tables["nodes"][w * S.NODES_PER_WARP : (w + 1) * S.NODES_PER_WARP]:
                if node["state"] in (S.READY, S.BLOCKED):
                    why = Wait(int(node["wait"])).name.lower() if node["state"] == S.BLOCKED else ""
                    groups.append((int(node["mask"]), int(node["pc"]), kernel.place(int(node["pc"])), why))
            cta = int(tables["ctas"][warp["cta"]]["id"])
            views.append(WarpView(int(warp["id"]), cta, int(warp["rank"]), kernel.role(int(warp["rank"])), tuple(groups)))
        return views

    @property
    def barriers(self) -> list[BarrierView]:
        """The live mbarriers, named as the DSL named them."""
        tables = self.machine.tables
        return [
            BarrierView(
                mbarrier_name(self.machine.kernel, int(m["offset"])),
                int(tables["ctas"][m["cta"]]["id"]), int(m["offset"]), int(m["phase"]), int(m["pending"]),
                int(m["expected"]), int(m["tx"]),
            )
            for m in tables["mbarriers"]
            if m["live"] and tables["ctas"][m["cta"]]["state"]
        ]  # fmt: skip

    def shared(self, cta: int = 0) -> np.ndarray:
        """Return a copy of the shared memory of a CTA (uint8, index = byte offset in its window)."""
        return self.machine.shared_of(cta)

    def registers(self, warp: int) -> dict[str, np.ndarray]:
        """Return name -> 32 lanes for every register that the kernel uses, of a warp by its number in the launch; as numbers
        of its declared type where NumPy has it (``.b32``: uint32), predicates as bool. Raises UsageError."""
        machine = self.machine
        for slot, record in enumerate(machine.tables["warps"]):
            if int(record["id"]) == warp and record["regs"]:
                declared = machine.program.function.registers
                used = [i for i in machine.program.registers if i >= 0]
                return {declared[i].name: _numbers(machine.register(slot, i), declared[i].type) for i in used}
        raise UsageError(f"warp must be one that has started, not {warp}")

    # --- moving -------------------------------------------------------------------------------------------------------

    def _forward(self, position: int) -> bool:
        while not self.ended and self.position < position:
            self._run(max_steps=min(position, self._next_checkpoint()))
        return not self.ended

    def _run(self, **limit: Any) -> bool:
        target = limit.pop("max_steps", None)
        while not self.ended:
            stop = self._next_checkpoint() if target is None else target
            self.ended = self.machine.run(max_steps=stop, **limit)
            if not self.ended and self.position >= self._next_checkpoint():
                self._save()
                if target is None:
                    continue
            break
        return not self.ended

    def _next_checkpoint(self) -> int:
        return self._checkpoints[-1][0] + CHECKPOINT_STEPS if self._checkpoints else 0

    def _save(self) -> None:
        self.machine.flush()
        if not self._checkpoints or self.position > self._checkpoints[-1][0]:
            self._checkpoints.append((self.position, self.machine.checkpoint(), len(self.session.events), self.event_count))

    def _restore(self, at: int) -> None:
        _, kept, chunks, _ = self._checkpoints[at]
        self.machine.restore(kept)
        del self.session.events[chunks:]
        del self.session.lanes[chunks:]
        self.ended = False


#: Types of registers that NumPy has as numbers; of the others (``.b32``) the bits are shown.
_NUMBERS = {"f16": "f2", "f32": "f4", "f64": "f8", "s16": "i2", "s32": "i4", "s64": "i8", "u16": "u2", "b16": "u2"}


def _numbers(bits: np.ndarray, declared: str) -> np.ndarray:
    """Return the bits of a register's lanes as numbers of the type it is declared with."""
    wanted = np.dtype(_NUMBERS.get(declared, bits.dtype))
    return bits if wanted == bits.dtype else bits.astype(f"u{wanted.itemsize}").view(wanted)


class Replay:
    """A trace together with the memory behind it: what the browser view asks for. ``note``: what there is to say of the launch."""

    def __init__(self, debugger: Debugger, hazards: list[Any] | None = None, note: str = ""):
        self.debugger, self.note = debugger, note
        self.hazards = hazards or []
        #: What ended the run early, if something did.
        self.error: KernelError | None = None
        try:
            while debugger.step(CHECKPOINT_STEPS):
                pass
        except KernelError as error:
            self.error = error
        self.trace = debugger.trace

    def shared_at(self, event_index: int, cta: int) -> np.ndarray:
        """Return the shared memory of a CTA just after an event (uint8, index = offset in the CTA's window)."""
        self.debugger.run_to(event=event_index)
        return self.debugger.shared(cta)
