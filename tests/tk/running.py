"""What tests of the DSL share: random tiles, and running a kernel with everything that must hold for it."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from h100sim import tk

#: The bits that an NVIDIA H200 gave (driver 580.159, CUDA 13.0, 2026-11-29) wherever NumPy alone does not settle them.
SILICON = np.load(Path(__file__).parents[1] / "data" / "tk_operations.npz")


def normal(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


@functools.cache
def assembled(ptx):
    """Let ptxas assemble a text for sm_90a, if there is a ptxas; its complaints fail the test."""
    if shutil.which("ptxas") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command = ["ptxas", "-arch=sm_90a", str(path), "-o", str(path.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "arning" not in done.stderr, done.stderr + done.stdout


def checked(kernel, *inputs, on="sim", hazards=(), capture=None):
    """Run a kernel; ptxas must take its text, its first output must have the bits captured under a name, and in the simulator
    it must have no hazards but those of the kinds named."""
    assembled(kernel.ptx)
    result = kernel.run(*inputs, on=on)
    if capture is not None:
        first = result[0] if isinstance(result, tuple) else result
        np.testing.assert_array_equal(first.view(f"u{first.itemsize}"), SILICON[capture], err_msg="bits of an H200")
    if on == "sim":
        found = [str(h) for h in kernel.last_run.hazards if h.kind not in hazards]
        assert not found, "\n".join(found)
    return result


def arrive_once(*semaphores):
    """Set up semaphores for one arrival each."""
    with tk.elect():
        for semaphore in semaphores:
            tk.init_semaphore(semaphore, 1)
        tk.fence_mbarrier_init()
    tk.sync()


def load_all(semaphore, *copies):
    """Load tiles (tile, tensor) at coordinate (0, 0) and wait for them."""
    with tk.elect():
        tk.tma.expect(semaphore, *(tile for tile, _ in copies))
        for tile, tensor in copies:
            tk.tma.load_async(tile, tensor, (0, 0), semaphore)
    tk.wait(semaphore, 0)


def store_one(tensor, tile):
    """Store a tile at coordinate (0, 0) and wait until memory has it."""
    with tk.elect():
        tk.tma.store_async(tensor, tile, (0, 0))
        tk.tma.store_async_wait()
