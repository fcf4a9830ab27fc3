"""Hardware questions, one per file, each a small PTX kernel and what to make of its answer.

A probe is a module with ``QUESTION`` (a sentence), ``SETTLES`` (where the answer is used) and ``measure(launch)``,
which returns a dict of plain values. ``launch(ptx, name, grid, block, args, shared_mem=0, cluster=(1, 1, 1), times=1)`` runs
a kernel, here or on a GPU, and writes arrays back in place, so the same probe asks the simulator and the silicon; an
argument that is a function is given one that tells where an array lies (for a tensor map). Results are kept in
``validate/silicon/<probe>.json`` with the card, the driver and the date.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h100sim.errors import UsageError

SILICON = Path(__file__).parent.parent / "silicon"

Launch = Callable[..., Any]


@dataclass(frozen=True)
class Probe:
    """A hardware question. ``measure`` takes a launch function and returns name -> number (or list of numbers)."""

    name: str
    question: str
    settles: str
    measure: Callable[[Launch], dict[str, Any]]


def names() -> list[str]:
    """Return the names of the probes of this package, without importing (and so compiling) any."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.py") if "\nQUESTION = " in file.read_text())


def probe(name: str) -> Probe:
    """Return a probe by name. Raises UsageError, naming those that there are."""
    if name not in names():
        raise UsageError(f"probe must be one of {', '.join(names())}, not {name}")
    module = importlib.import_module(f"{__name__}.{name}")
    return Probe(name, module.QUESTION, module.SETTLES, module.measure)


def ask(name: str, on: str) -> dict[str, Any]:
    """Ask the simulator ("sim") or the GPU ("gpu"); return the question, who answered, and the answer."""
    asked = probe(name)
    launch, who = _launcher(on)
    answer = asked.measure(launch)
    return {"probe": name, "question": asked.question, "settles": asked.settles, **who, "results": answer}


def silicon_answer(name: str) -> dict[str, Any] | None:
    """Return the committed answer of silicon, or None if there is none."""
    path = SILICON / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def silicon_results(name: str) -> dict[str, Any]:
    """Return what silicon answered. Raises UsageError for a probe without a committed answer."""
    answer = silicon_answer(name)
    if answer is None:
        raise UsageError(f"probe must have an answer of silicon, not {name}")
    return answer["results"]


def _launcher(on: str) -> tuple[Launch, dict[str, Any]]:
    if on == "gpu":
        from .. import gpu

        return gpu.launch, gpu.card().as_dict()
    if on == "sim":
        import h100sim

        device = h100sim.Device("h200-sxm")

        def launch(
            ptx: str, name: str, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, cluster: Any = (1, 1, 1), times: int = 1
        ) -> Any:
            function = h100sim.RawModule(code=ptx).get_function(name)
            function.max_dynamic_shared_size_bytes = shared_mem
            args = [value(lambda array: device.asarray(array).address) if callable(value) else value for value in args]
            for _ in range(times):
                run = function(grid, block, args, shared_mem=shared_mem, cluster=cluster, device=device, checks="off")
            return run

        return launch, {"card": "simulated h200-sxm"}
    raise UsageError(f"on must be sim or gpu, not {on}")
