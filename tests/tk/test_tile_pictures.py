"""Which lane and register hold an element of a register tile, and what notebooks show of tiles."""

import numpy as np
import pytest

from h100sim import tk
from h100sim.layouts.fragments import accumulator, fragment, multiplicand
from h100sim.tk.builder import Scope
from h100sim.tk.register_tiles import RegisterTile

WGMMA = "wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{}"


def rt(dtype, rows, cols, layout="row"):
    return RegisterTile(dtype, rows, cols, layout, Scope("warp", (0,)))


@pytest.mark.parametrize(
    ("tile", "expected"),
    [
        (rt(tk.fl, 16, 64), accumulator(16, 64, 32)),
        (rt(tk.bf16, 16, 64), multiplicand(16, 64, 16)),
        (rt(tk.fp8e4m3, 16, 64), multiplicand(16, 64, 8)),
        (rt(tk.bf16, 16, 16, "col"), fragment("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "b")),
    ],
    ids=str,
)
def test_a_register_tile_is_the_fragment_of_the_instructions_that_use_it(tile, expected):
    owners = tile.fragment()
    if tile.layout == "col":
        # B has n as rows, and 8 of them: the base tile has two, in registers 0 and 2, and 1 and 3.
        owners, expected = owners.T[:8], np.array(expected)
        expected["register"] *= 2
    for name in ("lane", "register", "bit"):
        assert np.array_equal(owners[name], expected[name]), name


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("dtype", [tk.bf16, tk.fl])
def test_every_register_bit_holds_one_element(dtype, layout):
    owners = rt(dtype, 32, 48, layout).fragment()
    assert len(np.unique(owners)) == owners.size
    assert owners["register"].max() + 1 == owners.size * dtype.size_bytes // 4 // 32


def test_notebooks_show_tiles():
    pictures = []

    @tk.kernel(grid=1, warps=1)
    def shown(X: tk.gl(tk.bf16, 64, 64)):
        pictures.append(tk.st(tk.bf16, 64, 64)._repr_svg_())
        pictures.append(tk.rt(tk.fl, 16, 32)._repr_svg_())

    assert shown.ptx
    assert ">64 x 64 tile, 128-byte swizzle<" in pictures[0] and ">rt&lt;f32, 16, 32&gt;<" in pictures[1]
