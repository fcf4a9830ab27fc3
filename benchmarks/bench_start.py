"""How long a newcomer waits: the first run on a machine, which compiles, and every later start.

    python -m benchmarks.bench_start

Each command runs in a process of its own; the first run finds no compiled code in its cache, the later ones all of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

COMMANDS = (
    ("import h100sim", ["-c", "import h100sim"]),
    ("h100sim --help", ["-m", "h100sim", "--help"]),
    ("h100sim list", ["-m", "h100sim", "list"]),
    ("h100sim run gemm, first ever", ["-m", "h100sim", "run", "gemm"]),
    ("h100sim run gemm, later", ["-m", "h100sim", "run", "gemm"]),
    ("h100sim check gemm, later", ["-m", "h100sim", "check", "gemm"]),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "H100SIM_CACHE_DIR": cache}
        for name, words in COMMANDS:
            start = time.perf_counter()
            done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - start
            problem = "" if done.returncode == 0 else f"  (exit status {done.returncode}: {done.stderr.strip()[-100:]})"
            print(f"{name:<30} {seconds:7.2f} s{problem}")


if __name__ == "__main__":
    main()
