"""The simulator's programs against what a Hopper GPU computed: every bit of every output of every committed capture."""

from __future__ import annotations

import pytest

from validate import capture


@pytest.mark.parametrize("name", capture.names())
def test_every_bit_is_that_of_silicon(name: str) -> None:
    captured = capture.load(name)
    outputs, run = capture.simulated(captured)
    assert capture.differences(captured, outputs) == []
    assert run.hazards == []


@pytest.mark.gpu
def test_every_bit_is_that_of_the_gpu_in_this_machine() -> None:
    kernel, arrays, config = capture.build("gemm", {}, seed=1)
    from tk_programs import gemm
    from validate import compare, gpu

    gpu.run(kernel, arrays)
    assert compare.compare(arrays[2], kernel.run(*gemm.inputs(1, **config))).is_equal
