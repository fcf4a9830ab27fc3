"""What every program's tests do: run a configuration, compare every output with the reference, look for hazards."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import numpy as np


def assert_meets_reference(program: ModuleType, config: dict[str, Any], on: str = "sim", seed: int = 1, **options: Any) -> Any:
    """Run a program; every element must be within its allowance and no hazard reported. Return the kernel."""
    kernel = program.build(**config)
    inputs = program.inputs(seed, **config)
    results = kernel.run(*inputs, on=on, **options)
    wanted = {key: value for key, value in config.items() if key in inspect.signature(program.reference).parameters}
    expected = program.reference(*inputs, **wanted)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for result, (exact, tolerance) in pairs:
        error = np.abs(result.astype(np.float64) - exact)
        assert (error <= tolerance).all(), f"largest error {np.nanmax(error)}, {np.isnan(error).sum()} NaN"
    if on == "sim":
        assert kernel.last_run.hazards == []
    return kernel
