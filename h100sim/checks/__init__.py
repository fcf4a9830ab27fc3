"""Was the program allowed to do it? Races, proxies, barriers, lifetimes and deadlocks, found from the trace alone."""

from .checker import Checker
from .deadlock import WaitState, explain
from .hazard import KINDS, Access, Hazard

__all__ = ["KINDS", "Access", "Checker", "Hazard", "WaitState", "explain"]
