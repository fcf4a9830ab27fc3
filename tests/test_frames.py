"""Frames of device functions: everything has a place of its own, aligned, behind the header."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from h100sim.frames import HEADER_BYTES, alignment, lay_out, signature_layout, size_of
from h100sim.ptx import parse

_TYPES = ("b8", "u16", "f32", "b64")
_PARAMETER = st.tuples(st.sampled_from(_TYPES), st.sampled_from((0, 8, 16)), st.integers(0, 40))


def _declaration(name, type_, align, count):
    return f".param {f'.align {align} ' if align else ''}.{type_} {name}{f'[{count}]' if count else ''}"


@given(st.lists(_PARAMETER, max_size=6), st.lists(_PARAMETER, max_size=1), st.lists(st.integers(1, 70), max_size=4))
def test_everything_in_a_frame_has_a_place_of_its_own(parameters, returns, local):
    given_ = ", ".join(_declaration(f"p{k}", *p) for k, p in enumerate(parameters))
    result = f"({_declaration('r', *returns[0])}) " if returns else ""
    variables = "".join(f".local .align 4 .b8 v{k}[{size}];" for k, size in enumerate(local))
    text = f".version 8.0\n.target sm_90a\n.address_size 64\n.func {result}f({given_})\n{{ .reg .b64 %rd<3>; {variables} ret; }}"
    function = parse(text).functions["f"]
    frame = lay_out(function, False, function.registers, alignment(function))

    wide = {p.name: (p.align, size_of(p)) for p in (*function.parameters, *function.returns)}
    wide |= {v.name: (v.align, v.size) for v in function.variables}
    places = [(frame.offsets[name], frame.offsets[name] + size) for name, (_, size) in wide.items()]
    places += [(at, at + size) for _, at, size in frame.kept]
    assert all(frame.offsets[name] % align == 0 for name, (align, _) in wide.items())
    places.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert all(start >= HEADER_BYTES for start, _ in places)
    assert frame.size % alignment(function) == 0 and frame.size >= max((end for _, end in places), default=HEADER_BYTES)


def test_signatures_fit_by_shape_and_not_by_name():
    text = """.version 8.0\n.target sm_90a\n.address_size 64
.func (.param .b32 r) f(.param .b64 a, .param .b32 b) { ret; }
.func (.param .f32 q) g(.param .f64 x, .param .u32 y) { ret; }
.func (.param .b32 r) h(.param .b32 a, .param .b64 b) { ret; }"""
    shapes = {name: signature_layout(f.returns, f.parameters)[0] for name, f in parse(text).functions.items()}
    assert shapes["f"] == shapes["g"] != shapes["h"]
