"""NVIDIA's tools, where this machine has them: ptxas, nvdisasm and nvcc, and what they make of a kernel.

A tool is looked for on the path, then in the packages of the ``cuda`` and ``triton`` extras.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

_PLACES = (("nvidia", "cu13/bin"), ("nvidia", "cuda_nvcc/bin"), ("triton", "backends/nvidia/bin"))


def tool(name: str) -> str | None:
    """Return the path of a tool, or None."""
    return shutil.which(name) or next((path for p in _PLACES if (path := _in_package(*p, name))), None)


def _in_package(package: str, folder: str, name: str) -> str | None:
    spec = importlib.util.find_spec(package)
    found = [Path(root) / folder / name for root in (spec.submodule_search_locations or [])] if spec else []
    return next((str(path) for path in found if path.is_file()), None)


def resources(ptx: str) -> dict[str, int] | None:
    """Return what ptxas says a kernel needs: registers a thread at entry, bytes spilled; None without a ptxas that knows the
    text's version of PTX.
    """
    ptxas = tool("ptxas")
    if ptxas is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            said = _assembled(ptxas, ptx, Path(folder), "-v")[1]
        except subprocess.CalledProcessError:
            return None
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    assert registers, f"ptxas -v must say how many registers a kernel uses, not {said}"
    return {"registers": int(registers[1]), "spilled_bytes": int(spilled[1]) if spilled else 0}


def sass_of_line(ptx: str, file: str, line: int) -> list[str] | None:
    """Return the SASS that a line of Python (by its ``.loc``) became, in order; None without ptxas and nvdisasm."""
    ptxas, nvdisasm = tool("ptxas"), tool("nvdisasm")
    if ptxas is None or nvdisasm is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        cubin = _assembled(ptxas, ptx, Path(folder), "-lineinfo")[0]
        listing = _run([nvdisasm, "--print-line-info", str(cubin)])
    found, inside = [], False
    for text in listing.splitlines():
        marker = re.match(r'\s*//## File "(.*)", line (\d+)', text)
        if marker:
            inside = Path(marker[1]).name == Path(file).name and int(marker[2]) == line
        elif inside and (instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text)):
            found.append(instruction[1])
    return found


def _assembled(ptxas: str, ptx: str, folder: Path, *options: str) -> tuple[Path, str]:
    (folder / "kernel.ptx").write_text(ptx)
    cubin = folder / "kernel.cubin"
    return cubin, _run([ptxas, "-arch=sm_90a", *options, str(folder / "kernel.ptx"), "-o", str(cubin)])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout + done.stderr


#: A kernel of one line over a template library (CUB comes with CUDA), to time the compiler's front end.
_CUDA = """#include <cub/block/block_reduce.cuh>
extern "C" __global__ void total(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage scratch;
  float sum = Reduce(scratch).Sum(x[blockIdx.x * 128 + threadIdx.x]);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""


def seconds_of_nvcc() -> float | None:
    """Return how long nvcc takes from a few lines over a template library to PTX; None without nvcc or the library."""
    nvcc = tool("nvcc")
    if nvcc is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(_CUDA)
        started = time.perf_counter()
        try:
            _run([nvcc, "-arch=sm_90a", "-ptx", str(source), "-o", str(source.with_suffix(".ptx"))])
        except (OSError, subprocess.SubprocessError):
            return None
        return time.perf_counter() - started
