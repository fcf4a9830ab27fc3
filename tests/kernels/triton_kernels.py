"""Triton kernels: ``python tests/kernels/triton_kernels.py`` writes triton_NAME.ptx beside this file, without a GPU.

Needs Triton 3.9. Debug sections, comments and .loc are left out of what is committed.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul_kernel(a, b, c, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b in f16, any size: cp.async and wgmma."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * sam + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0.0)
        y = tl.load(b + (k + rk)[:, None] * sbk + rn[None, :], mask=((k + rk)[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * scm + rn[None, :], acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def flash_kernel(Q, K, V, O, scale, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):  # noqa: E741
    """Attention with an online softmax."""
    pm, rn, d = tl.program_id(0), tl.arange(0, BN), tl.arange(0, D)
    rm, base = pm * BM + tl.arange(0, BM), tl.program_id(1) * n * D
    q = tl.load(Q + base + rm[:, None] * D + d[None, :])
    m, l = tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32)  # noqa: E741
    acc = tl.zeros([BM, D], tl.float32)
    for j in range(0, (pm + 1) * BM if CAUSAL else n, BN):
        k = tl.load(K + base + (j + rn)[:, None] * D + d[None, :])
        s = tl.dot(q, tl.trans(k)) * scale
        if CAUSAL:
            s = tl.where(rm[:, None] >= (j + rn)[None, :], s, -float("inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p, a = tl.math.exp2(s - top[:, None]), tl.math.exp2(m - top)
        l = l * a + tl.sum(p, 1)  # noqa: E741
        v = tl.load(V + base + (j + rn)[:, None] * D + d[None, :])
        acc, m = tl.dot(p.to(q.dtype), v, acc * a[:, None]), top
    tl.store(O + base + rm[:, None] * D + d[None, :], (acc / l[:, None]).to(q.dtype))


@triton.jit
def tma_matmul_kernel(ad, bd, cd, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b^T in f16 by tensor descriptors."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(ad.load([pm * BM, k]), bd.load([pn * BN, k]).T, acc)
    cd.store([pm * BM, pn * BN], acc.to(tl.float16))


def build(kernel, name: str, signature: dict[str, str], constants: dict[str, object], divisible: set[str], **options: int) -> None:
    names = list(kernel.arg_names)
    source = ASTSource(
        fn=kernel,
        signature={**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs={(names.index(k),): v for k, v in constants.items()},
        attrs={(names.index(k),): [["tt.divisibility", 16]] for k in divisible},
    )
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    with open(__file__.replace("triton_kernels.py", f"triton_{name}.ptx"), "w") as file:
        file.write(ptx)


if __name__ == "__main__":
    half = dict.fromkeys("abc", "*fp16") | dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), "i32")
    build(matmul_kernel, "mm16", half, {"BM": 64, "BN": 64, "BK": 32}, {*"abcNK", "sam", "sbk", "scm"}, num_warps=4, num_stages=3)
    rows = dict.fromkeys("QKVO", "*bf16") | {"scale": "fp32", "n": "i32"}
    build(flash_kernel, "flash", rows, {"D": 64, "BM": 64, "BN": 32, "CAUSAL": True}, {*"QKVO"}, num_stages=3)
    maps = dict.fromkeys(("ad", "bd", "cd"), "tensordesc<fp16[64, 64]>") | {"K": "i32"}
    build(tma_matmul_kernel, "tmamm", maps, {"BM": 64, "BN": 64, "BK": 64}, {"K"})
