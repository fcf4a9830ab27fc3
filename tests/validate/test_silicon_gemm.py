"""The programs against what a Hopper GPU did with the same PTX: every bit of the outputs, nearly the same cycles."""

from __future__ import annotations

import numpy as np
import pytest

from tk_programs import gemm
from validate import capture, compare, gpu

SMALL = [name for name in capture.names() if capture.load(name).is_small]

#: How far the predicted cycles of a CTA may be from the measured ones, as a part of these.
LARGEST_DEVIATION = 0.35


@pytest.mark.parametrize("name", SMALL)
def test_every_bit_is_that_of_silicon(name: str) -> None:
    captured = capture.load(name)
    outputs, run = capture.simulated(captured, device="h200-sxm")
    assert capture.differences(captured, outputs) == []
    assert run.hazards == []
    measured = np.mean(captured.facts["cycles"]["cta_median"])
    predicted = np.mean(run.ctas["end"] - run.ctas["start"])
    assert abs(predicted / measured - 1) < LARGEST_DEVIATION


def test_the_captures_are_there() -> None:
    assert {"gemm_256", "copy_64"} <= set(SMALL)


@pytest.mark.gpu
def test_every_bit_is_that_of_the_gpu_in_this_machine() -> None:
    kernel, arrays, config = capture.build("gemm", {}, seed=1)
    gpu.run(kernel, arrays)
    assert compare.compare(arrays[2], kernel.run(*gemm.inputs(1, **config))).is_equal
