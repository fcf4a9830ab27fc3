"""What the rungs of the GEMM ladder share: their inputs, what the product should be, and the check of their sizes.

The rungs are ``gemm_1_mma_sync`` to ``gemm_8_tma_store``; each adds one idea to the one before. ``gemm`` is the program
that they lead to, with all of it to set.
"""

from h100sim.errors import UsageError
from tk_programs.gemm import inputs, reference

__all__ = ["inputs", "reference", "require_tiles"]


def require_tiles(**sizes: tuple[int, int]) -> None:
    """Raise UsageError unless every size (given as name=(size, tile)) is a positive multiple of its tile."""
    for name, (size, tile) in sizes.items():
        if not isinstance(size, int) or size < tile or size % tile:
            raise UsageError(f"{name} must be a multiple of {tile}, not {size}")
