"""Compile the CUDA C++ of this folder: ``python tests/kernels/build.py [NAME ...]`` writes NAME.ptx beside NAME.cu.

Needs nvcc of CUDA 13.0. The comments at the head of what it writes name the compiler's build and are left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def build(source: Path) -> None:
    target = source.with_suffix(".ptx")
    subprocess.run(["nvcc", "-arch=sm_90a", "-std=c++17", "-O3", "-ptx", source.name, "-o", target.name], cwd=HERE, check=True)
    text = target.read_text()
    target.write_text(f"// From {source.name} by nvcc 13.0 -arch=sm_90a -O3.\n" + text[text.index(".version") :])


if __name__ == "__main__":
    names = sys.argv[1:]
    for path in sorted(HERE.glob("*.cu")):
        if not names or path.stem in names:
            build(path)
