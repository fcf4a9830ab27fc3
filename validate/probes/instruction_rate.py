"""How often can a warp, and how often can four warps on four schedulers, issue each instruction?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .timed_kernel import per_repetition, timed_kernel

QUESTION = "How many cycles does an instruction that waits for nothing take, with one warp and with one per scheduler?"
SETTLES = "h100sim/devices.py, Issue: the *_cycles fields; SharedMemory; Barriers.fence_cycles"

#: Chains that do not depend on each other.
CHAINS = 8

#: What is counted: {i} is the number of the chain. %r, %f, %d are its registers, %i0 to %i2 and %g0 to %g2 are operands.
FORMS = {
    "fma.rn.f32": "fma.rn.f32 %f{i}, %f{i}, %g1, %g2;",
    "add.f32": "add.f32 %f{i}, %f{i}, %g1;",
    "mul.f32": "mul.f32 %f{i}, %f{i}, %g1;",
    "max.f32": "max.f32 %f{i}, %f{i}, %g1;",
    "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 %f{i}, %f{i};",
    "rsqrt.approx.ftz.f32": "rsqrt.approx.ftz.f32 %f{i}, %f{i};",
    "cvt.rn.bf16x2.f32": "cvt.rn.bf16x2.f32 %r{i}, %f{i}, %g1; mov.b32 %f{i}, %r{i};",
    "fma.rn.bf16x2": "fma.rn.bf16x2 %r{i}, %r{i}, %i1, %i2;",
    "add.s32": "add.s32 %r{i}, %r{i}, %i1;",
    "mad.lo.s32": "mad.lo.s32 %r{i}, %r{i}, %i1, %i2;",
    "lop3.b32": "lop3.b32 %r{i}, %r{i}, %i1, %i2, 0x96;",
    "shl.b32": "shl.b32 %r{i}, %r{i}, %i1;",
    "prmt.b32": "prmt.b32 %r{i}, %r{i}, %i1, %i2;",
    "setp + selp": "setp.lt.s32 %q{i}, %r{i}, %i1; selp.b32 %r{i}, %i2, %i1, %q{i};",
    "popc.b32": "popc.b32 %r{i}, %r{i};",
    "fma.rn.f64": "fma.rn.f64 %d{i}, %d{i}, %d8, %d9;",
    "shfl.sync.bfly": "shfl.sync.bfly.b32 %r{i}, %r{i}, 1, 31, 0xffffffff;",
    "ld.shared.b32": "and.b32 %u0, %r{i}, %i1; add.u32 %u0, %u0, %word; ld.volatile.shared.b32 %r{i}, [%u0];",
    "st.shared.b32": "st.volatile.shared.b32 [%word], %r{i};",
    "st.shared.v4.b32": "st.volatile.shared.v4.b32 [%quad], {{%r{i}, %r{i}, %r{i}, %r{i}}};",
    "ldmatrix.x4": "and.b32 %u0, %r{i}, %i1; add.u32 %u0, %u0, %quad;"
    " ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r{i}, %u1, %u2, %u3}}, [%u0];",
    "stmatrix.x4": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%quad], {{%r{i}, %r{i}, %r{i}, %r{i}}};",
    "bar.sync of the warp": "bar.sync %bar, 32;",
    "fence.proxy.async": "fence.proxy.async.shared::cta;",
    "st.shared + fence.proxy.async": "st.volatile.shared.b32 [%word], %r{i}; fence.proxy.async.shared::cta;",
    "membar.cta": "fence.acq_rel.cta;",
    "wgmma.fence": "wgmma.fence.sync.aligned;",
    "mov from %laneid": "mov.u32 %u0, %laneid; add.s32 %r{i}, %r{i}, %u0;",
    "mov from %clock": "mov.u32 %u0, %clock; add.s32 %r{i}, %r{i}, %u0;",
}
#: Instructions that need a whole warpgroup.
GROUPS = ("wgmma.fence",)

_REGISTERS = (
    ".reg .f32 %f<10>, %g<4>; .reg .f64 %d<10>; .reg .b32 %r<10>, %i<4>, %u<4>, %word, %quad, %bar, %low, %high;"
    ".reg .pred %q<10>; .reg .b64 %w;"
)
#: Four warps store to rows of their own.
_SETUP = """cvt.rn.f32.u32 %g1, %zero;
    mov.f32 %g2, %g1;
    mov.b32 %i1, %zero;
    mov.b32 %i2, %lane;
    cvt.rn.f64.u32 %d8, %zero;
    mov.f64 %d9, %d8;
    mad.lo.u32 %word, %warp, 1024, %smem;
    mad.lo.u32 %quad, %lane, 16, %word;
    mad.lo.u32 %word, %lane, 4, %word;
    add.u32 %bar, %warp, 1;"""
_START = "".join(
    f"add.u32 %r{i}, %z, %lane; add.u32 %r{i}, %r{i}, {i}; cvt.rn.f32.u32 %f{i}, %r{i}; cvt.rn.f64.u32 %d{i}, %r{i};\n    "
    for i in range(CHAINS)
)
_END = "".join(
    f"mov.b64 {{%low, %high}}, %d{i}; mov.b32 %i3, %f{i}; xor.b32 %x, %x, %i3; xor.b32 %x, %x, %low; xor.b32 %x, %x, %r{i};\n    "
    for i in range(CHAINS)
)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return instruction -> cycles per instruction [of one warp, of four warps]; pairs count as one."""

    def text(form: str) -> Callable[[int], str]:
        def build(n: int) -> str:
            body = "\n    ".join(form.format(i=k % CHAINS) for k in range(n))
            return timed_kernel(f"{_START}{body}\n    {_END}", _REGISTERS, _SETUP, 8192)

        return build

    return {
        name: [
            None if warps == 1 and name in GROUPS else per_repetition(launch, text(form), few=32, many=160, warps=warps)
            for warps in (1, 4)
        ]
        for name, form in FORMS.items()
    }
