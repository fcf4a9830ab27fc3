"""Which products and sums become one multiply-add: what ptxas 13.0 -O3 makes of each text, and kernels on an H200."""

from __future__ import annotations

import numpy as np
import pytest

from tests import kernels

#: (name, PTX as a compiler leaves it, the same with every rounding written). Measured: ptxas 13.0 and nvdisasm, sm_90a.
CASES = [
    ("a product in a sum", "mul t,a,b; add r,t,c;", "fma r,a,b,c;"),
    ("a sum first", "mul t,a,b; add r,c,t;", "fma r,a,b,c;"),
    ("a product less something", "mul t,a,b; sub r,t,c;", "neg u,c; fma r,a,b,u;"),
    ("something less a product", "mul t,a,b; sub r,c,t;", "neg u,a; fma r,u,b,c;"),
    ("a product that is stored", "mul t,a,b; add r,t,c; mov s,t;", "mul_ t,a,b; add_ r,t,c; mov s,t;"),
    ("a product that is a factor", "mul t,a,b; add r,t,c; mul s,t,d;", "mul_ t,a,b; add_ r,t,c; mul_ s,t,d;"),
    ("a product that a fma adds", "mul t,a,b; add r,t,c; fma s,c,d,t;", "mul_ t,a,b; add_ r,t,c; fma s,c,d,t;"),
    ("two sums", "mul t,a,b; add r,t,c; add s,t,d;", "fma r,a,b,c; fma s,a,b,d;"),
    ("the first of two products", "mul t,a,b; mul u,c,d; sub r,t,u;", "mul_ u,c,d; neg v,u; fma r,a,b,v;"),
    ("the first operand, not the first product", "mul t,a,b; mul u,c,d; add r,u,t;", "mul_ t,a,b; fma r,c,d,t;"),
    ("the second where the first is needed", "mul t,a,b; mul u,c,d; sub r,t,u; mov s,t;", "mul_ t,a,b; neg v,c; fma r,v,d,t; mov s,t;"),
    ("the one with fewer sums", "mul t,a,b; mul u,c,d; add r,t,u; add s,t,e;", "mul_ t,a,b; fma r,c,d,t; add_ s,t,e;"),
    ("fewer sums, the other order", "mul t,a,b; mul u,c,d; add r,t,e; add s,u,t;", "mul_ t,a,b; add_ r,t,e; fma s,c,d,t;"),
    ("two differences", "mul t,a,b; mul u,c,d; sub r,t,u; sub s,u,t;", "mul_ u,c,d; neg v,u; fma r,a,b,v; neg v,a; fma s,v,b,u;"),
    ("a sum and a difference", "mul t,a,b; mul u,c,d; sub r,t,u; add s,t,u;", "mul_ u,c,d; neg v,u; fma r,a,b,v; fma s,a,b,u;"),
    ("a chain", "mul t,a,b; mul u,c,d; mul v,d,e; add r,t,u; add s,u,v;", "mul_ u,c,d; fma r,a,b,u; fma s,d,e,u;"),
    ("three squares", "mul t,a,a; mul u,b,b; mul v,c,c; add r,t,u; add r,r,v;", "mul_ u,b,b; fma r,a,a,u; fma r,c,c,r;"),
    ("twice a product", "mul t,a,b; add r,t,t;", "mul_ t,a,b; add_ r,t,t;"),
    ("moved and negated", "mul t,a,b; neg u,t; mov v,u; add r,v,c;", "neg u,a; fma r,u,b,c;"),
    ("the magnitude", "mul t,a,b; abs u,t; add r,u,c;", "mul_ t,a,b; abs u,t; add_ r,u,c;"),
    ("a product that says .rn", "mul_ t,a,b; add r,t,c;", "mul_ t,a,b; add_ r,t,c;"),
    ("a sum that says .rn", "mul t,a,b; add_ r,t,c;", "mul_ t,a,b; add_ r,t,c;"),
    ("the same register throughout", "mul a,a,b; add a,a,c; mov r,a;", "fma r,a,b,c;"),
    ("a factor that is overwritten", "mul t,a,b; mov a,d; mov b,e; add r,t,c; mov s,a;", "fma r,a,b,c; mov s,d;"),
    ("a product made twice", "mul t,a,b; add r,t,c; mul t,c,d; add s,t,e;", "fma r,a,b,c; fma s,c,d,e;"),
    ("a jump in between", "mul t,a,b; bra L; L: add r,t,c;", "fma r,a,b,c;"),
    ("a label in between", "mul t,a,b; L: add r,t,c;", "fma r,a,b,c;"),
    ("a barrier in between", "mul t,a,b; bar.sync 0; add r,t,c;", "fma r,a,b,c;"),
    ("another block", "mul t,a,b; @q bra L; bar.sync 0; L: add r,t,c;", "mul_ t,a,b; add_ r,t,c;"),
    ("lanes that may leave", "mul t,a,b; @q ret; add r,t,c;", "mul_ t,a,b; add_ r,t,c;"),
    ("sums in two blocks", "mul t,a,b; add r,t,c; @q bra L; bar.sync 0; add s,t,d; L:", "mul_ t,a,b; add_ r,t,c; add_ s,t,d;"),
    ("a guarded sum", "mul t,a,b; @!q add r,t,c;", "fma r,a,b,c;"),
    ("a guarded product", "mov t,d; @!q mul t,a,b; add r,t,c;", "mul_ t,a,b; add_ r,t,c;"),
]  # fmt: skip
TYPES = {
    "f32": (np.float32, "f32", "f32"), "f64": (np.float64, "f64", "f64"),
    "f16": (np.float16, "b16", "f16"), "f16x2": (np.uint32, "b32", "f16x2"), "bf16x2": (np.uint32, "b32", "bf16x2"),
}  # fmt: skip


def text(statements: str, type_: str) -> str:
    """Write a case as PTX for a type: ``mul_`` is mul.rn, ``fma`` fma.rn."""
    _, register, suffix = TYPES[type_]
    size = np.dtype(TYPES[type_][0]).itemsize
    spelled = {"mul_": "mul.rn", "add_": "add.rn", "fma": "fma.rn", "mov": "mov"}
    lines = []
    for statement in filter(None, map(str.strip, statements.split(";"))):
        words = statement.split()
        at = next((k for k, w in enumerate(words) if w in ("mul", "mul_", "add", "add_", "sub", "fma", "neg", "abs", "mov")), None)
        if at is not None:
            kind = register if words[at] == "mov" else suffix
            words[at] = f"{spelled.get(words[at], words[at])}.{kind}"
            words[-1] = ", ".join(f"%{name}" for name in words[-1].split(","))
        lines.append(" ".join(words).replace("@q", "@%q").replace("@!q", "@!%q") + (";" if not words[-1].endswith(":") else ""))
    loads = "".join(f"ld.global.{register} %{name}, [%p+{k * size}];\n" for k, name in enumerate("abcde"))
    body = f"""
        .reg .{register} %a, %b, %c, %d, %e, %r, %s, %t, %u, %v; .reg .b64 %p, %o, %i; .reg .b32 %x; .reg .pred %q;
        ld.param.u64 %p, [data]; ld.param.u64 %o, [out];
        mov.u32 %x, %tid.x; mul.wide.u32 %i, %x, {5 * size}; add.s64 %p, %p, %i;
        mul.wide.u32 %i, %x, {2 * size}; add.s64 %o, %o, %i; setp.gt.u32 %q, %x, 64;
        {loads} mov.{register} %r, %e; mov.{register} %s, %e;
        {chr(10).join(lines)}
        st.global.{register} [%o], %r; st.global.{register} [%o+{size}], %s; ret;"""
    return kernels.entry("u64 data, u64 out", body)


def run(ptx: str, type_: str) -> np.ndarray:
    dtype = TYPES[type_][0]
    draw = np.random.default_rng(1).uniform(0.5, 2, (32, 5, 2)).astype(np.float32)
    if dtype is np.uint32:
        data = draw.astype(np.float16).view(np.uint32)[..., 0] if type_ == "f16x2" else (draw.view(np.uint32) >> 16) @ [1, 1 << 16]
    else:
        data = draw[..., 0] if dtype is np.float32 else np.random.default_rng(2).uniform(0.5, 2, (32, 5))
    out = np.zeros((32, 2), dtype)
    kernels.launch(ptx, (np.ascontiguousarray(data.astype(dtype)), out))
    return out.view(np.uint8)


#: What ptxas does otherwise for bf16; the second is not modelled.
BF16 = {"moved and negated": "mul_ t,a,b; neg u,t; add_ r,u,c;", "fewer sums, the other order": ""}


@pytest.mark.parametrize(
    "source, meaning, type_",
    [
        pytest.param(source, meaning, type_, id=f"{name} ({type_})")
        for type_ in TYPES
        for name, source, usual in CASES
        if (meaning := BF16.get(name, usual) if type_ == "bf16x2" else usual)
    ],
)
def test_the_bits_are_those_of_the_machine_code(source: str, meaning: str, type_: str) -> None:
    assert np.array_equal(run(text(source, type_), type_), run(text(meaning, type_), type_))


def test_the_cases_tell_one_rounding_from_two() -> None:
    for type_ in TYPES:
        assert not np.array_equal(
            run(text("mul t,a,b; add r,t,c;", type_), type_), run(text("mul_ t,a,b; add_ r,t,c;", type_), type_)
        )


def test_code_for_debuggers_is_left_alone() -> None:
    ptx = text("mul t,a,b; add r,t,c;", "f32")
    two = run(text("mul_ t,a,b; add_ r,t,c;", "f32"), "f32")
    assert np.array_equal(run(ptx.replace(".target sm_90a", ".target sm_90a, debug"), "f32"), two)


@pytest.mark.parametrize(
    "source, meaning",
    [
        ("mul.ftz.f32 %t, %a, %b; add.ftz.f32 %r, %t, %c;", "fma.rn.ftz.f32 %r, %a, %b, %c;"),
        ("mul.ftz.f32 %t, %a, %b; add.f32 %r, %t, %c;", "mul.rn.ftz.f32 %t, %a, %b; add.rn.f32 %r, %t, %c;"),
        ("mul.f32 %t, %a, %b; add.ftz.f32 %r, %t, %c;", "mul.rn.f32 %t, %a, %b; add.rn.ftz.f32 %r, %t, %c;"),
        ("mul.f32 %t, %a, %b; add.sat.f32 %r, %t, %c;", "fma.rn.sat.f32 %r, %a, %b, %c;"),
        ("mul.sat.f32 %t, %a, %b; add.f32 %r, %t, %c;", "mul.rn.sat.f32 %t, %a, %b; add.rn.f32 %r, %t, %c;"),
        ("mul.f32 %t, %a, %b; neg.ftz.f32 %t, %t; add.f32 %r, %t, %c;",
         "mul.rn.f32 %t, %a, %b; neg.ftz.f32 %t, %t; add.rn.f32 %r, %t, %c;"),
        ("mul.f32 %t, %a, 0f40400000; add.f32 %r, %t, %c;", "fma.rn.f32 %r, %a, 0f40400000, %c;"),
        ("div.approx.ftz.f32 %t, %a, %b; add.ftz.f32 %r, %t, %c;", "rcp.approx.ftz.f32 %t, %b; fma.rn.ftz.f32 %r, %a, %t, %c;"),
        ("div.full.f32 %t, %a, %b; sub.f32 %r, %c, %t;", "rcp.approx.f32 %t, %b; neg.f32 %a, %a; fma.rn.f32 %r, %a, %t, %c;"),
        ("div.full.f32 %t, %a, %b; mov.f32 %b, %a; add.f32 %r, %c, %t;", "rcp.approx.f32 %t, %b; fma.rn.f32 %r, %a, %t, %c;"),
    ],
)  # fmt: skip
def test_modifiers_and_divisions(source: str, meaning: str) -> None:
    at = text("", "f32")
    found, expected = (run(at.replace("st.global.f32 [%o], %r", f"{s} st.global.f32 [%o], %r"), "f32") for s in (source, meaning))
    assert np.array_equal(found, expected)
