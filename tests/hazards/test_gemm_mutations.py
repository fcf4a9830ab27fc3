"""The GEMM program with one synchronising instruction taken out: every time a hazard or an error that says so.

The other half: as it is, it gives no finding, not even a strict one.
"""

from __future__ import annotations

import copy
import re

import pytest

from h100sim.checks import Hazard
from h100sim.errors import DeadlockError, KernelError
from tk_programs import gemm

CONFIG = {"m": 128, "n": 128, "k": 512, "bm": 128, "bn": 128, "bk": 64, "stages": 3}

#: What taking out an instruction must lead to: kinds of hazard, or an error. One run has one schedule and one tile per
#: CTA: what matters for later tiles only (wait_group.read, the barrier before the next tile) is not in the list.
EXPECTED = (
    (r"mbarrier\.init", {"IllegalInstruction"}),
    (r"bar\.sync 0;", {"race"}),
    (r"mbarrier\.try_wait.*", {"race", "DeadlockError", "IllegalInstruction"}),
    (r"mbarrier\.arrive\.expect_tx", {"DeadlockError"}),
    (r"mbarrier\.arrive\.release", {"DeadlockError"}),
    (r"wgmma\.fence", {"register-race"}),
    (r"wgmma\.commit_group", {"race", "register-race"}),
    (r"wgmma\.wait_group", {"race", "register-race"}),
    (r"cp\.async\.bulk\.commit_group", {"lifetime"}),
    (r"cp\.async\.bulk\.wait_group 0", {"lifetime"}),
)


@pytest.fixture(scope="module")
def kernel():
    return gemm.build(**CONFIG)


@pytest.fixture(scope="module")
def arrays():
    return gemm.inputs(0, **CONFIG)


def outcome(kernel, arrays, ptx: str, checks: str = "on") -> tuple[set[str], list[Hazard], KernelError | None]:
    """Return what a run of changed PTX led to: kinds of hazard, or the name of the error."""
    mutant = copy.copy(kernel)
    object.__setattr__(mutant, "ptx", ptx)
    try:
        mutant.run(*arrays, on="sim", checks=checks)
    except KernelError as error:
        return {type(error).__name__}, [], error
    return {h.kind for h in mutant.last_run.hazards}, mutant.last_run.hazards, None


def without(ptx: str, pattern: str) -> list[str]:
    """Return the texts that lack one instruction each; a wait becomes one that is True at once."""
    lines = ptx.split("\n")
    found = []
    for i, line in enumerate(lines):
        if re.match(rf"\s*(@!?%\w+\s+)?{pattern}", line):
            instead = ""
            if "try_wait" in line:
                predicate = re.search(r"(%\w+),", line)
                assert predicate, "a wait must have a predicate"
                instead = f"setp.eq.u32 {predicate.group(1)}, 0, 0;"
            found.append("\n".join([*lines[:i], instead, *lines[i + 1 :]]))
    return found


@pytest.mark.parametrize("checks", ["on", "strict"])
def test_the_program_as_it_is_gives_no_finding(kernel, arrays, checks: str) -> None:
    assert outcome(kernel, arrays, kernel.ptx, checks) == (set(), [], None)


@pytest.mark.parametrize("pattern, expected", EXPECTED, ids=[pattern for pattern, _ in EXPECTED])
def test_one_instruction_less_is_found(kernel, arrays, pattern: str, expected: set[str]) -> None:
    mutants = without(kernel.ptx, pattern)
    assert mutants, f"the program must have {pattern}"
    for ptx in mutants:
        found, _, _ = outcome(kernel, arrays, ptx)
        assert found & expected, f"{pattern} taken out must lead to {expected}, not {found}"


def test_the_fence_of_the_epilogue_is_found_by_its_source_line(kernel, arrays) -> None:
    *_, last = without(kernel.ptx, r"fence\.proxy\.async")
    found, hazards, _ = outcome(kernel, arrays, last)
    assert found == {"proxy-race"}
    assert hazards[0].first is not None and hazards[0].first.where.startswith("gemm.py:")
    assert hazards[0].second.op.startswith("cp.async.bulk.tensor")


def test_a_missing_arrive_names_the_roles_and_the_barriers_of_the_dsl(kernel, arrays) -> None:
    (ptx,) = without(kernel.ptx, r"mbarrier\.arrive\.release")
    _, _, error = outcome(kernel, arrays, ptx)
    assert isinstance(error, DeadlockError)
    lines = [" ".join(line.split()) for line in error.waits]
    assert re.fullmatch(r"producer gemm.py:\d+ waits for empty\[0\] phase 0: 0 of 2 arrivals", lines[0])
    assert re.fullmatch(r"consumer 0 \(4 warps\) gemm.py:\d+ waits for full\[0\] phase 1: 0 of 1 arrivals", lines[1])
    assert any(line.startswith("cycle: producer -> empty[0] -> consumer 0 -> full[0] -> producer") for line in lines)
