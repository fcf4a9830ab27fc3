"""The page about the language: its programs run, and its reference is what the docstrings say."""

import re
from pathlib import Path

import pytest

from h100sim import tk
from h100sim.tk.reference import SPACES, described, operations, reference

PAGE = (Path(__file__).parents[2] / "docs" / "tk.md").read_text()


def test_the_programs_of_the_page_run(tmp_path, capsys):
    """The DSL reads its source lines, so each program stands in a file of its own."""
    space = {"__name__": "page"}
    for n, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.S)):
        path = tmp_path / f"page_{n}.py"
        path.write_text(block)
        exec(compile(block, str(path), "exec", dont_inherit=True), space)
    kernels = [value for value in space.values() if isinstance(value, tk.Kernel)]
    assert [kernel.name for kernel in kernels] == ["scaled_product", "doubled"]
    assert all(kernel.last_run.hazards == [] for kernel in kernels)
    assert "wgmma.mma_async" in capsys.readouterr().out


def test_the_reference_is_that_of_the_docstrings():
    assert PAGE.split("<!-- reference -->\n", 1)[1].strip() == reference().strip()


@pytest.mark.parametrize("space", SPACES)
def test_every_operation_is_described(space):
    assert operations(space)
    for name in operations(space):
        does, ptx = described(space, name)
        assert does and "PTX:" not in does and not ptx.endswith(".")


def test_names_in_the_text_exist():
    for name in re.findall(r"`tk\.([a-z_]\w*)", PAGE.split("## Reference", 1)[0]):
        assert hasattr(tk, name), name
