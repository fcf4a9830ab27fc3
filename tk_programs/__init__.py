"""Programs for Hopper in the DSL, one per file: a ladder to learn from, and real kernels.

Each file has ``TEACHES`` (one line), ``CONFIG`` (the arguments of ``build`` that make a small run),
``build(**config)`` which returns a ``tk.Kernel``, ``inputs(seed, **config)`` and ``reference(*inputs)``, which
returns the expected output and the absolute error to allow for each of its elements.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Program:
    """A program of the catalogue: ``module`` has its ``build``, ``inputs`` and ``reference``."""

    name: str
    teaches: str
    config: dict[str, Any]
    module: ModuleType


def catalog() -> list[Program]:
    """Return every program of this package, in the order of their names."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return [Program(m.__name__.rpartition(".")[2], m.TEACHES, dict(m.CONFIG), m) for m in modules if hasattr(m, "TEACHES")]


def __getattr__(name: str) -> ModuleType:
    """Import a program on first use, so that ``tk_programs.gemm`` works without a second import."""
    if name in {info.name for info in pkgutil.iter_modules(__path__)}:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
