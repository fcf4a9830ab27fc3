"""Why is my tile scrambled? Descriptors and tensor maps that do not fit, and the change that makes them fit."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import tk_programs
from h100sim.layouts.descriptor import MatrixDescriptor

#: The constant part of a descriptor, in the text of the GEMM.
FIELDS = re.compile(r"(or\.b64 .*)(0x[0-9a-f]{16})")


def gemm(change=None, swizzle=None):
    """Run a GEMM whose descriptors are changed, or whose tensor maps have another swizzle; return (kernel, C)."""
    kernel = tk_programs.gemm.build(m=128, n=128, k=128, bm=128, bn=128, bk=64, stages=2)

    def changed(match: re.Match) -> str:
        return f"{match[1]}{change(MatrixDescriptor.decode(int(match[2], 16))).encode():#018x}"

    if change:
        kernel = dataclasses.replace(kernel, ptx=FIELDS.sub(changed, kernel.ptx))
    if swizzle:
        parameters = tuple(
            p if p.map is None else dataclasses.replace(p, map=dataclasses.replace(p.map, swizzle=swizzle))
            for p in kernel.parameters
        )
        kernel = dataclasses.replace(kernel, parameters=parameters)
    inputs = tk_programs.gemm.inputs(1, m=128, n=128, k=128)
    return kernel, kernel.run(*inputs)


@pytest.fixture(scope="module")
def right():
    kernel, c = gemm()
    assert kernel.last_run.scrambled == ()
    return np.asarray(c)


SWAP = {"leading_byte_offset": "stride_byte_offset", "stride_byte_offset": "leading_byte_offset"}


@pytest.mark.parametrize(
    ("change", "fixes"),
    [
        (lambda d: dataclasses.replace(d, swizzle="none"), {"descriptor swizzle 128B, as the tensor map has it, not none"}),
        (lambda d: dataclasses.replace(d, swizzle="64B"), {"descriptor swizzle 128B, as the tensor map has it, not 64B"}),
        (
            lambda d: dataclasses.replace(d, **{name: getattr(d, other) for name, other in SWAP.items()}),
            {
                "descriptor leading and stride byte offset the other way round: 16 and 1,024",
                "descriptor leading and stride byte offset the other way round: 8,192 and 1,024",
            },
        ),
        (lambda d: dataclasses.replace(d, stride_byte_offset=512), {"descriptor stride byte offset 1,024, not 512"}),
        (lambda d: dataclasses.replace(d, stride_byte_offset=2048), {"descriptor stride byte offset 1,024, not 2,048"}),
        (lambda d: dataclasses.replace(d, base_offset=1), {"descriptor base offset 0, not 1"}),
    ],
    ids=["no swizzle", "64B", "swapped offsets", "short stride", "long stride", "base offset"],
)
def test_a_wrong_descriptor_is_explained(change, fixes, right):
    kernel, c = gemm(change)
    found = kernel.last_run.scrambled
    assert not np.array_equal(np.asarray(c), right)
    assert {x.operand for x in found} == {"A", "B"} and {x.fix for x in found} == fixes
    assert all(re.match(r"gemm\.py:\d+$", x.place) and re.match(r"gemm\.py:\d+$", x.copy_place) for x in found)


def test_a_wrong_tensor_map_is_explained(right):
    kernel, c = gemm(swizzle="none")
    found = kernel.last_run.scrambled
    assert not np.array_equal(np.asarray(c), right)
    assert {x.operand for x in found} == {"A", "B"}
    # Without a swizzle no descriptor finds rows of 128 bytes; the map is what must change.
    assert {x.fix for x in found} == {"tensor map swizzle 128B, as the descriptor has it, not none"}


def test_the_explanation_says_where_what_and_why():
    kernel, _ = gemm(lambda d: dataclasses.replace(d, swizzle="none"))
    a = next(x for x in kernel.last_run.scrambled if x.operand == "A")
    lines = str(a).splitlines()
    assert lines[0] == "scrambled: operand A of wgmma must lie as it was copied, not in another order"
    assert lines[2] == "  symptom  k 0-7 of m 1 is row 0, bytes 16-31 of the box, where row 1, bytes 0-15 was due"
    assert lines[3].startswith("  layouts  the copy has rows of 128 bytes, swizzle 128B; the descriptor swizzle none, ")


@pytest.mark.parametrize("name", ["attention", "gemm_6_multicast", "gemm_fp8", "linear_attention"])
def test_programs_that_are_right_are_left_alone(name):
    program = getattr(tk_programs, name)
    kernel = program.build()
    kernel.run(*program.inputs(1))
    assert kernel.last_run.scrambled == ()
