"""The attention program: close to float64 in every configuration, and no hazards.

Measured: tests/data/tk_attention.npz has O's bits from an NVIDIA H200 (driver 580.159, CUDA 13.0, 2026-11-29), by
configuration.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest

import tk_programs
from h100sim.errors import UsageError
from h100sim.trace import Event
from tests.tk_programs.omissions import noticed, without

SILICON = np.load(Path(__file__).parents[1] / "data" / "tk_attention.npz")
CONFIGS = [
    {},
    {"causal": True},
    {"batch": 2, "heads": 2, "n": 128, "d": 64, "kv": 64, "stages": 3},
    {"n": 384, "d": 128, "consumers": 3, "causal": True},
    {"n": 192, "d": 128, "consumers": 1, "kv": 192, "stages": 1, "causal": True},
]
PING_PONG = {"order": True, "overlap": True}
#: Grouped queries, lengths that are multiples of nothing, and L beside O.
MORE = [
    {"n": 300, "heads": 4, "kv_heads": 2, "lse": True},
    {"n": 196, "d": 128, "heads": 2, "kv_heads": 1, "causal": True, "overlap": True, "order": True, "lse": True},
    {"n": 65, "kv": 64, "consumers": 1, "stages": 1, "overlap": True},
    {"n": 1, "causal": True},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_attention_is_right(config, on):
    kernel = tk_programs.attention.build(**config)
    inputs = tk_programs.attention.inputs(1, **config)
    result = kernel.run(*inputs, on=on)
    exact, tolerance = tk_programs.attention.reference(*inputs, causal=config.get("causal", False))
    assert (np.abs(result.astype(np.float64) - exact) <= tolerance).all()
    np.testing.assert_array_equal(result.view(np.uint16), SILICON[str(config)], err_msg="bits of an H200")
    if on == "sim":
        assert kernel.last_run.hazards == []


@pytest.mark.parametrize("config", MORE, ids=str)
def test_groups_and_ragged_lengths(config, on):
    kernel = tk_programs.attention.build(**config)
    inputs = tk_programs.attention.inputs(2, **config)
    results = kernel.run(*inputs, on=on)
    wanted = {name: config.get(name, False) for name in ("causal", "lse")}
    expected = tk_programs.attention.reference(*inputs, **wanted)
    pairs = zip(results, expected, strict=True) if wanted["lse"] else [(results, expected)]
    for result, (exact, tolerance) in pairs:
        assert (np.abs(result.astype(np.float64) - exact) <= tolerance).all()
    if on == "sim":
        assert kernel.last_run.hazards == []


@pytest.mark.parametrize("causal", [False, True])
def test_overlap_and_turns_change_the_time_and_not_the_bits(causal):
    inputs = tk_programs.attention.inputs(4, n=512, d=128)
    outputs, cycles = {}, {}
    for way in ((False, False), (False, True), (True, False), (True, True)):
        kernel = tk_programs.attention.build(n=512, d=128, causal=causal, overlap=way[0], order=way[1])
        outputs[way] = kernel.run(*inputs).view(np.uint16)
        cycles[way] = kernel.last_run.cycles
        assert kernel.last_run.hazards == []
        np.testing.assert_array_equal(outputs[way], outputs[(False, False)])
    assert cycles[(True, True)] < cycles[(False, False)]


def test_the_softmax_of_one_consumer_falls_into_the_products_of_the_other():
    """In turns, the tensor core is given to the two consumers alternately, and each computes while the other waits."""
    kernel = tk_programs.attention.build(n=1024, d=128, overlap=True, order=True)
    kernel.run(*tk_programs.attention.inputs(1, n=1024, d=128))
    trace = kernel.last_run.trace
    started = trace.of(Event.WGMMA_STARTED)
    (first_cta,) = {0} & set(trace.warps["cta"].tolist())
    rank = {w: int(trace.warps["rank"][w]) // 4 for w in np.flatnonzero(trace.warps["cta"] == first_cta)}
    owners = [rank[w] for w in started["warp"].tolist() if w in rank]
    runs = [owner for owner, _ in itertools.groupby(owners)]
    assert set(runs) == {1, 2}
    per_turn = len(owners) / len(runs)
    assert per_turn >= 12, f"a turn must hold about the 16 wgmma of two products, not {per_turn:.1f}"
    assert min(runs.count(1), runs.count(2)) >= 1024 // 128 - 1


@pytest.mark.parametrize(
    "config, call, occurrence, outcomes",
    [
        ({}, "tk.wait(q_full", 0, {"race", "KernelError", "uninitialised"}),
        ({}, "tk.wait(k_empty", 0, {"race", "KernelError", "over-arrival"}),
        ({}, "tk.wait(v_empty", 0, {"race", "KernelError", "over-arrival", "DeadlockError"}),
        ({}, "tk.tma.expect_bytes(v_full", 0, {"DeadlockError"}),
        ({}, "tk.sync()", 0, {"race", "KernelError"}),
        ({}, "tk.wait(keys.full", 0, {"race", "KernelError", "uninitialised"}),
        ({}, "tk.wait(values.full", 0, {"race", "KernelError", "uninitialised"}),
        ({}, "tk.warpgroup.mma_async_wait()", 0, {"register-race", "race"}),
        ({}, "tk.warpgroup.mma_async_wait()", 1, {"register-race", "race"}),
        ({}, "tk.warpgroup.arrive(keys.empty", 0, {"DeadlockError"}),
        ({}, "tk.warpgroup.arrive(values.empty", 0, {"DeadlockError"}),
        ({}, "tk.warpgroup.sync(consumer + 1)", 0, {"race"}),
        ({}, "tk.tma.store_async_wait", 0, {"lifetime"}),
        (PING_PONG, "tk.wait(keys.full", 2, {"race", "KernelError", "uninitialised"}),
        (PING_PONG, "tk.wait(values.full", 1, {"race", "KernelError", "uninitialised"}),
        (PING_PONG, "tk.warpgroup.mma_async_wait(1 if overlap", 0, {"register-race", "race"}),
        (PING_PONG, "tk.warpgroup.arrive(self.others)", 1, {"DeadlockError", "barrier-misuse"}),
        (PING_PONG, "tk.warpgroup.sync(self.mine)", 0, {"DeadlockError", "barrier-misuse"}),
    ],
)
def test_an_omission_is_noticed(config, call, occurrence, outcomes):
    program = tk_programs.attention
    kernel = without(program, program.build(n=384, stages=1, **config), call, occurrence)
    assert outcomes & noticed(kernel, *program.inputs(1, n=384))


@pytest.mark.parametrize(
    "config, message",
    [
        ({"n": 0}, "n must be at least 1, not 0"),
        ({"kv": 96}, "kv must be 64, 128, 192 or 256, not 96"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide the 4 heads, not be 3"),
        ({"order": True, "consumers": 3}, "order must have 2 consumers to take turns, not 3"),
        (
            {"n": 255, "lse": True},
            "n must be a multiple of 4 with lse (TMA's strides are multiples of 16 bytes), not 255",
        ),
        ({"d": 96}, "d must be 64 or 128, not 96"),
    ],
)
def test_configurations_that_cannot_be_are_refused(config, message):
    with pytest.raises(UsageError) as error:
        tk_programs.attention.build(**config)
    assert error.value.message == message
