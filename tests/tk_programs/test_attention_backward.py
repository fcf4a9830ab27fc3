"""The backward pass of attention: alone, behind the forward pass, and with calls left out."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.errors import UsageError
from tests.tk_programs.meets import assert_meets_reference
from tests.tk_programs.omissions import noticed, without
from tk_programs import attention, attention_backward, attention_delta


@pytest.mark.parametrize(
    "config",
    [
        {"n": 128, "stages": 1},
        {"n": 256, "d": 128, "causal": True},
        {"batch": 2, "heads": 2, "n": 128},
        {"n": 384, "causal": True},
    ],
)
def test_gradients_are_right(config, on):
    assert_meets_reference(attention_backward, config, on)


@pytest.mark.parametrize("config", [{"n": 70, "d": 128}, {"batch": 2, "heads": 3, "n": 64}])
def test_delta_is_right(config, on):
    assert_meets_reference(attention_delta, config, on)


def test_forward_delta_and_backward_fit_together():
    """L and O of the forward kernel and Delta of the second are what the third needs."""
    size = {"n": 256, "d": 64}
    q, k, v, do, *_ = attention_backward.inputs(1, **size)
    o, sums = attention.build(**size, lse=True).run(q, k, v)
    delta = attention_delta.build(batch=1, heads=1, **size).run(o, do)
    gradients = attention_backward.build(**size).run(q, k, v, do, sums, delta, np.zeros(q.shape, np.float32))
    # O is rounded to bf16 here and not in the reference's Delta.
    rounding = 2.0**-8 * np.abs(o.astype(np.float64) * do.astype(np.float64)).sum(-1).max()
    exact = attention_backward.reference(*attention_backward.inputs(1, **size))
    for name, gradient, (values, allowed) in zip(("dQ", "dK", "dV"), gradients, exact, strict=True):
        more = 0 if name == "dV" else rounding * np.abs(k.astype(np.float64)).max() / 8
        assert (np.abs(gradient.astype(np.float64) - values) <= allowed + more).all(), name


def test_dq_is_added_to_what_is_there():
    *rest, dq = attention_backward.inputs(2)
    base = np.random.default_rng(0).standard_normal(dq.shape, np.float32)
    kernel = attention_backward.build()
    plain, *_ = kernel.run(*rest, dq)
    added, *_ = kernel.run(*rest, base)
    np.testing.assert_allclose(added, base + plain, atol=1e-5)


@pytest.mark.parametrize(
    "call, occurrence, outcomes",
    [
        ("tk.wait(kv_full", 0, {"race", "KernelError", "uninitialised"}),
        ("tk.wait(full", 0, {"race", "KernelError", "uninitialised"}),
        ("tk.wait(empty", 0, {"race", "KernelError", "over-arrival"}),
        ("tk.tma.store_async_read_wait", 0, {"race"}),
        ("tk.warpgroup.sync(consumer + 1)", 0, {"race"}),
        ("tk.warpgroup.sync(consumer + 1)", 1, {"race"}),
        ("tk.warpgroup.sync(consumer + 1)", 2, {"race"}),
        ("tk.warpgroup.mma_async_wait(1)", 0, {"register-race", "race"}),
        ("tk.warpgroup.arrive(empty", 0, {"DeadlockError"}),
    ],
)
def test_an_omission_is_noticed(call, occurrence, outcomes):
    kernel = without(attention_backward, attention_backward.build(stages=1), call, occurrence)
    assert outcomes & noticed(kernel, *attention_backward.inputs(1))


@pytest.mark.parametrize(
    "program, config, message",
    [
        (attention_backward, {"n": 192}, "n must be a multiple of 128, not 192"),
        (attention_backward, {"d": 96}, "d must be 64 or 128, not 96"),
        (attention_backward, {"stages": 3}, "stages must be 1 or 2, not 3"),
        (attention_backward, {"heads": 0}, "heads must be at least 1, not 0"),
        (attention_delta, {"n": 0}, "n must be at least 1, not 0"),
        (attention_delta, {"d": 32}, "d must be 64 or 128, not 32"),
    ],
)
def test_sizes_that_cannot_be_are_refused(program, config, message):
    with pytest.raises(UsageError) as error:
        program.build(**config)
    assert error.value.message == message
