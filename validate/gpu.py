"""The same PTX on a Hopper GPU: loads the text with CuPy, launches it with the driver, reads the results back.

:func:`launch` takes what the simulator's kernels take; :func:`run` takes a ``tk.Kernel``. Tensor maps are passed as the
128 bytes of a ``__grid_constant__`` parameter, encoded for the addresses of this GPU. A kernel that stops with an error
raises the exception that the simulator would raise; the CUDA context is then lost, and the process must end.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from h100sim.errors import (
    DeadlockError,
    IllegalInstruction,
    KernelError,
    LaunchError,
    MisalignedAddress,
    OutOfRange,
    PtxError,
    Trap,
    UsageError,
)

from . import clocks

#: What memory holds before a kernel writes it, as in the simulator's uninitialised shared memory.
POISON = 0xCD

#: CUresult values that a kernel can cause. Spec: CUDA Driver API 13.0, "Data types used by CUDA driver", CUresult.
_KERNEL_ERRORS: dict[int, type[KernelError]] = {
    700: OutOfRange,
    710: Trap,
    715: IllegalInstruction,
    716: MisalignedAddress,
}
_NOT_READY = 600
_LAUNCH_ERRORS = (1, 701, 719, 912)


@dataclass(frozen=True)
class Card:
    """The GPU, the software and the day of a measurement: what every file under validate/silicon starts with."""

    card: str
    sms: int
    driver: str
    cuda: str
    cupy: str
    date: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class GpuRun:
    """What a launch did: the GPU, the time from event to event, and clock records (CTAs, threads) if asked for."""

    card: Card
    milliseconds: float
    records: np.ndarray | None = None

    @property
    def cta_cycles(self) -> np.ndarray:
        """Cycles of each CTA. Raises UsageError if the launch did not record clocks."""
        if self.records is None:
            raise UsageError("launch must have been made with record_clocks=True, not without")
        return clocks.cycles_of(self.records)


def require() -> tuple[Any, Any]:
    """Return CuPy and the driver bindings. Raises UsageError, in words, where they or a Hopper GPU are missing."""
    try:
        import cupy
        from cuda.bindings import driver
    except ImportError as error:
        raise UsageError(f"a run on silicon must have CuPy and cuda-bindings (pip install -e '.[gpu]'): {error}") from None
    try:
        capability = cupy.cuda.Device().compute_capability
    except Exception as error:
        raise UsageError(f"a run on silicon must have a GPU of compute capability 9.0, not none ({error})") from None
    if capability != "90":
        raise UsageError(f"a run on silicon must have a GPU of compute capability 9.0, not {capability[:-1]}.{capability[-1]}")
    return cupy, driver


@functools.cache
def card() -> Card:
    """Return what the GPU and its software are. Raises UsageError without one."""
    cupy, _ = require()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    version = cupy.cuda.runtime.driverGetVersion()
    return Card(
        card=properties["name"].decode(),
        sms=int(properties["multiProcessorCount"]),
        driver=_driver_release(),
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        cupy=cupy.__version__,
        date=datetime.date.today().isoformat(),
    )


def _driver_release() -> str:
    """Return the release of the kernel driver, such as "580.159", or "unknown"."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "unknown"
    query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return answer[0] if answer else "unknown"


class Memory:
    """Device memory for one launch: arrays go up once, whoever asks for their address, and come back together."""

    def __init__(self) -> None:
        self._cupy, _ = require()
        self._held: list[tuple[np.ndarray, Any]] = []

    def address_of(self, array: np.ndarray) -> int:
        """Return the device address of an array (at least 256-byte aligned), copying it there on first use."""
        for known, pointer in self._held:
            if known is array:
                return int(pointer.ptr)
        if not array.flags.c_contiguous:
            raise LaunchError("argument must be a C-contiguous array, not a strided view")
        pointer = self._cupy.cuda.alloc(max(array.nbytes, 1))
        pointer.copy_from_host(array.ctypes.data_as(ctypes.c_void_p), array.nbytes)
        self._held.append((array, pointer))
        return int(pointer.ptr)

    def write_back(self) -> None:
        """Copy every array back to the host, in place."""
        for array, pointer in self._held:
            if array.flags.writeable:
                pointer.copy_to_host(array.ctypes.data_as(ctypes.c_void_p), array.nbytes)


def launch(
    ptx: str,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    *,
    shared_mem: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
    memory: Memory | None = None,
    record_clocks: bool = False,
    read: Mapping[str, np.ndarray] | None = None,
    times: int = 1,
    timeout_s: float = 20.0,
) -> GpuRun:
    """Run an entry of a PTX text, ``times`` times, one launch queued behind the other. Arrays among ``args`` are copied to the GPU
    and written back.

    ``args`` are those of the simulator's kernels: arrays, TensorMaps for addresses of ``memory``, bytes and numbers.
    An argument may also be a function that is given ``memory.address_of`` and returns one of these. ``record_clocks``
    runs the text with clock records (see :mod:`validate.clocks`); ``read`` names variables of the module and the arrays
    (C-contiguous) that receive their bytes. Raises PtxError, LaunchError, the
    KernelError of what the kernel did, or DeadlockError after ``timeout_s`` seconds.
    """
    cupy, driver = require()
    memory = memory or Memory()
    grid3, block3, cluster3 = ((*map(int, dims), 1, 1)[:3] for dims in (grid, block, cluster))
    ctas, threads = int(np.prod(grid3)), int(np.prod(block3))
    module = _load(cupy, clocks.add_clock_records(ptx, name, ctas * threads) if record_clocks else ptx)
    kernel = module.get_function(name)
    kernel.max_dynamic_shared_size_bytes = shared_mem
    function = driver.CUfunction(int(kernel.kernel.ptr))
    values, pointers = _parameters(driver, function, args, memory)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    config = _config(driver, function, grid3, block3, cluster3, shared_mem)
    begin.record()
    for _ in range(times):
        _check(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)[0], name)
    end.record()
    _wait(driver, name, timeout_s)
    del values
    memory.write_back()
    for variable, array in (read or {}).items():
        module.get_global(variable).copy_to_host(array.ctypes.data_as(ctypes.c_void_p), array.nbytes)
    records = _records(module, ctas, threads) if record_clocks else None
    return GpuRun(card(), cupy.cuda.get_elapsed_time(begin, end), records)


def run(kernel: Any, arrays: Sequence[np.ndarray], *, record_clocks: bool = False, timeout_s: float = 20.0) -> GpuRun:
    """Run a ``tk.Kernel`` on its arrays, in the order of its arguments; outputs are written in place."""
    memory = Memory()
    args = kernel.launch_args(*arrays, address_of=memory.address_of)
    return launch(
        kernel.ptx, kernel.name, kernel.grid, kernel.block, args,
        shared_mem=kernel.shared_bytes, cluster=kernel.cluster, memory=memory, record_clocks=record_clocks,
        timeout_s=timeout_s,
    )  # fmt: skip


def times(kernel: Any, arrays: Sequence[np.ndarray], warm_ups: int, launches: int, timeout_s: float = 20.0) -> list[float]:
    """Return the milliseconds of each of ``launches`` of a ``tk.Kernel`` on arrays that stay on the GPU, after others that
    warm it up. The arrays are not read back.
    """
    cupy, driver = require()
    memory = Memory()
    args = kernel.launch_args(*arrays, address_of=memory.address_of)
    _, function, config = _loaded(kernel, kernel.ptx)
    values, pointers = _parameters(driver, function, args, memory)
    found = []
    for _ in range(warm_ups + launches):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        _check(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)[0], kernel.name)
        end.record()
        _wait(driver, kernel.name, timeout_s)
        found.append(cupy.cuda.get_elapsed_time(begin, end))
    del values
    return found[warm_ups:]


def cta_cycles(
    kernel: Any, arrays: Sequence[np.ndarray], warm_ups: int, launches: int, timeout_s: float = 20.0
) -> list[np.ndarray]:
    """Return the cycles of each CTA in each of ``launches`` of a ``tk.Kernel``, after others that warm the GPU up. The kernel is loaded
    once, its arrays go up for each launch and are not read back."""
    _, driver = require()
    ctas, threads = int(np.prod(kernel.grid)), int(np.prod(kernel.block))
    module, function, config = _loaded(kernel, clocks.add_clock_records(kernel.ptx, kernel.name, ctas * threads))
    found = []
    for _ in range(warm_ups + launches):
        memory = Memory()
        args = kernel.launch_args(*arrays, address_of=memory.address_of)
        values, pointers = _parameters(driver, function, args, memory)
        _check(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)[0], kernel.name)
        _wait(driver, kernel.name, timeout_s)
        del values
        found.append(clocks.cycles_of(_records(module, ctas, threads)))
    return found[warm_ups:]


def _loaded(kernel: Any, ptx: str) -> tuple[Any, Any, Any]:
    """Return the module, the function and the launch configuration of a ``tk.Kernel`` with this text."""
    cupy, driver = require()
    module = _load(cupy, ptx)
    loaded = module.get_function(kernel.name)
    loaded.max_dynamic_shared_size_bytes = kernel.shared_bytes
    function = driver.CUfunction(int(loaded.kernel.ptr))
    return module, function, _config(driver, function, kernel.grid, kernel.block, kernel.cluster, kernel.shared_bytes)


def poisoned(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return an array of POISON bytes: what a kernel leaves unwritten shows."""
    return np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, POISON, np.uint8).view(dtype).reshape(tuple(shape))


def _load(cupy: Any, ptx: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        module = cupy.RawModule(path=str(path))
        try:
            module.compile()
        except cupy.cuda.driver.CUDADriverError as error:
            raise PtxError(f"PTX text must be what the driver's assembler accepts, not this ({error})") from None
    return module


def _config(driver: Any, function: Any, grid: tuple, block: tuple, cluster: tuple, shared_mem: int) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes, config.hStream = shared_mem, 0
    if cluster != (1, 1, 1):
        dimension = driver.CUlaunchAttribute()
        dimension.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension.value.clusterDim.x, dimension.value.clusterDim.y, dimension.value.clusterDim.z = cluster
        config.attrs, config.numAttrs = [dimension], 1
        if np.prod(cluster) > 8:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            driver.cuFuncSetAttribute(function, attribute, 1)
    return config


def _parameters(driver: Any, function: Any, args: Sequence[Any], memory: Memory) -> tuple[list[Any], Any]:
    """Return the values of the parameters and the array of pointers to them that the driver takes."""
    values = []
    for k, value in enumerate(args):
        status, _, size = driver.cuFuncGetParamInfo(function, k)
        if int(status):
            raise LaunchError(f"kernel must be given {k} arguments, not {len(args)}")
        raw = _bytes(k, value, int(size), memory)
        values.append(ctypes.create_string_buffer(raw, len(raw)))
    if not int(driver.cuFuncGetParamInfo(function, len(args))[0]):
        raise LaunchError(f"kernel must be given more than {len(args)} arguments")
    return values, (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))


def _bytes(k: int, value: Any, size: int, memory: Memory) -> bytes:
    if callable(value):
        value = value(memory.address_of)
    if isinstance(value, np.ndarray) and value.ndim > 0:
        value = memory.address_of(value)
    if isinstance(value, np.ndarray | np.generic):
        raw = np.asarray(value).tobytes()
    elif isinstance(value, float):
        raw = struct.pack("<f" if size == 4 else "<d", value)
    elif isinstance(value, int):
        raw = int(value).to_bytes(size, "little", signed=value < 0)
    else:
        raw = bytes(value)
    if len(raw) != size:
        raise LaunchError(f"argument {k} must be {size} bytes wide, not {len(raw)}")
    return raw


def _wait(driver: Any, name: str, timeout_s: float) -> None:
    """Wait for the launch. A kernel that hangs keeps the GPU busy until the process ends."""
    limit = time.monotonic() + timeout_s
    while int(status := driver.cuStreamQuery(0)[0]) == _NOT_READY:
        if time.monotonic() > limit:
            raise DeadlockError(f"kernel {name} must end within {timeout_s:g} s, but it was still running then")
        time.sleep(0.0005)
    _check(status, name)


def _check(status: Any, name: str) -> None:
    code = int(status)
    if code in _KERNEL_ERRORS:
        raise _KERNEL_ERRORS[code](f"kernel {name} must not stop with {status.name}, but the GPU reports it")
    if code in _LAUNCH_ERRORS:
        raise LaunchError(f"launch of {name} must be one that CUDA accepts, not {status.name}")
    if code:
        raise KernelError(f"kernel {name} must end without an error, not {status.name}")


def _records(module: Any, ctas: int, threads: int) -> np.ndarray:
    pointer = module.get_global(clocks.VARIABLE)
    records = np.zeros((ctas, threads), clocks.RECORD)
    pointer.copy_to_host(records.ctypes.data_as(ctypes.c_void_p), records.nbytes)
    return records
