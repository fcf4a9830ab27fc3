"""The way to a GPU, walked with stand-ins for CuPy and the driver: packing, clusters, write-back, errors, limits.

What a GPU computes is tested on one (``pytest --gpu``) and by the captures; here it is the calls that are looked at.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from h100sim.errors import DeadlockError, IllegalInstruction, LaunchError, OutOfRange, UsageError
from validate import gpu

SIZES = (8, 128, 4)


class FakeDriver:
    """The few calls of ``cuda.bindings.driver`` that a launch makes. ``status`` is what the stream reports."""

    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED=13)
    CUfunction = staticmethod(lambda pointer: pointer)
    CUlaunchConfig = SimpleNamespace

    def __init__(self, status: int = 0):
        self.status, self.launches = status, []

    @staticmethod
    def CUlaunchAttribute() -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuFuncSetAttribute(self, *given: Any) -> tuple[int]:  # noqa: N802
        return (0,)

    def cuFuncGetParamInfo(self, function: int, k: int) -> tuple[int, int, int]:  # noqa: N802
        return (0, 0, SIZES[k]) if k < len(SIZES) else (1, 0, 0)

    def cuLaunchKernelEx(self, config: Any, function: int, pointers: int, extra: int) -> tuple[int]:  # noqa: N802
        table = (ctypes.c_void_p * len(SIZES)).from_address(pointers)
        raw = [ctypes.string_at(at, size) for at, size in zip(table, SIZES, strict=True)]
        self.launches.append((config, raw))
        # The "kernel": add one to the first byte of the array whose address is the first parameter.
        ctypes.c_uint8.from_address(int.from_bytes(raw[0], "little")).value += 1
        return (0,)

    def cuStreamQuery(self, stream: int) -> tuple[Any]:  # noqa: N802
        return (Status(self.status),)


class Status(int):
    name = "CUDA_ERROR_OF_THE_TEST"


class FakePointer:
    """Device memory that is a host buffer."""

    def __init__(self, size: int):
        self.buffer = ctypes.create_string_buffer(size)
        self.ptr = ctypes.addressof(self.buffer)

    def copy_from_host(self, pointer: ctypes.c_void_p, size: int) -> None:
        ctypes.memmove(self.ptr, pointer, size)

    def copy_to_host(self, pointer: ctypes.c_void_p, size: int) -> None:
        ctypes.memmove(pointer, self.ptr, size)


def fake_cupy() -> SimpleNamespace:
    event = SimpleNamespace(record=lambda: None)
    kernel = SimpleNamespace(kernel=SimpleNamespace(ptr=1), max_dynamic_shared_size_bytes=0)
    module = SimpleNamespace(compile=lambda: None, get_function=lambda name: kernel)
    driver = SimpleNamespace(CUDADriverError=RuntimeError)
    cuda = SimpleNamespace(alloc=FakePointer, Event=lambda: event, get_elapsed_time=lambda a, b: 0.5, driver=driver)
    return SimpleNamespace(cuda=cuda, RawModule=lambda path: module)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake, cupy = FakeDriver(), fake_cupy()
    monkeypatch.setattr(gpu, "require", lambda: (cupy, fake))
    monkeypatch.setattr(gpu, "card", lambda: gpu.Card("a card", 132, "1", "13.0", "14", "2026-11-29"))
    return fake


def start(*args: Any, **options: Any) -> gpu.GpuRun:
    return gpu.launch("", "kernel", (2,), (32,), args, **options)


def test_arguments_reach_the_kernel_and_arrays_come_back(driver: FakeDriver) -> None:
    array = np.zeros(4, np.uint8)
    run = start(array, bytes(range(128)), np.float32(1.5))
    config, raw = driver.launches[0]
    assert (config.gridDimX, config.gridDimY, config.blockDimX, config.blockDimZ) == (2, 1, 32, 1)
    assert raw[1] == bytes(range(128)) and raw[2] == np.float32(1.5).tobytes()
    assert array.tolist() == [1, 0, 0, 0]
    assert run.milliseconds == 0.5


def test_numbers_take_the_width_of_their_parameter(driver: FakeDriver) -> None:
    start(np.zeros(1, np.uint8), bytes(128), -1)
    assert driver.launches[0][1][2] == b"\xff" * 4


def test_an_array_goes_up_once(driver: FakeDriver) -> None:
    memory = gpu.Memory()
    array = np.zeros(4, np.uint8)
    assert memory.address_of(array) == memory.address_of(array) != memory.address_of(array.copy())


def test_a_cluster_is_asked_for(driver: FakeDriver) -> None:
    start(np.zeros(1, np.uint8), bytes(128), 0, cluster=(2, 1, 1))
    (attribute,) = driver.launches[0][0].attrs
    assert vars(attribute.value.clusterDim) == {"x": 2, "y": 1, "z": 1}


@pytest.mark.parametrize(("status", "kind"), [(700, OutOfRange), (715, IllegalInstruction)])
def test_what_the_kernel_did_is_the_simulators_error(driver: FakeDriver, status: int, kind: type[Exception]) -> None:
    driver.status = status
    with pytest.raises(kind, match=r"^kernel kernel must not stop with CUDA_ERROR_OF_THE_TEST, but the GPU reports it$"):
        start(np.zeros(1, np.uint8), bytes(128), 0)


def test_a_kernel_that_does_not_end_is_given_up(driver: FakeDriver) -> None:
    driver.status = 600
    with pytest.raises(DeadlockError, match=r"^kernel kernel must end within 0\.01 s, but it was still running then$"):
        start(np.zeros(1, np.uint8), bytes(128), 0, timeout_s=0.01)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(1, np.uint8), bytes(64), 0), r"^argument 1 must be 128 bytes wide, not 64$"),
        ((np.zeros(1, np.uint8), bytes(128)), r"^kernel must be given more than 2 arguments$"),
        ((np.zeros(1, np.uint8), bytes(128), 0, 0), r"^kernel must be given 3 arguments, not 4$"),
        ((np.zeros((2, 2), np.uint8).T, bytes(128), 0), r"^argument must be a C-contiguous array, not a strided view$"),
    ],
)
def test_wrong_arguments_are_told(driver: FakeDriver, args: tuple, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        start(*args)


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UsageError, match=r"^a run on silicon must have CuPy and cuda-bindings \(pip install -e '\.\[gpu\]'\)"):
        gpu.require()


def test_launches_are_timed_on_arrays_that_stay(driver: FakeDriver) -> None:
    array = np.zeros(16, np.uint8)
    kernel = SimpleNamespace(
        ptx="", name="k", grid=(2, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), shared_bytes=0,
        launch_args=lambda *arrays, address_of: [address_of(arrays[0]), bytes(128), 7],
    )  # fmt: skip
    assert gpu.times(kernel, [array], warm_ups=2, launches=3) == [0.5] * 3
    addresses = {raw[0] for _, raw in driver.launches}
    assert len(driver.launches) == 5 and len(addresses) == 1 and array[0] == 0


def test_poison_fills_every_byte() -> None:
    assert gpu.poisoned((2, 3), np.float32).view(np.uint8).tolist() == [[0xCD] * 12] * 2
