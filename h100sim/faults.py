"""The ways a running kernel can stop, as numbers that compiled code records and as exceptions that people read.

Each fault is declared once: its exception, its message and the rule of the manual. A handler says
``return fail(ctx, faults.MISALIGNED, address, size, 0)``; the three numbers are ``a``, ``b`` and ``c`` of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import H100SimError, IllegalInstruction, KernelError, MisalignedAddress, OutOfRange, Trap

if TYPE_CHECKING:
    from .machine import Machine

_SPACES = ("global", "shared", "local", "const", "param", "", "", "generic")


_More = Callable[["Machine", int, int, int], object]


@dataclass(frozen=True)
class _Fault:
    """``text`` is a format of op, a, b, c and, made by ``more`` from the machine and the numbers, of more."""

    error: type[KernelError]
    text: str
    rule: str
    more: _More


_FAULTS: list[_Fault] = []


def _fault(error: type[KernelError], text: str, rule: str = "", more: _More = lambda *_: "") -> int:
    """Declare a fault and return its number. ``rule`` names a section of the PTX ISA."""
    _FAULTS.append(_Fault(error, text, f'PTX ISA 9.1, "{rule}"' if rule else "", more))
    return len(_FAULTS)


# --- memory -----------------------------------------------------------------------------------------------------------
MISALIGNED = _fault(MisalignedAddress, "{op} address must be a multiple of {b}, not {a:#x}", "Addresses as Operands")
OUT_OF_RANGE_GLOBAL = _fault(
    OutOfRange,
    "{op} address must lie in an allocation, not {more}",
    "State Spaces",
    lambda machine, a, b, c: machine.memory.describe(a, b),
)
OUT_OF_RANGE_SHARED = _fault(
    OutOfRange, "{op} shared address must lie in the {c:,} bytes of the CTA, not {a:#x} ({b} bytes)", "Shared State Space"
)
OUT_OF_RANGE_OTHER = _fault(
    OutOfRange,
    "{op} address must lie in the {more} space, not {a:#x} ({b} bytes)",
    "State Spaces",
    lambda machine, a, b, c: _SPACES[c],
)
MULTICAST_MASK = _fault(
    OutOfRange, "{op} multicast mask must name CTAs of the cluster ({b} of them), not {a:#x}", "cp.async.bulk: .multicast::cluster"
)
CLUSTER_RANK = _fault(
    OutOfRange, "{op} must name a CTA of the cluster (0 to {more}), not {a}", "Shared State Space", lambda m, a, b, c: b - 1
)

# --- control ----------------------------------------------------------------------------------------------------------
TRAP = _fault(Trap, "kernel executed trap", "Miscellaneous Instructions: trap")
RECONVERGE_LIMIT = _fault(KernelError, "lanes of one warp must part into at most 64 groups in this simulator")
DIVERGENT_COLLECTIVE = _fault(
    IllegalInstruction,
    "{op} must be executed by all lanes of the warp together, not by {more}",
    ".aligned",
    lambda machine, a, b, c: f"{a & 0xFFFFFFFF:#010x} of {b & 0xFFFFFFFF:#010x}",
)
SHUFFLE_MASK = _fault(
    IllegalInstruction,
    "{op} member mask must contain the executing lanes, not {more}",
    ".sync",
    lambda machine, a, b, c: f"{a & 0xFFFFFFFF:#010x}",
)
SETMAXNREG = _fault(
    IllegalInstruction,
    "{op} count must be {more} the {b} registers that the warp has, not {a}",
    "Miscellaneous Instructions: setmaxnreg",
    lambda machine, a, b, c: "at least" if c else "at most",
)
STACK_OVERFLOW = _fault(
    OutOfRange,
    "stack of a lane must be at most {a:,} bytes, not {b:,} (does a function call itself for ever, or take too much with alloca?)",
    "Local State Space",
)
STACK_POINTER = _fault(
    OutOfRange,
    "stack pointer must be between the function's frame and the stack's end at {b:#x}, not {a:#x}",
    "Stack Manipulation Instructions",
)
BRANCH_INDEX = _fault(IllegalInstruction, "{op} index must be from 0 to {more}, not {a}", "brx.idx", lambda m, a, b, c: b - 1)
CALL_TARGET = _fault(
    IllegalInstruction,
    "{op} target must be the address of a function with the signature of the call, not {more}",
    "call",
    lambda machine, a, b, c: machine.name_of_function(a),
)

# --- mbarriers and barriers -------------------------------------------------------------------------------------------
_MBARRIER = "Parallel Synchronization and Communication Instructions: mbarrier"
MBARRIER_MISALIGNED = _fault(MisalignedAddress, "mbarrier address must be a multiple of 8, not {a:#x}", _MBARRIER)
MBARRIER_UNINITIALISED = _fault(
    IllegalInstruction,
    "{op} must name an initialised mbarrier, not shared address {a:#x}, where there is none in this CTA",
    _MBARRIER,
)
MBARRIER_COUNT = _fault(IllegalInstruction, "mbarrier count must be from 1 to 1,048,575, not {a:,}", _MBARRIER)
MBARRIER_TOO_MANY = _fault(KernelError, "mbarriers of one CTA must be at most {a:,} in this simulator, not more")
MBARRIER_PARITY = _fault(IllegalInstruction, "mbarrier phase parity must be 0 or 1, not {a}", _MBARRIER)
MBARRIER_OVERFLOW = _fault(
    IllegalInstruction,
    "mbarrier {more[0]} must stay from -1,048,575 to 1,048,575, not {b:,} ({more[1]})",
    _MBARRIER,
    lambda machine, a, b, c: ("tx-count" if c else "pending count", machine.barrier_name(a)),
)
MBARRIER_ARRIVALS = _fault(
    IllegalInstruction,
    "{op} must bring {more} no more arrivals than its phase still waits for ({c:,}), not {b:,}",
    _MBARRIER,
    lambda machine, a, b, c: machine.barrier_name(a),
)
BARRIER_COUNT = _fault(
    IllegalInstruction, "{op} thread count must be a multiple of 32 up to the {b} of the CTA, not {a}", "bar, barrier"
)
BARRIER_ID = _fault(IllegalInstruction, "{op} barrier must be from 0 to 15, not {a}", "bar, barrier")
CLUSTER_TWICE = _fault(
    IllegalInstruction,
    "{op} must be followed by a wait before the next arrive, not arrive twice in generation {a}",
    "barrier.cluster",
)

# --- wgmma ------------------------------------------------------------------------------------------------------------
_WGMMA = "Asynchronous Warpgroup Level Matrix Instructions"
WGMMA_WARPGROUP = _fault(
    IllegalInstruction,
    "{op} must be executed by a whole warpgroup of four warps, but warp {a} of the CTA has only {b} beside it",
    _WGMMA,
)
WGMMA_MISMATCH = _fault(
    IllegalInstruction,
    "{op} must be the same instruction in all four warps of the warpgroup, not {more} in another",
    _WGMMA,
    lambda machine, a, b, c: f"{machine.opcode(a)} at {machine.place(a)}",
)
DESCRIPTOR_OUT_OF_RANGE = _fault(
    OutOfRange,
    "{op} operand {more} must lie in the {c:,} bytes of the CTA's shared memory, not at {a:#x}",
    "Matrix Descriptor Format",
    lambda machine, a, b, c: "AB"[b],
)
SPARSE_METADATA = _fault(
    IllegalInstruction,
    "{op} metadata of row {more[0]}, chunk {more[1]} must be {more[2]}, not {b:#06b}",
    "Sparse matrix storage",
    lambda machine, a, b, c: (*divmod(a, 64), "0b0100 or 0b1110" if c == 32 else "two different indices"),
)

# --- copies -----------------------------------------------------------------------------------------------------------
TENSOR_MAP_INVALID = _fault(
    IllegalInstruction, "{op} tensor map must be 128 bytes that the driver encoded, not those at {a:#x}", "Tensor-map"
)
TENSOR_MAP_RANK = _fault(IllegalInstruction, "{op} rank must be that of the tensor map ({a}), not {b}", "Tensor-map")
#: The number ``a`` is one of :mod:`h100sim.tma.faults`, which knows the exception too.
TMA_REFUSED = _fault(
    KernelError, "{op} {more}", "Data Movement and Conversion Instructions: Tensor copy", lambda m, a, b, c: _tma_text(a)
)
TMA_ALIGN = _fault(MisalignedAddress, "{op} shared address must be a multiple of {b}, not {a:#x}", "cp.async.bulk.tensor")
TENSOR_MAP_MODE = _fault(
    IllegalInstruction,
    "{op} must use a tensor map of its own mode, {more}",
    "Tensor-map",
    lambda machine, a, b, c: "im2col, not a tiled one" if b else "tiled, not one of im2col",
)
ASYNC_WITHOUT_CLUSTER = _fault(
    IllegalInstruction,
    "{op} must be in a launch with clusters, not in one without",
    "Data Movement and Conversion Instructions: st.async",
)
BULK_SIZE = _fault(IllegalInstruction, "{op} size must be a multiple of 16, not {a}", "cp.async.bulk")
BULK_ALIGN = _fault(MisalignedAddress, "{op} address must be a multiple of 16, not {a:#x}", "cp.async.bulk")
CP_SIZE = _fault(IllegalInstruction, "{op} source size must be at most {b}, not {a}", "cp.async")


def _tma_text(code: int) -> str:
    from .tma import fault_text

    return fault_text(code)


def error_of(machine: Machine) -> H100SimError:
    """Return the exception for the error that compiled code recorded in the context."""
    context = machine.context
    code, a, b, c = (int(context[name]) for name in ("error", "error_a", "error_b", "error_c"))
    fault, pc = _FAULTS[code - 1], int(context["error_pc"])
    message = fault.text.format(op=machine.opcode(pc), a=a, b=b, c=c, more=fault.more(machine, a, b, c))
    error = fault.error
    if code == TMA_REFUSED:
        from .tma import fault_class

        error = fault_class(a)
    return error(message, machine.where(int(context["error_warp"]), pc), fault.rule)
