"""The host side: devices, buffers, modules, launches and their results, shaped like CuPy's.

``RawModule(code=ptx).get_function(name)(grid, block, args)`` copies arrays to the device, runs the kernel, copies them back and
returns a :class:`Run`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from weakref import WeakKeyDictionary

import numpy as np

from . import devices, representative, schedules
from .device_functions import Console
from .errors import KernelError, LaunchError, UsageError
from .integers import integer
from .memory.global_memory import GlobalMemory
from .memory.heap import DeviceHeap
from .memory.windows import SHARED_START
from .ptx.module import Function, Imm, Parameter
from .session import Run, Session
from .source_files import read_source
from .tma import TensorMap
from .trace import KernelInfo
from .variables import ModuleVariables, function_addresses, place_variables

if TYPE_CHECKING:
    from .debugger import Debugger
    from .machine import Launch, Machine
    from .program import Program

#: CTAs of a launch: a record of each is kept.
_MOST_CTAS = 1 << 22
#: Bound of ``max_cycles``, so that schedules can multiply it.
_MOST_CYCLES = 1 << 56
#: Spec: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability": local memory per thread.
_LOCAL_BYTES = 512 * 1024
_LEAST_REGISTERS, _MOST_REGISTERS = 24, 255
_VALUES = ("exact", "none")
_CHECKS = ("on", "strict", "off")
#: Kinds of NumPy types whose bytes are numbers; bf16 and fp8 of ml_dtypes are V.
_NUMBERS = "biufcV"


@dataclass(frozen=True)
class Buffer:
    """Device memory. ``address`` is 512-byte aligned, as cudaMalloc gives it; launches share what they name."""

    device: Device
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def numpy(self) -> np.ndarray:
        """Return a copy of the contents."""
        return self.device.memory.download(self.address, like=np.empty(self.shape, self.dtype))

    def write(self, array: Any) -> None:
        """Copy an array into the buffer, which it must fill. Raises UsageError."""
        data = np.ascontiguousarray(array)
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        if data.nbytes != size:
            raise UsageError(f"array must have the {size:,} bytes of the buffer, not {data.nbytes:,}")
        self.device.memory.write(self.address, data)

    def free(self) -> None:
        """Give the memory back; later accesses are errors that name the buffer as freed."""
        self.device.memory.free(self.address)


class Device:
    """A simulated GPU: a model (see :mod:`h100sim.devices`) and its global memory."""

    def __init__(self, name: str | devices.DeviceModel = devices.DEFAULT_MODEL):
        self.model = devices.model(name)
        self.memory = GlobalMemory()
        self.heap = DeviceHeap(self.memory)
        #: What %globaltimer reads when the next launch begins.
        self.timer_ns = 0

    @property
    def name(self) -> str:
        return self.model.name

    def asarray(self, array: Any, name: str = "") -> Buffer:
        """Copy an array to the device."""
        array = np.atleast_1d(np.asarray(array))
        return Buffer(self, self._upload(array, name or "buffer"), array.shape, array.dtype)

    def _upload(self, array: np.ndarray, name: str) -> int:
        """Copy an array into a new allocation and return its address. Raises UsageError."""
        if array.dtype.kind not in _NUMBERS:
            raise UsageError(f"array must have numbers, not {array.dtype}")
        try:
            return self.memory.upload(array, name=name)
        except MemoryError:
            room = "must fit into the memory of this machine"
            raise UsageError(f"array '{name}' and what the device holds {room}, not have {array.nbytes:,} bytes more") from None

    def _let_pass(self, cycles: int) -> None:
        """A launch has taken so many cycles; the next one begins when the launch overhead is over, too."""
        self.timer_ns += cycles * 1000 // self.model.clock_mhz + self.model.launch_gap_ns

    def __repr__(self) -> str:
        return f"Device({self.name!r})"


class RawModule:
    """A PTX module: ``RawModule(code=text)`` or ``RawModule(path="kernel.ptx")``. Raises PtxError."""

    def __init__(self, code: str | None = None, *, path: str | Path | None = None):
        from .ptx import parse

        if (code is None) == (path is None):
            raise UsageError("RawModule must be given either code or path")
        filename = "<ptx>"
        if path is not None:
            filename = str(path)
            try:
                code = Path(path).read_text()
            except (OSError, ValueError, TypeError) as error:
                raise UsageError(f"path must be a readable PTX file, not {path} ({error})") from error
        if not isinstance(code, str):
            raise UsageError(f"code must be a str, not {type(code).__name__}")
        assert code is not None
        self.module = parse(code, filename=filename)
        self._variables: WeakKeyDictionary[Device, ModuleVariables] = WeakKeyDictionary()

    def get_function(self, name: str) -> RawKernel:
        """Return an entry function. Raises UsageError if there is none of that name."""
        function = self.module.functions.get(name) if isinstance(name, str) else None
        if function is None or not function.is_entry:
            entries = ", ".join(f.name for f in self.module.functions.values() if f.is_entry) or "none"
            raise UsageError(f"kernel must be one of the module's entries ({entries}), not {name}")
        return RawKernel(self, function)

    def variables(self, device: Device) -> ModuleVariables:
        """Return the module's variables on a device; the first launch there allocates them. Raises PtxError."""
        if device not in self._variables:
            self._variables[device] = place_variables(self.module, device.memory)
        return self._variables[device]

    def get_global(self, name: str, device: Device) -> Buffer:
        """Return a ``.global`` or ``.const`` variable on a device as bytes, to be read and written. Raises UsageError if there is
        none of that name."""
        variable = self.module.variables.get(name)
        if variable is None or variable.space not in ("global", "const"):
            names = ", ".join(v.name for v in self.module.variables.values() if v.space in ("global", "const")) or "none"
            raise UsageError(f"variable must be one of the module's .global and .const ones ({names}), not {name}")
        placed = self.variables(device)
        address = placed.addresses[name] + (placed.bank if variable.space == "const" else 0)
        return Buffer(device, address, (variable.size,), np.dtype(np.uint8))


class LaunchOptions(TypedDict, total=False):
    """What a launch may be given by name.

    ``shared_mem``: bytes of dynamic shared memory; ``cluster``: CTAs of a cluster; ``device``: a Device or the name of a model.
    ``values`` "none" computes addresses, control flow and time only. ``checks`` is "on", "strict" (contested rules too) or "off".
    ``trace`` is "full" (every instruction), "units" (waits, barriers, copies, wgmmas), "off" or "auto": full for small launches,
    but for instructions after the first 16 million events. ``max_cycles`` is at most 2^27 unless given.
    ``schedule`` is the seed of the order of warps and units, see :mod:`h100sim.schedules`. ``console`` takes each line that the
    kernel prints. ``sms`` "representative" runs the CTAs of one SM only, as an estimate of the time of all; it needs ``values``
    "none", see :mod:`h100sim.representative`.
    """

    shared_mem: int
    cluster: Sequence[int]
    device: Device | str | None
    values: str
    checks: str
    trace: str
    max_cycles: int | None
    schedule: int
    console: Console
    sms: str


class RawKernel:
    """An entry function that can be launched."""

    def __init__(self, owner: RawModule, function: Function):
        self.owner, self.function = owner, function
        self.name = function.name
        self.max_dynamic_shared_size_bytes = 48 * 1024
        #: Names for reports, set by the DSL: roles, tiles, semaphores (see ``trace.KernelInfo``).
        self.names: dict[str, Any] = {}
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The decoded program (decoded on first use)."""
        if self._program is None:
            from .program import decode

            self._program = decode(self.owner.module, self.function)
        return self._program

    def __call__(
        self, grid: Sequence[int] | int, block: Sequence[int] | int, args: Sequence[Any], **options: Unpack[LaunchOptions]
    ) -> Run:
        """Run the kernel to its end. Arrays among ``args`` are copied to the device and written back."""
        _require_options(options)
        session = self.prepare(grid, block, args, **options)
        try:
            session.machine.start()
            session.machine.run()
            session.machine.keep_l2()
            session.device._let_pass(session.machine.cycles)
        except KernelError as error:
            error.hazards = tuple(session.findings()[0])
            raise
        finally:
            session.write_back()
        run = session.result()
        session.machine.release()
        return run

    def debug(
        self, grid: Sequence[int] | int, block: Sequence[int] | int, args: Sequence[Any], **options: Unpack[LaunchOptions]
    ) -> Debugger:
        """Return a debugger stopped before the first instruction. Takes the arguments of a call, but for ``checks``: they
        read a trace once, from its start to its end, and a debugger goes back."""
        from .debugger import Debugger

        _require_options(options)
        options.setdefault("trace", "full")
        options["checks"] = "off"
        return Debugger(self.prepare(grid, block, args, **options))

    def prepare(
        self,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        cluster: Sequence[int] = (1, 1, 1),
        device: Device | str | None = None,
        values: str = "exact",
        checks: str = "on",
        trace: str = "auto",
        max_cycles: int | None = None,
        schedule: int = 0,
        console: Console = print,
        sms: str = "all",
    ) -> Session:
        """Check a launch as CUDA would, copy its arguments and build the machine. Raises LaunchError, UsageError, PtxError."""
        from .machine import MOST_CYCLES, Launch, Machine

        _require("values", values, _VALUES)
        _require("checks", checks, _CHECKS)
        _require("trace", trace, ("auto", "full", "units", "off"))
        _require("sms", sms, ("all", "representative"))
        if sms != "all" and values != "none":
            raise UsageError(f"values must be none where one SM runs for all (the others' results are missing), not {values}")
        if max_cycles is not None:
            max_cycles = integer("max_cycles", max_cycles, 1, _MOST_CYCLES)
        schedule = integer("schedule", schedule, 0, schedules.SEEDS)
        if schedule and max_cycles is not None:
            max_cycles *= schedules.SLOWDOWN
        gpu = device if isinstance(device, Device) else Device(device or devices.DEFAULT_MODEL)
        if checks != "off" and self._program is None:
            from .checks import compiled_functions
            from .compile_ahead import want

            want(*compiled_functions({instruction.opcode for instruction in self.function.instructions}))
        program = self.program
        dims = tuple(_three(name, value) for name, value in (("grid", grid), ("block", block), ("cluster", cluster)))
        grid3, block3, cluster3 = self._cluster(dims)
        self._check_launch(grid3, block3, cluster3, shared_mem, gpu)
        parameters, copies = self._pack(args, gpu)
        thin = trace == "auto"
        if thin:
            trace = "full" if checks != "off" or sms != "all" or np.prod(grid3) <= 64 else "units"
        level = {"off": 0, "units": 1, "full": 2}[trace]
        if checks != "off":
            level = max(level, 1)
        launch = Launch(
            grid3,
            block3,
            cluster3,
            parameters,
            shared_mem,
            self._registers(block3),
            values == "exact",
            level,
            max_cycles or MOST_CYCLES,
            schedule,
            start_ns=gpu.timer_ns,
        )
        kernel = self.info(launch, gpu)
        constants = self.owner.variables(gpu).constants(gpu.memory)

        def machine_of(launch: Launch, model: devices.DeviceModel) -> Machine:
            return Machine(program, launch, model, gpu.memory, self._symbols(gpu), kernel, constants, gpu.heap, console)

        if sms != "all":
            representative.require_independent(program.function.instructions)
        try:
            if sms == "all":
                machine = machine_of(launch, gpu.model)
            else:
                machine = representative.machine(machine_of, launch, gpu.model, gpu.memory.used_bytes)
        except MemoryError:
            raise LaunchError(f"tables of a launch must fit into the memory of this machine, not those of a grid {grid3}") from None
        return Session(machine, gpu, copies, checks, keep=trace != "off", thin=thin)

    def info(self, launch: Launch, device: Device) -> KernelInfo:
        """Return what readers of the trace need to know."""
        program = self.program
        texts = {name: read_source(name) for name in {s[0] for s in program.sources if s}}
        files = {name: text for name, text in sorted(texts.items()) if text is not None}
        return KernelInfo(
            name=self.name, ptx=self.owner.module.text, lines=program.lines, opcodes=program.opcodes, sources=program.sources,
            grid=launch.grid, block=launch.block, cluster=launch.cluster, device=device.name, clock_mhz=device.model.clock_mhz,
            files=files, roles=tuple(self.names.get("roles", ())), tiles=tuple(self.names.get("tiles", ())),
            semaphores=tuple(self.names.get("semaphores", ())),
        )  # fmt: skip

    # --- the launch, as CUDA judges it --------------------------------------------------------------------------------

    def _cluster(self, dims: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        grid, block, cluster = dims
        required = self.function.directives.get("reqnctapercluster")
        if required:
            fixed = tuple((*required, 1, 1)[:3])
            if cluster not in ((1, 1, 1), fixed):
                raise LaunchError(
                    f"cluster must be the {fixed} of .reqnctapercluster, not {cluster}", rule="cudaErrorInvalidClusterSize"
                )
            cluster = fixed  # type: ignore[assignment]
        return grid, block, cluster

    def _check_launch(
        self, grid: tuple[int, ...], block: tuple[int, ...], cluster: tuple[int, ...], shared_mem: int, gpu: Device
    ) -> None:
        limits = gpu.model.limits
        invalid = "cudaErrorInvalidConfiguration"
        if not isinstance(shared_mem, (int, np.integer)):
            raise LaunchError(
                f"dynamic shared memory must be a number of bytes, not {_kind(shared_mem)}", rule="cudaErrorInvalidValue"
            )
        if shared_mem < 0:
            raise LaunchError(f"dynamic shared memory must be at least 0 bytes, not {shared_mem:,}", rule="cudaErrorInvalidValue")
        if np.prod(grid, dtype=object) > _MOST_CTAS:
            raise LaunchError(f"grid must have at most {_MOST_CTAS:,} CTAs in this simulator, not {np.prod(grid, dtype=object):,}")
        for name, value, most in zip(
            ("grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z"),
            (*grid, *block),
            (2**31 - 1, 65535, 65535, 1024, 1024, 64),
            strict=True,
        ):
            if not 1 <= value <= most:
                raise LaunchError(f"{name} must be from 1 to {most:,}, not {value:,}", rule=invalid)
        threads = int(np.prod(block))
        if threads > limits.threads_per_cta:
            raise LaunchError(f"threads of a CTA must be at most {limits.threads_per_cta:,}, not {threads:,}", rule=invalid)
        required = self.function.directives.get("reqntid")
        if required and tuple((*required, 1, 1)[:3]) != block:
            raise LaunchError(f"block must be the {tuple((*required, 1, 1)[:3])} of .reqntid, not {block}", rule=invalid)
        most_threads = self.function.directives.get("maxntid")
        if most_threads and threads > int(np.prod(most_threads)):
            raise LaunchError(
                f"threads of a CTA must be at most the {int(np.prod(most_threads))} of .maxntid, not {threads}", rule=invalid
            )
        size = int(np.prod(cluster))
        if size > limits.cluster_ctas:
            raise LaunchError(
                f"cluster must have at most {limits.cluster_ctas} CTAs, not {size}", rule="cudaErrorInvalidClusterSize"
            )
        for name, g, k in zip("xyz", grid, cluster, strict=True):
            if g % k:
                raise LaunchError(
                    f"grid.{name} must be a multiple of the cluster's {k}, not {g}", rule="cudaErrorInvalidClusterSize"
                )
        local = self.program.local_bytes
        if local > _LOCAL_BYTES:
            rule = "cudaErrorInvalidValue"
            raise LaunchError(f"local memory of a thread must be at most {_LOCAL_BYTES:,} bytes, not {local:,}", rule=rule)
        attribute = integer("max_dynamic_shared_size_bytes", self.max_dynamic_shared_size_bytes, 0, error=LaunchError)
        dynamic_most = max(attribute, limits.shared_bytes_static)
        total = self.program.dynamic_shared_offset - SHARED_START + shared_mem
        if total > limits.shared_bytes_per_cta or shared_mem > limits.shared_bytes_per_cta:
            raise LaunchError(
                f"shared memory of a CTA must be at most {limits.shared_bytes_per_cta:,} bytes, not {total:,}",
                rule="cudaErrorInvalidValue",
            )
        if shared_mem > dynamic_most:
            raise LaunchError(
                "dynamic shared memory must be at most the kernel's attribute max_dynamic_shared_size_bytes "
                f"({dynamic_most:,}), not {shared_mem:,}",
                rule="cudaErrorInvalidValue",
            )

    def _registers(self, block: tuple[int, int, int]) -> int:
        """Return the registers per thread at entry. Assumed: where PTX fixes a count (.maxnreg) that one; under .maxntid what
        that many threads may have at most, and with setmaxnreg not more than its largest count (seen in what ptxas 13.0
        reports); else 128 or what fits. Measured: ptxas 13.0 raises a count below 24 and ignores one above 255."""
        directives = self.function.directives
        if "maxnreg" in directives and directives["maxnreg"][0] <= _MOST_REGISTERS:
            return max(int(directives["maxnreg"][0]), _LEAST_REGISTERS)
        bound = directives.get("reqntid") or directives.get("maxntid")
        threads = int(np.prod(bound or block))
        ctas = int(directives.get("minnctapersm", (1,))[0])
        warps = -(-threads // 128) * 4
        most = max(min(_MOST_REGISTERS, 65_536 // (warps * 32 * ctas)) & ~7, _LEAST_REGISTERS)
        named = [i.operands[0] for i in self.function.instructions if i.base == "setmaxnreg"]
        counts = [operand.value for operand in named if isinstance(operand, Imm)]
        return min(most, max(counts, default=256)) if bound else min(128, most)

    # --- arguments ----------------------------------------------------------------------------------------------------

    def _pack(self, args: Sequence[Any], gpu: Device) -> tuple[bytes, list[tuple[np.ndarray, int]]]:
        parameters = self.function.parameters
        if not isinstance(args, Sequence) or isinstance(args, str):
            raise LaunchError(f"arguments of kernel {self.name} must be a tuple or a list, not {_kind(args)}")
        if len(args) != len(parameters):
            raise LaunchError(
                f"kernel {self.name} must be given {len(parameters)} arguments, not {len(args)}", rule="cudaErrorInvalidValue"
            )
        data = bytearray(max((p.offset + p.size for p in parameters), default=0))
        copies: list[tuple[np.ndarray, int]] = []
        for k, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
            data[parameter.offset : parameter.offset + parameter.size] = self._argument(k, parameter, value, gpu, copies)
        return bytes(data), copies

    def _argument(self, k: int, parameter: Parameter, value: Any, gpu: Device, copies: list[tuple[np.ndarray, int]]) -> bytes:
        def wrong(must: str) -> LaunchError:
            return LaunchError(f"argument {k} ({parameter.name}) must be {must}, not {_kind(value)}", rule="cudaErrorInvalidValue")

        if isinstance(value, Buffer):
            if value.device is not gpu:
                raise wrong("a buffer of the device that the kernel runs on")
            if parameter.size != 8:
                raise wrong(f"{parameter.size} bytes (a pointer has 8)")
            value = value.address
        if isinstance(value, TensorMap):
            value = bytes(value)
        if isinstance(value, np.ndarray) and value.ndim > 0:
            if parameter.size != 8:
                raise wrong(f"{parameter.size} bytes (a pointer has 8)")
            if value.dtype.kind not in _NUMBERS:
                raise wrong("an array of numbers")
            if not value.flags.c_contiguous:
                raise wrong("a C-contiguous array")
            if not value.flags.writeable:
                raise wrong("an array that can be written")
            address = gpu._upload(value, parameter.name)
            copies.append((value, address))
            return struct.pack("<Q", address)
        if isinstance(value, (bytes, bytearray)):
            raw = bytes(value)
        elif isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in _NUMBERS:
            raw = np.asarray(value).tobytes()
        elif isinstance(value, (bool, int, float)):
            number = _scalar(parameter, value)
            if number is None:
                raise wrong(f"a value of type {parameter.type}")
            raw = number
        else:
            raise wrong("an array, a Buffer, a TensorMap, bytes or a number")
        if len(raw) != parameter.size:
            raise wrong(f"{parameter.size} bytes wide")
        return raw

    def _symbols(self, gpu: Device) -> dict[str, int]:
        """Return the address of every symbol in its own state space."""
        return {
            **function_addresses(self.owner.module),
            **self.owner.variables(gpu).addresses,
            **self.program.static_shared,
            **self.program.local_offsets,
            **{parameter.name: parameter.offset for parameter in self.function.parameters},
        }


def _three(name: str, value: Sequence[int] | int) -> tuple[int, int, int]:
    """Return (x, y, z) from an int or a sequence of one to three."""
    sizes = (value,) if isinstance(value, (int, np.integer)) or not isinstance(value, Sequence) else tuple(value)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(s, (int, np.integer)) for s in sizes):
        raise LaunchError(f"{name} must be one to three integers, not {value!r}")
    if any(s < 1 for s in sizes):
        raise LaunchError(
            f"{name} must be at least 1 in every dimension, not {tuple(int(s) for s in sizes)}",
            rule="cudaErrorInvalidConfiguration",
        )
    x, y, z = (*(int(s) for s in sizes), 1, 1)[:3]
    return x, y, z


def _require(name: str, value: str, legal: Sequence[str]) -> None:
    if value not in legal:
        raise UsageError(f"{name} must be one of {', '.join(legal)}, not {value!r}")


def _require_options(options: Mapping[str, object]) -> None:
    for name in options:
        if name not in LaunchOptions.__annotations__:
            raise UsageError(f"option of a launch must be one of {', '.join(LaunchOptions.__annotations__)}, not {name}")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        order = "" if value.flags.c_contiguous else f" with strides {value.strides}"
        return f"{'an' if value.flags.writeable else 'a read-only'} array of {value.dtype} {value.shape}{order}"
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    return f"{type(value).__name__} {value!r}"[:80]


def _scalar(parameter: Parameter, value: bool | int | float) -> bytes | None:
    """Return the bytes of a Python number as a parameter, or None if it does not fit."""
    if parameter.size > 8:
        return None
    if parameter.type == "f32":
        return struct.pack("<f", value)
    if parameter.type == "f64":
        return struct.pack("<d", value)
    if isinstance(value, float) or not re.match(r"[busp]", parameter.type):
        return None
    try:
        return int(value).to_bytes(parameter.size, "little", signed=value < 0)
    except OverflowError:
        return None
