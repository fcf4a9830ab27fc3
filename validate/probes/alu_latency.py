"""How long until a dependent instruction can use the result of an arithmetic instruction?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import per_repetition, timed_kernel

QUESTION = "How many cycles does each instruction of a dependent chain take, in one warp?"
SETTLES = "h100sim/devices.py, Issue: the *_latency fields"

#: Opcode of the chain, its operands, and the registers they need; %x carries the chain.
CHAINS = {
    "fma.rn.f32": "fma.rn.f32 %f0, %f0, %f1, %f2;",
    "mad.lo.s32": "mad.lo.s32 %x, %x, %i1, %i2;",
    "lop3.b32": "lop3.b32 %x, %x, %i1, %i2, 0x96;",
    "fma.rn.f16x2": "fma.rn.f16x2 %x, %x, %i1, %i2;",
    "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 %f0, %f0;",
    "fma.rn.f64": "fma.rn.f64 %d0, %d0, %d1, %d2;",
    "shfl.sync.bfly.b32": "shfl.sync.bfly.b32 %x, %x, 1, 31, 0xffffffff; add.u32 %x, %x, %lane;",
    "add.f32": "add.f32 %f0, %f0, %f1;",
    "max.f32": "max.f32 %f0, %f0, %f1;",
    "add.s32": "add.s32 %x, %x, %i1; xor.b32 %x, %x, %i2;",
    "shl.b32": "shl.b32 %x, %x, %i1;",
    "setp + selp": "setp.lt.s32 %q0, %x, %i1; selp.b32 %x, %i2, %i1, %q0;",
}

_REGISTERS = (
    ".reg .f32 %f<4>; .reg .f64 %d<4>; .reg .b32 %i<4>, %u<4>; .reg .b32 %low, %high; .reg .pred %q<4>; .reg .b64 %w, %state;"
)

#: Operands come from the parameter, so that nothing can be folded; the chains start from %z, so after the clock.
_SETUP = """cvt.rn.f32.u32 %f1, %zero;
    mov.f32 %f2, %f1;
    mov.b32 %i1, %zero;
    mov.b32 %i2, %lane;
    cvt.rn.f64.u32 %d1, %zero;
    mov.f64 %d2, %d1;
    setp.eq.u32 %q1, %lane, 0;
    @%q1 mbarrier.init.shared::cta.b64 [%smem+512], 1000;"""

#: The lane keeps the assembler from seeing that every lane has the same value, for which a shuffle is nothing.
_START = "add.u32 %x, %z, %lane; cvt.rn.f32.u32 %f0, %x; cvt.rn.f64.u32 %d0, %x;"
_END = "mov.b64 {%low, %high}, %d0; mov.b32 %i3, %f0; xor.b32 %x, %x, %i3; xor.b32 %x, %x, %low;"


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return opcode -> cycles per instruction of a dependent chain."""

    def text(line: str) -> Callable[[int], str]:
        def build(n: int) -> str:
            chain = [line.replace("{k}", str(k)) for k in range(n)]
            return timed_kernel("\n    ".join([_START, *chain, _END]), _REGISTERS, _SETUP)

        return build

    return {opcode: per_repetition(launch, text(line), few=32, many=160) for opcode, line in CHAINS.items()}
