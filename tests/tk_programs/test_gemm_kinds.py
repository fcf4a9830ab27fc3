"""GEMMs of other kinds: fp8 with scales for tiles, stream-K with reductions."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.errors import UsageError
from tests.tk_programs.meets import assert_meets_reference
from tests.tk_programs.omissions import noticed, without
from tk_programs import gemm, gemm_fp8, gemm_stream_k


@pytest.mark.parametrize("config", [{"m": 128, "n": 128, "k": 128, "stages": 2}, {"m": 128, "n": 384, "k": 640, "stages": 2}])
def test_fp8_products_are_scaled_back(config, on):
    assert_meets_reference(gemm_fp8, config, on)


def test_quantising_fills_the_range_of_e4m3_and_keeps_zeros():
    x = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    x[128:, :128] = 0
    tiles, scales = gemm_fp8.quantised(x, 128)
    assert scales.shape == (2, 2) and scales[1, 0] == 1
    assert (np.abs(tiles[:128].astype(np.float32)).max() == 448) and not tiles[128:, :128].any()


@pytest.mark.parametrize(
    "config",
    [
        {"m": 128, "n": 128, "k": 64, "ctas": 1, "stages": 1},
        {"m": 128, "n": 128, "k": 320, "ctas": 5, "stages": 2},
        {"m": 384, "n": 128, "k": 192, "ctas": 2},
        {"m": 128, "n": 256, "k": 448, "ctas": 3},
    ],
)
def test_stream_k_adds_every_step_once(config, on):
    assert_meets_reference(gemm_stream_k, config, on)


def test_stream_k_adds_to_what_is_there():
    a, b, c = gemm_stream_k.inputs(2)
    c += np.random.default_rng(0).standard_normal(c.shape, np.float32)
    result = gemm_stream_k.build().run(a, b, c)
    exact, allowed = gemm_stream_k.reference(a, b, c)
    assert (np.abs(result - exact) <= allowed).all()


def test_a_tile_of_one_cta_has_the_bits_of_the_plain_gemm():
    config = {"m": 256, "n": 256, "k": 256}
    a, b, c = gemm_stream_k.inputs(3, **config)
    plain = gemm.build(**config, out="f32").run(a, b)
    np.testing.assert_array_equal(gemm_stream_k.build(**config, ctas=4).run(a, b, c).view(np.uint32), plain.view(np.uint32))


@pytest.mark.parametrize(
    "program, call, occurrence, outcomes",
    [
        (gemm_fp8, "tk.wait(full", 0, {"race", "KernelError"}),
        (gemm_fp8, "tk.warpgroup.sync(consumer + 1)", 0, {"race"}),
        (gemm_fp8, "tk.warpgroup.sync(consumer + 1)", 1, {"race"}),
        (gemm_fp8, "tk.tma.store_async_wait", 0, {"lifetime"}),
        (gemm_stream_k, "tk.tma.store_async_read_wait", 0, {"race"}),
        (gemm_stream_k, "tk.warpgroup.sync(consumer + 1)", 0, {"race"}),
        (gemm_stream_k, "tk.warpgroup.sync(consumer + 1)", 1, {"race"}),
        (gemm_stream_k, "tk.wait(empty", 0, {"race", "KernelError", "over-arrival"}),
    ],
)
def test_an_omission_is_noticed(program, call, occurrence, outcomes):
    kernel = without(program, program.build(stages=2), call, occurrence)
    assert outcomes & noticed(kernel, *program.inputs(1))


@pytest.mark.parametrize(
    "program, config, message",
    [
        (gemm_fp8, {"k": 64}, "k must be a multiple of 128, not 64"),
        (gemm_fp8, {"stages": 1}, "stages must be from 2 to 5, not 1"),
        (gemm_stream_k, {"n": 64}, "n must be a multiple of 128, not 64"),
        (gemm_stream_k, {"ctas": 31}, "ctas must be from 1 to the 30 steps of all tiles, not 31"),
        (gemm_stream_k, {"stages": 0}, "stages must be from 1 to 5, not 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(program, config, message):
    with pytest.raises(UsageError) as error:
        program.build(**config)
    assert error.value.message == message
