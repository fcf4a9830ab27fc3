"""Was the program allowed to do it? Races, proxies, barriers, lifetimes and deadlocks, found from the trace alone."""

from ..hazard import KINDS, Access, Hazard
from .checker import Checker
from .deadlock import WaitState, explain

__all__ = ["KINDS", "Access", "Checker", "Hazard", "WaitState", "explain"]
