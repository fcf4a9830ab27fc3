"""Lesson 2: a producer and a consumer with 1 to 6 slots between them, and why more of them stop to help."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from h100sim import report as reports
from h100sim import tk
from h100sim.errors import UsageError
from tk_programs import gemm
from tk_programs.lessons import silicon
from tk_programs.lessons.tables import table

M, N, K, BK = 128, 128, 2048, 64
STAGES = (1, 2, 3, 4, 5, 6)
CONSUMERS = M // 64


def build(stages: int = 2, in_flight: int = 0) -> tk.Kernel:
    """Return the kernel that multiplies M x K by K x N in one CTA: a producer, two consumers, ``stages`` slots.

    ``in_flight``: 0, a consumer waits for each step's product before it frees the slot; 1, it leaves one product running
    and frees the slot of the one before. Raises UsageError where slots are fewer than products in flight need.
    """
    if in_flight not in (0, 1):
        raise UsageError(f"in_flight must be 0 or 1, not {in_flight}")
    if stages <= in_flight:
        raise UsageError(f"stages must be more than the {in_flight} in flight, not {stages}")
    A, B, C = tk.gl(tk.bf16, M, K), tk.gl(tk.bf16, K, N), tk.gl(tk.bf16, M, N)

    @tk.kernel(grid=1, warpgroups=1 + CONSUMERS, A=A, B=B, C=C)
    def staged(A, B, C):
        a, b = tk.st(tk.bf16, 64, BK, count=(stages, CONSUMERS)), tk.st(tk.bf16, BK, N, count=stages)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, CONSUMERS)
            tk.fence_mbarrier_init()
        tk.sync()

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(40)
            ring = tk.ring(stages)
            with tk.elect():
                for step in tk.range(K // BK):
                    tk.wait(empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(full[ring.stage], (M + N) * BK * 2)
                    for i in range(CONSUMERS):
                        tk.tma.load_async(a[ring.stage, i], A, (i, step), full[ring.stage])
                    tk.tma.load_async(b[ring.stage], B, (step, 0), full[ring.stage])
                    ring.advance()

        with tk.warpgroups(*range(1, 1 + CONSUMERS), name="consumer") as consumer:
            tk.warpgroup.increase_registers(232)
            acc = tk.rt(tk.fl, 16, N)
            tk.warp.zero(acc)
            ring, done = tk.ring(stages), tk.ring(stages)
            for step in tk.range(K // BK):
                tk.wait(full[ring.stage], ring.phase)
                tk.warpgroup.mma_AB(acc, a[ring.stage, consumer], b[ring.stage])
                tk.warpgroup.mma_async_wait(in_flight)
                with tk.when(step >= in_flight):
                    tk.warpgroup.arrive(empty[done.stage])
                    done.advance()
                ring.advance()
            tk.warpgroup.mma_async_wait()
            tk.warpgroup.store(C, acc, (consumer, 0))

    return staged


def measure(pictures: Path | None = None) -> dict[str, Any]:
    """Run every number of stages both ways; return cycles and floating-point operations a cycle."""
    inputs = gemm.inputs(0, m=M, n=N, k=K)
    exact, allowed = gemm.reference(*inputs)
    on_silicon = {(p["stages"], p["in_flight"]): p["cycles"] for p in silicon.times()["stages"]}
    curves = []
    for in_flight in (0, 1):
        for stages in STAGES[in_flight:]:
            kernel = build(stages, in_flight)
            c = kernel.run(*inputs)
            summary = reports.summarise(kernel.last_run.trace)
            (consumer,) = (role for role in summary.roles if role.name == "consumer 0")
            waits = {wait.what: round(wait.cycles) for wait in consumer.waits}
            curves.append(
                {
                    "stages": stages,
                    "in_flight": in_flight,
                    "cycles": kernel.last_run.cycles,
                    "silicon_cycles": on_silicon[stages, in_flight],
                    "flop_per_cycle": round(2 * M * N * K / kernel.last_run.cycles),
                    "of_peak": round(summary.tensor_cores.of_peak, 4),
                    "waits_for_copies": waits.get("full", 0),
                    "waits_for_products": waits.get("wgmma results", 0),
                    "hazards": len(kernel.last_run.hazards),
                    "is_right": bool((np.abs(c.astype(np.float64) - exact) <= allowed).all()),
                }
            )
    return {"curves": curves}


def report(figures: dict[str, Any]) -> str:
    """Show both curves as a table and as bars."""
    curves = figures["curves"]
    most = max(point["flop_per_cycle"] for point in curves)
    rows = [
        (
            point["stages"],
            point["in_flight"],
            point["cycles"],
            point["silicon_cycles"],
            point["flop_per_cycle"],
            point["waits_for_copies"],
            point["waits_for_products"],
            "#" * round(40 * point["flop_per_cycle"] / most),
        )
        for point in curves
    ]
    head = ("stages", "in flight", "cycles", "on an H200", "FLOP/cycle", "waits for copies", "for products", "throughput")
    return table(head, rows)


def flat_from(curve: list[dict[str, Any]]) -> int:
    """Return the fewest stages that come within 2 % of a curve's best."""
    best = min(point["cycles"] for point in curve)
    return min(point["stages"] for point in curve if point["cycles"] <= 1.02 * best)


def answer(figures: dict[str, Any]) -> str:
    """Say where the curves flatten, and why."""
    drained, running = ([p for p in figures["curves"] if p["in_flight"] == i] for i in (0, 1))
    one, two, best = drained[0], drained[1], min(drained, key=lambda p: p["cycles"])
    faster = min(drained, key=lambda p: p["cycles"])["cycles"] / min(running, key=lambda p: p["cycles"])["cycles"]
    later = " (a slot is freed a step later, so one more is needed)" if flat_from(running) > flat_from(drained) else ""
    return (
        f"The second slot makes the kernel {one['cycles'] / two['cycles']:.2f} times as fast, and with a wait for the product "
        f"at the end of each step the curve is flat from {flat_from(drained)} stages on: there a consumer waits only "
        f"{best['waits_for_copies']:,} cycles for copies, and {best['waits_for_products']:,} for its own products. More slots "
        f"would shorten the first wait, which is as good as gone. With one product left running the curve is flat from "
        f"{flat_from(running)} stages on{later} and the kernel "
        f"{faster:.2f} times as fast as the best with a drain, at {max(p['of_peak'] for p in running):.0%} of the tensor "
        f"core's peak."
    )


if __name__ == "__main__":
    from tk_programs.lessons import teach

    teach("stages")
