"""The kernel under construction: what a traced Python function has emitted so far, and where in Python it came from.

One :class:`Builder` lives for the time of one trace. Every function of the DSL finds it with :func:`current`, appends
instructions with :meth:`Builder.emit` and never looks at text again. Each line of PTX remembers the innermost Python
line outside this package, which becomes its ``.loc``, its comment and its entry in the source map.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import UsageError, Where

#: Spec: CUDA C++ Programming Guide 13.0, "Compute Capabilities", table "Technical Specifications": 227 KB for a CTA
#: of 9.0.
MAX_SHARED_BYTES = 227 * 1024
#: Offset of the first byte that a kernel may use in the CTA's shared window; the driver keeps the 1,024 before it.
#: Measured: tests/data/tma_*.npz were captured with dynamic shared memory at this offset.
SHARED_START = 0x400

_PACKAGE = str(Path(__file__).parent) + os.sep
_current: ContextVar[Builder | None] = ContextVar("h100sim.tk builder", default=None)


@dataclass(frozen=True)
class Location:
    """A line of a Python file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"

    @property
    def text(self) -> str:
        """The source line itself, without indentation and in ASCII, "" if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip().encode("ascii", "replace").decode()


@dataclass(frozen=True)
class Line:
    """One line of the body: an instruction, or a label (``is_label``), and the Python line that asked for it."""

    text: str
    location: Location
    depth: int
    is_label: bool = False


@dataclass(frozen=True)
class Scope:
    """Who executes the code being traced: ``level`` "cta", "warpgroup", "warp", "thread" or "lanes" (some lanes of a
    warp), and the ranks of the warps in the CTA. At level "warpgroup" each of the warpgroups executes the code as a
    group of its own.
    """

    level: str
    warps: tuple[int, ...]

    @property
    def warpgroups(self) -> tuple[int, ...]:
        return tuple(sorted({w // 4 for w in self.warps}))

    def __str__(self) -> str:
        names = {"cta": "all warps of the CTA", "thread": "one thread", "lanes": "some lanes of a warp"}
        if self.level in names:
            return names[self.level]
        ranks = self.warpgroups if self.level == "warpgroup" else self.warps
        return f"{self.level} {', '.join(map(str, ranks))}"


@dataclass
class Loop:
    """A loop being traced: who executes it, the labels of its end and of the next iteration, and whether anything goes
    there.
    """

    scope: Scope
    end: str
    next: str
    continues: bool = False


@dataclass
class Builder:
    """The state of a trace. ``warps`` is the number of warps of a CTA."""

    name: str
    warps: int
    lines: list[Line] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    #: Open loops and branches, innermost last, with the line that opened each.
    blocks: list[tuple[str, Location]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    #: Where the last tk.when ended (lines, open blocks), and its condition.
    branch: tuple[int, int, Any] | None = None
    shared_bytes: int = 0
    roles: list[tuple[str, int, int]] = field(default_factory=list)
    shared_tiles: list[Any] = field(default_factory=list)
    semaphores: list[Any] = field(default_factory=list)
    #: Identities of semaphores that were set up, and where each that is used was used first.
    initialised: set[int] = field(default_factory=set)
    used_semaphores: dict[int, tuple[Any, str, Location]] = field(default_factory=dict)
    register_tiles: list[Any] = field(default_factory=list)
    #: Names bound to objects so far: id of the object to its name.
    names: dict[int, str] = field(default_factory=dict)
    register_counts: dict[str, int] = field(default_factory=dict)
    declarations: list[str] = field(default_factory=list)
    #: Registers per thread that setmaxnreg asked for: warpgroup to the largest count.
    warpgroup_registers: dict[int, int] = field(default_factory=dict)
    entry_location: Location = Location("", 0)
    _labels: dict[str, int] = field(default_factory=dict)
    _unnamed: list[Any] = field(default_factory=list)
    #: The line that made the last object without a name; None once the next line has shown what it was bound to.
    _made_at: Location | None = None
    _cached: dict[str, str] = field(default_factory=dict)
    _prologue_end: int = 0

    def __post_init__(self) -> None:
        self.scopes.append(Scope("cta", tuple(range(self.warps))))

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    # --- text -----------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """Append one instruction (without the semicolon)."""
        location = here()
        if self._made_at not in (None, location):
            self.look_for_names()
            self._made_at = None
        self.lines.append(Line(text + ";", location, len(self.blocks)))

    def new_label(self, stem: str) -> str:
        """Return a label that is not yet used: ``stem``_0, ``stem``_1, ..."""
        n = self._labels.get(stem, 0)
        self._labels[stem] = n + 1
        return f"{stem}_{n}"

    def place(self, label: str) -> None:
        """Append a label."""
        self.lines.append(Line(label + ":", here(), len(self.blocks), is_label=True))

    def register(self, kind: str = "r") -> str:
        """Return a new register: "r" 32 bits, "rd" 64 bits, "f" f32, "h" 16 bits, "p" a predicate."""
        n = self.register_counts.get(kind, 0)
        self.register_counts[kind] = n + 1
        return f"%{kind}{n}"

    def declare(self, declaration: str) -> None:
        """Add a register declaration, such as ``.reg .f32 %acc_<64>``."""
        self.declarations.append(declaration)

    def once(self, name: str, kind: str, *instructions: str) -> str:
        """Return the register that holds a value computed in the prologue, the same for every caller.
        ``instructions`` are templates in which ``{d}`` stands for the register.
        """
        if name not in self._cached:
            self._cached[name] = f"%{name}"
            types = {"r": "b32", "rd": "b64", "p": "pred", "f": "f32"}
            self.declare(f".reg .{types[kind]} %{name}")
            prologue = [Line(i.format(d=f"%{name}") + ";", self.entry_location, 0) for i in instructions]
            at = self._prologue_end
            self.lines[at:at] = prologue
            self._prologue_end = at + len(prologue)
        return self._cached[name]

    # --- structure ------------------------------------------------------------------------------------------------

    @contextmanager
    def block(self, kind: str, scope: Scope | None = None) -> Iterator[None]:
        """Trace a loop body or branch. A body that Python left early (``break``, ``return``) is an error, since the
        trace sees it only once.
        """
        opened = (kind, here())
        self.blocks.append(opened)
        if scope is not None:
            self.scopes.append(scope)
        yield
        self.close(opened)
        if scope is not None:
            self.scopes.pop()

    def close(self, opened: tuple[str, Location]) -> None:
        """Leave the innermost block, which must be ``opened``."""
        if not self.blocks or self.blocks[-1] is not opened:
            self.check_closed(opened)
        self.blocks.pop()

    def check_closed(self, outer: tuple[str, Location] | None = None) -> None:
        """Raise UsageError if a block inside ``outer`` (None: any block) is still open."""
        if self.blocks and self.blocks[-1] is not outer:
            kind, location = self.blocks[-1]
            raise UsageError(
                f"{kind} must be traced to its end, not left with break, continue or return",
                Where(source=str(location)),
                "a loop body runs once in Python; use tk.when for conditions of the kernel",
            )

    def end(self) -> None:
        """Append the return. Raises UsageError if a block is still open."""
        self.check_closed()
        self.lines.append(Line("ret;", self.entry_location, 0))

    def label_of_role(self, name: str, warpgroups: tuple[int, ...]) -> None:
        """Name the role that warpgroups play; the first name stays."""
        for index, w in enumerate(warpgroups):
            if not any(first <= 4 * w <= last for _, first, last in self.roles):
                full = f"{name} {index}" if len(warpgroups) > 1 else name
                self.roles.append((full, 4 * w, 4 * w + 3))

    # --- shared memory ----------------------------------------------------------------------------------------------

    def allocate(self, what: str, size_bytes: int, align: int) -> int:
        """Return the offset of new shared memory from the start of the kernel's dynamic shared memory."""
        offset = -(-self.shared_bytes // align) * align
        if offset + size_bytes > MAX_SHARED_BYTES:
            total = offset + size_bytes
            raise usage(
                f"shared memory of a CTA must be at most {MAX_SHARED_BYTES:,} bytes, not {total:,} with {what}",
                'CUDA C++ Programming Guide 13.0, "Compute Capabilities"',
            )
        self.shared_bytes = offset + size_bytes
        return offset

    # --- names ------------------------------------------------------------------------------------------------------

    def watch(self, thing: Any, name: str | None) -> None:
        """Give an object its name, or wait to see which Python variable it is bound to."""
        if name is None:
            self._unnamed.append(thing)
            self._made_at = here()
        else:
            self.names[id(thing)] = self._unused(name)

    def forget(self, things: list[Any]) -> None:
        """Give up the names of objects, for those that take their place."""
        ids = {id(thing) for thing in things}
        self._unnamed = [thing for thing in self._unnamed if id(thing) not in ids]
        self.names = {key: name for key, name in self.names.items() if key not in ids}

    def name_of(self, thing: Any, otherwise: str) -> str:
        """Return the name of a watched object: given, or of the variable that holds it now, or ``otherwise``
        numbered.
        """
        if id(thing) not in self.names:
            self.look_for_names()
        if id(thing) not in self.names:
            self.names[id(thing)] = self._unused(otherwise)
        return self.names[id(thing)]

    def look_for_names(self) -> None:
        """Name the unnamed objects after the variables of the innermost frame of the user that holds them."""
        frame = user_frame()
        if frame is None or not self._unnamed:
            return
        held = {id(value): name for name, value in reversed(frame.f_locals.items())}
        for thing in list(self._unnamed):
            if id(thing) in held:
                self._unnamed.remove(thing)
                self.names[id(thing)] = self._unused(held[id(thing)])

    def _unused(self, name: str) -> str:
        stem = re.sub(r"\W", "_", name, flags=re.ASCII)
        taken, n = set(self.names.values()), 0
        candidate = stem
        while candidate in taken:
            n += 1
            candidate = f"{stem}_{n}"
        return candidate


def current() -> Builder:
    """Return the kernel that is being traced. Raises UsageError outside of a trace."""
    builder = _current.get()
    if builder is None:
        raise UsageError("tk operation must be inside a function that tk.kernel traces, not outside", Where(source=str(here())))
    return builder


@contextmanager
def tracing(builder: Builder) -> Iterator[Builder]:
    """Make ``builder`` the kernel that operations append to."""
    token = _current.set(builder)
    try:
        yield builder
    finally:
        _current.reset(token)


def user_frame() -> FrameType | None:
    """Return the innermost frame that is neither of this package nor of contextlib."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) and file != contextlib.__file__:
            return frame
        frame = frame.f_back
    return None


def here() -> Location:
    """Return the Python line of the user's program that is being traced."""
    frame = user_frame()
    return Location(frame.f_code.co_filename, frame.f_lineno) if frame else Location("", 0)


def usage(message: str, rule: str = "") -> UsageError:
    """Return a UsageError that points at the Python line being traced."""
    return UsageError(message, Where(source=str(here())), rule)


def require_owner(name: str, made: Scope) -> None:
    """Raise UsageError unless those who execute now are whole warps among those that made a register tile or vector."""
    scope = current().scope
    if scope.level in ("thread", "lanes"):
        raise usage(f"registers of {name} must be used by whole warps, not {scope}: leave the tk.elect or tk.when block first")
    if not set(scope.warps) <= set(made.warps):
        raise usage(
            f"registers of {name} must be used by the warps that made it ({made}), not {scope}: other warps see it "
            "through a shared tile"
        )


def require_scope(operation: str, *levels: str) -> Scope:
    """Return the scope. Raises UsageError unless it is of one of ``levels``; a CTA of one warpgroup or one warp is
    one.
    """
    scope = current().scope
    also = {4: "warpgroup", 1: "warp"}.get(len(scope.warps)) if scope.level == "cta" else None
    if scope.level not in levels and also not in levels:
        words = {
            "cta": "all warps of the CTA",
            "warpgroup": "whole warpgroups",
            "warp": "one warp",
            "thread": "one thread",
        }
        hint = "give tk.kernel warpgroups=, or leave the block that narrows the scope" if "warpgroup" in levels else ""
        raise usage(f"{operation} must be executed by {' or '.join(words[level] for level in levels)}, not {scope}", hint)
    return scope
