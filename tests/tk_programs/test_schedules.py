"""Every program in other orders that the hardware might have chosen, and as ptxas sees it."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import tk_programs

PROGRAMS = {program.name: program for program in tk_programs.catalog()}
SEEDS = (1, 2, 5)
#: Outputs to which more than two CTAs or consumers add in f32: their bits depend on who comes first.
IN_ANY_ORDER = {("attention_backward", 0)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_and_cleanness_do_not_depend_on_the_order_of_warps(name):
    program = PROGRAMS[name]
    kernel = program.module.build(**program.config)
    inputs = program.module.inputs(3, **program.config)

    def outputs(seed):
        given = kernel.run(*inputs, schedule=seed)
        assert kernel.last_run.hazards == [], f"schedule {seed}"
        return given if isinstance(given, tuple) else (given,)

    usual = outputs(0)
    for seed in SEEDS:
        for index, (here, there) in enumerate(zip(usual, outputs(seed), strict=True)):
            if (name, index) in IN_ANY_ORDER:
                np.testing.assert_allclose(here, there, atol=1e-4)
            else:
                np.testing.assert_array_equal(here.view(np.uint8), there.view(np.uint8), err_msg=f"schedule {seed}")


#: Settings of other sizes than the catalogue's, where registers are scarcer.
LARGER = [
    ("attention", {"d": 128, "order": True, "overlap": True}),
    ("attention", {"d": 128, "n": 300, "causal": True, "overlap": True}),
    ("attention_backward", {"d": 128, "causal": True}),
    ("rotary", {"d": 128}),
    ("gemm", {"bm": 128, "bn": 256}),
    ("gemm", {"bm": 192, "bn": 192, "m": 192, "n": 192}),
]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("name, config", [*((name, {}) for name in PROGRAMS), *LARGER], ids=str)
def test_ptxas_neither_spills_nor_serialises(name, config, tmp_path):
    """ptxas says so where it cannot keep products running ("Potential Performance Loss") or runs out of registers."""
    kernel = PROGRAMS[name].module.build(**{**PROGRAMS[name].config, **config})
    (tmp_path / "kernel.ptx").write_text(kernel.ptx)
    command = ["ptxas", "-arch=sm_90a", "-v", str(tmp_path / "kernel.ptx"), "-o", str(tmp_path / "kernel.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "Potential Performance Loss" not in said
    assert " 0 bytes spill stores, 0 bytes spill loads" in said
