"""What the public functions say of arguments that make no sense: one sentence, and never an error of Python or NumPy."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import h100sim
from h100sim.errors import H100SimError, LaunchError, TensorMapError, UsageError

OPCODE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
PTX = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry kernel() { %s ret; }\n"


def tiled(**changes: Any) -> h100sim.TensorMap:
    given = {"dtype": "f32", "address": 1 << 16, "dims": (64, 64), "strides": (256,), "box": (32, 32)} | changes
    return h100sim.TensorMap.tiled(**given)


def im2col(**changes: Any) -> h100sim.TensorMap:
    given = {"dtype": "f32", "address": 1 << 16, "dims": (16, 8, 8, 4), "strides": (64, 512, 4096), "lower_corner": (0, 0)}
    given |= {"upper_corner": (0, 0), "channels_per_pixel": 16, "pixels_per_column": 8}
    return h100sim.TensorMap.im2col(**given | changes)


def load(m: Any = None, coords: Any = (0, 0), memory: Any = None, shared: Any = None, dst: Any = 0, **more: Any) -> int:
    held = h100sim.GlobalMemory()
    address = held.upload(np.zeros((64, 64), np.float32))
    window = np.zeros(1 << 14, np.uint8) if shared is None else shared
    return h100sim.tma_load(m or tiled(address=address), coords, held if memory is None else memory, window, dst, **more)


def launch(body: str = "", **options: Any) -> h100sim.Run:
    return h100sim.RawModule(code=PTX % body).get_function("kernel")((1,), (32,), (), **options)


def take(value: Any) -> h100sim.Run:
    text = PTX.replace("kernel()", "kernel(.param .u64 x)") % ""
    return h100sim.RawModule(code=text).get_function("kernel")((1,), (32,), (value,))


def debugger() -> h100sim.Debugger:
    return h100sim.RawModule(code=PTX % "").get_function("kernel").debug((1,), (32,), ())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: h100sim.wgmma(None, 0, 0, 0), H100SimError, "opcode must be wgmma"),
        (lambda: h100sim.fragment(None, "a"), H100SimError, "instruction must be wgmma"),
        (lambda: h100sim.operand_addresses(OPCODE, "a", None), UsageError, "descriptor must be an integer, not None"),
        (lambda: h100sim.operand_addresses(OPCODE, "a", 1.5), UsageError, "descriptor must be an integer, not 1.5"),
        (lambda: h100sim.operand_addresses(OPCODE, "a", -1), UsageError, "descriptor must be from 0 to "),
        (lambda: h100sim.operand_addresses(OPCODE, "a", 1 << 64), UsageError, "descriptor must be from 0 to "),
        (lambda: tiled(dims=(64.5, 64)), TensorMapError, r"tensor map dims\[0\] must be an integer, not 64.5"),
        (lambda: tiled(dims=64), TensorMapError, "tensor map dims must be a sequence of integers, not 64"),
        (lambda: tiled(dims="ab"), TensorMapError, "tensor map dims must be a sequence of integers, not 'ab'"),
        (lambda: tiled(address=None), TensorMapError, "tensor map address must be an integer, not None"),
        (lambda: tiled(strides=(float("nan"),)), TensorMapError, r"tensor map strides\[0\] must be an integer, not nan"),
        (lambda: im2col(lower_corner=(0.5, 0)), TensorMapError, r"tensor map lower_corner\[0\] must be an integer, not 0.5"),
        (lambda: im2col(channels_per_pixel=None), TensorMapError, "tensor map channels_per_pixel must be an integer, not None"),
        (lambda: load(coords=None), UsageError, "coordinates must be a sequence of integers, not None"),
        (lambda: load(coords=(0.5, 0)), UsageError, r"coordinates\[0\] must be an integer, not 0.5"),
        (lambda: load(dst=1.0), UsageError, "shared address must be an integer, not 1.0"),
        (lambda: load(m=b"map"), UsageError, "tensor map must be a TensorMap, not bytes"),
        (lambda: load(memory=b""), UsageError, "memory must be a GlobalMemory, not bytes"),
        (lambda: load(shared=[0]), UsageError, "shared memory must be a uint8 array of one dimension, not list"),
        (
            lambda: load(shared=np.frombuffer(bytes(1 << 14), np.uint8)),
            UsageError,
            "shared memory must be an array that can be written",
        ),
        (lambda: h100sim.GlobalMemory().upload(None), UsageError, "array must have numbers, not object"),
        (lambda: h100sim.GlobalMemory().download("x", np.zeros(3)), UsageError, "address must be an integer, not 'x'"),
        (lambda: h100sim.GlobalMemory().download(0, None), UsageError, "like must be an array of numbers, not object"),
        (lambda: h100sim.RawModule(path=5), UsageError, "path must be a readable PTX file, not 5"),
        (lambda: h100sim.RawModule(path="a\0b"), UsageError, "path must be a readable PTX file"),
        (lambda: launch(max_cycles=1 << 70), UsageError, "max_cycles must be from 1 to "),
        (lambda: launch(max_cycles=0), UsageError, "max_cycles must be from 1 to "),
        (lambda: launch(schedule="x"), UsageError, "schedule must be an integer, not 'x'"),
        (
            lambda: launch(".local .b8 s[524289]; .reg .b32 %r; ld.local.u8 %r, [s];"),
            LaunchError,
            "local memory of a thread must be at most 524,288 bytes, not ",
        ),
        (lambda: launch(foo=1), UsageError, "option of a launch must be one of shared_mem, cluster, .*, sms, not foo$"),
        (
            lambda: h100sim.RawModule(code=PTX % "").get_function("kernel").debug((1,), (32,), (), foo=1),
            UsageError,
            "option of a launch must be one of shared_mem, cluster, .*, sms, not foo$",
        ),
        (
            lambda: h100sim.Device().asarray(np.broadcast_to(np.float32(0), (1 << 38,))),
            UsageError,
            "array 'buffer' and what the device holds must fit into the memory of this machine, not have 1,099,511,627,776 bytes more$",
        ),
        (lambda: h100sim.Device().asarray(np.array(["abc"])), UsageError, "array must have numbers, not <U3$"),
        (
            lambda: take(np.array(["abc"])),
            LaunchError,
            r"argument 0 \(x\) must be an array of numbers, not an array of <U3 \(1,\)$",
        ),
        (
            lambda: take(np.datetime64("2026-01-01")),
            LaunchError,
            r"argument 0 \(x\) must be an array, a Buffer, a TensorMap, bytes or a number, not datetime64 ",
        ),
        (
            lambda: take(np.zeros((4, 8), np.float32)[:, :4]),
            LaunchError,
            r"argument 0 \(x\) must be a C-contiguous array, not an array of float32 \(4, 4\) with strides \(32, 4\)$",
        ),
        (
            lambda: take(np.broadcast_to(np.float32(0), (1,))),
            LaunchError,
            r"argument 0 \(x\) must be an array that can be written, not a read-only array of float32 \(1,\)$",
        ),
        (lambda: debugger().step(1.5), UsageError, "number of steps must be an integer, not 1.5"),
        (lambda: debugger().step(-1), UsageError, "number of steps must be at least 0, not -1"),
        (lambda: debugger().step_back(None), UsageError, "number of steps must be an integer, not None"),
        (lambda: debugger().run_to(cycle=float("nan")), UsageError, "cycle must be an integer, not nan"),
        (lambda: debugger().run_to(event="Issued"), UsageError, "event must be an integer, not 'Issued'"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(call: Callable[[], object], error: type, message: str) -> None:
    with pytest.raises(error, match=f"(?m)^{message}"):
        call()


def test_sizes_may_be_arrays_of_numpy() -> None:
    given = {"address": np.uint64(1 << 16), "dims": np.array([64, 64]), "strides": np.array([256]), "box": np.array([32, 32])}
    assert tiled(**given) == tiled()


def test_a_damaged_trace_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    whole = tmp_path / "whole.h1t"
    launch().trace.save(whole)
    data = whole.read_bytes()
    damaged = tmp_path / "damaged.h1t"
    for position in range(0, len(data), 37):
        for changed in (data[:position], data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]):
            damaged.write_bytes(changed)
            try:
                h100sim.Trace.load(damaged)
            except UsageError as error:
                assert "trace f" in str(error)


def test_a_zip_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.h1t"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", '{"format": "h100sim-trace", "version": 1}')
    with pytest.raises(UsageError, match="trace file must be one that h100sim wrote"):
        h100sim.Trace.load(path)
