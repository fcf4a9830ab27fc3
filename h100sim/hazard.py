"""What a kernel was not allowed to do: one hazard, its two accesses, the edge that is missing and the line that would
add it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

#: The fixed words that say what kind of hazard it is.
KINDS = (
    "race",
    "proxy-race",
    "register-race",
    "uninitialised",
    "over-arrival",
    "tx-underflow",
    "lifetime",
    "barrier-misuse",
    "divergent-collective",
    "strict-proxy-war",
    "unwritten-register",
    "reserved-memory",
)

#: Kinds that are warnings, and hazards where the checks are strict: rules that projects do not agree on, and what a text reads that
#: nothing writes, which an assembler takes.
WARNINGS = ("strict-proxy-war", "unwritten-register")


class UnwrittenRead(NamedTuple):
    """A read, by the instruction ``pc`` at a line of the text, of a register that no way from the entry to it writes; ``is_guard``: as
    the guard of the instruction."""

    pc: int
    register: str
    line: int
    is_guard: bool

    @property
    def message(self) -> str:
        doing = "guards an instruction" if self.is_guard else "is read"
        return f"register {self.register} must be written before it {doing}, not left as its last owner left it"


@dataclass(frozen=True)
class Access:
    """One side of a hazard: who did what, where and when.

    ``what`` says it in words ("tensor load, writes"); ``role`` names the role, ``where`` the source line, ``op`` the
    opcode; ``space`` is "shared", "global", "registers", "mbarrier" or "barrier"; bytes ``first_byte`` to
    ``last_byte`` (-1: none); ``cycle`` of the event that stands at row ``event`` of the trace; ``pc`` indexes the
    instructions.
    """

    what: str
    role: str
    where: str
    op: str
    space: str
    first_byte: int
    last_byte: int
    cycle: int
    warp: int
    cta: int
    event: int
    pc: int

    def __str__(self) -> str:
        span = f" of {self.space} {self.first_byte:#x} to {self.last_byte:#x}" if self.first_byte >= 0 else ""
        return f"{self.what}{span}, {self.where or 'start of the kernel'}, {self.role}, cycle {self.cycle:,}"


@dataclass(frozen=True)
class Hazard:
    """Something that the rules do not allow, found in one run; the values may be right by luck.

    ``kind`` is one of :data:`KINDS`; ``message`` the first line; ``first`` and ``second`` the accesses (``first`` is
    None when only one is involved); ``missing`` the happens-before edge that would be needed; ``rule`` the manual's;
    ``fix`` one line that would mend it; ``count`` how often the same pair of instructions was found.
    """

    kind: str
    message: str
    first: Access | None
    second: Access
    missing: str
    rule: str
    fix: str
    count: int = 1

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.message}"]
        if self.first:
            lines.append(f"  first    {self.first}")
        lines.append(f"  {'second ' if self.first else 'access '}  {self.second}")
        for label, text in (("missing", self.missing), ("rule   ", self.rule), ("fix    ", self.fix)):
            if text:
                lines.append(f"  {label}  {text}")
        if self.count > 1:
            lines.append(f"  seen     {self.count:,} times")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the hazard as plain dicts, strings and integers."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Hazard:
        """Return the hazard that :meth:`to_json` was asked for."""
        accesses = {name: Access(**plain[name]) if plain[name] else None for name in ("first", "second")}
        return cls(**{**plain, **accesses})  # type: ignore[arg-type]
