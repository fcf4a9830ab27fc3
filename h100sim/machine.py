"""A launch: puts the tables, the program and the device together, runs them, and turns what happened into Python objects.

:class:`Machine` is the only place that knows all parts. It owns every table (plain NumPy arrays), gives compiled code their
addresses, and serves what compiled code cannot do alone: growing a table, decoding a tensor map, handing a full trace buffer to
the listeners, explaining an error or a deadlock. A checkpoint is a copy of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import ctas, devices, engine, faults, launch_constants, representative, schedules, spare_tables
from . import state as S
from .checks.deadlock import explain
from .checks.wait_graph import ledgers, wait_edges
from .device_functions import Console, DeviceRuntime
from .devices import DeviceModel
from .endless import state_of_suspended
from .errors import DeadlockError, H100SimError, KernelError, LaunchError, Where
from .intervals import mbarrier_name
from .memory.cache import LINE_SHIFT, NEVER
from .memory.global_memory import GlobalMemory
from .memory.heap import DeviceHeap
from .memory.windows import FUNCTION_BYTES, FUNCTION_WINDOW, SHARED_START
from .placement import ctas_per_sm, places, stands
from .program import Program, set_latencies, width_of_type
from .standing import cycle_limit, wait_states
from .tma import TensorMap
from .tma.plan import PLAN_WORDS
from .trace import CTA_INFO, EVENT, WARP_INFO, KernelInfo, Trace, Wait
from .units.tensor_core import step_addresses
from .units.tensor_maps import FORGOTTEN

#: How often waits may give up, and nothing but registers change (a warp counts its tries or reads a clock), before the launch is
#: called dead: 4 milliseconds on silicon.
_VAIN_ROUNDS = 1024
_FOREVER = 1 << 62
#: Cycles that a launch may take where the caller gives no limit: 76 milliseconds on silicon.
MOST_CYCLES = 1 << 27
#: Stack of a lane for calls that come back to their own function, where that much for all lanes is not more than the third.
_STACK_BYTES, _LEAST_STACK_BYTES, _STACKS_BYTES = 1 << 16, 1 << 13, 1 << 30

Listener = Callable[[np.ndarray, np.ndarray, int], None]


@dataclass(frozen=True)
class Launch:
    """What a kernel is launched with. ``parameters`` are the bytes of the parameter space, ``shared_bytes`` the dynamic part."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    parameters: bytes
    shared_bytes: int
    registers: int
    values: bool = True
    trace_level: int = 2
    max_cycles: int = MOST_CYCLES
    schedule: int = 0
    #: Every how many clusters one runs (see :mod:`h100sim.representative`).
    stride: int = 1
    #: What %globaltimer reads at cycle 0.
    start_ns: int = 0

    @property
    def ctas(self) -> int:
        """How many CTAs run."""
        cluster = int(np.prod(self.cluster))
        return -(-int(np.prod(self.grid)) // cluster // self.stride) * cluster


class Machine:
    """One kernel launch on one device. See the module's docstring."""

    def __init__(
        self,
        program: Program,
        launch: Launch,
        model: DeviceModel,
        memory: GlobalMemory,
        symbols: dict[str, int],
        kernel: KernelInfo,
        constants: bytes,
        heap: DeviceHeap,
        console: Console = print,
    ):
        self.program, self.launch, self.model = program, launch, model
        self.memory: GlobalMemory = memory
        self.symbols, self.kernel, self.constants = symbols, kernel, constants
        self.listeners: list[Listener] = []
        #: The chunks of events that a listener keeps, for explaining a deadlock.
        self.kept: list[np.ndarray] = []
        self.tables: dict[str, np.ndarray] = {}
        self._buffers: dict[str, np.ndarray] = {}
        set_latencies(program, model)
        self.ctx = np.zeros(1, S.CONTEXT)
        self._plan_count = 0
        self.runtime = DeviceRuntime(self, heap, console)
        self._build()

    # --- tables -------------------------------------------------------------------------------------------------------

    @property
    def context(self) -> np.void:
        """The context record (a live view)."""
        return self.ctx[0]

    def table(
        self, name: str, shape: int | tuple[int, ...], dtype: Any, field: str | None = None, *, is_written: bool = False
    ) -> np.ndarray:
        """Allocate a table of zeros and give compiled code its address. ``is_written``: what is read of it was written before, so
        it need not be zero."""
        size = math.prod(map(int, shape if isinstance(shape, tuple) else (shape,))) * np.dtype(dtype).itemsize
        buffer = spare_tables.take(name, size)
        if buffer is not None and not is_written:
            buffer[:size] = 0
        try:
            if buffer is None:
                buffer = (np.empty if is_written else np.zeros)(size, np.uint8)
        except MemoryError:
            raise LaunchError(
                f"{name} of all resident warps must fit into the memory of this machine, not take {size:,} bytes",
                rule="cudaErrorLaunchOutOfResources",
            ) from None
        self._buffers[name] = buffer
        array = self.tables[name] = buffer[:size].view(dtype).reshape(shape)
        self.context[field or name] = array.ctypes.data
        return array

    def release(self) -> None:
        """Give the memory of the tables to later launches; the machine must not be used any more."""
        for name, buffer in self._buffers.items():
            spare_tables.give(name, buffer)
        self.tables.clear()
        self._buffers.clear()

    def _build(self) -> None:
        c, program, launch, model = self.context, self.program, self.launch, self.model
        threads = int(np.prod(launch.block))
        warps = (threads + 31) // 32
        ctas = int(np.prod(launch.grid))
        cluster = int(np.prod(launch.cluster))
        shared_size = program.dynamic_shared_offset + launch.shared_bytes
        per_sm = ctas_per_sm(model.limits, threads, launch.registers, shared_size - SHARED_START)
        slot_sms = np.array(places(model, cluster, per_sm), np.int32).reshape(-1)[: launch.ctas]
        slots = len(slot_sms)
        local_bytes = program.local_bytes
        if program.linked.is_recursive or program.linked.dynamic:
            local_bytes += max(_LEAST_STACK_BYTES, min(_STACK_BYTES, _STACKS_BYTES // (slots * warps * 32))) // 512 * 512
        stride = (shared_size + 1023) & ~1023
        for name, value in {
            "n_slots": slots, "warps_per_cta": warps, "n_sms": model.sms, "shared_stride": stride, "shared_size": shared_size,
            "register_bytes": (program.register_bytes + 63) & ~63, "template_bytes": program.template_bytes,
            "ready_slots": program.ready_slots, "n_fills": len(program.fills), "mbarriers_per_cta": 1024,
            "async_capacity": 64 + 16 * slots, "event_capacity": 1 << 16, "lane_capacity": 1 << 13,
            "parameter_bytes": len(launch.parameters), "constant_bytes": len(self.constants),
            "local_bytes": local_bytes, "frame_bytes": program.linked.frame_bytes,
            "n_ctas": launch.ctas, "cluster_size": cluster, "cluster_stride": launch.stride,
            "registers_per_thread": launch.registers, "values": int(launch.values), "trace_level": launch.trace_level,
            "clock_mhz": model.clock_mhz, "start_ns": launch.start_ns, "l2_half_bytes": model.memory.l2_bytes // 2,
            "until": launch.max_cycles, "max_steps": _FOREVER, "fixed_registers": int(not self._knows_registers()),
            "schedule": schedules.bits(launch.schedule), "seed": launch.schedule, "memory_seed": model.memory.seed,
            "l1_held": max(0, model.memory.l1_bytes - per_sm * (shared_size + model.limits.shared_reserved_bytes)) // 32,
        }.items():  # fmt: skip
            c[name] = value
        for k, axis in enumerate("xyz"):
            c[f"grid_{axis}"], c[f"block_{axis}"], c[f"cluster_{axis}"] = launch.grid[k], launch.block[k], launch.cluster[k]
        self.tables["instructions"] = table = program.instructions.copy()
        self.tables["ops"] = program.ops
        table["ops"] += program.ops.ctypes.data
        c["instructions"] = table.ctypes.data
        self.tables["slots"] = program.slots
        c["slots"] = program.slots.ctypes.data
        groups = (warps + 3) // 4
        self.table("warps", slots * warps, S.WARP)
        self.table("nodes", slots * warps * S.NODES_PER_WARP, S.NODE)
        self.table("ctas", slots, S.CTA)
        self.table("slot_sms", slots, np.int32)[:] = slot_sms
        self.table("mbarriers", slots * 1024, S.MBARRIER)
        self.table("mbarrier_index", slots * stride // 8, np.int32, is_written=True)
        self.table("barriers", slots * S.BARRIERS_PER_CTA, S.BARRIER)
        self.table("asyncs", int(c["async_capacity"]), S.ASYNC)
        self.table("groups", slots * groups, S.WARPGROUP)
        self.table("sms", model.sms, S.SM)
        self.table("scheduler_free", model.sms * 4, np.int64)
        self.table("pipe_free", model.sms * 4 * S.N_PIPES, np.int64)
        c["code_lines"] = int(program.instructions["line"].max()) + 1
        self.table("fetched", model.sms * int(c["code_lines"]), np.int64)
        self.table("lane_groups", slots * warps * 32, np.int32)
        self._heap(slots * warps + 2 * int(c["async_capacity"]) + 64)
        self.tables["heap_time"][0] = c["ring_time"] = S.NEVER
        self.table("ring_last", S.RING_CYCLES, np.int32)[:] = -1
        self.table("ring_next", slots * warps, np.int32)
        self.table("ring_used", S.RING_WORDS, np.int64)
        self.table("shared", slots * stride + 1024, np.uint8)
        c["shared"] = (self.tables["shared"].ctypes.data + 1023) & ~1023
        if launch.values:
            self.tables["shared"][:] = 0xCD
        self.table("registers", slots * warps * int(c["register_bytes"]) + 64, np.uint8, is_written=True)
        c["registers"] = (self.tables["registers"].ctypes.data + 63) & ~63
        self.table("ready", slots * warps * program.ready_slots, np.int64)
        self.tables["register_template"] = template = launch_constants.template(program, launch, model, self.symbols)
        c["register_template"] = template.ctypes.data
        fills = self.table("fills", 2 * max(1, len(program.fills)), np.int32)
        fills[: 2 * len(program.fills)] = [x for pair in program.fills for x in pair]
        parameters = self.table("parameters", max(16, len(launch.parameters)), np.uint8)
        parameters[: len(launch.parameters)] = np.frombuffer(launch.parameters, np.uint8)
        constants = self.table("constants", max(16, len(self.constants)), np.uint8)
        constants[: len(self.constants)] = np.frombuffer(self.constants, np.uint8)
        self.table("local", max(16, slots * warps * 32 * local_bytes), np.uint8)
        self.table("events", int(c["event_capacity"]), EVENT, is_written=True)
        self.table("lanes", (int(c["lane_capacity"]), 32), np.int64, is_written=True)
        self.table("cta_info", ctas, CTA_INFO)["sm"] = -1 if launch.stride > 1 else 0
        self.table("warp_info", ctas * warps, WARP_INFO)
        self.table("scratch", 1 << 18, np.uint8)
        self.table("step_functions", 3, np.int64)[:] = step_addresses()
        self.table("plans", (1, PLAN_WORDS), np.int64)
        self.table("plan_addresses", 1, np.int64)
        c["l2_lines"] = len(self.memory.arena) >> LINE_SHIFT
        self.table("l2_stamps", 2 * int(c["l2_lines"]), np.int64)[:] = self.memory.l2.stamps
        self.table("l2_filled", 2, np.int64)[:] = self.memory.l2.filled
        self.table("l2_asked", int(c["l2_lines"]), S.ASKED)
        self.table("flights", S.FLIGHTS, np.int64)
        used = np.unique(slot_sms)
        self.tables["sms"]["l1"][used] = S.L1_PLACES * np.arange(len(used))
        self.table("l1_sectors", len(used) * S.L1_PLACES, S.L1_SECTOR)
        standing, tpcs = stands(model)
        for name in standing.dtype.names or ():
            self.tables["sms"][name] = standing[name]
        self.table("gpc_tpcs", len(tpcs), np.uint64)[:] = tpcs
        self._timing()
        self.attach_memory()

    def keep_l2(self) -> None:
        """Let the next launch on this memory find in L2 what this one has left there (where all of its CTAs ran)."""
        if self.launch.stride > 1:
            return
        self.memory.l2.stamps = self.tables["l2_stamps"].copy()
        self.memory.l2.filled = self.tables["l2_filled"].copy()

    def _heap(self, capacity: int) -> None:
        self.context["heap_capacity"] = capacity
        for name in ("heap_time", "heap_key", "heap_item"):
            before = self.tables.get(name)
            self.table(name, capacity, np.int64)
            if before is not None:
                self.tables[name][: len(before)] = before

    def _timing(self) -> None:
        values = devices.compiled_numbers(self.model)
        self.table("timing", 1, S.TIMING)[0] = tuple(values[name] for name in S.TIMING.names or ())

    def _knows_registers(self) -> bool:
        """setmaxnreg works only where ptxas knows the register count at entry. Spec: ptxas warning C7508."""
        directives = self.program.function.directives
        return "maxnreg" in directives or "maxntid" in directives or "reqntid" in directives

    def attach_memory(self) -> None:
        """Give compiled code the addresses of the global arena and of its table of allocations."""
        c, memory = self.context, self.memory
        c["arena"], c["arena_base"], c["arena_bytes"] = memory.arena.ctypes.data, memory.base, len(memory.arena)
        self.tables["starts"], self.tables["ends"] = np.ascontiguousarray(memory.starts), np.ascontiguousarray(memory.ends)
        c["allocation_starts"], c["allocation_ends"] = self.tables["starts"].ctypes.data, self.tables["ends"].ctypes.data
        c["n_allocations"] = len(memory.starts)
        lines = len(memory.arena) >> LINE_SHIFT
        if lines > c["l2_lines"]:
            stamps, asked = self.tables["l2_stamps"], self.tables["l2_asked"]
            self.table("l2_stamps", 2 * lines, np.int64)[:] = NEVER
            self.tables["l2_stamps"][: len(stamps)] = stamps
            self.table("l2_asked", lines, S.ASKED)[: len(asked)] = asked
            c["l2_lines"] = lines

    # --- running ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Put the first CTAs on the SMs."""
        ctas.start(self.ctx.ctypes.data, int(self.context["now"]))

    def run(self, max_steps: int | None = None, until: int | None = None, max_events: int | None = None) -> bool:
        """Run on; return True when the kernel has ended, False at a limit. Raises what the kernel did wrong.

        ``max_steps`` counts instructions of warps and events of units, ``max_events`` trace events, both from the start of the
        launch; ``until`` is a cycle.
        """
        c = self.context
        c["max_steps"] = _FOREVER if max_steps is None else max_steps
        limit = self.launch.max_cycles
        c["until"] = min(limit, _FOREVER if until is None else until)
        #: The last time that nothing could happen: progress and state of the warps that waited, and looks at them since it changed.
        idle, looks = (-1, 0), 0
        room = int(c["event_capacity"]) - 512
        while True:
            left = _FOREVER if max_events is None else max_events - self.event_count - 1
            if left < 0:
                return False
            c["event_stop"] = min(room, int(c["n_events"]) + left)
            reason = engine.run(self.ctx.ctypes.data)
            if reason == S.R_TRACE_FULL:
                if c["n_events"] > room or c["n_lanes"] > 0:
                    self.flush()
            elif reason == S.R_GROW:
                self._grow()
            elif reason == S.R_HOST:
                self._serve()
            elif reason == S.R_ERROR:
                self.flush()
                raise faults.error_of(self)
            elif reason == S.R_STEP:
                return False
            elif reason == S.R_UNTIL:
                if until is not None and until < limit:
                    return False
                self.flush()
                raise cycle_limit(self)
            elif reason == S.R_DONE:
                self.flush()
                return True
            else:  # R_IDLE or R_ENDLESS
                self.tables["warps"]["loop_progress"] = -1
                now = int(c["progress"]), state_of_suspended(self.ctx.ctypes.data)
                looks = looks + 1 if now[0] == idle[0] else 0
                if now == idle or looks >= _VAIN_ROUNDS or not self._expire():
                    self.flush()
                    raise self._deadlock(0 if now == idle else looks)
                # A warp may count its tries or read a clock; a state of any period is found as in a loop.
                if looks & (looks - 1) == 0:
                    idle = now

    def _expire(self) -> bool:
        """Nothing can happen any more: let every suspended try_wait return False, as silicon does after its time limit."""
        c, nodes, warps = self.context, self.tables["nodes"], self.tables["warps"]
        suspended = np.flatnonzero((nodes["state"] == S.BLOCKED) & (nodes["wait"] == int(Wait.MBARRIER)))
        waiting = [n for n in suspended if warps[n // S.NODES_PER_WARP]["state"] in (S.W_RUNNING, S.W_BLOCKED)]
        if not waiting:
            return False
        time = int(c["now"]) + self.model.barriers.mbarrier_suspend_cycles
        for n in waiting:
            engine.expire(self.ctx.ctypes.data, int(n), time)
        return True

    def _deadlock(self, rounds: int) -> DeadlockError:
        history = self._history()
        about = self.kernel, wait_states(self, history), history
        message, waits = explain(*about, rounds)
        return DeadlockError(message, waits, edges=wait_edges(*about), ledger=ledgers(*about))

    def _history(self) -> np.ndarray:
        return np.concatenate(self.kept) if self.kept else np.zeros(0, EVENT)

    def flush(self) -> None:
        """Hand the events so far to the listeners and empty the buffers."""
        c = self.context
        n, lanes = int(c["n_events"]), int(c["n_lanes"])
        if n:
            events, rows = self.tables["events"][:n].copy(), self.tables["lanes"][:lanes].copy()
            for listener in self.listeners:
                listener(events, rows, int(c["lanes_total"]))
        c["events_total"] += n
        c["lanes_total"] += lanes
        c["n_events"] = c["n_lanes"] = 0

    def _grow(self) -> None:
        """Make the table of asynchronous operations larger; the instruction that found it full is executed again."""
        c = self.context
        before = self.tables["asyncs"]
        after = self.table("asyncs", 2 * len(before), S.ASYNC)
        after[: len(before)] = before
        c["async_capacity"], c["async_free"] = len(after), len(before)
        self._heap(len(self.tables["heap_time"]) + 2 * len(before))

    def _serve(self) -> None:
        """Do for compiled code what only Python can."""
        if self.context["host"] == S.H_TENSOR_MAP:
            self._decode_tensor_map()
            return
        w, pc = int(self.context["warp"]), int(self.context["pc"])
        try:
            self.runtime.serve(w, pc, int(self.context["mask"]))
        except KernelError as error:
            self.flush()
            raise type(error)(error.message, self.where(w, pc), error.rule) from None
        self.attach_memory()

    def _fault(self, code: int, a: int, b: int = 0) -> H100SimError:
        """Return the error that the instruction makes which asked for a service."""
        c = self.context
        c["error"], c["error_a"], c["error_b"], c["error_warp"], c["error_pc"] = code, a, b, c["warp"], c["pc"]
        self.flush()
        return faults.error_of(self)

    def _decode_tensor_map(self) -> None:
        c = self.context
        address = int(c["error_a"])
        raw = self.read_bytes(address, 128)
        if raw is None or len(raw) < 128:
            raise self._fault(faults.OUT_OF_RANGE_GLOBAL, address, 128)
        try:
            plan = TensorMap.decode(raw).plan
        except (ValueError, H100SimError):
            raise self._fault(faults.TENSOR_MAP_INVALID, address) from None
        n = self._plan_count
        flying = self.tables["asyncs"]["plan"][self.tables["asyncs"]["state"] != S.A_FREE]
        for k in np.flatnonzero(self.tables["plan_addresses"][:n] == FORGOTTEN):
            if k not in flying:
                self.tables["plans"][k], self.tables["plan_addresses"][k] = plan, address
                return
        old_plans, old_addresses = self.tables["plans"][:n], self.tables["plan_addresses"][:n]
        plans = self.table("plans", (n + 1, PLAN_WORDS), np.int64)
        addresses = self.table("plan_addresses", n + 1, np.int64)
        plans[:n], addresses[:n] = old_plans, old_addresses
        plans[n], addresses[n] = plan, address
        self._plan_count = n + 1
        c["n_plans"] = n + 1

    def read_bytes(self, address: int, size: int) -> bytes | None:
        """Return bytes at a generic address of global, constant or parameter space, or None."""
        from .memory.windows import CONST_WINDOW, PARAM_WINDOW, WINDOW_BYTES

        for window, held in ((PARAM_WINDOW, self.launch.parameters), (CONST_WINDOW, self.constants)):
            if window <= address < window + WINDOW_BYTES:
                return held[address - window : address - window + size]
        try:
            return self.memory.view(address, size).tobytes()
        except H100SimError:
            return None

    # --- looking ------------------------------------------------------------------------------------------------------

    def opcode(self, pc: int) -> str:
        return self.program.opcodes[pc] if 0 <= pc < len(self.program.opcodes) else "end of the kernel"

    def place(self, pc: int) -> str:
        return self.kernel.place(pc)

    def where(self, warp: int, pc: int) -> Where:
        """Return the place of an instruction and the role of the warp in a slot."""
        w = self.tables["warps"][warp]
        cta = int(self.tables["ctas"][w["cta"]]["id"])
        lines = self.program.lines
        name, own = self.kernel.role(int(w["rank"])), f"warp {int(w['rank'])}"
        role = f"{own} of CTA {cta}" if name == own else f"{name}, {own} of CTA {cta}"
        source = self.kernel.sources[pc] if 0 <= pc < len(lines) else None
        return Where(
            file=self.program.module.filename,
            line=lines[pc] if 0 <= pc < len(lines) else 0,
            source=self.kernel.place(pc) if source else "",
            role=role,
        )

    def name_of_function(self, address: int) -> str:
        """Return the function at an address, else the address."""
        number, rest = divmod(address - FUNCTION_WINDOW, FUNCTION_BYTES)
        names = list(self.program.module.functions)
        return names[number] if rest == 0 and 0 <= number < len(names) else f"{address:#x}"

    def barrier_name(self, identity: int) -> str:
        """Return what the DSL calls the mbarrier with an identity, else its address."""
        for m in self.tables["mbarriers"]:
            if m["live"] and int(m["identity"]) == identity:
                return mbarrier_name(self.kernel, int(m["offset"]))
        return f"mbarrier {identity}"

    def shared_of(self, cta: int) -> np.ndarray:
        """Return a copy of the shared memory of a resident CTA, indexed by offset in its window."""
        for record in self.tables["ctas"]:
            if int(record["id"]) == cta and record["warps"]:
                start = int(record["shared"]) - self.tables["shared"].ctypes.data
                return self.tables["shared"][start : start + int(self.context["shared_size"])].copy()
        raise LaunchError(f"CTA must be one that has started, not {cta}")

    def register(self, slot: int, index: int) -> np.ndarray:
        """Return the 32 lanes of a register of a resident warp (uint32, uint64 or, for predicates, bool)."""
        register = self.program.function.registers[index]
        offset = self.program.registers[index]
        start = int(self.tables["warps"][slot]["regs"]) - self.tables["registers"].ctypes.data + offset
        width = width_of_type(register.type)
        raw = self.tables["registers"]
        if width == 1:
            bits = int(raw[start : start + 4].view(np.uint32)[0])
            return np.array([(bits >> k) & 1 for k in range(32)], bool)
        if width == 64:
            return raw[start : start + 256].view(np.uint64).copy()
        return raw[start : start + 128].view(np.uint32).copy()

    def checkpoint(self) -> dict[str, Any]:
        """Copy everything that running changes."""
        kept: dict[str, Any] = {name: array.copy() for name, array in self.tables.items() if name not in _CONSTANT_TABLES}
        kept["ctx"], kept["arena"], kept["runtime"] = self.ctx.copy(), self.memory.arena.copy(), self.runtime.snapshot()
        return kept

    def restore(self, kept: dict[str, Any]) -> None:
        """Go back to a checkpoint of this launch."""
        self.ctx[...] = kept["ctx"]
        for name, array in kept.items():
            if name in ("ctx", "arena", "runtime"):
                continue
            if self.tables[name].shape == array.shape:
                self.tables[name][...] = array
            else:
                self.tables[name] = array.copy()
            # A table may have been replaced by a larger one since; shared memory and registers never are (and are aligned).
            if name not in ("shared", "registers"):
                self.context[name] = self.tables[name].ctypes.data
        self._plan_count = int(self.context["n_plans"])
        self.runtime.restore(kept["runtime"])
        self.memory.arena[: len(kept["arena"])] = kept["arena"]
        self.attach_memory()

    @property
    def event_count(self) -> int:
        """Events since the start of the launch."""
        return int(self.context["events_total"]) + int(self.context["n_events"])

    def trace(self, events: list[np.ndarray], lanes: list[np.ndarray]) -> Trace:
        """Return the trace made of the chunks that a listener has kept. Where not all CTAs run, those that do are numbered anew."""
        found = Trace(
            kernel=self.kernel,
            events=np.concatenate(events) if events else np.zeros(0, EVENT),
            lanes=np.concatenate(lanes) if lanes else np.zeros((0, 32), np.int64),
            warps=self.tables["warp_info"].copy(),
            ctas=self.tables["cta_info"].copy(),
            cycles=self.cycles,
        )
        return found if self.launch.stride == 1 else representative.renumbered(found)

    @property
    def cycles(self) -> int:
        """The duration of the kernel so far in SM cycles."""
        ends = self.tables["cta_info"]["end"]
        return int(max(ends.max(initial=0), 0)) if self.context["ctas_done"] else int(self.context["now"])


_CONSTANT_TABLES = frozenset(
    (
        "instructions",
        "ops",
        "slots",
        "slot_sms",
        "register_template",
        "fills",
        "parameters",
        "constants",
        "timing",
        "starts",
        "ends",
        "events",
        "lanes",
    )
)
