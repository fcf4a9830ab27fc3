"""What a Hopper GPU says to the lessons: the cycles of their kernels, which the lessons print beside the simulator's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tk_programs import attention, gemm
from tk_programs.lessons import ping_pong, stages, triton_and_tk

from . import gpu

#: Launches whose median counts, after those that warm the card up.
WARM_UPS, LAUNCHES = 3, 9


def measure() -> dict[str, Any]:
    """Run the kernels of lessons 2, 5 and 6. Raises UsageError without a Hopper GPU."""
    return {
        **gpu.card().as_dict(),
        "launches": LAUNCHES,
        "stages": [_stages(in_flight, count) for in_flight in (0, 1) for count in stages.STAGES[in_flight:]],
        "ping_pong": [_ping_pong(order, overlap) for order, overlap in ping_pong.WAYS],
        "triton_and_tk": _triton_and_tk(),
    }


def _cycles(launch: Callable[[], gpu.GpuRun]) -> int:
    """Return the median over launches of the median cycles of a launch's CTAs."""
    runs = [launch() for _ in range(WARM_UPS + LAUNCHES)]
    return int(np.median([np.median(run.cta_cycles) for run in runs[WARM_UPS:]]))


def _of_kernel(kernel: Any, inputs: tuple[np.ndarray, ...]) -> int:
    return _cycles(lambda: gpu.run(kernel, kernel.arrays(*inputs), record_clocks=True))


def _stages(in_flight: int, count: int) -> dict[str, int]:
    cycles = _of_kernel(stages.build(count, in_flight), gemm.inputs(0, m=stages.M, n=stages.N, k=stages.K))
    return {"stages": count, "in_flight": in_flight, "cycles": cycles}


def _ping_pong(order: bool, overlap: bool) -> dict[str, Any]:
    kernel = attention.build(n=ping_pong.N, d=ping_pong.D, kv=ping_pong.KV, order=order, overlap=overlap)
    inputs = attention.inputs(0, n=ping_pong.N, d=ping_pong.D)
    return {"order": order, "overlap": overlap, "cycles": _of_kernel(kernel, inputs)}


def _triton_and_tk() -> dict[str, Any]:
    a, b = gemm.inputs(0, m=triton_and_tk.M, n=triton_and_tk.M, k=triton_and_tk.M)
    kernel = triton_and_tk.tk_kernel()
    ptx, launch = triton_and_tk.kept_triton_kernel()
    c = np.zeros((triton_and_tk.M, triton_and_tk.M), a.dtype)
    scratch = np.zeros(256, np.uint8)

    def triton() -> gpu.GpuRun:
        return gpu.launch(
            ptx, launch["entry"], triton_and_tk.GRID, (launch["threads"],), [a, b, c, scratch, scratch],
            shared_mem=launch["shared_bytes"], record_clocks=True,
        )  # fmt: skip

    times = {"triton": _cycles(triton), "tk": _of_kernel(kernel, (a, b))}
    arrays = kernel.arrays(a, b)
    gpu.run(kernel, arrays)
    return {"cycles_of_a_cta": times, "same_bits": bool(np.array_equal(arrays[2].view(np.uint16), c.view(np.uint16)))}


def as_text(answer: dict[str, Any]) -> str:
    """Return the answers as lines."""
    lines = [f"{answer['card']}, driver {answer['driver']}: median cycles of a CTA"]
    lines += [f"  stages {p['stages']}, in flight {p['in_flight']}: {p['cycles']:,}" for p in answer["stages"]]
    lines += [f"  attention, order {p['order']}, overlap {p['overlap']}: {p['cycles']:,}" for p in answer["ping_pong"]]
    both = answer["triton_and_tk"]
    lines.append(f"  GEMM in Triton {both['cycles_of_a_cta']['triton']:,}, in TK {both['cycles_of_a_cta']['tk']:,}")
    return "\n".join(lines)
