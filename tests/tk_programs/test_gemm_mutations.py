"""The GEMM without one of its synchronising calls: every omission must be noticed.

Two stages and two CTAs for four tiles make every call matter: slots are used again, and so is the tile of C.
"""

import pytest

import tk_programs
from tests.tk_programs.omissions import noticed, without

CONFIG = {"stages": 2, "ctas": 2}

#: (a call, which of its occurrences, of which hazards or exceptions one must be reported; which one may depend on timing)
OMISSIONS = [
    ("tk.sync()", 0, {"race"}),
    ("tk.wait(empty", 0, {"race", "KernelError"}),
    ("tk.tma.expect_bytes", 0, {"DeadlockError"}),
    ("tk.tma.load_async(b", 0, {"DeadlockError"}),
    ("tk.wait(full", 0, {"race", "KernelError"}),
    ("tk.warpgroup.mma_async_wait", 0, {"race", "register-race"}),
    ("tk.warpgroup.arrive", 0, {"DeadlockError"}),
    ("tk.tma.store_async_read_wait", 0, {"race"}),
    ("tk.warpgroup.sync", 0, {"race"}),
    ("tk.warpgroup.sync", 1, {"race"}),
    ("tk.tma.store_async_wait", 0, {"lifetime"}),
]


def test_nothing_is_reported_when_nothing_is_missing():
    kernel = tk_programs.gemm.build(**CONFIG)
    kernel.run(*tk_programs.gemm.inputs(1))
    assert kernel.last_run.hazards == []


@pytest.mark.parametrize("call, occurrence, outcome", OMISSIONS)
def test_every_omission_is_noticed(call, occurrence, outcome):
    kernel = without(tk_programs.gemm, tk_programs.gemm.build(**CONFIG), call, occurrence)
    assert outcome & noticed(kernel, *tk_programs.gemm.inputs(1))


@pytest.mark.parametrize(
    "call, message",
    [
        ("tk.wait(empty", "empty[0] is arrived on but nobody ever waits for it: what the arrival is for happens without it"),
        (
            "tk.warpgroup.arrive",
            "empty[0] is waited for but nobody ever arrives on it: the wait passes only while empty[0] is fresh",
        ),
    ],
)
def test_what_a_short_run_does_not_need_is_missed_all_the_same(call, message):
    """With as many stages as steps no slot is used again, and yet its release must not be forgotten."""
    kernel = without(tk_programs.gemm, tk_programs.gemm.build(stages=4), call, 0)
    kernel.run(*tk_programs.gemm.inputs(1))
    assert [(hazard.kind, hazard.message) for hazard in kernel.last_run.hazards] == [("barrier-misuse", message)]
