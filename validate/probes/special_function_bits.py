"""Which bits do the special functions return?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = "Which bits do the approximate functions return on 65,536 inputs over all exponents, both signs and specials?"
SETTLES = "h100sim/numerics: the special functions; digests must be equal here and on silicon"

OPCODES = (
    "ex2.approx.f32",
    "ex2.approx.ftz.f32",
    "lg2.approx.f32",
    "rcp.approx.ftz.f32",
    "rsqrt.approx.f32",
    "sqrt.approx.f32",
    "sin.approx.f32",
    "cos.approx.f32",
    "tanh.approx.f32",
)

COUNT = 65_536

_KERNEL = (
    HEADER
    + """.visible .entry probe(.param .u64 x, .param .u64 y)
{{
    .reg .b32 %index, %threads, %cta;
    .reg .f32 %value;
    .reg .b64 %x, %y, %offset;
    mov.u32 %index, %tid.x;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mad.lo.u32 %index, %cta, %threads, %index;
    mul.wide.u32 %offset, %index, 4;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    add.s64 %x, %x, %offset;
    add.s64 %y, %y, %offset;
    ld.global.f32 %value, [%x];
    {opcode} %value, %value;
    st.global.f32 [%y], %value;
    ret;
}}
"""
)


def inputs() -> np.ndarray:
    """Return the inputs as 32-bit words: evenly spaced bit patterns with random low bits, and the special values."""
    words = (np.arange(COUNT, dtype=np.uint32) << np.uint32(16)) | np.random.default_rng(7).integers(0, 1 << 16, COUNT, np.uint32)
    special = (0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001)
    words[: len(special)] = special
    return words


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return opcode -> SHA-256 of its results."""
    words = inputs()
    found = {}
    for opcode in OPCODES:
        results = np.zeros_like(words)
        launch(_KERNEL.format(opcode=opcode), "probe", (COUNT // 256, 1, 1), (256, 1, 1), [words, results])
        found[opcode] = sha256(results)
    return found
