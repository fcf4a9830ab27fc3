"""Tells Hypothesis about the types of this package without importing more than is there.

Hypothesis calls :func:`register` when it is imported (entry point ``hypothesis``), in every program of an environment that
has this package. The types take a second to import, so they are registered by whichever of the two comes last.
"""

from __future__ import annotations

import importlib
import sys

_TYPES = "h100sim.tma.tensor_map"


def register() -> None:
    """Import the strategies, which register themselves, if both Hypothesis and the types have been imported."""
    if _TYPES in sys.modules and "hypothesis.strategies" in sys.modules:
        importlib.import_module("h100sim.strategies")
