"""Lesson 4: one TMA box by hand, what it does at an edge, and what a wrong count of bytes does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import h100sim
from h100sim.layouts import pictures
from tk_programs.lessons.tables import table

PTX = Path(__file__).with_name("tma_box.ptx")
#: The tensor, of f32, and the box, in elements: rows, columns.
TENSOR, BOX = (48, 100), (16, 32)
BOX_BYTES = BOX[0] * BOX[1] * 4
#: What is tried: (what it is, x and y of the box, bytes that the barrier is told to expect).
TRIALS = (
    ("inside the tensor", 32, 16, BOX_BYTES),
    ("over the right and lower edge", 80, 40, BOX_BYTES),
    ("before the first column and row", -4, -2, BOX_BYTES),
    ("one float to the left of that", -5, -2, BOX_BYTES),
    ("the bytes of one row too many", 32, 16, BOX_BYTES + 128),
    ("the bytes of one row too few", 32, 16, BOX_BYTES - 128),
)


def tensor() -> np.ndarray:
    """Return the tensor: element (row, column) is 100 row + column + 1, so that no element is 0."""
    rows, cols = TENSOR
    return (np.arange(rows * cols, dtype=np.float32) + 1).reshape(rows, cols)


def tensor_map(address: int) -> h100sim.TensorMap:
    """Return the tensor map: dimensions innermost first, the stride of a row in bytes, no swizzle, zeros outside."""
    rows, cols = TENSOR
    return h100sim.TensorMap.tiled("f32", address, (cols, rows), (4 * cols,), (BOX[1], BOX[0]), oob_fill="zero")


def run(x: int, y: int, expected_bytes: int) -> dict[str, Any]:
    """Copy the box at (x, y); return how the run ended, what arrived, and the cycles."""
    gpu = h100sim.Device()
    source = gpu.asarray(tensor(), name="tensor")
    out = np.full(BOX, np.nan, np.float32)
    function = h100sim.RawModule(path=PTX).get_function("tma_box")
    arguments = [tensor_map(source.address), out, np.int32(x), np.int32(y), np.uint32(expected_bytes)]
    try:
        ran = function((1,), (128,), arguments, device=gpu, max_cycles=100_000)
    except h100sim.KernelError as error:
        return {"outcome": type(error).__name__, "said": str(error), "cycles": None, "arrived": None}
    finally:
        source.free()
    kinds = sorted({hazard.kind for hazard in ran.hazards})
    said = ran.hazards[0].message if ran.hazards else ""
    return {"outcome": ", ".join(kinds) or "clean", "said": said, "cycles": ran.cycles, "arrived": out}


def box_of(x: int, y: int) -> np.ndarray:
    """Return what should arrive: the box with zeros where it sticks out of the tensor."""
    padded = np.pad(tensor(), 64)
    return padded[64 + y : 64 + y + BOX[0], 64 + x : 64 + x + BOX[1]]


def measure(folder: Path | None = None) -> dict[str, Any]:
    """Run every trial."""
    rows = []
    for what, x, y, expected_bytes in TRIALS:
        result = run(x, y, expected_bytes)
        arrived = result.pop("arrived")
        is_right = arrived is not None and np.array_equal(arrived, box_of(x, y))
        zeros = None if arrived is None else int((arrived == 0).sum())
        rows.append({"what": what, "x": x, "y": y, "bytes": expected_bytes, **result, "is_right": is_right, "zeros": zeros})
    figures: dict[str, Any] = {"trials": rows, "box_bytes": BOX_BYTES, "pictures": []}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tma_box.svg"
        path.write_text(pictures.draw_box(tensor_map(256), TRIALS[1][1:3]))
        figures["pictures"] = [str(path)]
    return figures


def report(figures: dict[str, Any]) -> str:
    """Show how every trial ended, and what the simulator says of those that went wrong."""
    rows = [
        (
            trial["what"],
            f"({trial['x']}, {trial['y']})",
            trial["bytes"],
            trial["outcome"],
            "yes" if trial["is_right"] else "no",
            "-" if trial["zeros"] is None else str(trial["zeros"]),
        )
        for trial in figures["trials"]
    ]
    parts = [table(("box", "x, y", "bytes expected", "outcome", "right", "zeros"), rows)]
    for trial in figures["trials"]:
        if trial["said"]:
            parts.append(f"{trial['what'].capitalize()}:\n\n" + "\n".join("    " + x for x in trial["said"].splitlines()))
    parts += ["Pictures: " + ", ".join(figures["pictures"])] if figures["pictures"] else []
    return "\n\n".join(parts)


def answer(figures: dict[str, Any]) -> str:
    """Say what an edge and a wrong count do."""
    edge, odd, more, fewer = (figures["trials"][i] for i in (1, 3, 4, 5))
    return (
        f"A box that sticks out arrives whole: {edge['zeros']} of its {BOX[0] * BOX[1]} elements are zeros, and the barrier "
        f"counts all {figures['box_bytes']:,} bytes, zeros too. A box may begin before the tensor, but its rows must begin at "
        f"a multiple of 16 bytes ({odd['outcome']} else). With a wrong count the phase never ends: what is left to "
        f"arrive is not zero when the last byte has come, be it above (too many expected: {more['outcome']}) or below "
        f"(too few: {fewer['outcome']})."
    )


if __name__ == "__main__":
    from tk_programs.lessons import teach

    teach("tma_by_hand")
