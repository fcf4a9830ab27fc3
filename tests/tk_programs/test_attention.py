"""The attention program: close to float64 in every configuration, and no hazards.

Measured: tests/data/tk_attention.npz has O's bits from an NVIDIA H200 (driver 580.159, CUDA 13.0, 2026-11-29), by
configuration.
"""

from pathlib import Path

import numpy as np
import pytest

import tk_programs
from h100sim.errors import UsageError

SILICON = np.load(Path(__file__).parents[1] / "data" / "tk_attention.npz")
CONFIGS = [
    {},
    {"causal": True},
    {"batch": 2, "heads": 2, "n": 128, "d": 64, "kv": 64, "stages": 3},
    {"n": 384, "d": 128, "consumers": 3, "causal": True},
    {"n": 192, "d": 128, "consumers": 1, "kv": 192, "stages": 1, "causal": True},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_attention_is_right(config, on):
    kernel = tk_programs.attention.build(**config)
    inputs = tk_programs.attention.inputs(1, **config)
    result = kernel.run(*inputs, on=on)
    exact, tolerance = tk_programs.attention.reference(*inputs, causal=config.get("causal", False))
    assert (np.abs(result.astype(np.float64) - exact) <= tolerance).all()
    np.testing.assert_array_equal(result.view(np.uint16), SILICON[str(config)], err_msg="bits of an H200")
    if on == "sim":
        assert kernel.last_run.hazards == []


@pytest.mark.parametrize(
    "config, message",
    [
        ({"n": 192}, "n must be a multiple of 128, not 192"),
        ({"kv": 96}, "n must be a multiple of 96, not 256"),
        ({"d": 96}, "d must be 64 or 128, not 96"),
    ],
)
def test_configurations_that_cannot_be_are_refused(config, message):
    with pytest.raises(UsageError) as error:
        tk_programs.attention.build(**config)
    assert error.value.message == message
