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
SHAPES = {
    "m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16), "m16n16k8": (16, 16, 8), "m8n8k4": (8, 8, 4),
    "m8n8k32": (8, 8, 32), "m8n8k128": (8, 8, 128),
}  # fmt: skip
#: Type of A and B -> (shapes, registers of A and B by shape, types of C and D).
_TALL = ("m16n16k16", "m8n32k16", "m32n8k16")
TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (_TALL, ("f32", "f16")),
    "bf16": (_TALL, ("f32",)),
    "s8": (_TALL, ("s32",)),
    "u8": (_TALL, ("s32",)),
    "tf32": (("m16n16k8",), ("f32",)),
    "f64": (("m8n8k4",), ("f64",)),
    "s4": (("m8n8k32",), ("s32",)),
    "u4": (("m8n8k32",), ("s32",)),
    "b1": (("m8n8k128",), ("s32",)),
}
BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "tf32": 32, "f64": 64, "f32": 32, "s32": 32, "s4": 4, "u4": 4, "b1": 1}
#: What is written behind wmma.mma and behind the shape: operations of single bits, roundings of f64.
VARIANTS: dict[str, tuple[tuple[str, str], ...]] = {
    "b1": ((".and.popc", ""), (".xor.popc", "")),
    "f64": (("", ""), ("", ".rz"), ("", ".rm"), ("", ".rp")),
}


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
            return m * n * BITS[self.type] // (32 * (64 if self.type == "f64" else 32))
        if self.type == "f16":
            return 8
        if self.type in ("tf32", "f64") or BITS[self.type] < 8:
            return 4 if self.type == "tf32" else 1
        rows = m if self.which == "a" else n
        return {16: 2, 8: 1, 32: 4}[rows] * (2 if self.type == "bf16" else 1)


def fragments() -> Iterator[Fragment]:
    for type_, (shapes, accumulators) in TYPES.items():
        for shape in shapes:
            for layout in ("row", "col"):
                yield from (Fragment(which, layout, shape, type_) for which in "ab" if _is_legal(which, layout, type_))
                if type_ not in ("u8", "u4") and (type_, shape) != ("bf16", shape) and type_ != "tf32":
                    yield from (Fragment("c", layout, shape, d) for d in accumulators)
    yield Fragment("c", "row", "m16n16k8", "f32")


def _is_legal(which: str, layout: str, type_: str) -> bool:
    """Rows of A and columns of B lie together where elements are smaller than a byte."""
    return BITS[type_] >= 8 or layout == {"a": "row", "b": "col"}[which]


@dataclass(frozen=True)
class Product:
    """A product: the shape, the types of A and B, of D and of C, the layouts of A and B, and a variant (:data:`VARIANTS`)."""

    shape: str
    type: str
    d: str
    c: str
    layouts: tuple[str, str] = ("row", "col")
    variant: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        return (
            ".".join((self.shape, self.type, self.d, *self.layouts))
            + (f" C {self.c}" if self.c != self.d else "")
            + "".join(self.variant)
        )


def products() -> Iterator[Product]:
    for type_, (shapes, accumulators) in TYPES.items():
        both = type_ not in ("s8", "u8") and BITS[type_] >= 8
        for shape in shapes:
            for d in accumulators:
                for layouts in (("row", "col"), ("col", "row")) if both else (("row", "col"),):
                    yield from (Product(shape, type_, d, d, layouts, v) for v in VARIANTS.get(type_, (("", ""),)))
            yield from (Product(shape, type_, d, c) for d in accumulators for c in accumulators if c != d)


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


def product_kernel(p: Product, satfinite: bool = False) -> str:
    """Return ``probe(a, b, c, d)``: D = A * B + C, with C and D by rows."""
    m, n, k = SHAPES[p.shape]
    shape, (a_layout, b_layout) = p.shape, p.layouts
    a, b = Fragment("a", a_layout, shape, p.type), Fragment("b", b_layout, shape, p.type)
    c, d = Fragment("c", "row", shape, p.c), Fragment("c", "row", shape, p.d)
    kind = "b64" if p.type == "f64" else "b32"
    kinds = {"f32": "f32", "f64": "b64"}

    def names(prefix: str, count: int) -> str:
        return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"

    types = f"{p.d}.{p.c}" if p.type == "f16" else f"{p.d}.{p.type}.{p.type}.{p.d}"
    strides = (k if a_layout == "row" else m, n if b_layout == "row" else k)
    finite = ".satfinite" if satfinite else ""
    return f"""{HEADER}.visible .entry probe(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
    .reg .{kind} %a<8>, %b<8>; .reg .{kinds.get(p.c, "b32")} %c<8>; .reg .{kinds.get(p.d, "b32")} %d<8>; .reg .b64 %pa, %pb, %pc, %pd;
    ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pc, [c]; ld.param.u64 %pd, [d];
    cvta.to.global.u64 %pa, %pa; cvta.to.global.u64 %pb, %pb; cvta.to.global.u64 %pc, %pc; cvta.to.global.u64 %pd, %pd;
    wmma.load.a.sync.aligned.{a_layout}.{shape}.global.{p.type} {names("a", a.registers)}, [%pa], {strides[0]};
    wmma.load.b.sync.aligned.{b_layout}.{shape}.global.{p.type} {names("b", b.registers)}, [%pb], {strides[1]};
    wmma.load.c.sync.aligned.row.{shape}.global.{p.c} {names("c", c.registers)}, [%pc], {n};
    wmma.mma{p.variant[0]}.sync.aligned.{a_layout}.{b_layout}.{shape}{p.variant[1]}{finite}.{types}
        {names("d", d.registers)}, {names("a", a.registers)}, {names("b", b.registers)}, {names("c", c.registers)};
    wmma.store.d.sync.aligned.row.{shape}.global.{p.d} [%pd], {names("d", d.registers)}, {n};
    ret;
}}
"""


def parts(type_: str) -> int:
    """Return how many times a matrix of a small type is loaded for its elements to have shown their numbers."""
    return {8: 2, 4: 2, 1: 10}.get(BITS[type_], 1)


def numbered(f: Fragment, part: int = 0) -> np.ndarray:
    """Return the matrix in memory: each element holds its number row * columns + column, or a part of it that fits."""
    rows, columns = f.size
    bits = BITS[f.type]
    numbers = np.arange(rows * columns, dtype=np.uint64).reshape(rows, columns) >> np.uint64(bits * part)
    found = np.ascontiguousarray(numbers if f.layout == "row" else numbers.T).reshape(-1)
    if bits >= 8:
        return found.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits])
    low = (found & np.uint64((1 << bits) - 1)).reshape(-1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint64)
    return low.sum(1).astype(np.uint8)


def held(launch: Callable[..., Any], f: Fragment, part: int = 0) -> np.ndarray:
    """Return the registers of each lane (32, registers)."""
    out = np.zeros((32, f.registers), np.uint64 if f.type == "f64" else np.uint32)
    launch(load_kernel(f), "probe", (1, 1, 1), (32, 1, 1), [numbered(f, part), out])
    return out


def random(type_: str, count: int, seed: int) -> np.ndarray:
    """Return elements: values of moderate size, all bits of integers."""
    rng = np.random.default_rng(seed)
    if BITS[type_] <= 8:
        return rng.integers(0, 256, count * BITS[type_] // 8, np.uint8)
    if type_ == "s32":
        return rng.integers(-(1 << 20), 1 << 20, count).astype(np.int32).view(np.uint32)
    x = rng.standard_normal(count)
    if type_ == "f64":
        return x.view(np.uint64)
    if type_ == "f16":
        return x.astype(np.float16).view(np.uint16)
    words = x.astype(np.float32).view(np.uint32)
    return (words >> np.uint32(16)).astype(np.uint16) if type_ == "bf16" else words


def operands(p: Product) -> list[np.ndarray]:
    """Return A, B and C; where D is narrower than C, some of C overflow it or are no number."""
    m, n, k = SHAPES[p.shape]
    found = [random(p.type, m * k, 1), random(p.type, k * n, 2), random(p.c, m * n, 3)]
    if (p.d, p.c) == ("f16", "f32"):
        found[2][:8] = np.array([7e4, -7e4, 65519, -65520, np.inf, -np.inf, np.nan, 1e-7], np.float32).view(np.uint32)
    return found


def product(launch: Callable[..., Any], p: Product) -> np.ndarray:
    """Return D by rows."""
    a, b, c = operands(p)
    d = np.zeros(len(c), {16: np.uint16, 32: np.uint32, 64: np.uint64}[BITS[p.d]])
    launch(product_kernel(p), "probe", (1, 1, 1), (32, 1, 1), [a, b, c, d])
    return d


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return name -> SHA-256 of the registers of a fragment, or of the D of a product."""
    found = {}
    for f in fragments():
        for part in range(parts(f.type)):
            found[f"load {f.name}" + (f" byte {part}" if parts(f.type) > 1 else "")] = sha256(held(launch, f, part))
    for p in products():
        found[f"mma {p.name}"] = sha256(product(launch, p))
    return found
