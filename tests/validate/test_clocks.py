"""Clock records: every way into and out of a kernel is covered, and the text stays what the assembler accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import h100sim
from h100sim.errors import UsageError
from validate import clocks

KERNEL = """\
.version 8.6
.target sm_90a
.address_size 64

.visible .entry leaves(.param .u64 out, .param .u32 n)
{
    .reg .pred %p1;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    // entry
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 ret;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r2;
DONE: ret;
}

.visible .entry other()
{
    exit;
}
"""


def test_every_way_out_is_recorded_without_atomic_operations() -> None:
    text = clocks.add_clock_records(KERNEL, "leaves", threads=128)
    assert text.count("st.global.v2.u32 [%clk_a], {%clk_start, %clk_end};") == 2
    assert text.count("mov.u32 %clk_start, %clock;") == 1 and "red." not in text and "globaltimer" not in text
    assert f".global .align 8 .b8 {clocks.VARIABLE}[1024];" in text
    assert "@!%p1 bra H100SIM_CLOCK_1;" in text


def test_every_thread_writes_its_own_record() -> None:
    module = h100sim.RawModule(code=clocks.add_clock_records(KERNEL, "leaves", threads=3 * 64))
    device = h100sim.Device("h200-sxm")
    module.get_function("leaves")((3,), (8, 4, 2), (np.zeros(64, np.uint32), np.uint32(40)), device=device)
    records = module.get_global(clocks.VARIABLE, device).numpy().view(clocks.RECORD).reshape(3, 64)
    cycles = clocks.cycles_of(records)
    assert cycles.shape == (3,) and (cycles > 20).all() and (records["end"] > records["start"]).all()


def test_the_other_kernel_is_left_alone() -> None:
    text = clocks.add_clock_records(KERNEL, "leaves", threads=32)
    assert text[text.index(".entry other") :] == KERNEL[KERNEL.index(".entry other") :]


def test_removing_the_records_gives_the_text_back() -> None:
    """What was added stands in blocks of its own, but for two registers."""
    text = clocks.add_clock_records(KERNEL, "leaves", threads=32)
    without = re.sub(r"\n\.visible \.global [^\n]*\n", "", re.sub(r"    \{\n.*?\n    \}\n", "", text, flags=re.S))
    without = without.replace("\n    .reg .b32 %clk_start, %clk_end;", "")
    assert [line for line in KERNEL.split() if line not in without.split()] == ["@%p1"]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("kernel", ["leaves", "other"])
def test_the_assembler_accepts_it(kernel: str, tmp_path: Path) -> None:
    path = tmp_path / "clocks.ptx"
    path.write_text(clocks.add_clock_records(KERNEL, kernel, threads=128))
    done = subprocess.run(["ptxas", "-arch=sm_90a", path, "-o", "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(UsageError, match=r"^kernel must be an entry of the module, not nowhere$"):
        clocks.add_clock_records(KERNEL, "nowhere", threads=32)


def test_cycles_are_last_ends_minus_first_starts_and_missing_records_are_told() -> None:
    records = np.zeros((2, 3), clocks.RECORD)
    records["start"], records["end"] = [[5, 6, 7], [2**32 - 4, 2**32 - 5, 1]], [[15, 25, 11], [4, 10, 3]]
    assert clocks.cycles_of(records).tolist() == [20, 15], "also where the clock begins again"
    records[1, 2] = (0, 0)
    with pytest.raises(UsageError, match=r"^CTA must have recorded the end of its threads, not left one at 0 \(CTA 1\)$"):
        clocks.cycles_of(records)
