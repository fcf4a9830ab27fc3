"""How long a newcomer waits: the first run on a machine, which compiles, and every later start.

    python -m benchmarks.bench_start

Each command runs in a process of its own; a first run finds no compiled code in its cache, the later ones all of it. On a busy
machine processor time says more: two processes compile, so half of it is what a first run takes on two idle cores.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPERATIONS = [
    *("-m", "h100sim", "run", str(Path(__file__).with_name("operations.ptx"))),
    *("--grid", "1", "--block", "32", "--arg", "arange:u32:32"),
]
#: What is run, and whether without anything compiled before.
COMMANDS = (
    ("import h100sim", ["-c", "import h100sim"], False),
    ("h100sim --help", ["-m", "h100sim", "--help"], False),
    ("h100sim list", ["-m", "h100sim", "list"], False),
    ("75 operations, first ever", OPERATIONS, True),
    ("75 operations, later", OPERATIONS, False),
    ("the same without checks, first ever", [*OPERATIONS, "--checks", "off"], True),
    ("h100sim run gemm, first ever", ["-m", "h100sim", "run", "gemm"], True),
    ("h100sim run gemm, later", ["-m", "h100sim", "run", "gemm"], False),
    ("h100sim check gemm, later", ["-m", "h100sim", "check", "gemm"], False),
)


def processor_seconds() -> float:
    """Return the processor time that processes started here, and those that they started, have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for k, (name, words, is_first) in enumerate(COMMANDS):
            if is_first or k == 0:
                environment = {**os.environ, "H100SIM_CACHE_DIR": str(Path(folder) / str(k))}
            start, used = time.perf_counter(), processor_seconds()
            done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
            seconds, used = time.perf_counter() - start, processor_seconds() - used
            problem = "" if done.returncode == 0 else f"  (exit status {done.returncode}: {done.stderr.strip()[-100:]})"
            print(f"{name:<36} {seconds:7.2f} s, {used:6.2f} s of processor time{problem}", flush=True)


if __name__ == "__main__":
    main()
