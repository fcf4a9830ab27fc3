"""Scalar forms on awkward operands, as kernels, against the digests of an H200: those that taught something, and a sample.

`python -m validate probe lane_forms` compares all 1,867.
"""

from __future__ import annotations

import pytest

from validate import probes
from validate.probes import lane_forms

#: What the captures of single operands did not show.
TAUGHT = {
    "two NaNs of f64": ["add.f64", "fma.rz.f64", "mul.f64", "div.rn.f64", "sub.rm.f64"],
    "a borrow is the inverse of a carry": ["sub.cc.u32", "subc.cc.s64", "subc.u64", "addc.cc.u64", "madc.hi.cc.s64"],
    "tiny after rounding": ["mul.ftz.f32", "fma.rn.ftz.f32", "fma.rp.ftz.f32", "mul.rm.ftz.f32", "div.rp.ftz.f32", "fma.rn.ftz.f16",
                            "cvt.rn.ftz.sat.f32.f64", "cvt.rn.ftz.f32.f64", "div.full.ftz.f32", "div.approx.ftz.f32"],
    "NaN payloads": ["cvt.f64.f64", "cvt.ftz.f32.bf16", "cvt.ftz.f64.f32", "rcp.approx.ftz.f64", "max.NaN.xorsign.abs.bf16x2"],
    "ranges": ["sad.s64", "div.approx.f32", "fns.b32", "cvt.rp.ftz.f16.f32", "cvt.rna.satfinite.tf32.f32"],
}  # fmt: skip


def differing(opcodes: list[str]) -> list[str]:
    launcher, _ = probes._launcher("sim")
    silicon = probes.silicon_results("lane_forms")
    return [opcode for opcode, digest in lane_forms.measure(launcher, opcodes).items() if digest != silicon[opcode]]


@pytest.mark.parametrize("what", TAUGHT)
def test_what_silicon_taught(what):
    assert differing(TAUGHT[what]) == []


def test_a_sample_of_all_forms():
    asked = list(probes.silicon_results("lane_forms"))
    assert sorted(asked) == sorted(lane_forms.opcodes())
    assert differing(asked[5::37]) == []
