"""What tests of the DSL share: random tiles, and running a kernel with everything that must hold for it."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np


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


def checked(kernel, *inputs, on="sim", hazards=()):
    """Run a kernel; ptxas must take its text, and in the simulator it must have no hazards but those of the kinds
    named."""
    assembled(kernel.ptx)
    result = kernel.run(*inputs, on=on)
    if on == "sim":
        found = [str(h) for h in kernel.last_run.hazards if h.kind not in hazards]
        assert not found, "\n".join(found)
    return result
