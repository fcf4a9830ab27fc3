"""What the two halves of L2 hold, from one launch to the next.

Each line of 128 bytes has a home in one half. A half holds what has its home there and was used, and copies of lines of the other
half that SMs on its own side have used; both by the order of use, as many lines as fit it. What is uploaded lies at its home alone.

Measured: validate/silicon/l2_capacity.json (of 60 MB of an H200, 30 stay if all SMs read them and 38 if each line is read or written
by one SM) and l2_latency.json (the first use of an uploaded line from the other side takes longer than the next one). On
silicon the homes of pieces of 4 KB are the parity of bits of the physical address (l2_latency.json with lines 128 bytes to 2 KB
apart). Assumed: here, of all bits of the piece's number in the arena.
"""

from __future__ import annotations

import numpy as np

from ..native import inner

LINE_SHIFT = 7
#: Lines of a piece of memory that has one home, as a shift.
PIECE_SHIFT = 5
#: When a line was last used that never was.
NEVER = -(1 << 60)


def homes_of(line):
    """Return the half of L2, 0 or 1, that is home to a line (an int64, or an array of them)."""
    piece = line >> PIECE_SHIFT
    piece = piece ^ (piece >> 16)
    piece = piece ^ (piece >> 8)
    piece = piece ^ (piece >> 4)
    piece = piece ^ (piece >> 2)
    return (piece ^ (piece >> 1)) & 1


#: The same for compiled code.
home_of = inner(homes_of)


class L2State:
    """``stamps``, int64 (2 * lines,): for each line of the arena how many bytes had been brought into each half when it was last used
    there, NEVER if it was not; ``filled``, int64 (2,): the bytes that have been brought in since."""

    def __init__(self, lines: int = 0):
        self.stamps = np.full(2 * lines, NEVER, np.int64)
        self.filled = np.zeros(2, np.int64)

    def grow(self, lines: int) -> None:
        """Make room for an arena of so many lines."""
        missing = 2 * lines - len(self.stamps)
        if missing > 0:
            self.stamps = np.concatenate((self.stamps, np.full(missing, NEVER, np.int64)))

    def upload(self, offset: int, size_bytes: int) -> None:
        """Note that bytes of the arena were written from outside: their lines are at home, in ascending order of use."""
        if size_bytes <= 0:
            return
        lines = np.arange(offset >> LINE_SHIFT, ((offset + size_bytes - 1) >> LINE_SHIFT) + 1)
        homes = homes_of(lines)
        for half in (0, 1):
            own = lines[homes == half]
            self.stamps[2 * own + half] = self.filled[half] + (np.arange(len(own)) + 1 << LINE_SHIFT)
            self.stamps[2 * own + 1 - half] = NEVER
            self.filled[half] += len(own) << LINE_SHIFT
