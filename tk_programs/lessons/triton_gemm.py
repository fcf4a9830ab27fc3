"""The GEMM of lesson 6 in Triton: compiled to PTX where Triton is installed (no GPU is needed for that).

``python -m tk_programs.lessons.triton_gemm`` writes ``triton_gemm.ptx`` and ``triton_gemm.json``, which the lesson uses
where Triton is not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def triton_gemm(a, b, c, K: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B in bf16, a tile of BM x BN for each program: pointers in, a loop over K, pointers out."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a + rows[:, None] * K + depth[None, :]
    b_at = b + depth[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += BK
        b_at += BK * N
    tl.store(c + rows[:, None] * N + cols[None, :], acc.to(tl.bfloat16))


def compile_to_ptx(k: int, n: int, bm: int, bn: int, bk: int, stages: int, warps: int) -> tuple[str, dict[str, Any]]:
    """Return the PTX for sm_90a and what a launch needs: entry, threads of a CTA, bytes of shared memory."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    aligned = [("tt.divisibility", 16)]
    source = ASTSource(
        triton_gemm,
        signature={"a": "*bf16", "b": "*bf16", "c": "*bf16", **dict.fromkeys(("K", "N", "BM", "BN", "BK"), "constexpr")},
        constexprs={"K": k, "N": n, "BM": bm, "BN": bn, "BK": bk},
        attrs={(i,): aligned for i in range(3)},
    )
    # PTX 8.7 is of CUDA 12.9: a ptxas older than Triton's own must be able to read the text, too.
    options = {"num_warps": warps, "num_stages": stages, "ptx_version": 87}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    meta = compiled.metadata
    return compiled.asm["ptx"], {
        "entry": meta.name,
        "threads": 32 * meta.num_warps,
        "shared_bytes": meta.shared,
        "stages": meta.num_stages,
        "triton": triton.__version__,
    }


def write(settings: dict[str, int]) -> None:
    """Write the PTX and its launch beside this file."""
    ptx, launch = compile_to_ptx(**settings)
    here = Path(__file__)
    here.with_suffix(".ptx").write_text("\n".join(line.rstrip() for line in ptx.splitlines()) + "\n")
    here.with_suffix(".json").write_text(json.dumps({"settings": settings, "launch": launch}, indent=2) + "\n")


if __name__ == "__main__":
    from tk_programs.lessons.triton_and_tk import SETTINGS

    write(SETTINGS)
