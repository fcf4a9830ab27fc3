"""The GEMM ladder: every rung is right, the rungs with wgmma agree bit for bit, and each omission in a cluster is noticed."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from h100sim.errors import UsageError
from tests.tk_programs.meets import assert_meets_reference
from tests.tk_programs.omissions import noticed, without
from tk_programs import gemm

RUNGS = [
    "gemm_1_mma_sync",
    "gemm_2_wgmma",
    "gemm_3_tma",
    "gemm_4_pipeline",
    "gemm_5_two_consumers",
    "gemm_6_multicast",
    "gemm_7_persistent",
    "gemm_8_tma_store",
]


def rung(name):
    return importlib.import_module(f"tk_programs.{name}")


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_goes_round_its_ring(name, on):
    """Enough steps for every slot to be used again, in as few slots as the rung takes."""
    module = rung(name)
    few = {"stages": 2} if "stages" in module.CONFIG else {}
    assert_meets_reference(module, {"m": 256, "n": 256, "k": 384, **few}, on)


def test_the_rungs_with_wgmma_give_the_same_bits():
    size = {"m": 256, "n": 256, "k": 192}
    a, b = gemm.inputs(5, **size)
    expected = gemm.build(**size).run(a, b).view(np.uint16)
    for name in RUNGS[1:]:
        np.testing.assert_array_equal(rung(name).build(**size).run(a, b).view(np.uint16), expected, err_msg=name)


def test_persistent_clusters_take_every_tile_once():
    """Six pairs of rows in two columns for three clusters: bands, and tasks that do not divide evenly."""
    for name in RUNGS[6:]:
        assert_meets_reference(rung(name), {"m": 1280, "n": 512, "k": 64, "ctas": 6})


#: (what a line of gemm_6_multicast begins with, which of its occurrences, of which outcomes one must be reported)
OMISSIONS = [
    ("tk.cluster.sync()", 0, {"race", "KernelError", "barrier-misuse", "DeadlockError"}),
    ("tk.cluster.sync()", 1, {"lifetime"}),
    ("tk.wait(empty", 0, {"race", "KernelError", "over-arrival"}),
    ("tk.tma.cluster.arrive(empty", 0, {"DeadlockError"}),
    ("tk.tma.expect_bytes(full", 0, {"DeadlockError"}),
    ("tk.tma.cluster.load_async(part", 0, {"DeadlockError"}),
    ("tk.wait(full", 0, {"race", "KernelError"}),
    ("tk.warpgroup.mma_async_wait", 0, {"race", "register-race"}),
]


@pytest.mark.parametrize("call, occurrence, outcomes", OMISSIONS)
def test_every_omission_in_a_cluster_is_noticed(call, occurrence, outcomes):
    module = rung("gemm_6_multicast")
    mutant = without(module, module.build(stages=2), call, occurrence)
    assert outcomes & noticed(mutant, *module.inputs(1))


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("gemm_1_mma_sync", {"m": 40}, "m must be a multiple of 32, not 40"),
        ("gemm_2_wgmma", {"k": 0}, "k must be a multiple of 64, not 0"),
        ("gemm_4_pipeline", {"stages": 13}, "stages must be from 1 to 12, not 13"),
        ("gemm_5_two_consumers", {"n": 128}, "n must be a multiple of 256, not 128"),
        ("gemm_6_multicast", {"m": 128}, "m must be a multiple of 256, not 128"),
        ("gemm_7_persistent", {"ctas": 5}, "ctas must be a multiple of 2, not 5"),
        ("gemm_8_tma_store", {"stages": 1}, "stages must be from 2 to 4, not 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused(name, config, message):
    with pytest.raises(UsageError) as error:
        rung(name).build(**config)
    assert error.value.message == message
