import re
from xml.etree import ElementTree

import pytest

from h100sim.errors import UsageError
from h100sim.layouts.descriptor import MatrixDescriptor
from h100sim.layouts.pictures import bank_passes, draw_banks, draw_box, draw_descriptor, draw_fragment, draw_swizzle
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


@pytest.mark.parametrize(
    ("stride", "width", "passes"),
    [(4, 4, [1]), (128, 4, [32]), (8, 4, [2]), (0, 4, [1]), (8, 8, [1, 1]), (16, 16, [1] * 4), (128, 16, [8] * 4)],
)
def test_passes_of_an_access(stride, width, passes):
    groups = bank_passes([stride * lane for lane in range(32)], width)
    assert [max(map(len, banks.values())) for banks in groups] == passes


def test_the_swizzle_frees_a_column_of_chunks_from_conflicts():
    rows = [128 * r for r in range(8)]
    swizzled = [address ^ (address >> 7 & 7) << 4 for address in rows]
    assert max(map(len, bank_passes(rows, 16)[0].values())) == 8
    assert max(map(len, bank_passes(swizzled, 16)[0].values())) == 1


def test_the_box_counts_what_lies_in_the_tensor():
    svg = draw_box(TensorMap.tiled("bf16", 0, [200, 100], [400], [64, 64]), [-16, 60])
    assert re.search(r"1,920 of 4,096 elements lie in the tensor; the rest are filled with zeros", svg)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(UsageError, match=r"^tile row must be a multiple of 16 bytes, not 6$"):
        draw_swizzle(8, 3, 2, "none")
    with pytest.raises(UsageError, match=r"^access width must be 1, 2, 4, 8 or 16 bytes, not 3$"):
        draw_banks([0], 3)
