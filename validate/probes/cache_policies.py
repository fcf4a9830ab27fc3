"""Which words does createpolicy return?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "Which 64-bit words does createpolicy return, for every priority, fraction and range?"
SETTLES = "h100sim/units/cache_hints.py: words must be equal here and on silicon"

PRIMARY = ("evict_last", "evict_normal", "evict_first", "evict_unchanged")
SECONDARY = ("", "evict_first", "evict_unchanged")
FRACTIONS = (None, 1.0, 0.9375, 0.9, 0.5, 0.3, 0.25, 0.1, 0.0625, 0.05, 0.01)
#: (address, bytes of the primary part, bytes in all).
RANGES = ((0x7F0000000000, 4096, 8192), (0x7F0012345680, 65536, 65536), (0x7F0012345680, 100, 1 << 20), (0x1000, 1 << 20, 1 << 26),
          (0x7F00FFFFF000, 1 << 24, 1 << 31), (0x7F0000000000, 0, 4096),
          (0x7F0000000000, 1, 1), (0x7F0000100000, 3 << 20, 5 << 20))  # fmt: skip


def forms() -> dict[str, str]:
    """Return name -> an instruction that writes %policy; %from, %primary and %total are its registers."""
    found = {}
    for primary in PRIMARY:
        for secondary in SECONDARY:
            parts = f"L2::{primary}" + (f".L2::{secondary}" if secondary else "")
            for fraction in FRACTIONS:
                given = "" if fraction is None else f", {fraction}"
                found[f"fractional.{parts}{given}"] = f"createpolicy.fractional.{parts}.b64 %policy{given};"
            for address, first, total in RANGES:
                setup = f"mov.u64 %from, {address}; mov.u32 %primary, {first}; mov.u32 %total, {total};"
                code = f"{setup} createpolicy.range.global.{parts}.b64 %policy, [%from], %primary, %total;"
                found[f"range.{parts}, {address:#x}, {first}, {total}"] = code
    return found


def kernel(instructions: list[str]) -> str:
    body = "\n".join(f"    {text} st.global.b64 [%out+{8 * k}], %policy;" for k, text in enumerate(instructions))
    return f"""{HEADER}.visible .entry probe(.param .u64 out)
{{
    .reg .b64 %policy, %from, %out; .reg .b32 %primary, %total;
    ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out;
{body}
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return form -> the word, in hexadecimal."""
    wanted = forms()
    out = np.zeros(len(wanted), np.uint64)
    launch(kernel(list(wanted.values())), "probe", (1, 1, 1), (1, 1, 1), [out])
    return {name: f"{int(word):#018x}" for name, word in zip(wanted, out, strict=True)}
