"""Which lane's value stays where several lanes of a warp store to one address with one instruction?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "Which lane of a warp has the last word where lanes store to the same address in one instruction?"
SETTLES = "h100sim/units/load_store.py, store: the order of the lanes"

#: What is stored, and the bytes of it.
FORMS = {
    "b8": 1, "b16": 2, "b32": 4, "b64": 8, "v2.b8": 2, "v4.b8": 4, "v2.b16": 4, "v4.b16": 8, "v2.b32": 8, "v4.b32": 16, "v2.b64": 16,
}  # fmt: skip
SPACES = ("shared", "global")
#: Name -> the slot that each lane stores to, and the lanes that do (a mask).
PATTERNS: dict[str, tuple[list[int], int]] = {
    "all to one": ([0] * 32, 0xFFFFFFFF),
    "odd lanes to one": ([0] * 32, 0xAAAAAAAA),
    "upper half to one": ([0] * 32, 0xFFFF0000),
    "quads": ([lane >> 2 for lane in range(32)], 0xFFFFFFFF),
    "eights": ([lane >> 3 for lane in range(32)], 0xFFFFFFFF),
    "lane modulo 4": ([lane & 3 for lane in range(32)], 0xFFFFFFFF),
    "lane modulo 16": ([lane & 15 for lane in range(32)], 0xFFFFFFFF),
    "scattered": ([(13 * lane + 5) % 11 for lane in range(32)], 0xFFFFFFFF),
    "scattered, some": ([(7 * lane + 3) % 9 for lane in range(32)], 0x5F3A96C7),
    "slots of one bank": ([32 * (lane % 5) for lane in range(32)], 0xFFFFFFFF),
    "one bank, scattered": ([32 * ((5 * lane + 1) % 7) for lane in range(32)], 0xFFFFFFFF),
}
_SLOTS = 256


def kernel(form: str, space: str) -> str:
    """Return ``probe(slots, out)``: each lane stores its number + 1 into every byte of its slot; slots of less than 0 are left out."""
    size = FORMS[form]
    count = int(form[1]) if form[0] == "v" else 1
    type_ = form.split(".")[-1]
    value = {"b8": "%h", "b16": "%h", "b32": "%r", "b64": "%d"}[type_]
    given = value if count == 1 else "{" + ", ".join([value] * count) + "}"
    target = "%s" if space == "shared" else "%g"
    return f"""{HEADER}.visible .entry probe(.param .u64 slots, .param .u64 out)
{{
    .shared .align 16 .b8 memory[{16 * _SLOTS}]; .reg .b16 %h; .reg .b32 %t, %r, %slot, %base, %s, %k, %w; .reg .pred %p, %q;
    .reg .b64 %slots, %out, %d, %g, %o;
    ld.param.u64 %slots, [slots]; ld.param.u64 %out, [out]; cvta.to.global.u64 %slots, %slots; cvta.to.global.u64 %out, %out;
    mov.u32 %t, %tid.x; mov.u32 %base, memory; mul.wide.u32 %o, %t, 4; add.s64 %slots, %slots, %o; ld.global.u32 %slot, [%slots];
    add.u32 %r, %t, 1; mul.lo.u32 %r, %r, 0x01010101; cvt.u16.u32 %h, %r; mov.b64 %d, {{%r, %r}};
    mov.u32 %k, %t;
CLEAR: mad.lo.u32 %s, %k, 4, %base; st.shared.u32 [%s], 0; add.u32 %k, %k, 32; setp.lt.u32 %q, %k, {4 * _SLOTS}; @%q bra CLEAR;
    bar.sync 0;
    setp.ge.s32 %p, %slot, 0;
    mad.lo.s32 %s, %slot, {size}, %base; mul.wide.s32 %o, %slot, {size}; add.s64 %g, %out, %o;
    @%p st.{space}.{form} [{target}], {given};
    bar.sync 0;
    mov.u32 %k, %t;
BACK: mad.lo.u32 %s, %k, 4, %base; ld.shared.u32 %w, [%s]; mul.wide.u32 %o, %k, 4; add.s64 %g, %out, %o;
    {"st.global.u32 [%g], %w;" if space == "shared" else ""}
    add.u32 %k, %k, 32; setp.lt.u32 %q, %k, {4 * _SLOTS}; @%q bra BACK;
    ret;
}}
"""


def winners(launch: Callable[..., Any], form: str, space: str, pattern: str) -> list[int]:
    """Return the lane whose value each slot holds, by slot; -1 for a slot of nobody, -2 where bytes of several lanes are mixed."""
    to, mask = PATTERNS[pattern]
    slots = np.array([slot if mask >> lane & 1 else -1 for lane, slot in enumerate(to)], np.int32)
    out = np.zeros(16 * _SLOTS, np.uint8)
    launch(kernel(form, space), "probe", (1, 1, 1), (32, 1, 1), [slots, out])
    size = FORMS[form]
    held = out[: size * _SLOTS].reshape(_SLOTS, size).astype(int) - 1
    return [int(held[s, 0]) if (held[s] == held[s, 0]).all() else -2 for s in sorted(set(to))]


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return space, form and pattern -> the lane that has the last word, by slot."""
    return {
        f"st.{space}.{form} {pattern}": winners(launch, form, space, pattern)
        for space in SPACES
        for form in FORMS
        for pattern in PATTERNS
    }
