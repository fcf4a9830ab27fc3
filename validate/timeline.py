"""Timelines: rewrites a kernel's PTX so that every warp writes down when it passed its waits, issues and arrivals.

The rewritten text runs here and on a Hopper GPU, and both write the same records, so that a simulated and a real
timeline can be laid over each other event by event. Records go to a variable of the module: the kernel's parameters
and its launch stay the same. Lane 0 of each warp writes them; what lane 0 does not execute is not recorded. A record
costs about ten instructions, on both sides.

``validate/overlay.py`` compares two timelines; ``validate/imports.py`` reads those of other tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from h100sim import ptx as parser
from h100sim.errors import UsageError
from h100sim.ptx.module import Instruction, Reg

VARIABLE = "h100sim_timeline"

#: One record: 2 x (index of the instruction) + (0 before, 1 after) + 1, and the low 32 bits of the SM's clock.
RECORD = np.dtype([("mark", "u4"), ("clock", "u4")])

#: Instructions whose beginning and end are recorded, because a warp can wait there: opcode starts -> event name.
WAITS = {
    "mbarrier.try_wait": "wait",
    "mbarrier.test_wait": "wait",
    "wgmma.wait_group": "wgmma wait",
    "bar.sync": "barrier",
    "barrier.sync": "barrier",
    "barrier.cluster.wait": "cluster barrier",
    "cp.async.bulk.wait_group": "bulk wait",
    "setmaxnreg": "registers",
}
#: Instructions of which only the end is recorded.
ISSUES = {
    "mbarrier.init": "init",
    "mbarrier.arrive": "arrive",
    "wgmma.commit_group": "wgmma issue",
    "wgmma.fence": "wgmma fence",
    "fence": "fence",
    "cp.async.bulk.commit_group": "bulk commit",
    "cp.async.bulk": "copy",
    "bar.arrive": "barrier arrive",
    "barrier.arrive": "barrier arrive",
}
LEAVES = ("ret", "exit")
NAMES = frozenset((*WAITS.values(), *ISSUES.values()))
#: Recorded only where asked for: the first instruction of each line of the source, in front of it.
STATEMENT = "statement"

_REGISTERS = """
    .reg .pred %tml_one, %tml_put;
    .reg .b32 %tml_clock, %tml_mark, %tml_a, %tml_b;
    .reg .b64 %tml_at, %tml_end;"""

_BEGIN = f"""
    mov.u32 %tml_a, %ctaid.z;
    mov.u32 %tml_b, %nctaid.y;
    mov.u32 %tml_mark, %ctaid.y;
    mad.lo.u32 %tml_a, %tml_a, %tml_b, %tml_mark;
    mov.u32 %tml_b, %nctaid.x;
    mov.u32 %tml_mark, %ctaid.x;
    mad.lo.u32 %tml_a, %tml_a, %tml_b, %tml_mark;
    mov.u32 %tml_b, %tid.z;
    mov.u32 %tml_mark, %ntid.y;
    mov.u32 %tml_clock, %tid.y;
    mad.lo.u32 %tml_b, %tml_b, %tml_mark, %tml_clock;
    mov.u32 %tml_mark, %ntid.x;
    mov.u32 %tml_clock, %tid.x;
    mad.lo.u32 %tml_b, %tml_b, %tml_mark, %tml_clock;
    shr.u32 %tml_b, %tml_b, 5;
    mad.lo.u32 %tml_a, %tml_a, {{warps}}, %tml_b;
    mov.u64 %tml_at, {VARIABLE};
    mad.wide.u32 %tml_at, %tml_a, {{stride}}, %tml_at;
    add.u64 %tml_end, %tml_at, {{stride}};
    mov.u32 %tml_a, %laneid;
    setp.eq.u32 %tml_one, %tml_a, 0;
"""

#: Behind a wait that gives a predicate, the clock is read in two halves, so that it is read after the predicate is known.
_CLOCK = "mov.u32 %tml_clock, %clock;"
_CLOCK_AFTER = "@{predicate} mov.u32 %tml_clock, %clock;\n    @!{predicate} mov.u32 %tml_clock, %clock;"

_RECORD = """
    {clock}
    setp.lt.and.u64 %tml_put, %tml_at, %tml_end, %tml_one;
    mov.u32 %tml_mark, {mark};
    @%tml_put st.global.v2.u32 [%tml_at], {{%tml_mark, %tml_clock}};
    add.u64 %tml_at, %tml_at, 8;
"""


@dataclass(frozen=True)
class Event:
    """A record: its CTA and warp (rank in the CTA), the instruction's index in the plain text, "begin" or "end", and
    cycles since the CTA's first record (32-bit clocks: spans of up to 2^32 cycles)."""

    cta: int
    warp: int
    instruction: int
    side: str
    cycle: int


@dataclass(frozen=True)
class Timeline:
    """The records of one launch: where it ran (a card, or "simulated ..."), the names of the recorded instructions of
    the plain text by index ("wait 96", with the line of the source where that is known), the events in order of time, and the
    card's driver, CUDA version and date, where they were recorded."""

    source: str
    kernel: str
    sites: dict[int, str]
    events: tuple[Event, ...] = field(default=())
    facts: dict[str, str] = field(default_factory=dict)

    def of_warp(self, cta: int, warp: int) -> list[Event]:
        """Return the events of a warp in the order of its program."""
        return [e for e in self.events if e.cta == cta and e.warp == warp]

    def save(self, path: Path) -> None:
        """Write the timeline as JSON."""
        rows = [[e.cta, e.warp, e.instruction, e.side, e.cycle] for e in self.events]
        path.write_text(json.dumps({**{k: v for k, v in asdict(self).items() if k != "events"}, "events": rows}) + "\n")

    @classmethod
    def load(cls, path: Path) -> Timeline:
        """Read a timeline. Raises UsageError for a file that is none."""
        try:
            data = json.loads(path.read_text())
            events = tuple(Event(*row) for row in data["events"])
            sites = {int(k): v for k, v in data["sites"].items()}
            return cls(data["source"], data["kernel"], sites, events, dict(data.get("facts", {})))
        except UNREADABLE as error:
            raise UsageError(
                f"timeline must be a JSON file that validate timeline wrote, not {path} ({reason_of(error)})"
            ) from None


#: What reading a file of another form may raise.
UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError)


def reason_of(error: Exception) -> str:
    """Return in words what reading a file has met."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    if isinstance(error, IndexError):
        return "it has no launch or names no place"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return (
        f"a value of it cannot be read: {error}"
        if isinstance(error, ValueError)
        else "a value of it is of another type or too large"
    )


def event_name(instruction: Instruction) -> str:
    """Return what an instruction is called in a timeline, "" if it is not recorded."""
    if instruction.base in LEAVES:
        return "leave"
    for table in (WAITS, ISSUES):
        for start, name in table.items():
            if instruction.opcode == start or instruction.opcode.startswith(start + "."):
                return name
    return ""


def is_wait(instruction: Instruction) -> bool:
    """Can a warp wait at the instruction, so that its beginning is recorded too?"""
    return any(instruction.opcode == start or instruction.opcode.startswith(start + ".") for start in WAITS)


def starts_statement(instructions: Sequence[Instruction], index: int) -> bool:
    """Does a line of the source start with the instruction, another one than that of the instruction before?"""
    return index > 0 and instructions[index].source is not None and instructions[index].source != instructions[index - 1].source


def add_records(text: str, kernel: str, ctas: int, warps: int, capacity: int = 512, names: Collection[str] = NAMES) -> str:
    """Return the text with a timeline of up to ``capacity`` records for each warp of ``ctas`` CTAs.

    ``names``: the events to record besides the start and the end of a warp.

    Raises PtxError for text that is no PTX, UsageError if it has no such entry.
    """
    module = parser.parse(text)
    function = module.functions.get(kernel)
    if function is None or not function.is_entry or not function.instructions:
        raise UsageError(f"kernel must be an entry of the module with a body, not {kernel}")
    starts = _line_starts(text)
    stride = capacity * RECORD.itemsize
    pieces: list[tuple[int, str]] = []
    for index, instruction in enumerate(function.instructions):
        opcode_at = starts[instruction.line - 1] + instruction.column - 1
        before = _statement_start(text, opcode_at)
        behind = text.index(";", opcode_at) + 1
        if index == 0:
            start = _RECORD.format(clock=_CLOCK, mark=2 * index + 2)
            pieces.append((before, _REGISTERS + _BEGIN.format(warps=warps, stride=stride) + start))
        if STATEMENT in names and instruction.base not in LEAVES and starts_statement(function.instructions, index):
            pieces.append((before, _RECORD.format(clock=_CLOCK, mark=2 * index + 1)))
            continue
        if instruction.base not in LEAVES and event_name(instruction) not in names:
            continue
        if instruction.base in LEAVES or is_wait(instruction):
            pieces.append((before, _RECORD.format(clock=_CLOCK, mark=2 * index + 1)))
        if instruction.base not in LEAVES:
            pieces.append((behind, _RECORD.format(clock=_clock_behind(instruction, text[opcode_at:behind]), mark=2 * index + 2)))
    out, at = [], 0
    for position, piece in pieces:
        out += [text[at:position], piece]
        at = position
    result = "".join([*out, text[at:]])
    line = text.rindex("\n", 0, text.index(f".entry {kernel}")) + 1
    variable = f".visible .global .align 8 .b8 {VARIABLE}[{ctas * warps * stride}];\n\n"
    return result[:line] + variable + result[line:]


def decode(source: str, text: str, kernel: str, records: np.ndarray) -> Timeline:
    """Return the timeline in the ``records`` (CTAs, warps, capacity) that the rewritten ``text`` wrote."""
    instructions = parser.parse(text).functions[kernel].instructions
    sites = {}
    for index, instruction in enumerate(instructions):
        named = event_name(instruction) or (STATEMENT if starts_statement(instructions, index) else "")
        if name := "start" if index == 0 else named:
            line = f" {instruction.source[1]}" if instruction.source else f" @{instruction.line}"
            sites[index] = name + line
    events: list[Event] = []
    for cta in range(records.shape[0]):
        kept = records[cta][records[cta]["mark"] > 0]
        if not len(kept):
            continue
        origin = records[cta, :, 0]["clock"][records[cta, :, 0]["mark"] > 0].astype(np.int64)
        # Differences modulo 2^32 from one of the clocks, so that a wrap does not matter.
        base = int(origin[0]) + int(((origin - origin[0] + 2**31) % 2**32 - 2**31).min())
        for warp in range(records.shape[1]):
            for mark, clock in records[cta, warp].tolist():
                if mark:
                    side = "begin" if (mark - 1) % 2 == 0 else "end"
                    events.append(Event(cta, warp, (mark - 1) // 2, side, (clock - base) % 2**32))
    return Timeline(source, kernel, sites, tuple(events))


def record(
    kernel: Any,
    arrays: Sequence[np.ndarray],
    on: str,
    capacity: int = 512,
    names: Collection[str] = NAMES,
    **options: Any,
) -> Timeline:
    """Run a ``tk.Kernel`` with records, here (``on="sim"``) or on the GPU in this machine (``on="gpu"``)."""
    ctas, warps = int(np.prod(kernel.grid)), -(-int(np.prod(kernel.block)) // 32)
    text = add_records(kernel.ptx, kernel.name, ctas, warps, capacity, names)
    run: Callable[..., tuple[str, np.ndarray, dict[str, str]]] = _on_gpu if on == "gpu" else _here
    source, raw, facts = run(kernel, text, arrays, ctas * warps * capacity * RECORD.itemsize, **options)
    return replace(decode(source, kernel.ptx, kernel.name, raw.view(RECORD).reshape(ctas, warps, capacity)), facts=facts)


def _on_gpu(kernel: Any, text: str, arrays: Sequence[np.ndarray], size: int) -> tuple[str, np.ndarray, dict[str, str]]:
    from . import gpu

    out = np.zeros(size, np.uint8)
    memory = gpu.Memory()
    run = gpu.launch(
        text, kernel.name, kernel.grid, kernel.block, kernel.launch_args(*arrays, address_of=memory.address_of),
        shared_mem=kernel.shared_bytes, cluster=kernel.cluster, memory=memory, read={VARIABLE: out},
    )  # fmt: skip
    facts = {name: str(value) for name, value in run.card.as_dict().items() if name in ("driver", "cuda", "date")}
    return run.card.card, out, facts


def _here(
    kernel: Any, text: str, arrays: Sequence[np.ndarray], size: int, **options: Any
) -> tuple[str, np.ndarray, dict[str, str]]:
    import h100sim

    options = {"device": "h200-sxm", "checks": "off", **options}
    device = h100sim.Device(options.pop("device"))
    module = h100sim.RawModule(code=text)
    function = module.get_function(kernel.name)
    function.max_dynamic_shared_size_bytes = kernel.shared_bytes
    buffers = [device.asarray(array) for array in arrays]
    function(
        kernel.grid, kernel.block, kernel.launch_args(*buffers, address_of=lambda buffer: buffer.address),
        shared_mem=kernel.shared_bytes, cluster=kernel.cluster, device=device, **options,
    )  # fmt: skip
    return f"simulated {device.name}", module.get_global(VARIABLE, device).numpy()[:size], {}


def _clock_behind(instruction: Instruction, written: str) -> str:
    """Return how the clock is read behind an instruction, which is ``written`` so in the text."""
    result = instruction.operands[0] if instruction.operands else None
    is_predicate = isinstance(result, Reg) and result.register.type == "pred" and is_wait(instruction)
    if not is_predicate or instruction.guard is not None:
        return _CLOCK
    return _CLOCK_AFTER.format(predicate=re.split(r"[\s,]+", written, maxsplit=2)[1])


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _statement_start(text: str, at: int) -> int:
    """Return where the statement with an opcode at ``at`` starts: at its guard, if it has one."""
    before = text[:at].rstrip()
    start = before.rfind("@")
    return start if start >= 0 and not set(before[start:]) & set(";{}\n:") else at
