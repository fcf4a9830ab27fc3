"""Programs along a sequence: linear attention with its running state, convolution by FFT."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.errors import UsageError
from tests.tk_programs.meets import assert_meets_reference
from tests.tk_programs.omissions import noticed, without
from tk_programs import fft_convolution, linear_attention


@pytest.mark.parametrize(
    "program, config",
    [
        (linear_attention, {"heads": 1, "n": 64, "stages": 1}),
        (linear_attention, {"batch": 2, "heads": 1, "n": 448, "stages": 2}),
        (fft_convolution, {"batch": 1, "heads": 1}),
        (fft_convolution, {"batch": 9, "heads": 1}),
    ],
)
def test_sequences_are_right(program, config, on):
    assert_meets_reference(program, config, on)


def test_the_state_carries_the_past():
    """The last chunk changes when the first one does."""
    q, k, v = linear_attention.inputs(1, heads=1)
    kernel = linear_attention.build(heads=1)
    before = kernel.run(q, k, v)
    v[..., :64, :] = -v[..., :64, :]
    after = kernel.run(q, k, v)
    assert (np.abs(after - before)[..., -64:, :].astype(np.float32).max(-1) > 0.01).mean() > 0.9


def test_a_filter_of_one_impulse_shifts_the_sequence():
    x, fourier, twiddle, *_ = fft_convolution.inputs(0, batch=1, heads=1)
    impulse = np.zeros((1, fft_convolution.LENGTH))
    impulse[0, 70] = 1
    y = fft_convolution.build(batch=1, heads=1).run(x, fourier, twiddle, *fft_convolution.spectrum_of(impulse))
    expected = np.roll(x.astype(np.float32).reshape(-1), 70).reshape(x.shape)
    assert np.abs(y.astype(np.float32) - expected).max() < 0.05


@pytest.mark.parametrize(
    "program, call, occurrence, outcomes",
    [
        (linear_attention, "tk.wait(full", 0, {"race", "KernelError", "uninitialised"}),
        (linear_attention, "tk.warpgroup.sync(1)", 0, {"race"}),
        (linear_attention, "tk.warpgroup.sync(1)", 1, {"race"}),
        (linear_attention, "tk.warpgroup.sync(1)", 2, {"race"}),
        (linear_attention, "tk.warpgroup.mma_async_wait", 1, {"race", "register-race"}),
        (linear_attention, "tk.tma.store_async_read_wait", 0, {"race"}),
        (fft_convolution, "tk.wait(tables", 0, {"race", "uninitialised"}),
        (fft_convolution, "tk.wait(arrived", 0, {"race", "uninitialised", "over-arrival"}),
        (fft_convolution, "tk.warpgroup.sync(consumer + 1)", 0, {"race"}),
        (fft_convolution, "tk.warpgroup.sync(consumer + 1)", 1, {"race"}),
        (fft_convolution, "tk.warpgroup.sync(consumer + 1)", 2, {"race"}),
        (fft_convolution, "tk.tma.store_async_wait()", 0, {"lifetime"}),
    ],
)
def test_an_omission_is_noticed(program, call, occurrence, outcomes):
    config = {"heads": 1, "n": 192} if program is linear_attention else {"heads": 1, "batch": 5}
    kernel = without(program, program.build(**config), call, occurrence)
    assert outcomes & noticed(kernel, *program.inputs(1, **config))


@pytest.mark.parametrize(
    "program, config, message",
    [
        (linear_attention, {"n": 100}, "n must be a multiple of 64, not 100"),
        (linear_attention, {"stages": 5}, "stages must be from 1 to 4, not 5"),
        (linear_attention, {"heads": 0}, "heads must be at least 1, not 0"),
        (fft_convolution, {"batch": 0}, "batch must be at least 1, not 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(program, config, message):
    with pytest.raises(UsageError) as error:
        program.build(**config)
    assert error.value.message == message
