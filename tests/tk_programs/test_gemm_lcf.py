"""The GEMM by the template: the bits of the GEMM by hand, whatever lies over what, and every omission noticed."""

from __future__ import annotations

import numpy as np
import pytest

from h100sim.errors import UsageError
from tests.tk_programs.meets import assert_meets_reference
from tests.tk_programs.omissions import noticed, without
from tk_programs import gemm, gemm_lcf


@pytest.mark.parametrize(
    "config",
    [
        {"m": 256, "n": 512, "k": 64, "ctas": 1}, {"m": 384, "n": 256, "k": 448, "stages": 2, "ctas": 2},
        {"m": 192, "n": 256, "k": 320, "consumers": 1, "ctas": 2}, {"m": 128, "n": 256, "k": 128, "stages": 1},
    ],
    ids=str,
)  # fmt: skip
def test_tasks_stages_and_consumers(config, on):
    assert_meets_reference(gemm_lcf, config, on)


def test_the_template_gives_the_bits_of_the_program_by_hand():
    size = {"m": 256, "n": 256, "k": 320}
    a, b = gemm.inputs(5, **size)
    expected = gemm.build(**size).run(a, b).view(np.uint16)
    np.testing.assert_array_equal(gemm_lcf.build(**size, ctas=1).run(a, b).view(np.uint16), expected)


#: (what a line of the program begins with, of which outcomes one must be reported)
OMISSIONS = [
    ("tk.tma.expect(", {"DeadlockError"}),
    ("tk.tma.load_async(args.input.b", {"DeadlockError"}),
    ("tk.warpgroup.mma_async_wait()", {"race", "register-race"}),
    ("tk.warpgroup.arrive(args.inputs_finished)", {"DeadlockError"}),
    ("tk.warpgroup.sync(", {"race"}),
    ("tk.tma.store_async_read_wait()", {"race"}),
    ("tk.arrive(args.finish_finished)", {"DeadlockError"}),
]


@pytest.mark.parametrize("call, outcome", OMISSIONS)
def test_every_omission_is_noticed(call, outcome):
    config = {"m": 256, "n": 512, "k": 320, "ctas": 1}
    broken = without(gemm_lcf, gemm_lcf.build(**config), call)
    assert outcome & noticed(broken, *gemm_lcf.inputs(1, **config))


@pytest.mark.parametrize(
    "config, message",
    [
        ({"m": 100}, "m must be a multiple of 128, not 100"),
        ({"consumers": 3, "m": 192}, "consumers must be 1 or 2 (256 columns of C take 128 registers of a thread), not 3"),
        ({"stages": 5}, "shared memory of a CTA must be at most 232,448 bytes, not 247,808 with 5 of input_block"),
    ],
)
def test_what_does_not_fit_is_refused(config, message):
    with pytest.raises(UsageError) as error:
        gemm_lcf.build(**config)
    assert error.value.message == message
