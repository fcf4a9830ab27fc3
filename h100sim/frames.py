"""Frames: what a call of a device function puts on the stack of every calling lane, and where.

A frame has a header, the ``.param`` space of the signature (results, then parameters), the ``.local`` and ``.param`` variables
of the body, then room for registers that a call keeps.

Spec: PTX ISA 9.1, "Parameter State Space", "Abstracting the ABI".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .ptx.module import Function, Parameter, Register
from .ptx.types import SIZES

#: Bytes of a frame's header: the instruction to return to and the caller's frame.
HEADER_BYTES = 16
_FRAME_ALIGN = 16


@dataclass(frozen=True)
class Frame:
    """Where everything lies in the frame of a function, which takes ``size`` bytes: parameters and variables by name, and the
    registers that a call keeps as (register, offset, bytes)."""

    offsets: dict[str, int] = field(default_factory=dict)
    kept: tuple[tuple[Register, int, int], ...] = ()
    size: int = 0


def size_of(parameter: Parameter) -> int:
    """Return the bytes of a parameter, also of one in a register."""
    return parameter.size or SIZES[parameter.type]


def round_up(value: int, align: int) -> int:
    """Return the smallest multiple of ``align`` that is not below a value."""
    return -(-value // align) * align


def signature_layout(
    returns: tuple[Parameter, ...], parameters: tuple[Parameter, ...]
) -> tuple[tuple[tuple[int, int, int], ...], tuple[list[int], list[int]], int]:
    """Lay out the parameter space of a signature in a frame; return (what two signatures must share to fit, offsets of the
    results and of the parameters, end)."""
    at = HEADER_BYTES
    shape = []
    offsets: tuple[list[int], list[int]] = ([], [])
    for k, group in enumerate((returns, parameters)):
        for parameter in group:
            align = max(parameter.align, size_of(parameter) if parameter.register else 1)
            at = round_up(at, align)
            shape.append((k, at, size_of(parameter)))
            offsets[k].append(at)
            at += size_of(parameter)
    return tuple(shape), offsets, at


def alignment(function: Function) -> int:
    """Return the alignment that the frame of a function needs."""
    variables = [v.align for v in function.variables if v.space in ("local", "param")]
    return max(_FRAME_ALIGN, *(p.align for p in (*function.parameters, *function.returns)), *variables, 1)


def lay_out(function: Function, is_entry: bool, kept: tuple[Register, ...], align: int) -> Frame:
    """Lay out the frame of a function; ``kept`` are the registers that need room during calls. An entry is not called: its
    frame has no header and no parameters."""
    found: dict[str, int] = {}
    at = 0
    if not is_entry:
        _, offsets, at = signature_layout(function.returns, function.parameters)
        for parameter, offset in zip((*function.returns, *function.parameters), (*offsets[0], *offsets[1]), strict=True):
            found[parameter.name] = offset
    for variable in function.variables:
        if variable.space in ("local", "param"):
            at = round_up(at, variable.align)
            found[variable.name] = at
            at += variable.size
    places = []
    at = round_up(at, 8) if kept else at
    for register in kept:
        size = 16 if SIZES[register.type] == 16 else 8
        places.append((register, at, size))
        at += size
    return Frame(found, tuple(places), round_up(at, align))


def deepest_chain(callees: Mapping[str, Iterable[str]], cycles: Sequence[set[str]], frames: Mapping[str, int], root: str) -> int:
    """Return the bytes of the longest chain of calls in which every function of a cycle is active once. ``cycles``: the components
    of the calls, callees first."""
    below: dict[str, int] = {}
    for names in cycles:
        behind = {other for name in names for other in callees[name]} - names
        size = sum(frames[name] for name in names) + max((below[other] for other in behind), default=0)
        below.update(dict.fromkeys(names, size))
    return below[root]
