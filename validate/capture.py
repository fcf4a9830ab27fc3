"""What a program computes on silicon, written down so that tests can hold the simulator to it without a GPU.

A capture is ``NAME.json`` (card, driver, date, the digests of the PTX, of the inputs and of the outputs, cycles per
CTA) and ``NAME.npz`` (the bits of a few tiles of each output, for finding out what differs when a digest does).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from h100sim.cli.target import program_kernel
from h100sim.errors import UsageError

from . import clocks, compare, gpu

SILICON = Path(__file__).parent / "silicon"

#: Rows and columns of a kept tile.
TILE = 64

#: Elements of the outputs of a small capture.
SMALL = 1 << 20

#: Launches with clock records, of a kernel that is loaded once: the first ones warm the clock and what holds code and addresses of
#: pages, and are not kept.
WARM_UPS, RECORDED = 3, 10


@dataclass(frozen=True)
class Capture:
    """A committed capture: what ``NAME.json`` says, and the tiles of ``NAME.npz`` if that was kept.

    The key of a tile is ``<output>_<row>_<column>``.
    """

    name: str
    facts: dict[str, Any]
    tiles: dict[str, np.ndarray]

    @property
    def is_small(self) -> bool:
        """Can the simulator compute its bits in seconds? The others are for their cycles."""
        return sum(int(np.prod(shape)) for shape in self.facts["outputs_shape"].values()) <= SMALL


def build(program: str, config: dict[str, Any], seed: int) -> tuple[Any, list[np.ndarray], dict[str, Any]]:
    """Return the kernel of a program, its arrays (outputs poisoned) and its whole configuration."""
    module, kernel, whole = program_kernel(program, config)
    arrays = kernel.arrays(*module.inputs(seed, **whole))
    for argument, array in zip(kernel.arguments, arrays, strict=True):
        if argument.is_output and not argument.is_input:
            array.view(np.uint8)[...] = gpu.POISON
    return kernel, arrays, whole


def capture(program: str, config: dict[str, Any], out: Path, name: str | None = None, seed: int = 0) -> Path:
    """Run a program on the GPU and write its capture into a folder; return the path of the JSON file."""
    kernel, arrays, whole = build(program, config, seed)
    digests = [compare.sha256(array) for array in arrays]
    run = gpu.run(kernel, arrays)
    outputs = {a.name: x for a, x in zip(kernel.arguments, arrays, strict=True) if a.is_output}
    inputs = {a.name: d for a, d in zip(kernel.arguments, digests, strict=True) if a.is_input}
    facts = {
        **run.card.as_dict(),
        "program": program,
        "config": whole,
        "seed": seed,
        "ptx_sha256": compare.ptx_sha256(kernel.ptx),
        "inputs_sha256": inputs,
        "outputs_sha256": {key: compare.sha256(array) for key, array in outputs.items()},
        "outputs_shape": {key: list(array.shape) for key, array in outputs.items()},
        "outputs_type": {key: array.dtype.name for key, array in outputs.items()},
        "grid": list(kernel.grid),
        "cycles": recorded_cycles(*build(program, config, seed)[:2]),
    }
    stem = name or default_name(program, whole)
    out.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = {k: v for key, array in outputs.items() for k, v in tiles(key, array).items()}
    np.savez_compressed(out / f"{stem}.npz", **kept)
    path = out / f"{stem}.json"
    path.write_text(json.dumps(facts, indent=1) + "\n")
    return path


def recorded_cycles(kernel: Any, arrays: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the cycles of each CTA (median over launches) from clock records, and the day."""
    launches = gpu.cta_cycles(kernel, arrays, WARM_UPS, RECORDED)
    return {
        "date": gpu.card().date,
        "launches": RECORDED,
        "cta_median": [int(count) for count in np.median(launches, axis=0)],
    }


def default_name(program: str, config: dict[str, Any]) -> str:
    """Return "gemm_256" for the GEMM of 256: the program and its first setting."""
    first = next(iter(config.values()), "")
    return f"{program}_{first}" if first != "" else program


def tiles(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Return the bits of the corner tiles and the middle one of the last two dimensions."""
    matrix = compare.bits(array).reshape(-1, array.shape[-1])
    rows, cols = (max(0, size - TILE) for size in matrix.shape)
    corners = {(0, 0), (0, cols), (rows, 0), (rows, cols), (rows // 2, cols // 2)}
    return {f"{name}_{r}_{c}": matrix[r : r + TILE, c : c + TILE] for r, c in sorted(corners)}


def load(name: str, folder: Path = SILICON) -> Capture:
    """Return a capture. Raises UsageError if there is none of that name."""
    path = folder / f"{name}.json"
    if not path.exists():
        raise UsageError(f"capture must be one of {', '.join(names(folder)) or 'none'}, not {name}")
    facts = json.loads(path.read_text())
    kept = folder / f"{name}.npz"
    if not kept.exists():
        return Capture(name, facts, {})
    with np.load(kept) as archive:
        return Capture(name, facts, {key: archive[key] for key in archive.files})


def names(folder: Path = SILICON) -> list[str]:
    """Return the names of a folder's captures whose bits were kept (of the largest only cycles are)."""
    return [p.stem for p in sorted(folder.glob("*.npz"))]


def timed(folder: Path = SILICON) -> list[str]:
    """Return the names of a folder's captures, those without bits too."""
    paths = sorted(folder.glob("*.json"))
    return [path.stem for path in paths if '"cta_median"' in path.read_text()]


def differences(capture: Capture, outputs: dict[str, np.ndarray]) -> list[str]:
    """Return what differs between a capture and outputs by name: nothing if every bit is the same."""
    found = []
    for key, digest in capture.facts["outputs_sha256"].items():
        if compare.sha256(outputs[key]) == digest:
            continue
        here = tiles(key, outputs[key])
        wrong = [(tile, compare.compare(bits, here[tile])) for tile, bits in capture.tiles.items() if tile in here]
        shown = [f"{tile}: {result}" for tile, result in wrong if not result.is_equal]
        found.append("\n".join([f"{key} differs from silicon", *(shown or ["outside the tiles that were kept"])]))
    return found


def of_program(program: str, config: dict[str, Any], seed: int, folder: Path = SILICON) -> Capture | None:
    """Return the capture of a program with these settings, the others as usual; None if there is none. Raises UsageError for settings
    that the program does not have."""
    whole = program_kernel(program, config)[2]
    for name in timed(folder):
        facts = (found := load(name, folder)).facts
        if (facts["program"], facts["config"], facts["seed"]) == (program, whole, seed):
            return found
    return None


def simulated_cycles(capture: Capture, device: Any = "h200-sxm", **options: Any) -> np.ndarray:
    """Return the cycles of each CTA of the capture's program, run here."""
    return cycles_here(capture.facts["program"], capture.facts["config"], capture.facts["seed"], device, **options)


def cycles_here(program: str, config: dict[str, Any], seed: int, device: Any = "h200-sxm", **options: Any) -> np.ndarray:
    """Return the cycles of each CTA as the clock records of the program say, the same text as on silicon, run here."""
    import h100sim

    kernel, arrays, _ = build(program, config, seed)
    gpu_here = h100sim.Device(device)
    ctas, threads = (int(np.prod(sizes)) for sizes in (kernel.grid, kernel.block))
    module = h100sim.RawModule(code=clocks.add_clock_records(kernel.ptx, kernel.name, ctas * threads))
    function = module.get_function(kernel.name)
    function.max_dynamic_shared_size_bytes = kernel.shared_bytes
    buffers = [gpu_here.asarray(array) for array in arrays]
    arguments = kernel.launch_args(*buffers, address_of=lambda buffer: buffer.address)
    options = {"values": "none", "checks": "off", **options}
    function(
        kernel.grid, kernel.block, arguments,
        shared_mem=kernel.shared_bytes, cluster=kernel.cluster, device=gpu_here, **options,
    )  # fmt: skip
    return clocks.cycles_of(module.get_global(clocks.VARIABLE, gpu_here).numpy().view(clocks.RECORD).reshape(ctas, threads))


def simulated(capture: Capture, **options: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Run the program of a capture here, for time alone if it is not small; return its outputs by name and the Run."""
    facts = capture.facts
    module, kernel, _ = program_kernel(facts["program"], facts["config"])
    if not capture.is_small:
        options = {"values": "none", "checks": "off", **options}
    outputs = kernel.run(*module.inputs(facts["seed"], **facts["config"]), **options)
    listed: Sequence[np.ndarray] = outputs if isinstance(outputs, tuple) else (outputs,)
    written = [a.name for a in kernel.arguments if a.is_output]
    return dict(zip(written, listed, strict=True)), kernel.last_run
