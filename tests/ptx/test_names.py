"""Scopes, ranges of registers and unique names."""

from hypothesis import given
from hypothesis import strategies as st

from h100sim.ptx.module import Reg, Vector
from h100sim.ptx.names import FunctionNames, Scope, split_number

STEMS = st.sampled_from(["%r", "r", "%rd", "a1b", "_x"])


@given(STEMS, st.integers(0, 200), st.integers(0, 250))
def test_a_range_declares_exactly_its_members(stem: str, count: int, number: int) -> None:
    names = FunctionNames(
        (),
    )
    names.declare_range(stem, "b32", 1, count)
    found = names.find(f"{stem}{number}")
    assert (found is not None) == (number < count)
    assert names.has(f"{stem}{number}") == (number < count)
    assert len(names.registers) == (number < count)


@given(STEMS, st.integers(0, 9), st.integers(0, 12))
def test_a_range_and_a_single_name_overlap_in_either_order(stem: str, number: int, count: int) -> None:
    single_first, range_first = FunctionNames(()), FunctionNames(())
    single_first.declare_register(f"{stem}{number}", "b32", 1)
    range_first.declare_range(stem, "b32", 1, count)
    assert single_first.overlaps(stem, count) == range_first.has(f"{stem}{number}") == (number < count)


@given(st.lists(st.tuples(st.sampled_from("({)"), st.integers(0, 12), st.booleans()), max_size=30))
def test_lookups_find_the_innermost_declaration(steps: list[tuple[str, int, bool]]) -> None:
    """Against a plain model: a stack of dictionaries from names to the scope and the number of the declaration."""
    names = FunctionNames(())
    model: list[dict[str, int]] = [{}]
    declared: dict[int, int] = {}
    for step, (kind, number, as_range) in enumerate(steps):
        if kind == "(":
            names.scopes.append(Scope())
            model.append({})
        elif kind == ")" and len(model) > 1:
            names.scopes.pop()
            model.pop()
        elif as_range and not any(name in model[-1] for name in (f"r{k}" for k in range(number))) and "r<" not in model[-1]:
            assert not names.overlaps("r", number)
            names.declare_range("r", "b32", 1, number)
            model[-1] |= {f"r{k}": step * 100 + k for k in range(number)} | {"r<": 0}
        elif not as_range and f"r{number}" not in model[-1]:
            names.declare_register(f"r{number}", "b32", 1)
            model[-1][f"r{number}"] = step * 100 + number
        for k in range(13):
            expected = next((scope[f"r{k}"] for scope in reversed(model) if f"r{k}" in scope), None)
            found = names.find(f"r{k}")
            assert (found is None) == (expected is None)
            if expected is not None and isinstance(found, Reg):
                assert declared.setdefault(expected, found.register.index) == found.register.index
    assert len({register.name for register in names.registers}) == len(names.registers)


def test_leading_zeros_name_the_same_register() -> None:
    names = FunctionNames(())
    names.declare_range("r", "b32", 1, 20)
    assert names.find("r01") is names.find("r1")
    assert split_number("r007") == ("r", 7)
    assert split_number("r") == ("r", -1)


def test_a_vector_register_is_scalars() -> None:
    names = FunctionNames(())
    names.declare_range("v", "f32", 4, 3)
    vector = names.find("v2")
    assert isinstance(vector, Vector)
    assert [element.register.name for element in vector.elements if isinstance(element, Reg)] == [
        "v2$x",
        "v2$y",
        "v2$z",
        "v2$w",
    ]
    assert names.find("v2.y") == names.find("v2.g") == vector.elements[1]
    assert names.find("v3.x") is None


def test_names_stay_apart_from_each_other_and_from_the_module() -> None:
    names = FunctionNames({"smem"})
    assert [names.unique(name) for name in ("DONE", "DONE", "DONE$2", "DONE", "smem")] == [
        "DONE", "DONE$2", "DONE$2$2", "DONE$3", "smem$2",
    ]  # fmt: skip
