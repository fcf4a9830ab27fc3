"""Where does wmma keep its fragments, and which bits does it return?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = "Which elements does each lane hold after wmma.load, and which bits does wmma.mma return for random operands?"
SETTLES = "h100sim/units/wmma.py, position and multiply: digests must be equal here and on silicon"

#: Shape -> (M, N, K).
SHAPES = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16), "m16n16k8": (16, 16, 8), "m8n8k4": (8, 8, 4)}
#: Type of A and B -> (shapes, registers of A and B by shape, types of C and D).
_TALL = ("m16n16k16", "m8n32k16", "m32n8k16")
TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (_TALL, ("f32", "f16")),
    "bf16": (_TALL, ("f32",)),
    "s8": (_TALL, ("s32",)),
    "u8": (_TALL, ("s32",)),
    "tf32": (("m16n16k8",), ("f32",)),
    "f64": (("m8n8k4",), ("f64",)),
}
BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f64": 8, "f32": 4, "s32": 4}


@dataclass(frozen=True)
class Fragment:
    """One fragment: the operand "a", "b" or "c", the layout in memory, the shape and the type."""

    which: str
    layout: str
    shape: str
    type: str

    @property
    def name(self) -> str:
        return f"{self.which}.{self.layout}.{self.shape}.{self.type}"

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        m, n, k = SHAPES[self.shape]
        return {"a": (m, k), "b": (k, n), "c": (m, n)}[self.which]

    @property
    def registers(self) -> int:
        """Registers of a lane. Spec: "wmma.load", the table of fragments."""
        m, n, _ = SHAPES[self.shape]
        if self.which == "c":
            return {"f32": 8, "s32": 8, "f16": 4, "f64": 2}[self.type]
        if self.type == "f16":
            return 8
        if self.type in ("tf32", "f64"):
            return 4 if self.type == "tf32" else 1
        rows = m if self.which == "a" else n
        return {16: 2, 8: 1, 32: 4}[rows] * (2 if self.type == "bf16" else 1)


def fragments() -> Iterator[Fragment]:
    for type_, (shapes, accumulators) in TYPES.items():
        for shape in shapes:
            for layout in ("row", "col"):
                yield from (Fragment(which, layout, shape, type_) for which in "ab")
                if type_ != "u8" and (type_, shape) != ("bf16", shape) and type_ != "tf32":
                    yield from (Fragment("c", layout, shape, d) for d in accumulators)
    yield Fragment("c", "row", "m16n16k8", "f32")


def products() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield (shape, type of A and B, type of D, layout of A, layout of B)."""
    for type_, (shapes, accumulators) in TYPES.items():
        for shape in shapes:
            for d in accumulators:
                for layouts in (("row", "col"), ("col", "row")) if type_ not in ("s8", "u8") else (("row", "col"),):
                    yield shape, type_, d, *layouts


def load_kernel(f: Fragment) -> str:
    """Return ``probe(matrix, out)``: load a fragment without padding and write the registers of each lane."""
    kind, size = ("b64", 8) if f.type == "f64" else ("b32", 4)
    names = ", ".join(f"%x{k}" for k in range(f.registers))
    stores = "\n".join(f"    st.global.{kind} [%out+{size * k}], %x{k};" for k in range(f.registers))
    stride = f.size[1] if f.layout == "row" else f.size[0]
    return f"""{HEADER}.visible .entry probe(.param .u64 matrix, .param .u64 out)
{{
    .reg .{kind} %x<8>; .reg .b32 %t; .reg .b64 %matrix, %out, %o;
    mov.u32 %t, %tid.x; ld.param.u64 %matrix, [matrix]; ld.param.u64 %out, [out];
    cvta.to.global.u64 %matrix, %matrix; cvta.to.global.u64 %out, %out;
    wmma.load.{f.which}.sync.aligned.{f.layout}.{f.shape}.global.{f.type} {{{names}}}, [%matrix], {stride};
    mul.wide.u32 %o, %t, {size * f.registers}; add.s64 %out, %out, %o;
{stores}
    ret;
}}
"""


def product_kernel(shape: str, type_: str, d_type: str, a_layout: str, b_layout: str, satfinite: bool = False) -> str:
    """Return ``probe(a, b, c, d)``: D = A * B + C, with C and D by rows."""
    m, n, k = SHAPES[shape]
    a, b = Fragment("a", a_layout, shape, type_), Fragment("b", b_layout, shape, type_)
    c = Fragment("c", "row", shape, d_type)
    kind = "b64" if type_ == "f64" else "b32"
    c_kind = {"f32": "f32", "f64": "b64"}.get(d_type, "b32")

    def names(prefix: str, count: int) -> str:
        return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"

    types = f"{d_type}.{d_type}" if type_ == "f16" else f"{d_type}.{type_}.{type_}.{d_type}"
    strides = (k if a_layout == "row" else m, n if b_layout == "row" else k)
    finite = ".satfinite" if satfinite else ""
    return f"""{HEADER}.visible .entry probe(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
    .reg .{kind} %a<8>, %b<8>; .reg .{c_kind} %c<8>, %d<8>; .reg .b64 %pa, %pb, %pc, %pd;
    ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pc, [c]; ld.param.u64 %pd, [d];
    cvta.to.global.u64 %pa, %pa; cvta.to.global.u64 %pb, %pb; cvta.to.global.u64 %pc, %pc; cvta.to.global.u64 %pd, %pd;
    wmma.load.a.sync.aligned.{a_layout}.{shape}.global.{type_} {names("a", a.registers)}, [%pa], {strides[0]};
    wmma.load.b.sync.aligned.{b_layout}.{shape}.global.{type_} {names("b", b.registers)}, [%pb], {strides[1]};
    wmma.load.c.sync.aligned.row.{shape}.global.{d_type} {names("c", c.registers)}, [%pc], {n};
    wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}{finite}.{types}
        {names("d", c.registers)}, {names("a", a.registers)}, {names("b", b.registers)}, {names("c", c.registers)};
    wmma.store.d.sync.aligned.row.{shape}.global.{d_type} [%pd], {names("d", c.registers)}, {n};
    ret;
}}
"""


def numbered(f: Fragment, byte: int = 0) -> np.ndarray:
    """Return the matrix in memory: each element holds its number row * columns + column (its byte, for 8-bit types)."""
    rows, columns = f.size
    numbers = np.arange(rows * columns, dtype=np.uint64).reshape(rows, columns) >> np.uint64(8 * byte)
    element = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[BYTES[f.type]]
    return np.ascontiguousarray((numbers if f.layout == "row" else numbers.T).astype(element)).reshape(-1)


def held(launch: Callable[..., Any], f: Fragment, byte: int = 0) -> np.ndarray:
    """Return the registers of each lane (32, registers)."""
    out = np.zeros((32, f.registers), np.uint64 if f.type == "f64" else np.uint32)
    launch(load_kernel(f), "probe", (1, 1, 1), (32, 1, 1), [numbered(f, byte), out])
    return out


def random(type_: str, count: int, seed: int) -> np.ndarray:
    """Return elements: values of moderate size, all bits of integers."""
    rng = np.random.default_rng(seed)
    if type_ in ("s8", "u8"):
        return rng.integers(0, 256, count, np.uint8)
    if type_ == "s32":
        return rng.integers(-(1 << 20), 1 << 20, count).astype(np.int32).view(np.uint32)
    x = rng.standard_normal(count)
    if type_ == "f64":
        return x.view(np.uint64)
    if type_ == "f16":
        return x.astype(np.float16).view(np.uint16)
    words = x.astype(np.float32).view(np.uint32)
    return (words >> np.uint32(16)).astype(np.uint16) if type_ == "bf16" else words


def operands(shape: str, type_: str, d_type: str) -> list[np.ndarray]:
    m, n, k = SHAPES[shape]
    return [random(type_, m * k, 1), random(type_, k * n, 2), random(d_type, m * n, 3)]


def product(launch: Callable[..., Any], shape: str, type_: str, d_type: str, a_layout: str, b_layout: str) -> np.ndarray:
    """Return D by rows."""
    a, b, c = operands(shape, type_, d_type)
    d = np.zeros_like(c)
    launch(product_kernel(shape, type_, d_type, a_layout, b_layout), "probe", (1, 1, 1), (32, 1, 1), [a, b, c, d])
    return d


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return name -> SHA-256 of the registers of a fragment, or of the D of a product."""
    found = {}
    for f in fragments():
        for byte in (0, 1) if BYTES[f.type] == 1 else (0,):
            found[f"load {f.name}" + (f" byte {byte}" if BYTES[f.type] == 1 else "")] = sha256(held(launch, f, byte))
    for p in products():
        found["mma " + ".".join(p)] = sha256(product(launch, *p))
    return found
