"""Was the program allowed to do it? Races, proxies, barriers, lifetimes and deadlocks, found from the trace alone."""

from ..hazard import KINDS, Access, Hazard
from .background import Background
from .checker import Checker, compiled_functions
from .deadlock import WaitState, explain
from .scrambled import ScrambledOperand, scrambled_operands

__all__ = [
    "KINDS", "Access", "Background", "Checker", "Hazard", "ScrambledOperand", "WaitState", "compiled_functions", "explain",
    "scrambled_operands",
]  # fmt: skip
