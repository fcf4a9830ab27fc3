"""The checker on a thread of its own, so that it works on one chunk of events while the machine makes the next.

The machine's loop holds no interpreter lock. What is found does not depend on it: chunks are checked in order, and
:meth:`Background.finish` waits for the last one.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ..hazard import Hazard
from .checker import Checker

#: Chunks that may wait; the machine waits when there are more.
DEPTH = 4


class Background:
    """Feeds a checker. Errors of the checker are raised by the next call."""

    def __init__(self, checker: Checker):
        self.checker = checker
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="h100sim-checks")
        self._pending: deque[Future] = deque()

    def feed(self, events: np.ndarray, lanes: np.ndarray, warps: np.ndarray, ctas: np.ndarray, lanes_start: int = 0) -> None:
        """Check the next events, as :meth:`.checker.Checker.feed` does, but return at once. The chunk must not change."""
        while self._pending and (self._pending[0].done() or len(self._pending) >= DEPTH):
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self.checker.feed, events, lanes, warps, ctas, lanes_start))

    def finish(self) -> tuple[list[Hazard], list[Hazard]]:
        """Return the hazards and the warnings, each in the order of the second access."""
        while self._pending:
            self._pending.popleft().result()
        return self.checker.finish()
