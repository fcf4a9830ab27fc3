import re
from xml.etree import ElementTree

import pytest

from h100sim.errors import UsageError
from h100sim.layouts.algebra import Layout
from h100sim.layouts.descriptor import MatrixDescriptor
from h100sim.layouts.fragments import fragment
from h100sim.layouts.pictures import draw_banks, draw_box, draw_descriptor, draw_fragment, draw_layout, draw_swizzle
from h100sim.layouts.swizzle import swizzle
from h100sim.tma import TensorMap

WGMMA = "wgmma.mma_async.sync.aligned."
PICTURES = {
    "swizzle": (lambda: draw_swizzle(64, 64, 2, "128B"), "bytes"),
    "panels": (lambda: draw_swizzle(256, 128, 1, "64B", base=1024), "bytes"),
    "accumulator": (lambda: draw_fragment(WGMMA + "m64n256k16.f32.bf16.bf16", "d"), "elements"),
    "bits": (lambda: draw_fragment(WGMMA + "m64n8k256.s32.b1.b1.and.popc", "a"), "elements"),
    "ldmatrix": (lambda: draw_fragment("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "d"), "elements"),
    "descriptor": (
        lambda: draw_descriptor(WGMMA + "m64n256k16.f32.f16.f16", "b", MatrixDescriptor(1024, 16, 1024, "128B")),
        "bytes",
    ),
    "banks": (lambda: draw_banks([128 * lane for lane in range(32)], 4), "bytes"),
    "box": (lambda: draw_box(TensorMap.tiled("bf16", 0, [200, 100], [400], [64, 64]), [-16, 60]), "elements"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_valid_and_names_its_unit(name):
    draw, unit = PICTURES[name]
    svg = draw()
    assert len(svg) <= 300_000
    root = ElementTree.fromstring(svg)
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert any(unit in text for text in texts)
    assert any(element.tag.endswith("title") for element in root.iter())


def test_a_cell_of_a_swizzle_names_row_address_bank_and_chunk():
    svg = draw_swizzle(8, 64, 2, "128B")
    assert "row 3, columns 16-23\naddress 0x0190, banks 4-7, chunk 1 of its line" in svg
    assert svg.count("row 3, columns 16-23\n") == 2


def test_a_cell_of_a_fragment_names_warp_lane_and_register():
    svg = draw_fragment(WGMMA + "m64n8k16.f16.f16.f16", "d")
    assert "row 25, columns 2-3\nwarp 1, lane 5, register 1, bits from 0 to 16 in steps of 16" in svg


def test_a_descriptor_that_reads_a_chunk_twice_says_so():
    svg = draw_descriptor(WGMMA + "m64n8k16.f32.f16.f16", "b", MatrixDescriptor(0, 0, 128))
    assert svg.count(">2 chunks<") == 8


def test_a_matrix_move_has_matrices_and_a_product_has_warps():
    move = draw_fragment("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "d")
    assert "matrix 3" in move and ">warp " not in move
    assert ">warp 3<" in draw_fragment(WGMMA + "m64n8k16.f16.f16.f16", "d")


def test_a_64x64_accumulator_is_drawn_whole():
    svg = draw_fragment(WGMMA + "m64n64k16.f32.bf16.bf16", "d")
    assert svg.count("<title>") == 64 * 32 and len(svg) <= 300_000
    assert "row 63, columns 62-63\nwarp 3, lane 31, registers 30-31" in svg


def test_a_picture_of_banks_counts_wavefronts_as_silicon_does():
    rows = [128 * row for row in range(8)]
    assert "8 wavefronts, 1 without bank conflicts" in draw_banks(rows, 16, "matrix")
    swizzled = [swizzle(address, "128B") for address in rows]
    assert "1 wavefront, 1 without bank conflicts" in draw_banks(swizzled, 16, "matrix")
    pairs = [8 * (lane // 2) for lane in range(32)]
    assert "32 of them served together" in draw_banks(pairs, 8, "load")
    assert "16 of them served together" in draw_banks(pairs, 8, "store")


def test_the_style_of_a_picture_stays_in_it():
    style = re.search("<style>(.*)</style>", draw_swizzle(8, 64, 2, "128B"))[1]
    assert all(rule.startswith(".h100sim ") for rule in style.split("}") if rule)


def test_the_box_counts_what_lies_in_the_tensor():
    svg = draw_box(TensorMap.tiled("bf16", 0, [200, 100], [400], [64, 64]), [-16, 60])
    assert re.search(r"1,920 of 4,096 elements lie in the tensor; the rest are filled with zeros", svg)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(UsageError, match=r"^tile row must be a multiple of 16 bytes, not 6$"):
        draw_swizzle(8, 3, 2, "none")
    with pytest.raises(UsageError, match=r"^access width must be 1, 2, 4, 8 or 16 bytes, not 3$"):
        draw_banks([0], 3)


def test_a_layout_shows_its_offsets():
    svg = draw_layout(Layout((4, 8), (8, 1)))
    assert "(3, 7): offset 31" in svg and "offsets in elements from 0 to 31" in svg
    assert "(0, 3): offset 6" in draw_layout(Layout(4, 2))
    with pytest.raises(UsageError, match=r"^layout of a picture must have 1 or 2 modes, not 3$"):
        draw_layout(Layout((2, 2, 2)))


NOTEBOOK = {
    "layout": (Layout((4, 8)), "Layout (4,8):(1,4)"),
    "fragment": (fragment(WGMMA + "m64n8k16.f32.f16.f16", "a"), "wgmma operand a, 64 x 16"),
    "descriptor": (MatrixDescriptor(1024, 16, 1024, "128B"), "wgmma operand B of bf16, 64 x 16"),
    "map": (TensorMap.tiled("bf16", 0, [64, 64], [128], [64, 64]), "Box of 64 x 64 bf16 in a tensor of 64 x 64"),
}


@pytest.mark.parametrize("name", NOTEBOOK)
def test_notebooks_show_a_picture(name):
    value, title = NOTEBOOK[name]
    assert f">{title}<" in value._repr_svg_()
    ElementTree.fromstring(value._repr_svg_())


def test_notebooks_show_the_fields_of_a_tensor_map():
    m = TensorMap.im2col("f16", 4096, [64, 8, 8, 2], [128, 1024, 8192], [-1, -1], [1, 1], 64, 32)
    assert m._repr_svg_() is None
    assert "<th>lower_corner</th><td>(-1, -1)</td>" in m._repr_html_() and "<td>0x1000</td>" in m._repr_html_()
    assert "<svg" in NOTEBOOK["map"][0]._repr_html_()


def test_a_part_of_a_fragment_has_no_picture():
    owners = fragment(WGMMA + "m64n8k16.f32.f16.f16", "a")
    assert owners[:16]._repr_svg_() is None and owners["lane"]._repr_svg_() is None
