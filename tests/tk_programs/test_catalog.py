"""Every program of the catalogue does what its reference says."""

import pytest

import tk_programs
from tests.tk_programs.meets import assert_meets_reference

PROGRAMS = {program.name: program for program in tk_programs.catalog()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_meets_its_reference(name, on):
    program = PROGRAMS[name]
    assert_meets_reference(program.module, program.config, on, seed=3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_teaches(name):
    program = PROGRAMS[name]
    assert program.teaches and program.module.__doc__


def test_an_unknown_program_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tk_programs' has no attribute 'gem'"):
        tk_programs.gem  # noqa: B018
