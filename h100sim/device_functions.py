"""Functions of the device runtime, which a kernel calls without defining them: vprintf, malloc, free, __assertfail.

The machine stops at the call and comes here; one call serves the lanes of a group in order. Texts go to the console, one line
for each call with its block and thread, and to :attr:`h100sim.Run.texts`.

Spec: CUDA C++ Programming Guide 13, "Formatted Output", "Assertion", "Dynamic Global Memory Allocation and Operations".
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import OutOfRange, Trap
from .isa.machine import WIDE
from .memory.heap import DeviceHeap
from .memory.windows import CONST_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES

if TYPE_CHECKING:
    from .linker import Slot
    from .machine import Machine

#: Spec: cudaLimitPrintfFifoSize, 1 MB unless the program asks for more. Here what comes later is dropped, and counted.
MOST_TEXT_BYTES = 1 << 20
_LONGEST_STRING = 1 << 16
_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_BYTES_OF_LENGTH = {"hh": 1, "h": 2, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}

Console = Callable[[str], None]


class DeviceText(str):
    """What one call of printf printed, and who called: ``block`` and ``thread`` as (x, y, z), and ``cycle``."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    cycle: int

    def __new__(cls, text: str, block: tuple[int, int, int], thread: tuple[int, int, int], cycle: int) -> DeviceText:
        self = super().__new__(cls, text)
        self.block, self.thread, self.cycle = block, thread, cycle
        return self


@dataclass(frozen=True)
class Thread:
    """The caller of a function: a lane of a warp in a slot."""

    warp: int
    lane: int
    cta: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        return f"block {self.block}, thread {self.thread}"


class DeviceRuntime:
    """The runtime of one launch."""

    def __init__(self, machine: Machine, heap: DeviceHeap, console: Console):
        self.machine, self.heap, self.console = machine, heap, console
        self.texts: list[DeviceText] = []
        self.text_bytes = 0
        #: Texts that came after the limit.
        self.dropped = 0
        self._shown = 0

    def serve(self, warp: int, pc: int, mask: int) -> None:
        """Do the call at ``pc`` for the lanes ``mask`` of the warp in a slot, and let the warp go on. Raises KernelError."""
        program = self.machine.program
        call = program.linked.calls[pc]
        first = int(program.instructions[pc]["ops"]) // 4
        function = DEVICE_FUNCTIONS[call.device_function]
        for lane in (lane for lane in range(32) if mask >> lane & 1):
            rows = iter(program.ops[first:])
            results = [self._place_of(slot, warp, lane, rows) for slot, _ in call.results]
            arguments = [self._place_of(slot, warp, lane, rows) for slot, _ in call.arguments]
            value = function(self, self._thread(warp, lane), *(int.from_bytes(a.tobytes(), "little") for a in arguments))
            for place in results:
                place[:] = np.frombuffer(value.to_bytes(8, "little")[: len(place)], np.uint8)
        self.machine.tables["warps"][warp]["served"] = 1

    def _place_of(self, slot: Slot, warp: int, lane: int, rows: Iterator[np.int32]) -> np.ndarray:
        """Return the bytes of an argument or result of a lane: a view of its stack, or of the next of the call's rows."""
        machine = self.machine
        if slot.operand is not None:
            row = int(next(rows))
            offset = int(machine.tables["warps"][warp]["regs"]) - machine.tables["registers"].ctypes.data + (row & ~63)
            offset += lane * (8 if row & WIDE else 4)
            return machine.tables["registers"][offset : offset + slot.size]
        frame = machine.program.linked.frame.index
        at = slot.offset + (int(machine.register(warp, frame)[lane]) if frame in machine.program.registers else 0)
        at += (warp * 32 + lane) * int(machine.context["local_bytes"])
        return machine.tables["local"][at : at + slot.size]

    def _thread(self, warp: int, lane: int) -> Thread:
        """Return who a lane of the warp in a slot is."""
        machine = self.machine
        record, (gx, gy, _), (bx, by, _) = machine.tables["warps"][warp], machine.launch.grid, machine.launch.block
        cta, thread = int(machine.tables["ctas"][record["cta"]]["id"]), int(record["rank"]) * 32 + lane
        block = cta % gx, cta // gx % gy, cta // (gx * gy)
        return Thread(warp, lane, cta, block, (thread % bx, thread // bx % by, thread // (bx * by)))

    def snapshot(self) -> tuple:
        return list(self.texts), self.text_bytes, self.dropped, self.heap.snapshot(), self.machine.memory.snapshot()

    def restore(self, kept: tuple) -> None:
        """Go back to a snapshot. What the console has shown is not shown again."""
        self.texts, self.text_bytes, self.dropped = list(kept[0]), kept[1], kept[2]
        self.heap.restore(kept[3])
        self.machine.memory.restore(kept[4])

    def print(self, thread: Thread, text: str) -> None:
        """Keep a text and show it, unless there is too much already."""
        if self.text_bytes + len(text) > MOST_TEXT_BYTES:
            self.dropped += 1
            if self.dropped == 1:
                self.console(f"(texts beyond {MOST_TEXT_BYTES:,} bytes are dropped)")
            return
        self.text_bytes += len(text)
        self.texts.append(DeviceText(text, thread.block, thread.thread, int(self.machine.context["now"])))
        if len(self.texts) > self._shown:
            self._shown = len(self.texts)
            self.console(f"{thread}: {text.removesuffix(chr(10))}")

    # Memory as a lane sees it.
    def read(self, thread: Thread, address: int, size: int) -> bytes:
        """Return bytes at a generic address. Raises OutOfRange."""
        machine = self.machine
        window, offset = address & ~(WINDOW_BYTES - 1), address & (WINDOW_BYTES - 1)
        tables, c = machine.tables, machine.context
        found: bytes | None
        if window == LOCAL_WINDOW:
            start = (thread.warp * 32 + thread.lane) * int(c["local_bytes"])
            found = tables["local"][start + offset : start + min(offset + size, int(c["local_bytes"]))].tobytes()
        elif window == SHARED_WINDOW:
            found = machine.shared_of(thread.cta)[offset & 0xFFFFFF : (offset & 0xFFFFFF) + size].tobytes()
        elif window == CONST_WINDOW:
            found = machine.constants[offset : offset + size]
        elif window == PARAM_WINDOW:
            found = machine.launch.parameters[offset : offset + size]
        else:
            found = machine.read_bytes(address, size)
        if found is None or len(found) < size:
            raise OutOfRange(f"address must lie in memory of the kernel, not {machine.memory.describe(address, size)}")
        return found

    def string(self, thread: Thread, address: int) -> str:
        """Return the text at an address, up to its zero byte. Raises OutOfRange."""
        allocation = self.machine.memory.find(address)
        if allocation is not None:
            data = self.read(thread, address, min(allocation.end - address, _LONGEST_STRING))
            return data.partition(b"\0")[0].decode("utf-8", "replace")
        text = bytearray()
        while len(text) < _LONGEST_STRING and (byte := self.read(thread, address + len(text), 1)) != b"\0":
            text += byte
        return text.decode("utf-8", "replace")


def _printf(runtime: DeviceRuntime, thread: Thread, format_: int, arguments: int) -> int:
    """vprintf: the arguments lie one behind the other in memory, each aligned to its size; return how many there were."""
    at = count = 0

    def take(size: int) -> int:
        nonlocal at, count
        at = -(-at // size) * size
        value = int.from_bytes(runtime.read(thread, arguments + at, size), "little")
        at, count = at + size, count + 1
        return value

    def convert(found: re.Match) -> str:
        flags, width, precision, length, kind = found.groups()
        if kind == "%":
            return "%"
        if width == "*":
            width = str(_signed(take(4), 4))
            flags, width = (flags + "-", width[1:]) if width[0] == "-" else (flags, width)
        if precision == "*":
            chosen = _signed(take(4), 4)
            precision = str(chosen) if chosen >= 0 else None
        layout = f"{flags}{width or ''}" + (f".{precision or 0}" if precision is not None else "")
        if kind == "s":
            address = take(8)
            return f"%{layout}s" % (runtime.string(thread, address) if address else "(null)")
        if kind in "eEfFgGaA":
            return _real(layout, kind, take(8))
        return _integer(layout, kind, length or "", take(8 if kind in "pn" else max(4, _BYTES_OF_LENGTH.get(length or "", 4))))

    text = _CONVERSION.sub(convert, runtime.string(thread, format_))
    runtime.print(thread, text)
    return count


def _signed(value: int, size: int) -> int:
    return value - (1 << 8 * size) if value >> (8 * size - 1) & 1 else value


def _integer(layout: str, kind: str, length: str, value: int) -> str:
    """Return an integer, character or pointer as C writes it."""
    size = _BYTES_OF_LENGTH.get(length, 4)
    if kind == "n":
        return ""
    if kind == "c":
        return f"%{layout.replace('0', '') if layout.startswith('0') else layout}c" % chr(value & 0xFF)
    if kind == "p":
        return f"%{layout}s" % (f"{value:#x}" if value else "(nil)")
    value &= (1 << 8 * size) - 1
    if kind in "di":
        return f"%{layout}d" % _signed(value, size)
    layout = layout.replace("+", "").replace(" ", "")
    if "#" in layout and (value == 0 or kind == "o"):
        layout = layout.replace("#", "")
        return f"%{layout}s" % f"0{value:o}" if kind == "o" and value else f"%{layout}{'d' if kind == 'u' else kind}" % value
    return f"%{layout}{'d' if kind == 'u' else kind}" % value


def _real(layout: str, kind: str, bits: int) -> str:
    """Return a double as C writes it."""
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    if not math.isfinite(value):
        sign = "-" if bits >> 63 else "+" if "+" in layout else ""
        name = sign + ("nan" if math.isnan(value) else "inf")
        return f"%{re.sub(r'[.][0-9]*|[+#]|^0+', '', layout)}s" % (name.upper() if kind.isupper() else name)
    if kind in "aA":
        text = re.sub(r"\.?0*p", "p", value.hex())
        return f"%{re.sub(r'[.][0-9]*', '', layout)}s" % (text.upper() if kind == "A" else text)
    return f"%{layout}{kind}" % value


def _assertfail(runtime: DeviceRuntime, thread: Thread, message: int, file: int, line: int, function: int, size: int) -> int:
    """The assertion of C: ends the launch with its text and place."""
    text, name, inside = (runtime.string(thread, address) if address else "?" for address in (message, file, function))
    raise Trap(f"assertion {text} must hold, but it failed at {name}:{line} in {inside}, {thread}")


def _malloc(runtime: DeviceRuntime, thread: Thread, size: int) -> int:
    return runtime.heap.malloc(size, f"malloc({size:,}) of {thread}")


def _free(runtime: DeviceRuntime, thread: Thread, address: int) -> int:
    runtime.heap.free(address)
    return 0


#: By name: (runtime, thread, arguments as unsigned integers) -> result.
DEVICE_FUNCTIONS: dict[str, Callable[..., int]] = {
    "vprintf": _printf,
    "__assertfail": _assertfail,
    "malloc": _malloc,
    "free": _free,
}
