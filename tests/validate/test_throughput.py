"""What speeds are made of: operations counted, arrays of the right types, programs that exist and can be built."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.cli.target import program_kernel
from validate import throughput


@pytest.mark.parametrize(
    "name, config, flop",
    [
        ("gemm", {"m": 2, "n": 3, "k": 5}, 60),
        ("matmul", {"m": 2, "n": 3, "k": 5}, 60),
        ("attention", {"batch": 2, "heads": 3, "n": 10, "d": 4}, 4 * 6 * 100 * 4),
        ("attention", {"batch": 2, "heads": 3, "n": 10, "d": 4, "causal": True}, 2 * 6 * 100 * 4),
        ("attention_backward", {"batch": 1, "heads": 1, "n": 10, "d": 4}, 10 * 100 * 4),
    ],
)
def test_operations_are_those_of_the_products(name, config, flop):
    assert throughput.flop_of(name, config) == flop


@pytest.mark.parametrize("name, config, kind", throughput.CASES, ids=str)
def test_every_case_can_be_built(name, config, kind):
    _, _, whole = program_kernel(name, config)
    assert throughput.flop_of(name, whole) > 1e11 and kind in ("", "matmul", "attention")


def test_arrays_are_random_and_of_the_kernels_types():
    _, kernel, _ = program_kernel("gemm_fp8", {})
    arrays = throughput.random_arrays(kernel)
    assert [(x.dtype, x.shape) for x in arrays] == [(a.layout.dtype.natural, a.layout.shape) for a in kernel.arguments]
    assert all(len(np.unique(x.view(f"u{x.itemsize}"))) > min(100, x.size // 2) for x in arrays)


def test_the_text_names_every_program_and_reference():
    speed = {"name": "gemm", "config": {"m": 64}, "microseconds": 10.0, "tflops": 700.0}
    card = {"card": "NVIDIA H200", "driver": "580", "cuda": "13.0", "launches": 30}
    answer = {**card, "programs": [speed], "references": {"matmul": {**speed, "name": "matmul"}}}
    lines = throughput.as_text({**answer, "thunderkittens_tflops": {"matmul": 768.0}}).splitlines()
    assert lines[0] == "NVIDIA H200, driver 580, CUDA 13.0, median of 30 launches:"
    assert "gemm" in lines[1] and "700.0 TFLOP/s" in lines[1] and "m=64" in lines[1]
    assert "matmul" in lines[2] and lines[3] == "  ThunderKittens on an H200: matmul 768"
