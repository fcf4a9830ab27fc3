"""The GEMM program: right results in every configuration, no hazards, and PTX lines that belong to Python lines.

Measured: tests/data/tk_gemm.npz has C's bits from an NVIDIA H200 (driver 580.159, CUDA 13.0, 2026-11-29), by
configuration.
"""

from pathlib import Path

import numpy as np
import pytest

import tk_programs
from h100sim.errors import UsageError
from h100sim.ptx import parse

SILICON = np.load(Path(__file__).parents[1] / "data" / "tk_gemm.npz")
CONFIGS = [
    {},
    {"out": "f32"},
    {"m": 384, "n": 192, "k": 128, "bm": 192, "bn": 192, "stages": 2},
    {"m": 64, "n": 64, "k": 64, "bm": 64, "bn": 64, "stages": 1},
    {"m": 128, "n": 512, "k": 128, "bn": 256, "stages": 4},
    {"m": 384, "n": 256, "k": 192, "stages": 3, "ctas": 2},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_product_is_right(config, on):
    kernel = tk_programs.gemm.build(**config)
    inputs = tk_programs.gemm.inputs(1, **config)
    result = kernel.run(*inputs, on=on)
    exact, tolerance = tk_programs.gemm.reference(*inputs)
    assert (np.abs(result.astype(np.float64) - exact) <= tolerance).all()
    np.testing.assert_array_equal(result.view(f"u{result.itemsize}"), SILICON[str(config)], err_msg="bits of an H200")
    if on == "sim":
        assert kernel.last_run.hazards == []


@pytest.mark.parametrize(
    "config, message",
    [
        ({"m": 100}, "m must be a multiple of 128, not 100"),
        ({"bk": 32}, "bk must be a multiple of 64, not 32"),
        ({"bm": 256}, "tile of C must be at most 192 x 256, not 256 x 128"),
        ({"out": "f16"}, "out must be bf16 or f32, not f16"),
        ({"stages": 8}, "shared memory of a CTA must be at most 232,448 bytes, not 262,144 with 8 st<bf16, 64, 128>"),
    ],
)
def test_configurations_that_cannot_be_are_refused(config, message):
    with pytest.raises(UsageError) as error:
        tk_programs.gemm.build(**config)
    assert error.value.message == message


def test_roles_tiles_and_semaphores_have_their_names():
    debug = tk_programs.gemm.build().debug
    assert debug.roles == (("producer", 0, 3), ("consumer 0", 4, 7), ("consumer 1", 8, 11))
    assert [(t["name"], t["offset"], t["shape"], t["count"]) for t in debug.tiles] == [
        ("a", 0x400, (64, 64), (4, 2)),
        ("b", 0x400 + 65536, (64, 128), (4,)),
        ("c", 0x400 + 131072, (64, 128), (2,)),
    ]
    assert [(s["name"], s["offset"], s["count"]) for s in debug.semaphores] == [
        ("full", 0x400 + 163840, 4),
        ("empty", 0x400 + 163872, 4),
    ]
    assert [(r["name"], len(r["registers"])) for r in debug.registers] == [("acc", 64)]


@pytest.mark.parametrize(
    "call", ["tk.wait(empty", "tk.wait(full", "tk.tma.expect_bytes", "tk.warpgroup.arrive", "tk.tma.store_async_wait"]
)
def test_every_synchronising_call_can_be_taken_out_by_its_python_line(call):
    """What a checker must find is made by deleting the PTX of one Python line."""
    kernel = tk_programs.gemm.build()
    with open(tk_programs.gemm.__file__) as source:
        (line,) = (n for n, text in enumerate(source, 1) if text.strip().startswith(call))
    mapped = [n for n, (_, python) in kernel.source_map.items() if python == line]
    lines = kernel.ptx.splitlines()
    whole = len(parse(kernel.ptx).functions["gemm"].instructions)
    for n in mapped:
        lines[n - 1] = ""
    assert whole - 8 <= len(parse("\n".join(lines)).functions["gemm"].instructions) < whole
