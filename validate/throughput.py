"""How fast programs are on a Hopper GPU, beside what its owner would otherwise call: cuBLAS and PyTorch's attention.

Every program is launched on arrays that stay on the GPU; the median time of its launches gives TFLOP/s. The references run
in the same process, so that the card and its clock are the same. Without PyTorch they are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from h100sim.cli.target import program_kernel

from . import gpu

#: Launches that are timed, after those that warm the card up.
WARM_UPS, LAUNCHES = 10, 30

_GEMM = {"m": 4096, "n": 4096, "k": 4096}
_ATTENTION = {"batch": 16, "heads": 16, "n": 3072, "d": 128}

#: Program, settings and what to compare it with.
CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gemm_1_mma_sync", _GEMM, "matmul"),
    ("gemm_2_wgmma", _GEMM, "matmul"),
    ("gemm_3_tma", _GEMM, "matmul"),
    ("gemm_4_pipeline", _GEMM, "matmul"),
    ("gemm_5_two_consumers", _GEMM, "matmul"),
    ("gemm_6_multicast", _GEMM, "matmul"),
    ("gemm_7_persistent", {**_GEMM, "ctas": 132}, "matmul"),
    ("gemm_8_tma_store", {**_GEMM, "ctas": 132}, "matmul"),
    ("gemm", {**_GEMM, "bn": 256, "stages": 4}, "matmul"),
    ("gemm_fp8", _GEMM, ""),
    ("attention", {**_ATTENTION}, "attention"),
    ("attention", {**_ATTENTION, "consumers": 3}, "attention"),
    ("attention", {**_ATTENTION, "order": True}, "attention"),
    ("attention", {**_ATTENTION, "overlap": True}, "attention"),
    ("attention", {**_ATTENTION, "order": True, "overlap": True}, "attention"),
    ("attention", {**_ATTENTION, "order": True, "overlap": True, "causal": True}, "attention"),
    ("attention_backward", {**_ATTENTION}, ""),
)

#: What ThunderKittens' own kernels do on an NVIDIA H200 (driver 580, CUDA 13.0), in TFLOP/s, for the same work.
#: Measured: ThunderKittens 2.0 (commit 0b55588d), bf16_h100, fp8_h100 and mha_h100, not with this program.
THUNDERKITTENS = {"matmul": 768.0, "gemm_fp8": 1441.0, "attention": 631.0, "causal": 502.0, "attention_backward": 489.0}


@dataclass(frozen=True)
class Speed:
    """A program's or a reference's median time and rate."""

    name: str
    config: dict[str, Any]
    microseconds: float
    tflops: float


def flop_of(name: str, config: dict[str, Any]) -> float:
    """Return the floating-point operations of a program's products (of attention those that causality leaves)."""
    if "gemm" in name or name == "matmul":
        return 2.0 * config["m"] * config["n"] * config["k"]
    products = 5 if name == "attention_backward" else 2
    whole = 2.0 * products * config["batch"] * config["heads"] * config["n"] ** 2 * config["d"]
    return whole / 2 if config.get("causal") else whole


def measure(cases: tuple[tuple[str, dict[str, Any], str], ...] = CASES) -> dict[str, Any]:
    """Return the card, the speed of every case and of the references. Raises UsageError without a Hopper GPU."""
    speeds = [_program(name, config) for name, config, _ in cases]
    wanted = [(kind, config) for _, config, kind in cases if kind]
    references: dict[str, Speed] = {}
    for kind, config in wanted:
        key = f"{kind}{' causal' if config.get('causal') else ''}"
        if key not in references and (speed := _reference(kind, config)) is not None:
            references[key] = speed
    return {
        **gpu.card().as_dict(),
        "launches": LAUNCHES,
        "programs": [asdict(speed) for speed in speeds],
        "references": {key: asdict(speed) for key, speed in references.items()},
        "thunderkittens_tflops": THUNDERKITTENS,
    }


def _speed(name: str, config: dict[str, Any], milliseconds: list[float]) -> Speed:
    median = statistics.median(milliseconds)
    return Speed(name, config, round(1000 * median, 2), round(flop_of(name, config) / median / 1e9, 1))


def _program(name: str, config: dict[str, Any]) -> Speed:
    _, kernel, whole = program_kernel(name, config)
    return _speed(name, whole, gpu.times(kernel, random_arrays(kernel), WARM_UPS, LAUNCHES))


def random_arrays(kernel: Any) -> list[np.ndarray]:
    """Return normal random numbers for every argument, a block of 2^20 over and over: the programs' own inputs would take
    minutes to make at these sizes.
    """
    block = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
    return [np.resize(block.astype(a.layout.dtype.natural), a.layout.shape) for a in kernel.arguments]


def _reference(kind: str, config: dict[str, Any]) -> Speed | None:
    """Return the speed of PyTorch's matmul (cuBLAS) or attention on random bf16, None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(torch.bfloat16)

    call: Callable[[], Any]
    if kind == "matmul":
        a, b = normal(config["m"], config["k"]), normal(config["k"], config["n"])
        call = lambda: torch.matmul(a, b)  # noqa: E731
    else:
        q, k, v = (normal(config["batch"], config["heads"], config["n"], config["d"]) for _ in range(3))
        causal = bool(config.get("causal"))
        call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
    milliseconds = []
    for i in range(WARM_UPS + LAUNCHES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if i >= WARM_UPS:
            milliseconds.append(begin.elapsed_time(end))
    return _speed(kind, config, milliseconds)


def as_text(answer: dict[str, Any]) -> str:
    """Return the measured speeds as lines."""
    lines = [f"{answer['card']}, driver {answer['driver']}, CUDA {answer['cuda']}, median of {answer['launches']} launches:"]
    for speed in [*answer["programs"], *answer["references"].values()]:
        settings = " ".join(f"{k}={v}" for k, v in speed["config"].items())
        lines.append(f"  {speed['name']:<22}{speed['tflops']:>8.1f} TFLOP/s {speed['microseconds']:>10.1f} us   {settings}")
    lines.append("  ThunderKittens on an H200: " + ", ".join(f"{k} {v:g}" for k, v in answer["thunderkittens_tflops"].items()))
    return "\n".join(lines)
