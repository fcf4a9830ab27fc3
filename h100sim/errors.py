"""What can go wrong, in the words of the manual.

Every message has the form *noun must rule, not value*, followed by where it happened and which rule was broken, each on
its own line. Errors that stop a run are exceptions of this module; what a run survives is a
:class:`h100sim.checks.Hazard`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Where:
    """A place in a kernel: the PTX position, the source line it came from and the warp that executed it."""

    file: str = ""
    line: int = 0
    column: int = 0
    source: str = ""
    role: str = ""

    def __str__(self) -> str:
        ptx = f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "") if self.line else ""
        place = self.source or ptx
        if self.source and ptx:
            place = f"{self.source} ({ptx})"
        return ", ".join(part for part in (place, self.role) if part)


class H100SimError(Exception):
    """Base of every error of this package: a one-line message, where it happened and the rule's source."""

    def __init__(self, message: str, where: Where | None = None, rule: str = ""):
        self.message = message
        self.where = where or Where()
        self.rule = rule
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        if str(self.where):
            lines.append(f"  {self.where}")
        if self.rule:
            lines.append(f"  {self.rule}")
        return "\n".join(lines)


class PtxError(H100SimError):
    """The PTX text is not valid for sm_90a, or uses something that is not supported (which it then names)."""

    @property
    def line(self) -> int:
        return self.where.line

    @property
    def column(self) -> int:
        return self.where.column


class LaunchError(H100SimError):
    """A launch that CUDA would refuse: grid, block, cluster, shared memory, registers or arguments."""


class TensorMapError(H100SimError, ValueError):
    """Parameters for which the driver's cuTensorMapEncode* returns an error."""


class KernelError(H100SimError):
    """A running kernel did something that stops it. ``hazards`` has what the checks had found until then."""

    hazards: tuple = ()


class IllegalInstruction(KernelError):
    """cudaErrorIllegalInstruction: the hardware refuses this instruction with these operands."""


class MisalignedAddress(KernelError):
    """cudaErrorMisalignedAddress: an address is not a multiple of the access size."""


class OutOfRange(KernelError):
    """cudaErrorIllegalAddress: an access outside every allocation or outside the window of a state space."""


class Trap(KernelError):
    """The kernel executed ``trap`` or a device-side assertion failed."""


class CycleLimit(KernelError):
    """The run reached the limit on cycles that the caller gave."""


class WaitEdge(NamedTuple):
    """An edge of a wait-for graph: a role waits for a thing that needs a supplier, who does something else ("nobody": it has
    none)."""

    waiter: str
    thing: str
    supplier: str
    state: str

    def __str__(self) -> str:
        if self.supplier == "nobody":
            return f"{self.waiter} --> {self.thing} --> {self.state}"
        return f"{self.waiter} --> {self.thing} --> {self.supplier}, which {self.state}"


class DeadlockError(KernelError):
    """No warp can proceed. ``waits`` has one record per waiting role: who, where, for what, and why it cannot happen;
    ``edges`` the wait-for graph; ``ledger`` the lines of what happened to each mbarrier, phase by phase."""

    def __init__(
        self,
        message: str,
        waits: tuple = (),
        where: Where | None = None,
        rule: str = "",
        edges: tuple[WaitEdge, ...] = (),
        ledger: tuple[str, ...] = (),
    ):
        super().__init__(message, where, rule)
        self.waits, self.edges, self.ledger = waits, edges, ledger

    @property
    def graph(self) -> Any:
        """The wait-for graph as a networkx DiGraph: roles ("kind" is "role") and the things between them ("thing")."""
        import networkx

        graph = networkx.DiGraph()
        for edge in self.edges:
            graph.add_node(edge.waiter, kind="role")
            graph.add_node(edge.thing, kind="thing")
            graph.add_edge(edge.waiter, edge.thing)
            if edge.supplier != "nobody":
                graph.add_node(edge.supplier, kind="role")
                graph.add_edge(edge.thing, edge.supplier)
        return graph

    def __str__(self) -> str:
        lines = [self.message, *(f"  {wait}" for wait in self.waits)]
        for title, rows in (("wait-for graph", self.edges), ("ledger", self.ledger)):
            if rows:
                lines += [f"  {title}", *(f"    {row}" for row in rows)]
        return "\n".join(lines)


class UsageError(H100SimError):
    """A program, option or argument of the command line or the DSL is wrong."""


class ElementTypeError(UsageError, TypeError):
    """An array holds neither the bits nor the values of the type that an instruction takes."""
