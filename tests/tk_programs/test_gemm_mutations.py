"""The GEMM without one of its synchronising calls: every omission must be noticed.

Two stages and two CTAs for four tiles make every call matter: slots are used again, and so is the tile of C.
"""

import dataclasses

import pytest

import tk_programs
from h100sim.errors import DeadlockError, KernelError

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


def without(kernel, call, occurrence):
    """Return the kernel without the PTX of one Python line: the given occurrence of ``call`` in the program."""
    with open(tk_programs.gemm.__file__) as source:
        lines = [n for n, text in enumerate(source, 1) if text.strip().startswith(call)]
    ptx = kernel.ptx.splitlines()
    for n, (_, line) in kernel.source_map.items():
        if line == lines[occurrence]:
            ptx[n - 1] = ""
    return dataclasses.replace(kernel, ptx="\n".join(ptx))


def test_nothing_is_reported_when_nothing_is_missing():
    kernel = tk_programs.gemm.build(**CONFIG)
    kernel.run(*tk_programs.gemm.inputs(1))
    assert kernel.last_run.hazards == []


@pytest.mark.parametrize("call, occurrence, outcome", OMISSIONS)
def test_every_omission_is_noticed(call, occurrence, outcome):
    kernel = without(tk_programs.gemm.build(**CONFIG), call, occurrence)
    inputs = tk_programs.gemm.inputs(1)
    try:
        kernel.run(*inputs, max_cycles=200_000)
        noticed = {hazard.kind for hazard in kernel.last_run.hazards}
    except DeadlockError:
        noticed = {"DeadlockError"}
    except KernelError:
        noticed = {"KernelError"}
    assert outcome & noticed


def test_an_arrival_that_a_short_run_does_not_need_is_missed_all_the_same():
    """With as many stages as steps no slot is used again, and yet its release must not be forgotten."""
    kernel = without(tk_programs.gemm.build(stages=4), "tk.warpgroup.arrive", 0)
    kernel.run(*tk_programs.gemm.inputs(1))
    messages = [(hazard.kind, hazard.message) for hazard in kernel.last_run.hazards]
    assert (
        "barrier-misuse",
        "empty[0] is waited for but nobody ever arrives on it: the wait passes only while empty[0] is fresh",
    ) in messages
    whole = tk_programs.gemm.build(stages=6)
    whole.run(*tk_programs.gemm.inputs(1))
    assert whole.last_run.hazards == []
