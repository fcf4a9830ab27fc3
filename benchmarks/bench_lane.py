"""How fast lane operations run and compile: nanoseconds per warp instruction, processor seconds per compiled form."""

from __future__ import annotations

import time

import numpy as np

from h100sim.isa import lane
from h100sim.native import call, jit
from h100sim.numerics.scalar import ROW_BYTES

OPCODES = (
    *(
        "add.s32",
        "mul.lo.s32",
        "mad.lo.s32",
        "shl.b32",
        "and.b32",
        "setp.lt.s32",
        "selp.b32",
        "mov.b32",
        "mul.wide.u32",
    ),
    *("add.rn.f32", "fma.rn.f32", "max.f32", "div.rn.f32", "fma.rn.f64", "add.f16x2", "fma.rn.f16x2", "mul.wide.u32"),
    *("ex2.approx.ftz.f32", "rcp.approx.ftz.f32", "tanh.approx.f32", "sin.approx.f32"),
    *("cvt.rn.bf16x2.f32", "cvt.rn.f16x2.f32", "cvt.f32.f16", "cvt.rn.satfinite.e4m3x2.f32"),
)
CALLS = 200_000


@jit
def repeat(address, regs, mask, ops, calls):
    for _ in range(calls):
        call(address, regs, mask, ops, 0)
    return calls


def nanoseconds(form: lane.LaneForm, mask: int) -> float:
    """Return the time of one call on ordinary values (1.0 to 3.0 as f32)."""
    offsets = np.cumsum([0, *(ROW_BYTES[kind] for kind in (*form.outs, *form.ins))]).astype(np.int32)
    regs = np.linspace(1, 3, offsets[-1] // 4, dtype=np.float32)
    address = lane.compile_form(form)
    repeat(address, regs.ctypes.data, mask, offsets.ctypes.data, 100)
    start = time.process_time()
    repeat(address, regs.ctypes.data, mask, offsets.ctypes.data, CALLS)
    return (time.process_time() - start) / CALLS * 1e9


def main() -> None:
    lane.forms()
    lane.compile_form(lane.natural_form("xor.b32"))
    print(f"{'opcode':32}{'compile s':>10}{'all lanes ns':>14}{'31 lanes ns':>13}")
    for opcode in OPCODES:
        form = lane.natural_form(opcode)
        start = time.process_time()
        lane.compile_form(form)
        compiled = time.process_time() - start
        print(f"{opcode:32}{compiled:10.3f}{nanoseconds(form, 0xFFFFFFFF):14.1f}{nanoseconds(form, 0x7FFFFFFF):13.1f}")


if __name__ == "__main__":
    main()
