"""Which bits of a tensor map does each field of tensormap.replace write?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .timed_kernel import HEADER

QUESTION = "What do 128 bytes hold after tensormap.replace, for every field and ordinal, on zeros and on ones?"
SETTLES = "h100sim/units/tensor_maps.py, write_field: words must be equal here and on silicon"

_FIELDS = (
    ("global_address", "b64", None, (0x123456789ABC0, 16)),
    ("rank", "b32", None, (0, 1, 4, 7)),
    ("box_dim", "b32", 5, (1, 64, 256)),
    ("global_dim", "b32", 5, (1, 1000, 0xFFFFFFFF, 0)),
    ("global_stride", "b64", 4, (16, 4096, 0xFFFFFFFFF0, 24)),
    ("element_stride", "b32", 5, (1, 2, 8)),
)
_IMMEDIATES = (("elemtype", 13), ("interleave_layout", 3), ("swizzle_mode", 4), ("fill_mode", 2))
SPACES = ("global", "shared::cta")


def forms() -> Iterator[tuple[str, str]]:
    """Yield (name, instruction on [%map] of a space that stands for {space})."""
    for field, type_, ordinals, values in _FIELDS:
        for k in range(ordinals or 1):
            for value in values:
                register = "%wide" if type_ == "b64" else "%word"
                ordinal = "" if ordinals is None else f" {k},"
                text = f"mov.{type_} {register}, {value}; "
                text += f"tensormap.replace.tile.{field}.{{space}}.b1024.{type_} [%map],{ordinal} {register};"
                yield f"{field}{'' if ordinals is None else f'[{k}]'} = {value:#x}", text
    for field, count in _IMMEDIATES:
        for value in range(count):
            yield f"{field} = {value}", f"tensormap.replace.tile.{field}.{{space}}.b1024.b32 [%map], {value};"
    yield "elemtype = 11, then 7", "".join(f"tensormap.replace.tile.elemtype.{{space}}.b1024.b32 [%map], {v};" for v in (11, 7))


def kernel(text: str, space: str) -> str:
    """Return ``probe(out)``: change the 128 bytes at out, there or in a copy in shared memory."""
    is_global = space == "global"
    words = range(0, 128, 4)
    to_shared = "\n".join(f"    ld.global.b32 %word, [%out+{k}]; st.shared.b32 [%image+{k}], %word;" for k in words)
    back = "\n".join(f"    ld.shared.b32 %word, [%image+{k}]; st.global.b32 [%out+{k}], %word;" for k in words)
    return f"""{HEADER}.visible .entry probe(.param .u64 out)
{{
    .shared .align 128 .b8 image[128];
    .reg .b64 %out, %map, %wide, %image; .reg .b32 %word;
    ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out; mov.u64 %image, image;
    mov.u64 %map, {"%out" if is_global else "%image"};
{"" if is_global else to_shared}
    {text.format(space=space)}
{"" if is_global else back}
    ret;
}}
"""


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "field = value, on what, in which space" -> the words that changed, {index: value}, in hexadecimal."""
    found = {}
    for name, text in forms():
        for space in SPACES:
            for before in (0, 0xFFFFFFFF):
                out = np.full(32, before, np.uint32)
                launch(kernel(text, space), "probe", (1, 1, 1), (1, 1, 1), [out])
                changed = {str(k): f"{int(out[k]):#010x}" for k in np.flatnonzero(out != before)}
                found[f"{name}, on {'ones' if before else 'zeros'}, {space}"] = changed
    return found
