"""What is asked of a GPU for the lessons is what the lessons run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tk_programs.lessons import ping_pong, stages
from validate import gpu, lesson_times


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for the GPU: every launch takes 100 cycles and writes nothing."""
    seen: list[str] = []

    def run(kernel, arrays, *, record_clocks=False):
        seen.append(kernel.ptx)
        return SimpleNamespace(cta_cycles=np.array([90, 100, 110]))

    def launch(ptx, name, grid, block, args, *, shared_mem, record_clocks):
        assert (name, grid, block, shared_mem, len(args)) == ("triton_gemm", (4, 4), (256,), 98304, 5)
        return SimpleNamespace(cta_cycles=np.array([200]))

    card = SimpleNamespace(as_dict=lambda: {"card": "a card", "driver": "1"})
    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(gpu, "launch", launch)
    monkeypatch.setattr(gpu, "card", lambda: card)
    return seen


def test_every_kernel_of_the_lessons_is_timed(launches: list[str]) -> None:
    answer = lesson_times.measure()
    points = {(p["stages"], p["in_flight"]) for p in answer["stages"]}
    assert points == {(s, i) for i in (0, 1) for s in stages.STAGES[i:]}
    assert [(p["order"], p["overlap"]) for p in answer["ping_pong"]] == list(ping_pong.WAYS)
    assert answer["triton_and_tk"]["cycles_of_a_cta"] == {"triton": 200, "tk": 100}
    assert len(set(launches)) == len(points) + len(ping_pong.WAYS) + 1
    assert lesson_times.as_text(answer).splitlines()[-1] == "  GEMM in Triton 200, in TK 100"
