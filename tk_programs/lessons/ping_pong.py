"""Lesson 5: two warpgroups trade softmax against matrix products, and what each step towards that buys."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from h100sim import intervals
from h100sim.trace import Event, Trace
from tk_programs import attention
from tk_programs.lessons import silicon
from tk_programs.lessons.tables import table

N, D, KV = 1024, 128, 128
#: (order, overlap) and what to call it.
WAYS = {
    (False, False): "one after the other",
    (True, False): "turns at the tensor core",
    (False, True): "overlap inside a warpgroup",
    (True, True): "both",
}
#: Cycles that the tensor core needs for the products of two consumers with one block of keys.
#: Spec: H100 whitepaper, "H100 SM Architecture": 4,096 dense bf16 operations per SM and cycle.
BLOCK_CYCLES_AT_PEAK = 2 * (4 * 64 * KV * D) // 4096
#: Columns of the drawn timeline.
_WIDTH = 96


def measure(folder: Path | None = None) -> dict[str, Any]:
    """Run attention in the four ways; return cycles, how busy the tensor core was, and the timelines of one CTA."""
    inputs = attention.inputs(0, n=N, d=D)
    exact, allowed = attention.reference(*inputs)
    rows: list[dict[str, Any]] = []
    first = None
    on_silicon = {(p["order"], p["overlap"]): p["cycles"] for p in silicon.times()["ping_pong"]}
    for (order, overlap), words in WAYS.items():
        kernel = attention.build(n=N, d=D, kv=KV, order=order, overlap=overlap)
        out = kernel.run(*inputs, trace="full")
        first = out if first is None else first
        run = kernel.last_run
        block = cycles_of_a_block(run.trace)
        rows.append(
            {
                "way": words,
                "order": order,
                "overlap": overlap,
                "cycles": run.cycles,
                "silicon_cycles": on_silicon[order, overlap],
                "cycles_of_a_block": block,
                "of_peak": round(BLOCK_CYCLES_AT_PEAK / block, 4),
                "softmax_beside_products": round(softmax_beside_products(run.trace), 4),
                "timeline": timeline(run.trace),
                "hazards": len(run.hazards),
                "same_bits": bool(np.array_equal(out.view(np.uint16), first.view(np.uint16))),
                "is_right": bool((np.abs(out.astype(np.float64) - exact) <= allowed).all()),
            }
        )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        run.trace.to_perfetto(folder / "ping_pong.pftrace")
    return {"n": N, "d": D, "ways": rows, "pictures": [] if folder is None else [str(folder / "ping_pong.pftrace")]}


def products(trace: Trace, consumer: int) -> np.ndarray:
    """Return the wgmma operations of a consumer of CTA 0 in the order in which they started (WGMMA_INTERVAL)."""
    found = intervals.wgmmas(trace)
    ranks = trace.warps["rank"][found["warp"]] // 4
    return np.sort(found[(found["cta"] == 0) & (ranks == 1 + consumer)], order="started")


def softmax_times(trace: Trace, consumer: int) -> np.ndarray:
    """Return the cycles at which the first warp of a consumer of CTA 0 issued an exponential."""
    exponentials = [pc for pc, opcode in enumerate(trace.kernel.opcodes) if opcode.startswith("ex2")]
    (warp,) = np.flatnonzero((trace.warps["cta"] == 0) & (trace.warps["rank"] == 4 * (1 + consumer)))
    issued = trace.of(Event.ISSUED)
    return issued["time"][(issued["warp"] == warp) & np.isin(issued["pc"], exponentials)]


def cycles_of_a_block(trace: Trace) -> int:
    """Return the cycles from one block of keys to the next, the mean over the middle of the loop."""
    started = products(trace, 0)["started"]
    each = (KV + D) // 16
    starts = started[each // 2 :: each][1:-1]
    return round((int(starts[-1]) - int(starts[0])) / (len(starts) - 1))


def softmax_beside_products(trace: Trace) -> float:
    """Return the part of the exponentials that were issued while the tensor core was executing."""
    running = np.concatenate([products(trace, consumer) for consumer in (0, 1)])
    times = np.concatenate([softmax_times(trace, consumer) for consumer in (0, 1)])
    inside = (running["started"][:, None] <= times) & (times < running["completed"][:, None])
    return float(inside.any(0).mean())


def timeline(trace: Trace) -> list[str]:
    """Return a line for each consumer of CTA 0, about four blocks from the middle: # products, = softmax, + both, . else."""
    block = cycles_of_a_block(trace)
    begin = int(products(trace, 0)["started"][(KV + D) // 16 * 2])
    edges = np.linspace(begin, begin + 4 * block, _WIDTH + 1)
    lines = []
    for consumer in (0, 1):
        running, times = products(trace, consumer), softmax_times(trace, consumer)
        marks = []
        for low, high in itertools.pairwise(edges):
            multiplies = bool(((running["started"] < high) & (running["completed"] > low)).any())
            computes = bool(((times >= low) & (times < high)).any())
            marks.append({(False, False): ".", (True, False): "#", (False, True): "=", (True, True): "+"}[multiplies, computes])
        lines.append("".join(marks))
    return lines


def report(figures: dict[str, Any]) -> str:
    """Show the four ways as a table and as timelines."""
    rows = [
        (
            way["way"],
            way["cycles"],
            way["silicon_cycles"],
            way["cycles_of_a_block"],
            f"{way['of_peak']:.0%}",
            f"{way['softmax_beside_products']:.0%}",
            "yes" if way["same_bits"] else "no",
        )
        for way in figures["ways"]
    ]
    head = ("way", "cycles", "on an H200", "cycles a block", "of peak in the loop", "softmax beside products", "same bits")
    parts = [table(head, rows), "Four blocks of both consumers (# products, = softmax, + both at once, . neither):"]
    for way in figures["ways"]:
        parts.append("\n".join([f"    {way['way']}", *(f"      consumer {i}  {x}" for i, x in enumerate(way["timeline"]))]))
    parts += ["Timeline for ui.perfetto.dev: " + figures["pictures"][0]] if figures["pictures"] else []
    return "\n\n".join(parts)


def answer(figures: dict[str, Any]) -> str:
    """Say what each step buys."""
    plain, turns, overlap, both = (way["cycles_of_a_block"] for way in figures["ways"])

    def gain(block: int) -> str:
        return f"{abs(plain - block) / plain:.0%} {'less' if block < plain else 'more'}"

    def whole(way: int, key: str = "cycles") -> str:
        before, after = figures["ways"][0][key], figures["ways"][way][key]
        return f"{(before - after) / before:.0%}"

    return (
        f"A block of keys costs {plain:,} cycles when each warpgroup does one thing after the other. Turns at the tensor core "
        f"cost {gain(turns)}, overlap inside the warpgroups alone {gain(overlap)}, and both together {gain(both)}: "
        f"{both:,} cycles, of which the tensor core needs {BLOCK_CYCLES_AT_PEAK:,} at its peak. The bits are the same in all "
        f"four. Of the whole kernel that is {whole(3)} here and {whole(3, 'silicon_cycles')} on an H200."
    )


if __name__ == "__main__":
    from tk_programs.lessons import teach

    teach("ping_pong")
