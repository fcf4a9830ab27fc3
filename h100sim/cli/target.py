"""What a command is pointed at, a program of the catalogue or a PTX file, made ready to launch, and its launch.

A :class:`Job` holds everything a launch needs; :func:`execute` runs it and returns an :class:`Outcome` whatever the
kernel did, so that a deadlock can be reported, saved and looked at like a clean run.
"""

from __future__ import annotations

import importlib
import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices import DeviceModel
from ..errors import KernelError, UsageError
from .arguments import MOST_BYTES, MapArgument

if TYPE_CHECKING:
    from ..host import Buffer, Device, RawKernel
    from ..session import Run, Session
    from ..tma import TensorMap


@dataclass(frozen=True)
class Accuracy:
    """How far the outputs are from the program's reference.

    ``largest_error`` is absolute; ``of_allowed`` the largest error as a part of what the reference allows that element.
    """

    largest_error: float
    of_allowed: float

    @property
    def is_met(self) -> bool:
        return self.of_allowed <= 1.0


@dataclass(frozen=True)
class Launch:
    """The sizes of a launch: CTAs, threads of a CTA, CTAs of a cluster, bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_mem: int


@dataclass(frozen=True)
class Job:
    """A launch made ready. ``outputs`` are the buffers that ``--save`` numbers; ``accuracy`` judges what they hold."""

    name: str
    config: dict[str, Any]
    function: RawKernel
    launch: Launch
    device: Device
    args: list[Any]
    outputs: list[Buffer]
    accuracy: Callable[[list[np.ndarray]], Accuracy | None]

    def prepare(self, **options: Any) -> Session:
        """Return the prepared launch; what the kernel prints is kept and shown nowhere, unless ``console`` is among the options.
        Raises LaunchError, PtxError and UsageError."""
        options.setdefault("console", _keep_silent)
        return self.function.prepare(
            self.launch.grid,
            self.launch.block,
            self.args,
            shared_mem=self.launch.shared_mem,
            cluster=self.launch.cluster,
            device=self.device,
            **options,
        )


@dataclass(frozen=True)
class Outcome:
    """What a launch did: the run up to its end or to ``error``, the outputs, and the seconds that simulating took; ``schedule``: the
    seed of its order."""

    run: Run
    error: KernelError | None
    outputs: list[np.ndarray]
    accuracy: Accuracy | None
    seconds: float
    schedule: int = 0

    @property
    def status(self) -> str:
        """ "clean", "hazards", "deadlock", "kernel-error" or "inaccurate", the gravest first."""
        if self.error is not None:
            return "deadlock" if type(self.error).__name__ == "DeadlockError" else "kernel-error"
        if self.run.hazards:
            return "hazards"
        return "clean" if self.accuracy is None or self.accuracy.is_met else "inaccurate"

    @property
    def exit_status(self) -> int:
        return int(self.status != "clean")


def is_file(target: str) -> bool:
    """Does the target name a PTX file rather than a program?"""
    return target.endswith((".ptx", ".h1t")) or "/" in target or Path(target).is_file()


def read_ptx(path: str) -> str:
    """Return the text of a PTX file. Raises UsageError."""
    if path.endswith(".h1t"):
        raise UsageError(f"PTX file must be a text, not the trace {path} (h100sim serve shows it)")
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise UsageError(f"PTX file must be a readable text, not {path} ({error})") from None


def program(name: str) -> Any:
    """Return the module of a program. Raises UsageError, naming those that there are."""
    import tk_programs

    names = [entry.name for entry in tk_programs.catalog()]
    if name not in names:
        raise UsageError(f"program must be one of {', '.join(names)}{'' if is_file(name) else ', or a .ptx file'}, not {name}")
    return importlib.import_module(f"tk_programs.{name}")


def program_kernel(name: str, settings: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Return (module, kernel, configuration) of a program built with settings. Raises UsageError."""
    module = program(name)
    known = inspect.signature(module.build).parameters
    for setting in settings:
        if setting not in known:
            raise UsageError(f"setting of {name} must be one of {', '.join(known)}, not {setting}")
        default = module.CONFIG.get(setting, known[setting].default)
        if isinstance(default, int) and not isinstance(settings[setting], int):
            raise UsageError(f"{setting} of {name} must be an integer, not {settings[setting]}")
    config = {**module.CONFIG, **settings}
    try:
        return module, module.build(**config), config
    except TypeError as error:
        raise UsageError(f"settings of {name} must be of the types that build takes, not {settings} ({error})") from None


def program_job(name: str, settings: dict[str, Any], seed: int, device_name: str | DeviceModel) -> Job:
    """Return the job of a program with its own inputs. Raises UsageError."""
    module, kernel, config = program_kernel(name, settings)
    from ..host import Device

    device = Device(device_name)
    # Sizes with names are those of the inputs.
    shapes = [(tuple(k for k in a.layout.shape if isinstance(k, int)), a.layout.dtype) for a in kernel.arguments]
    size = sum(math.prod(shape) * dtype.size_bytes for shape, dtype in shapes)
    if size > MOST_BYTES:
        raise UsageError(f"arrays of {name} must have at most {MOST_BYTES:,} bytes in all, as an H100 has memory, not {size:,}")
    try:
        inputs = module.inputs(seed, **config)
        buffers = kernel.upload(kernel.arrays(*inputs), device)
    except MemoryError:
        raise UsageError(f"arrays of {name} must fit into the memory of this machine, not have {size:,} bytes") from None
    # What the result should be may depend on settings that the inputs do not show (causal).
    wanted = {key: value for key, value in config.items() if key in inspect.signature(module.reference).parameters}
    return Job(
        name=name,
        config=config,
        function=kernel.function(),
        launch=Launch(kernel.grid, kernel.block, kernel.cluster, kernel.shared_bytes),
        device=device,
        args=kernel.launch_args(*buffers, address_of=lambda buffer: buffer.address),
        outputs=[buffer for buffer, a in zip(buffers, kernel.arguments, strict=True) if a.is_output],
        accuracy=lambda outputs: accuracy_of(module.reference(*inputs, **wanted), outputs),
    )


def file_job(
    path: str,
    kernel: str | None,
    launch: Launch,
    args: Sequence[Any],
    device_name: str | DeviceModel,
) -> Job:
    """Return the job of an entry of a PTX file. ``kernel`` may be left out where the file has one entry."""
    from ..host import Device, RawModule

    read_ptx(path)
    module, device = RawModule(path=path), Device(device_name)
    function = module.get_function(kernel or only_entry(module.module))
    function.max_dynamic_shared_size_bytes = max(launch.shared_mem, function.max_dynamic_shared_size_bytes)
    buffers: list[Buffer] = []
    values = [_on_device(k, value, device, buffers) for k, value in enumerate(args)]
    return Job(Path(path).name, {}, function, launch, device, values, buffers, lambda outputs: None)


def only_entry(module: Any) -> str:
    """Return the name of a module's one entry. Raises UsageError if there are more, or none."""
    entries = [function.name for function in module.functions.values() if function.is_entry]
    if len(entries) != 1:
        raise UsageError(f"--kernel must name one of the file's entries ({', '.join(entries) or 'it has none'})")
    return entries[0]


def _keep_silent(line: str) -> None:
    """Show nothing."""


#: Instructions and events after which a long run says how far it is: a second or so.
_SLICE = 1 << 21


def execute(job: Job, progress: Callable[[int, int, int], None] | None = None, **options: Any) -> Outcome:
    """Run a job to its end or to what stops it. Raises what CUDA would refuse (UsageError, LaunchError, PtxError).

    ``progress`` is told now and then how many CTAs have ended, of how many, and the cycle.
    """
    started = time.perf_counter()
    session = job.prepare(**options)
    error = None
    try:
        machine = session.machine
        machine.start()
        steps = _SLICE
        while not machine.run(max_steps=steps if progress else None):
            steps += _SLICE
            if progress:
                progress(int(machine.context["ctas_done"]), int(machine.context["n_ctas"]), machine.cycles)
    except KernelError as stopped:
        error = stopped
    run = session.result()
    seconds = time.perf_counter() - started
    outputs = [buffer.numpy() for buffer in job.outputs]
    judged = error is None and options.get("values", "exact") == "exact"
    return Outcome(run, error, outputs, job.accuracy(outputs) if judged else None, seconds, options.get("schedule", 0))


def accuracy_of(reference: Any, outputs: Sequence[np.ndarray]) -> Accuracy:
    """Compare outputs with (values, allowed absolute error), or with one such pair for each output."""
    pairs = [reference] if len(outputs) == 1 else list(reference)
    largest = of_allowed = 0.0
    for (expected, allowed), output in zip(pairs, outputs, strict=True):
        error = np.abs(np.asarray(output, np.float64) - np.asarray(expected, np.float64))
        error = np.where(np.isnan(error), np.inf, error)
        allowed = np.broadcast_to(np.asarray(allowed, np.float64), error.shape)
        ratio = np.divide(error, allowed, out=np.where(error > 0, np.inf, 0.0), where=allowed > 0)
        largest, of_allowed = max(largest, float(error.max())), max(of_allowed, float(ratio.max()))
    return Accuracy(largest, of_allowed)


def tensor_map(argument: MapArgument, address: int) -> TensorMap:
    """Return the tensor map of an array at an address (text forms have sizes outermost first, maps innermost first)."""
    from ..tma import TensorMap

    array = argument.array
    return TensorMap.tiled(
        argument.element.name,
        address,
        tuple(reversed(array.shape)),
        tuple(reversed(array.strides))[1:],
        tuple(reversed(argument.box)),
        **argument.settings,
    )


def _on_device(k: int, value: Any, device: Device, buffers: list[Buffer]) -> Any:
    """Return a launch argument; arrays become buffers, which are numbered in the order of the arguments."""
    array = value.array if isinstance(value, MapArgument) else value
    if not isinstance(array, np.ndarray):
        return value
    buffer = device.asarray(array, name=f"argument {k}")
    buffers.append(buffer)
    return tensor_map(value, buffer.address) if isinstance(value, MapArgument) else buffer
