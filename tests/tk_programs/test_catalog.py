"""Every program of the catalogue does what its reference says."""

import numpy as np
import pytest

import tk_programs

PROGRAMS = {program.name: program for program in tk_programs.catalog()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_meets_its_reference(name, on):
    program = PROGRAMS[name]
    kernel = program.module.build(**program.config)
    inputs = program.module.inputs(3, **program.config)
    results = kernel.run(*inputs, on=on)
    expected = program.module.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for result, (exact, tolerance) in pairs:
        assert (np.abs(result.astype(np.float64) - exact) <= tolerance).all()
    if on == "sim":
        assert kernel.last_run.hazards == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_teaches(name):
    program = PROGRAMS[name]
    assert program.teaches and program.module.__doc__


def test_an_unknown_program_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tk_programs' has no attribute 'gem'"):
        tk_programs.gem  # noqa: B018
