"""What a kernel says about the PTX that its Python lines became."""

import pytest

import tk_programs
from h100sim import tk


@tk.kernel(grid=1, warpgroups=1)
def small(X: tk.gl(tk.bf16, 64, 64), Y: tk.gl(tk.bf16, 64, 64)):
    tile, acc = tk.st(tk.bf16, 64, 64), tk.rt(tk.fl, 16, 64)
    tk.warpgroup.load(tile, X, (0, 0))
    tk.sync()
    tk.warpgroup.mm_AB(acc, tile, tile)
    tk.warpgroup.mma_async_wait()
    for part in range(2):
        tk.warp.mul(acc, acc, 2.0 + part)
    tk.warpgroup.store(Y, acc, (0, 0))


def line_of(explanation, text):
    return next(line for line in explanation.lines if text in line.source)


def test_lines_are_explained_in_order_and_shortened(capsys):
    explanation = small.explain()
    printed = capsys.readouterr().out
    assert printed == f"{explanation}\n"
    first = small.explain(show=False).lines[0].line
    text = printed.splitlines()
    at = text.index(f"test_explain.py:{first + 5}: tk.warpgroup.mm_AB(acc, tile, tile)")
    assert "    wgmma.fence.sync.aligned;" in text[at:]
    assert f"test_explain.py:{first + 4}: tk.sync()" in text[:at]
    (products,) = (x for x in text[at:] if "and 3 more wgmma" in x)
    opcode = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
    assert products.startswith(f"    {opcode} {{%acc_0 ... %acc_31}}, ") and products.endswith(f"// and 3 more {opcode}")
    assert repr(explanation).startswith("<Explanation of small: ")


def test_every_instruction_is_explained_once():
    explanation = small.explain(show=False, full=True)
    numbers = [n for line in explanation.lines for n in line.numbers]
    assert sorted(numbers) == sorted(n for n in small.source_map if small.ptx.split("\n")[n - 1].strip().endswith(";"))
    assert str(explanation).count("mul.rn.f32") == 2 * 32
    assert "..." not in str(explanation)
    multiplied = line_of(explanation, "tk.warp.mul")
    assert len(multiplied.instructions) == 64 and {i.split()[0] for i in multiplied.instructions} == {"mul.rn.f32"}


def test_one_line_can_be_asked_for():
    line = line_of(small.explain(show=False), "mma_async_wait").line
    assert str(small.explain(line, show=False)).splitlines()[1:] == ["    wgmma.wait_group.sync.aligned 0;"]


def test_notebooks_get_a_table():
    table = small.explain(show=False)._repr_html_()
    assert table.startswith("<table><caption>small</caption><tr><th>line</th>") and table.endswith("</table>")
    assert "<code>tk.sync()</code></td><td><pre>bar.sync 0;</pre>" in table
    assert table.count("<tr>") == 1 + len(small.explain(show=False).lines)


@pytest.mark.parametrize("name", ["gemm", "attention"])
def test_programs_are_explained(name):
    module = getattr(tk_programs, name)
    explanation = module.build().explain(show=False)
    assert {line.file for line in explanation.lines} == {module.__file__}
    assert line_of(explanation, "tk.tma.load_async(").instructions[-1].startswith("cp.async.bulk.tensor.5d")
