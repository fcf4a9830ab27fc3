"""How long until a dependent instruction can use what was loaded, exchanged or counted?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import per_repetition, timed_kernel

QUESTION = "How many cycles does each step of a chain take that goes through memory, another lane or a barrier unit, in one warp?"
SETTLES = "h100sim/devices.py, SharedMemory: load_latency; MemorySystem: l1_latency, l2_latency; Issue; h100sim/isa/collective.py"

#: What is chained: %x carries the chain; %z is 0 of the clock, %i1 is 0 and %i2 the lane; %at points to zeros in global memory.
CHAINS = {
    "ld.shared.b32": "ld.shared.b32 %x, [%x];",
    "ld.shared.v4.b32": "ld.shared.v4.b32 {%x, %u1, %u2, %u3}, [%x];",
    "ldmatrix.x1": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x}, [%x];",
    "ldmatrix.x4": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%x, %u1, %u2, %u3}, [%x];",
    "ld.global in L1": "cvt.u64.u32 %w, %x; add.s64 %w, %w, %at; ld.global.b32 %x, [%w];",
    "ld.global.cg": "cvt.u64.u32 %w, %x; add.s64 %w, %w, %at; ld.global.cg.b32 %x, [%w];",
    "ld.volatile.global": "cvt.u64.u32 %w, %x; add.s64 %w, %w, %at; ld.volatile.global.b32 %x, [%w];",
    "atom.shared.add": "atom.shared.add.u32 %x, [%x], %i1;",
    "atom.global.add": "cvt.u64.u32 %w, %x; add.s64 %w, %w, %at; atom.global.add.u32 %x, [%w], %i1;",
    "shfl.sync.bfly": "shfl.sync.bfly.b32 %x, %x, 1, 31, 0xffffffff; xor.b32 %x, %x, %i2;",
    "shfl.sync.idx": "shfl.sync.idx.b32 %x, %x, %i1, 31, 0xffffffff; xor.b32 %x, %x, %i2;",
    "vote.ballot": "setp.lt.u32 %q0, %x, %i2; vote.sync.ballot.b32 %x, %q0, 0xffffffff;",
    "redux.sync.add": "redux.sync.add.s32 %x, %x, 0xffffffff; xor.b32 %x, %x, %i2;",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %x, %x;",
    "match.any": "match.any.sync.b32 %x, %x, 0xffffffff; xor.b32 %x, %x, %i2;",
    "st.shared + ld.shared": "st.volatile.shared.b32 [%x], %x; ld.volatile.shared.b32 %x, [%x];",
    "popc.b32": "popc.b32 %x, %x; xor.b32 %x, %x, %i2;",
    "cvt.rn.f32.s32": "cvt.rn.f32.s32 %f0, %x; mov.b32 %x, %f0;",
    "cvt.rn.bf16x2.f32": "cvt.rn.bf16x2.f32 %x, %f0, %f1; mov.b32 %f0, %x;",
    "rcp.approx.ftz.f32 + add.f32": "rcp.approx.ftz.f32 %f0, %f0; add.f32 %f0, %f0, %f1;",
    "rsqrt.approx.ftz.f32": "rsqrt.approx.ftz.f32 %f0, %f0;",
    "sqrt.rn.f32": "sqrt.rn.f32 %f0, %f0;",
    "div.rn.f32": "div.rn.f32 %f0, %f0, %f1;",
    "div.full.f32": "div.full.f32 %f0, %f0, %f1;",
    "ex2.approx.f32": "ex2.approx.f32 %f0, %f0;",
    "lg2.approx.f32": "lg2.approx.f32 %f0, %f0;",
}
_REGISTERS = ".reg .f32 %f<4>; .reg .b32 %i<4>, %u<4>; .reg .pred %q<4>; .reg .b64 %w, %at;"
_SETUP = """cvt.rn.f32.u32 %f1, %zero;
    add.f32 %f1, %f1, 0f3F800001;
    mov.b32 %i1, %zero;
    mov.b32 %i2, %lane;
    st.shared.v4.b32 [%smem], {%smem, %smem, %smem, %smem};
    add.s64 %at, %out, 4096;"""
#: Chains through shared memory go round one word; those through global memory through words that are 0.
_START = "add.u32 %x, %z, {start}; cvt.rn.f32.u32 %f0, %z; add.f32 %f0, %f0, 0f3FC00000;"
_END = "mov.b32 %i3, %f0; add.u32 %x, %x, %i3;"


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return the step -> cycles of a step."""

    def text(line: str) -> Callable[[int], str]:
        start = _START.format(start="%smem" if "shared" in line else "%lane" if "global" not in line else 0)

        def build(n: int) -> str:
            return timed_kernel("\n    ".join([start, *[line] * n, _END]), _REGISTERS, _SETUP)

        return build

    return {name: per_repetition(_with_room(launch), text(line), few=16, many=64) for name, line in CHAINS.items()}


def _with_room(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch whose output has 4 KB of zeros and more behind it, which the chains in global memory go through."""

    def launched(ptx: str, name: str, grid: Any, block: Any, args: list[Any]) -> Any:
        out = np.zeros(2048, np.int64)
        result = launch(ptx, name, grid, block, [out, *args[1:]])
        args[0][...] = out[: args[0].size]
        return result

    return launched
