"""Why the TMA engine refuses a copy: codes for compiled code, and the errors and words that they stand for.

Compiled copies return a negative code. Measured: tests/data/tma_load.npz, tma_store.npz and tma_im2col.npz, which
record the CUDA error of every refused copy.
"""

from __future__ import annotations

from h100sim.errors import IllegalInstruction, KernelError, MisalignedAddress, OutOfRange

INNER_START, NEGATIVE_START, REDUCTION_TYPE, SHARED_RANGE, GLOBAL_RANGE, SHARED_ALIGNMENT, IM2COL_START = range(1, 8)

_FAULTS: dict[int, tuple[type[KernelError], str]] = {
    INNER_START: (IllegalInstruction, "innermost start coordinate must be a multiple of 16 bytes"),
    NEGATIVE_START: (IllegalInstruction, "start coordinates of a store or reduction must be at least 0"),
    REDUCTION_TYPE: (IllegalInstruction, "operation must be one that the element type of the tensor map has"),
    SHARED_RANGE: (OutOfRange, "box must lie in the CTA's shared memory"),
    GLOBAL_RANGE: (OutOfRange, "box must lie in global memory that is allocated"),
    SHARED_ALIGNMENT: (MisalignedAddress, "shared address must be a multiple of 128"),
    IM2COL_START: (IllegalInstruction, "im2col start coordinates must lie in the map's bounding box of base pixels"),
}


def fault_text(code: int) -> str:
    """Return what must hold, for the (positive) code of a fault."""
    return _FAULTS[code][1]


def fault_class(code: int) -> type[KernelError]:
    """Return the error that silicon raises for the (positive) code of a fault."""
    return _FAULTS[code][0]
